// One pass of a number-theoretic transform over tiles in workgroup memory.
//
// A pass does the stages of the sub-transform of length 2^stages at stride 2^stride_log of every
// block of 2^(stages + stride_log) elements. Decimation in frequency (inverse = any root table)
// runs the passes from the widest block down and takes natural to bit-reversed order; decimation
// in time runs them back and takes bit-reversed to natural order. Between passes every element is
// multiplied by a power of the root (Gentleman, Sande 1966; Bailey 1990, "FFTs in external or
// hierarchical memory"), here by two factors from short tables: w^e = high[e >> h]·low[e mod 2^h].
//
// Powers (power_mode): 0 none; 1 between passes; 2 the element's natural index (a coset shift with
// the scaling folded into the table).
#import launch
struct Params {
  launch: Launch,
  log_n: u32,
  stages: u32,
  stride_log: u32,
  // 0: decimation in frequency, powers after the stages; 1: in time, powers before.
  in_time: u32,
  power_mode: u32,
  // Shift between the halves of the tables' exponent.
  low_log: u32,
  // Store to the bit-reversed index.
  store_reversed: u32,
  columns_log: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> source: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> target_: array<vec4<u32>>;
// Powers 0 … 2^(${TILE_LOG} − 1) − 1 of the root of order 2^${TILE_LOG}.
@group(0) @binding(3) var<storage, read_write> stage_roots: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> powers_low: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> powers_high: array<vec4<u32>>;
#import scalar_field
#import buffer_fr BUF=source
#import buffer_fr BUF=target_
#import buffer_fr BUF=stage_roots
#import buffer_fr BUF=powers_low
#import buffer_fr BUF=powers_high

const TILE: u32 = ${1 << TILE_LOG}u;
const THREADS: u32 = ${NTT_THREADS}u;
// Two planes of half elements.
var<workgroup> tile_low: array<vec4<u32>, ${1 << TILE_LOG}>;
var<workgroup> tile_high: array<vec4<u32>, ${1 << TILE_LOG}>;

fn tile_load(i: u32) -> Fr { return fr_unpack(tile_low[i], tile_high[i]); }
fn tile_store(i: u32, a: Fr) {
  tile_low[i] = fr_pack0(a);
  tile_high[i] = fr_pack1(a);
}

fn reverse_low_bits(x: u32, bits: u32) -> u32 { return reverseBits(x) >> (32u - bits); }

// Position in the vector of element i of the tile g: rows at the stride, columns side by side.
fn position(g: u32, i: u32) -> u32 {
  let row = i >> params.columns_log;
  let column = i & ((1u << params.columns_log) - 1u);
  let columns = (g << params.columns_log) + column;
  let within = columns & ((1u << params.stride_log) - 1u);
  let block = columns >> params.stride_log;
  return (((block << params.stages) + row) << params.stride_log) + within;
}

// The exponent that element i, at pos, is multiplied with.
fn exponent(i: u32, pos: u32) -> u32 {
  if (params.power_mode == 2u) { return reverse_low_bits(pos, params.log_n); }
  let row = reverse_low_bits(i >> params.columns_log, params.stages);
  let within = pos & ((1u << params.stride_log) - 1u);
  return (row * within) << (params.log_n - params.stages - params.stride_log);
}

fn times_power(a: Fr, i: u32, pos: u32) -> Fr {
  let e = exponent(i, pos);
  // One multiplication site for both factors.
  var r = a;
  var factor = fr_load_up_powers_low(e & ((1u << params.low_log) - 1u));
  for (var k = 0u; k < 2u + params.launch.zero; k++) {
    r = fr_mul(r, factor);
    factor = fr_load_up_powers_high(e >> params.low_log);
  }
  return r;
}

@compute @workgroup_size(${NTT_THREADS})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  if (g >= params.launch.end_group) { return; }
  let size = 1u << (params.stages + params.columns_log);
  for (var i = local; i < size; i += THREADS) {
    let pos = position(g, i);
    var a = fr_load_source(pos);
    if (params.in_time == 1u && params.power_mode != 0u) { a = times_power(a, i, pos); }
    tile_store(i, a);
  }
  for (var s = 0u; s < params.stages; s++) {
    workgroupBarrier();
    // log2 of the distance between the rows of a butterfly.
    let d = select(params.stages - 1u - s, s, params.in_time == 1u);
    for (var k = local; k < (size >> 1u); k += THREADS) {
      let column = k & ((1u << params.columns_log) - 1u);
      let pair = k >> params.columns_log;
      let j = pair & ((1u << d) - 1u);
      let row = ((pair >> d) << (d + 1u)) + j;
      let i0 = (row << params.columns_log) + column;
      let i1 = i0 + (1u << (d + params.columns_log));
      let root = fr_load_up_stage_roots(j << (${TILE_LOG - 1}u - d));
      let x = tile_load(i0);
      var y = tile_load(i1);
      // In frequency: (x + y, (x − y)·w); in time: (x + w·y, x − w·y).
      var f = y;
      if (params.in_time == 0u) { f = fr_sub(x, y); }
      let m = fr_mul(f, root);
      if (params.in_time == 0u) {
        tile_store(i0, fr_add(x, y));
        tile_store(i1, m);
      } else {
        tile_store(i0, fr_add(x, m));
        tile_store(i1, fr_sub(x, m));
      }
    }
  }
  workgroupBarrier();
  for (var i = local; i < size; i += THREADS) {
    let pos = position(g, i);
    var a = tile_load(i);
    if (params.in_time == 0u && params.power_mode != 0u) { a = times_power(a, i, pos); }
    var to = pos;
    if (params.store_reversed == 1u) { to = reverse_low_bits(pos, params.log_n); }
    fr_store_target_(to, a);
  }
}
