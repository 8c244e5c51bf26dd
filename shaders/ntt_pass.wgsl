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
// The first half of the powers of the root of order 2^${TILE_LOG}, or of the vector's if that is
// shorter; in working form, as are the roots of mode 3.
@group(0) @binding(3) var<storage, read_write> stage_roots: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> powers_low: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> powers_high: array<vec4<u32>>;
#import scalar_field
#import scalar_field_slack
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

// Two stages over four settled values, with settled results. The first index of y says which pair of
// sums or differences of x0, x1, x2, x3 it comes from: 0 and 1 from x0 + x2, 2 and 3 from x0 − x2.
struct Quad { y0: Fr, y1: Fr, y2: Fr, y3: Fr }

// Wide butterflies of x0, x2 and x1, x3, then narrow ones: (x + y, (x − y)·root).
fn quad_in_frequency(x0: Fr, x1: Fr, x2: Fr, x3: Fr, wide: Fr, wide_next: Fr, narrow: Fr) -> Quad {
  let a = fr_add_slack(x0, x2);
  let b = fr_add_loose(x1, x3);
  let c = fr_mul(fr_sub_4p(x0, x2), wide);
  let d = fr_mul(fr_sub_4p(x1, x3), wide_next);
#if RSLACK >= 70
  let y2 = fr_add_slack(c, d);
#else
  let y2 = fr_settle_slack(fr_add_loose(c, d));
#end
  return Quad(
    fr_settle_slack(fr_add_loose(a, b)),
    fr_mul(fr_sub_8p(a, b), narrow),
    y2,
    fr_mul(fr_sub_4p(c, d), narrow),
  );
}
// Narrow butterflies of x0, x2 and x1, x3, then wide ones: (x + y·root, x − y·root).
fn quad_in_time(x0: Fr, x1: Fr, x2: Fr, x3: Fr, narrow: Fr, wide: Fr, wide_next: Fr) -> Quad {
  let m = fr_mul(x2, narrow);
  let n = fr_mul(x3, narrow);
  let a = fr_add_slack(x0, m);
  let c = fr_sub_settled(x0, m);
  let b = fr_mul(fr_add_slack(x1, n), wide);
  let d = fr_mul(fr_sub_4p(x1, n), wide_next);
  return Quad(
    fr_settle_slack(fr_add_loose(a, b)),
    fr_sub_settled(a, b),
    fr_settle_slack(fr_add_loose(c, d)),
    fr_sub_settled(c, d),
  );
}
// Either, where all roots are 1 but that of x1 − x3.
fn quad_of_neighbours(x0: Fr, x1: Fr, x2: Fr, x3: Fr, root: Fr) -> Quad {
  let a = fr_add_slack(x0, x2);
  let b = fr_settle_slack(fr_add_loose(x1, x3));
  let c = fr_sub_settled(x0, x2);
  let d = fr_mul(fr_sub_4p(x1, x3), root);
  return Quad(
    fr_settle_slack(fr_add_loose(a, b)),
    fr_sub_settled(a, b),
    fr_settle_slack(fr_add_loose(c, d)),
    fr_sub_settled(c, d),
  );
}

// The root of a butterfly of row j within its group of 2^(d + 1) rows, in column `within` of its
// block: the j-th power of the root of order 2^(d + 1), in mode 3 with the column's part.
fn stage_root(j: u32, d: u32, within: u32) -> Fr {
  if (params.power_mode == 3u) {
    let offset = (j << params.stride_log) + within;
    return fr_load_powers_low(offset << (params.low_log - 1u - d - params.stride_log));
  }
  return fr_load_stage_roots(j << (min(params.log_n, ${TILE_LOG}u) - 1u - d));
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
  // Two stages at a time: half the traffic of the tile, half the barriers. A stage left over is the
  // widest one, so that the others end in the one whose roots are nearly all 1.
  let in_time = params.in_time == 1u;
  let left_over = params.stages & 1u;
  let steps = (params.stages + 1u) >> 1u;
  for (var step = 0u; step < steps; step++) {
    workgroupBarrier();
    if (left_over == 1u && step == select(0u, steps - 1u, in_time)) {
      let d = params.stages - 1u;
      for (var k = local; k < (size >> 1u); k += THREADS) {
        let i0 = tile_index(k, d, 1u);
        let i1 = i0 + (1u << (d + params.columns_log));
        let root = stage_root(row_index(k, d), d, column_within(g, k));
        let x = tile_load(i0);
        let y = tile_load(i1);
        // One multiplication site: of y before, or of the difference after.
        var factor = y;
        if (!in_time) { factor = fr_sub_4p(x, y); }
        let product = fr_mul(factor, root);
        if (in_time) {
          tile_store(i0, fr_settle_slack(fr_add_loose(x, product)));
          tile_store(i1, fr_sub_settled(x, product));
        } else {
          tile_store(i0, fr_settle_slack(fr_add_loose(x, y)));
          tile_store(i1, product);
        }
      }
      continue;
    }
    // log2 of the distances between the rows of the narrow and of the wide butterflies.
    let e = 2u * select(steps - 1u - step, step, in_time);
    let d = e + 1u;
    // In time the narrow butterflies come first: rows 1 and 2 change places, so that the first
    // two butterflies are always of elements 0, 2 and 1, 3.
    let at1 = 1u << (select(e, d, in_time) + params.columns_log);
    let at2 = 1u << (select(d, e, in_time) + params.columns_log);
    // Of neighbours all roots but one are 1.
    let neighbours = params.stride_log == 0u && e == 0u;
    for (var k = local; k < (size >> 2u); k += THREADS) {
      let i0 = tile_index(k, e, 2u);
      let j = row_index(k, e);
      let within = column_within(g, k);
      let x0 = tile_load(i0);
      let x1 = tile_load(i0 + at1);
      let x2 = tile_load(i0 + at2);
      let x3 = tile_load(i0 + at1 + at2);
      var y: Quad;
      if (neighbours) {
        y = quad_of_neighbours(x0, x1, x2, x3, stage_root(1u, d, within));
      } else {
        let narrow = stage_root(j, e, within);
        let wide = stage_root(j, d, within);
        let wide_next = stage_root(j + (1u << e), d, within);
        if (in_time) {
          y = quad_in_time(x0, x1, x2, x3, narrow, wide, wide_next);
        } else {
          y = quad_in_frequency(x0, x1, x2, x3, wide, wide_next, narrow);
        }
      }
      tile_store(i0, y.y0);
      tile_store(i0 + at1, y.y1);
      tile_store(i0 + at2, y.y2);
      tile_store(i0 + at1 + at2, y.y3);
    }
  }
  // What other passes read on stays settled.
  let complete = select(params.stride_log == 0u, params.stages + params.stride_log == params.log_n, in_time);
  workgroupBarrier();
  for (var i = local; i < size; i += THREADS) {
    let pos = position(g, i);
    var a = tile_load(i);
    if (params.in_time == 0u && has_powers()) { a = times_power(a, i, pos); }
    var to = pos;
    if (params.store_reversed == 1u) { to = reverse_low_bits(pos, params.log_n); }
    if (complete) {
      // Below 2.2p, below 1.2p, canonical.
      fr_store_target_(to, fr_canon(a));
    } else {
      fr_store_lazy_target_(to, a);
    }
  }
}
