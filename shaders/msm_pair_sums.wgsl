// Sums of pairs in affine coordinates with one inversion a thread: products of the denominators
// going up, the inverse of the last, and back down (Montgomery 1987, "Speeding the Pollard and
// elliptic curve methods of factorization", §10.3.1). Six products a sum, where a running sum in
// XYZZ coordinates takes ten.
//
// Affine points in working form, below 2p; infinity: all zeros. Sums are stored interleaved.
#import launch
struct Params {
  launch: Launch,
  threads: u32,
  buckets: u32,
  // 1: points are the sums of another pass, interleaved.
  direct: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> points: array<vec4<u32>>;
// From msm_pair_sources; pairs that are no plain sum are marked here for the way down.
@group(0) @binding(2) var<storage, read_write> pairs: array<vec2<u32>>;
// pair_offsets[buckets] is the number of pairs.
@group(0) @binding(3) var<storage, read_write> pair_offsets: array<u32>;
@group(0) @binding(4) var<storage, read_write> prefixes: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> sums: array<vec4<u32>>;
#import base_field FORMS=lax
#import inverse N=QN W=QW MASK=QMASK T=Fq p=qp two_p=qtwo_p inv=qinv cube=qcube BATCHES=QBATCHES
#import interleaved BLOCK=32
#import buffer_${E} BUF=points
#import buffer_${E} BUF=prefixes
#import buffer_${E} BUF=sums

// Fewer pairs than this, and an inversion costs more than what it is shared by.
const MIN_PAIRS: u32 = 32u;
const NONE: u32 = 0xffffffffu;
const NEGATIVE: u32 = 0x80000000u;
const SPECIAL: u32 = 0x40000000u;
const INDEX: u32 = 0x3fffffffu;

const SIZE: u32 = ${POINT_VEC4S}u;  // of a point, in vec4s
fn entry_at(e: u32) -> u32 {
  let i = e & INDEX;
  return select(i * SIZE, interleaved(i, SIZE), params.direct == 1u);
}
fn entry_step() -> u32 { return select(1u, BLOCK, params.direct == 1u); }
fn entry_x(e: u32) -> ${ET} { return ${E}_load_from_points(entry_at(e), entry_step()); }
// y of the point itself, whatever the sign of its entry.
fn entry_plain_y(e: u32) -> ${ET} {
  let step = entry_step();
  return ${E}_load_from_points(entry_at(e) + SIZE / 2u * step, step);
}
fn entry_y(e: u32) -> ${ET} {
  let y = entry_plain_y(e);
  if ((e & NEGATIVE) != 0u) { return ${E}_negate(y); }
  return y;
}
fn prefix_at(j: u32) -> u32 { return interleaved(j, SIZE / 2u); }
fn store_sum(j: u32, x: ${ET}, y: ${ET}) {
  let at = interleaved(j, SIZE);
  ${E}_store_lazy_to_sums(at, BLOCK, x);
  ${E}_store_lazy_to_sums(at + SIZE / 2u * BLOCK, BLOCK, y);
}
fn entry_is_infinity(e: u32) -> bool {
  return ${E}_is_blank(entry_x(e)) && ${E}_is_blank(entry_plain_y(e));
}

const PAIR_ADD: u32 = 0u;
const PAIR_DOUBLE: u32 = 1u;
// The sum is one of the points, or infinity: nothing to divide.
const PAIR_FIRST: u32 = 2u;
const PAIR_SECOND: u32 = 3u;
const PAIR_INFINITY: u32 = 4u;

// What a pair is, where its denominator is 0 or an abscissa all zeros.
fn pair_kind(first: u32, second: u32) -> u32 {
  if (entry_is_infinity(second)) { return PAIR_FIRST; }
  if (entry_is_infinity(first)) { return PAIR_SECOND; }
  if (!${E}_is_zero(${E}_sub(entry_x(second), entry_x(first)))) { return PAIR_ADD; }
  if (${E}_is_zero(${E}_add(entry_y(first), entry_y(second)))) { return PAIR_INFINITY; }
  return PAIR_DOUBLE;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let t = g * 64u + local;
  let total = pair_offsets[params.buckets];
  let threads = min(params.threads, (total + MIN_PAIRS - 1u) / MIN_PAIRS);
  if (g >= params.launch.end_group || t >= threads) { return; }
  var product = ${E}_one();
  // The next pair's indices are read while this one is worked on.
  var next = pairs[t];
  for (var j = t; j < total; j += threads) {
    let first = next.x;
    let second = next.y;
    if (j + threads < total) { next = pairs[j + threads]; }
    ${E}_store_lazy_to_prefixes(prefix_at(j), BLOCK, product);
    if (second == NONE) { continue; }
    let x1 = entry_x(first);
    let x2 = entry_x(second);
    var denominator = ${E}_sub_lax(x2, x1);
    var known = false;
    for (var tries = 0u; tries < 2u + params.launch.zero; tries++) {
      let m = ${E}_mul(product, denominator);
      if (known || !(${E}_is_zero(m) || ${E}_is_blank(x1) || ${E}_is_blank(x2))) {
        product = m;
        break;
      }
      known = true;
      pairs[j].x = first | SPECIAL;
      let kind = pair_kind(first, second);
      if (kind > PAIR_DOUBLE) { break; }
      // P + P has 2y here.
      if (kind == PAIR_DOUBLE) { denominator = ${E}_add(entry_y(first), entry_y(second)); }
    }
  }
  // 1 / (the denominators up to and with that of the pair at hand).
  var inverse = ${E}_invert(product);
  let last = t + (total - t - 1u) / threads * threads;
  next = pairs[last];
  for (var k = last + threads; k > t; k -= threads) {
    let j = k - threads;
    let first = next.x;
    var second = next.y;
    if (j > t) { next = pairs[j - threads]; }
    var kind = PAIR_ADD;
    if (second == NONE) {
      kind = PAIR_FIRST;
      second = first;
    } else if ((first & SPECIAL) != 0u) {
      kind = pair_kind(first, second);
    }
    if (kind > PAIR_DOUBLE) {
      let e = select(first, second, kind == PAIR_SECOND);
      var x = ${E}_zero();
      var y = x;
      if (kind != PAIR_INFINITY && !entry_is_infinity(e)) {
        x = entry_x(e);
        y = entry_y(e);
      }
      store_sum(j, x, y);
      continue;
    }
    let x1 = entry_x(first);
    let x2 = entry_x(second);
    let y1 = entry_y(first);
    let y2 = entry_y(second);
    var denominator = ${E}_sub_lax(x2, x1);
    var slope = ${E}_sub_lax(y2, y1);  // its numerator first
    if (kind == PAIR_DOUBLE) { denominator = ${E}_add(y1, y2); }
    var a = inverse;
    var b = ${E}_load_from_prefixes(prefix_at(j), BLOCK);
    var x = x1;
    // One multiplication site for all products.
    for (var step = 0u; step < 6u + params.launch.zero; step++) {
      let m = ${E}_mul(a, b);
      switch step {
        case 0u: {
          x = m;  // the inverse of the denominator, for now
          b = denominator;
        }
        case 1u: {
          inverse = m;
          a = slope;
          b = x;
          if (kind == PAIR_DOUBLE) {
            a = x1;
            b = x1;
          } else {
            step = 2u;  // only a doubling needs 3·x²
          }
        }
        case 2u: {
          a = ${E}_add(${E}_double(m), m);
          b = x;
        }
        case 3u: {
          slope = m;
          a = m;
          b = m;
        }
        case 4u: {
          x = ${E}_settle(${E}_sub_both_lax(m, x1, x2));
          a = slope;
          b = ${E}_sub_lax(x1, x);
        }
        default: {
          store_sum(j, x, ${E}_sub(m, y1));
        }
      }
    }
  }
}
