// Sums of pairs in affine coordinates with one inversion a thread: products of the denominators
// going up, the inverse of the last, and back down (Montgomery 1987, "Speeding the Pollard and
// elliptic curve methods of factorization", §10.3.1). Six products a sum, where a running sum in
// XYZZ coordinates takes ten.
//
// Affine points in working form, below 2p; infinity: all zeros.
#import launch
struct Params { launch: Launch, threads: u32, buckets: u32, direct: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> points: array<vec4<u32>>;
// Indices into points, the top bit for the negative; not used if direct is 1.
@group(0) @binding(2) var<storage, read_write> entries: array<u32>;
// From msm_pair_sources; pairs that are no plain sum are marked here for the way down.
@group(0) @binding(3) var<storage, read_write> sources: array<u32>;
// pair_offsets[buckets] is the number of pairs.
@group(0) @binding(4) var<storage, read_write> pair_offsets: array<u32>;
@group(0) @binding(5) var<storage, read_write> prefixes: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> sums: array<vec4<u32>>;
#import base_field FORMS=lax
#import inverse N=QN W=QW MASK=QMASK T=Fq p=qp two_p=qtwo_p inv=qinv cube=qcube BATCHES=QBATCHES
#import buffer_${E} BUF=points
#import buffer_${E} BUF=prefixes
#import buffer_${E} BUF=sums

// Fewer pairs than this, and an inversion costs more than what it is shared by.
const MIN_PAIRS: u32 = 32u;
const SINGLE: u32 = 0x80000000u;
const SPECIAL: u32 = 0x40000000u;

fn entry(k: u32) -> u32 {
  if (params.direct == 1u) { return k; }
  return entries[k];
}
fn entry_x(e: u32) -> ${ET} { return ${E}_load_points(2u * (e & 0x7fffffffu)); }
fn entry_y(e: u32) -> ${ET} {
  let y = ${E}_load_points(2u * (e & 0x7fffffffu) + 1u);
  if ((e >> 31u) != 0u) { return ${E}_negate(y); }
  return y;
}
fn entry_is_infinity(e: u32) -> bool {
  return ${E}_is_blank(entry_x(e)) && ${E}_is_blank(${E}_load_points(2u * (e & 0x7fffffffu) + 1u));
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
  let pairs = pair_offsets[params.buckets];
  let threads = min(params.threads, (pairs + MIN_PAIRS - 1u) / MIN_PAIRS);
  if (g >= params.launch.end_group || t >= threads) { return; }
  var product = ${E}_one();
  for (var j = t; j < pairs; j += threads) {
    ${E}_store_lazy_prefixes(j, product);
    let source = sources[j];
    if ((source & SINGLE) != 0u) { continue; }
    let first = entry(source);
    let second = entry(source + 1u);
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
      sources[j] = source | SPECIAL;
      let kind = pair_kind(first, second);
      if (kind > PAIR_DOUBLE) { break; }
      // P + P has 2y here.
      if (kind == PAIR_DOUBLE) { denominator = ${E}_add(entry_y(first), entry_y(second)); }
    }
  }
  // 1 / (the denominators up to and with that of the pair at hand).
  var inverse = ${E}_invert(product);
  for (var i = (pairs - t + threads - 1u) / threads; i > 0u; i--) {
    let j = t + (i - 1u) * threads;
    let source = sources[j];
    let at = source & ~(SINGLE | SPECIAL);
    let first = entry(at);
    var kind = PAIR_FIRST;
    var second = first;
    if ((source & SINGLE) == 0u) {
      second = entry(at + 1u);
      kind = PAIR_ADD;
      if ((source & SPECIAL) != 0u) { kind = pair_kind(first, second); }
    }
    if (kind > PAIR_DOUBLE) {
      let e = select(first, second, kind == PAIR_SECOND);
      var x = ${E}_zero();
      var y = x;
      if (kind != PAIR_INFINITY && !entry_is_infinity(e)) {
        x = entry_x(e);
        y = entry_y(e);
      }
      ${E}_store_lazy_sums(2u * j, x);
      ${E}_store_lazy_sums(2u * j + 1u, y);
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
    var b = ${E}_load_prefixes(j);
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
          ${E}_store_lazy_sums(2u * j, x);
          ${E}_store_lazy_sums(2u * j + 1u, ${E}_sub(m, y1));
        }
      }
    }
  }
}
