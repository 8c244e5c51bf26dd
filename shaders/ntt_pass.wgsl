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
  power_mode: u32,
  // Shift between the halves of the tables' exponent. Mode 3: log2 of the order of the root whose
  // powers powers_low has, half of them.
  low_log: u32,
  // Store to the bit-reversed index.
  store_reversed: u32,
  columns_log: u32,
  // A part of 2^split_log, as which it has the index split_index in reversed bits: its powers are of
  // the whole vector's root and of natural indices there.
  split_log: u32,
  split_index: u32,
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

// A thread keeps four elements and exchanges them through half a tile, first their low words, then the
// high ones: workgroup memory is what limits how many workgroups a multiprocessor runs.
var<workgroup> plane: array<vec4<u32>, ${1 << TILE_LOG}>;

// Four elements of a tile, and where they are: i0, i0 + at1, i0 + at2, i0 + at1 + at2.
struct Quad { x0: Fr, x1: Fr, x2: Fr, x3: Fr }
struct Places { i0: u32, at1: u32, at2: u32 }

fn put_plane(p: Places, w0: vec4<u32>, w1: vec4<u32>, w2: vec4<u32>, w3: vec4<u32>) {
  plane[p.i0] = w0;
  plane[p.i0 + p.at1] = w1;
  plane[p.i0 + p.at2] = w2;
  plane[p.i0 + p.at1 + p.at2] = w3;
}
struct Words { w0: vec4<u32>, w1: vec4<u32>, w2: vec4<u32>, w3: vec4<u32> }
fn get_plane(p: Places) -> Words {
  return Words(plane[p.i0], plane[p.i0 + p.at1], plane[p.i0 + p.at2], plane[p.i0 + p.at1 + p.at2]);
}

// Gives away the elements of some places for those of others.
fn exchange(q: Quad, old: Places, new_: Places, active_: bool) -> Quad {
  if (active_) { put_plane(old, fr_pack0(q.x0), fr_pack0(q.x1), fr_pack0(q.x2), fr_pack0(q.x3)); }
  workgroupBarrier();
  let low = get_plane(new_);
  workgroupBarrier();
  if (active_) { put_plane(old, fr_pack1(q.x0), fr_pack1(q.x1), fr_pack1(q.x2), fr_pack1(q.x3)); }
  workgroupBarrier();
  let high = get_plane(new_);
  workgroupBarrier();
  return Quad(
    fr_unpack(low.w0, high.w0),
    fr_unpack(low.w1, high.w1),
    fr_unpack(low.w2, high.w2),
    fr_unpack(low.w3, high.w3),
  );
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
  if (params.power_mode == 2u) {
    return (reverse_low_bits(pos, params.log_n) << params.split_log) | params.split_index;
  }
  let row = reverse_low_bits(i >> params.columns_log, params.stages);
  let within = pos & ((1u << params.stride_log) - 1u);
  return (row * within) << (params.log_n + params.split_log - params.stages - params.stride_log);
}

fn has_powers() -> bool { return params.power_mode == 1u || params.power_mode == 2u; }

fn times_power(a: Fr, i: u32, pos: u32) -> Fr {
  let e = exponent(i, pos);
  // One multiplication site for both factors. The high table of one as long as the vector is 1.
  let factors = select(2u, 1u, params.low_log >= params.log_n + params.split_log) + params.launch.zero;
  var r = a;
  var factor = fr_load_up_powers_low(e & ((1u << params.low_log) - 1u));
  for (var k = 0u; k < factors; k++) {
    r = fr_mul(r, factor);
    factor = fr_load_up_powers_high(e >> params.low_log);
  }
  return r;
}

// Two stages over four settled values, with settled results: those of x0 + x2 first, then those of
// x0 − x2.
#if IN_TIME
// Narrow butterflies of x0, x2 and x1, x3, then wide ones: (x + y·root, x − y·root).
fn quad_in_time(q: Quad, narrow: Fr, wide: Fr, wide_next: Fr) -> Quad {
  let m = fr_mul(q.x2, narrow);
  let n = fr_mul(q.x3, narrow);
  let a = fr_add_slack(q.x0, m);
  let c = fr_sub_settled(q.x0, m);
  let b = fr_mul(fr_add_slack(q.x1, n), wide);
  let d = fr_mul(fr_sub_4p(q.x1, n), wide_next);
  return Quad(
    fr_settle_slack(fr_add_loose(a, b)),
    fr_sub_settled(a, b),
    fr_settle_slack(fr_add_loose(c, d)),
    fr_sub_settled(c, d),
  );
}
#else
// Wide butterflies of x0, x2 and x1, x3, then narrow ones: (x + y, (x − y)·root).
fn quad_in_frequency(q: Quad, wide: Fr, wide_next: Fr, narrow: Fr) -> Quad {
  let a = fr_add_slack(q.x0, q.x2);
  let b = fr_add_loose(q.x1, q.x3);
  let c = fr_mul(fr_sub_4p(q.x0, q.x2), wide);
  let d = fr_mul(fr_sub_4p(q.x1, q.x3), wide_next);
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
#end
// Either, where all roots are 1 but that of x1 − x3.
fn quad_of_neighbours(q: Quad, root: Fr) -> Quad {
  let a = fr_add_slack(q.x0, q.x2);
  let b = fr_settle_slack(fr_add_loose(q.x1, q.x3));
  let c = fr_sub_settled(q.x0, q.x2);
  let d = fr_mul(fr_sub_4p(q.x1, q.x3), root);
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

// The row, within its group of 2^d rows, of the k-th quad.
fn row_index(k: u32, d: u32) -> u32 { return (k >> params.columns_log) & ((1u << d) - 1u); }

// The places of the k-th quad, of rows 2^e apart.
fn places(k: u32, e: u32) -> Places {
  let column = k & ((1u << params.columns_log) - 1u);
  let row = (k >> params.columns_log) >> e;
  let i0 = (((row << (e + 2u)) + row_index(k, e)) << params.columns_log) + column;
  let narrow = 1u << (e + params.columns_log);
#if IN_TIME
  // The narrow butterflies come first: elements 1 and 2 change places, so that the first two
  // butterflies are always of elements 0, 2 and 1, 3.
  return Places(i0, 2u * narrow, narrow);
#else
  return Places(i0, narrow, 2u * narrow);
#end
}

fn take(g: u32, i: u32) -> Fr { return fr_load_source(position(g, i)); }
fn give(g: u32, i: u32, a: Fr) {
  let pos = position(g, i);
  var to = pos;
  if (params.store_reversed == 1u) { to = reverse_low_bits(pos, params.log_n); }
#if IN_TIME
  let complete = params.stages + params.stride_log == params.log_n;
#else
  let complete = params.stride_log == 0u;
#end
  if (complete) {
    // Below 2.2p, below 1.2p, canonical.
    fr_store_target_(to, fr_canon(a));
  } else {
    // What other passes read on stays settled.
    fr_store_lazy_target_(to, a);
  }
}

// Every element times its power, one after the other at one multiplication site.
fn times_powers(quad: Quad, g: u32, p: Places) -> Quad {
  var q = quad;
  for (var turn = 0u; turn < 4u + params.launch.zero; turn++) {
    let i = p.i0 + (turn & 1u) * p.at1 + (turn >> 1u) * p.at2;
    q = Quad(q.x1, q.x2, q.x3, times_power(q.x0, i, position(g, i)));
  }
  return q;
}

// One stage left over: both pairs of a quad of the widest rows.
fn single(q: Quad, g: u32, p: Places) -> Quad {
  let d = params.stages - 1u;
  let root0 = stage_root(p.i0 >> params.columns_log, d, column_within(g, p.i0));
  let i1 = p.i0 + p.at1;
  let root1 = stage_root(i1 >> params.columns_log, d, column_within(g, i1));
#if IN_TIME
  let m = fr_mul(q.x2, root0);
  let n = fr_mul(q.x3, root1);
  return Quad(
    fr_settle_slack(fr_add_loose(q.x0, m)),
    fr_settle_slack(fr_add_loose(q.x1, n)),
    fr_sub_settled(q.x0, m),
    fr_sub_settled(q.x1, n),
  );
#else
  return Quad(
    fr_settle_slack(fr_add_loose(q.x0, q.x2)),
    fr_settle_slack(fr_add_loose(q.x1, q.x3)),
    fr_mul(fr_sub_4p(q.x0, q.x2), root0),
    fr_mul(fr_sub_4p(q.x1, q.x3), root1),
  );
#end
}

@compute @workgroup_size(${NTT_THREADS})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  if (g >= params.launch.end_group) { return; }
  let size = 1u << (params.stages + params.columns_log);
  // Threads beyond a small tile follow the first.
  let active_ = local < max(size >> 2u, 1u);
  let k = select(0u, local, active_);
  // Two stages at a time. One left over is the widest, so that the others end in the one whose roots
  // are nearly all 1.
  let left_over = params.stages & 1u;
  let steps = (params.stages + 1u) >> 1u;
  var q: Quad;
  var at: Places;
  for (var step = 0u; step < steps; step++) {
#if IN_TIME
    let single_stage = left_over == 1u && step == steps - 1u;
    let e = 2u * step;
#else
    let single_stage = left_over == 1u && step == 0u;
    let e = 2u * (steps - 1u - step);
#end
    var to: Places;
    if (single_stage) {
      // Also where a tile has two rows, or two elements, which then count twice.
      to = Places(k, size >> 2u, size >> 1u);
    } else {
      to = places(k, e);
    }
    if (step == 0u) {
      q = Quad(take(g, to.i0), take(g, to.i0 + to.at1), take(g, to.i0 + to.at2), take(g, to.i0 + to.at1 + to.at2));
#if IN_TIME
      if (has_powers()) { q = times_powers(q, g, to); }
#end
    } else {
      q = exchange(q, at, to, active_);
    }
    at = to;
    if (single_stage) {
      q = single(q, g, at);
    } else if (params.stride_log == 0u && e == 0u) {
      q = quad_of_neighbours(q, stage_root(1u, 1u, 0u));
    } else {
      let j = row_index(k, e);
      let within = column_within(g, k);
      let narrow = stage_root(j, e, within);
      let wide = stage_root(j, e + 1u, within);
      let wide_next = stage_root(j + (1u << e), e + 1u, within);
#if IN_TIME
      q = quad_in_time(q, narrow, wide, wide_next);
#else
      q = quad_in_frequency(q, wide, wide_next, narrow);
#end
    }
  }
#if IN_TIME == 0
  if (has_powers()) { q = times_powers(q, g, at); }
#end
  if (!active_) { return; }
  give(g, at.i0, q.x0);
  give(g, at.i0 + at.at1, q.x1);
  give(g, at.i0 + at.at2, q.x2);
  give(g, at.i0 + at.at1 + at.at2, q.x3);
}
