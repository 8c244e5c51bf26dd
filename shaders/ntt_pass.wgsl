// One pass of a number-theoretic transform over tiles in workgroup memory.
//
// A pass does the stages of the sub-transform of length 2^stages at stride 2^stride_log of every
// block of 2^(stages + stride_log) elements. Decimation in frequency (inverse = any root table)
// runs the passes from the widest block down and takes natural to bit-reversed order; decimation
// in time runs them back and takes bit-reversed to natural order.
//
// What a strided pass has besides the roots of its rows: either its butterflies take their roots by
// the position in the whole block, from a table of those of the largest block (power_mode 3), and
// every product is a butterfly's; or, for blocks whose table would be large, every element is
// multiplied by a power of the root between passes (power_mode 1; Gentleman, Sande 1966; Bailey
// 1990, "FFTs in external or hierarchical memory"), by two factors from short tables,
// w^e = high[e >> h]·low[e mod 2^h]. Mode 2 multiplies so by a power to the element's natural index
// (a coset shift with the scaling folded into the table); 0: nothing.
#import launch
struct Params {
  launch: Launch,
  log_n: u32,
  stages: u32,
  stride_log: u32,
  // 0: decimation in frequency, powers after the stages; 1: in time, powers before.
  in_time: u32,
  power_mode: u32,
  // Shift between the halves of the tables' exponent. Mode 3: log2 of the order of the root whose
  // powers powers_low has, half of them.
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

fn has_powers() -> bool { return params.power_mode == 1u || params.power_mode == 2u; }

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

struct Pair { x: Fr, y: Fr }

// In frequency: (x + y, (x − y)·w); in time: (x + y·w, x − y·w).
fn butterfly(x: Fr, y: Fr, root: Fr) -> Pair {
  if (params.in_time == 1u) {
    let m = fr_mul(y, root);
    return Pair(fr_add(x, m), fr_sub(x, m));
  }
  return Pair(fr_add(x, y), fr_mul(fr_sub(x, y), root));
}

// The root of a butterfly of row j within its group of 2^(d + 1) rows, in column `within` of its
// block: the j-th power of the root of order 2^(d + 1), in mode 3 with the column's part.
fn stage_root(j: u32, d: u32, within: u32) -> Fr {
  if (params.power_mode == 3u) {
    let offset = (j << params.stride_log) + within;
    return fr_load_up_powers_low(offset << (params.low_log - 1u - d - params.stride_log));
  }
  return fr_load_up_stage_roots(j << (${TILE_LOG - 1}u - d));
}
// The column of the block that the k-th butterfly of tile g is in.
fn column_within(g: u32, k: u32) -> u32 {
  let column = (g << params.columns_log) + (k & ((1u << params.columns_log) - 1u));
  return column & ((1u << params.stride_log) - 1u);
}

// Of the k-th butterfly over rows 2^d apart, of 2^radix_log elements: the row within its group, and
// the index of its first element.
fn row_index(k: u32, d: u32) -> u32 { return (k >> params.columns_log) & ((1u << d) - 1u); }
fn tile_index(k: u32, d: u32, radix_log: u32) -> u32 {
  let column = k & ((1u << params.columns_log) - 1u);
  let row = (k >> params.columns_log) >> d;
  return (((row << (d + radix_log)) + row_index(k, d)) << params.columns_log) + column;
}

@compute @workgroup_size(${NTT_THREADS})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  if (g >= params.launch.end_group) { return; }
  let size = 1u << (params.stages + params.columns_log);
  for (var i = local; i < size; i += THREADS) {
    let pos = position(g, i);
    var a = fr_load_source(pos);
    if (params.in_time == 1u && has_powers()) { a = times_power(a, i, pos); }
    tile_store(i, a);
  }
  // An odd stage out first, then two stages at a time: half the traffic of the tile, half the
  // barriers.
  let in_time = params.in_time == 1u;
  let odd = params.stages & 1u;
  if (odd == 1u) {
    workgroupBarrier();
    let d = select(params.stages - 1u, 0u, in_time);
    for (var k = local; k < (size >> 1u); k += THREADS) {
      let i0 = tile_index(k, d, 1u);
      let i1 = i0 + (1u << (d + params.columns_log));
      let pair = butterfly(tile_load(i0), tile_load(i1), stage_root(row_index(k, d), d, column_within(g, k)));
      tile_store(i0, pair.x);
      tile_store(i1, pair.y);
    }
  }
  for (var s = odd; s < params.stages; s += 2u) {
    workgroupBarrier();
    // log2 of the distances between the rows of the narrow and of the wide butterflies.
    let e = select(params.stages - 2u - s, s, in_time);
    let d = e + 1u;
    // In time the narrow butterflies come first: rows 1 and 2 change places, so that the first
    // two butterflies are always of elements 0, 2 and 1, 3.
    let at1 = 1u << (select(e, d, in_time) + params.columns_log);
    let at2 = 1u << (select(d, e, in_time) + params.columns_log);
    for (var k = local; k < (size >> 2u); k += THREADS) {
      let i0 = tile_index(k, e, 2u);
      let j = row_index(k, e);
      let within = column_within(g, k);
      let narrow = stage_root(j, e, within);
      let wide = stage_root(j, d, within);
      let wide_next = stage_root(j + (1u << e), d, within);
      var root0 = wide;
      var root1 = wide_next;
      var root2 = narrow;
      var root3 = narrow;
      if (in_time) {
        root0 = narrow;
        root1 = narrow;
        root2 = wide;
        root3 = wide_next;
      }
      let even = butterfly(tile_load(i0), tile_load(i0 + at2), root0);
      let odds = butterfly(tile_load(i0 + at1), tile_load(i0 + at1 + at2), root1);
      let upper = butterfly(even.x, odds.x, root2);
      let lower = butterfly(even.y, odds.y, root3);
      tile_store(i0, upper.x);
      tile_store(i0 + at1, upper.y);
      tile_store(i0 + at2, lower.x);
      tile_store(i0 + at1 + at2, lower.y);
    }
  }
  workgroupBarrier();
  for (var i = local; i < size; i += THREADS) {
    let pos = position(g, i);
    var a = tile_load(i);
    if (params.in_time == 0u && has_powers()) { a = times_power(a, i, pos); }
    var to = pos;
    if (params.store_reversed == 1u) { to = reverse_low_bits(pos, params.log_n); }
    fr_store_target_(to, a);
  }
}
