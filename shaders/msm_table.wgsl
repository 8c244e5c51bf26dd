// A table of multiples from the one before: to[i] = 2^doublings · from[i], affine points in working
// form, below 2p; infinity, as all zeros, stays.
//
// Each thread doubles its points in XYZZ coordinates (dbl-2008-s-1 of the Explicit-Formulas
// Database, a = 0) and brings them back with one inversion for all (Montgomery 1987, §10.3.1).
// No point of odd order becomes infinity by that, and both curves' groups have odd order.
#import launch
struct Params { launch: Launch, n: u32, threads: u32, doublings: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> source: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> target_: array<vec4<u32>>;
// For each point ZZ, ZZZ and the product of the ZZZ before.
@group(0) @binding(3) var<storage, read_write> scratch: array<vec4<u32>>;
#import base_field FORMS=lax
#import inverse N=QN W=QW MASK=QMASK T=Fq p=qp two_p=qtwo_p inv=qinv cube=qcube BATCHES=QBATCHES
#import buffer_${E} BUF=source
#import buffer_${E} BUF=target_
#import buffer_${E} BUF=scratch

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let t = g * 64u + local;
  if (g >= params.launch.end_group || t >= min(params.threads, params.n)) { return; }
  var product = ${E}_one();
  for (var i = t; i < params.n; i += params.threads) {
    var x = ${E}_load_source(2u * i);
    var y = ${E}_load_source(2u * i + 1u);
    var zz = ${E}_one();
    var zzz = zz;
    var v = x;
    var w = x;
    var s = x;
    var m3 = x;  // 3·X²
    // The last step multiplies ZZZ into the product: one multiplication site for all.
    let blank = ${E}_is_blank(x) && ${E}_is_blank(y);
    let steps = select(9u * params.doublings, 0u, blank);
    for (var step = 0u; step <= steps; step++) {
      var a = v;
      var b = v;
      let at = select(step % 9u, 9u, step == steps);
      switch at {
        case 0u: {
          a = ${E}_double(y);
          b = a;
          w = a;  // U
        }
        case 1u: { a = w; }
        case 2u: { a = x; }
        case 3u: {
          a = x;
          b = x;
        }
        case 4u: {
          a = m3;
          b = m3;
        }
        case 5u: {
          a = w;
          b = y;
        }
        case 6u: {
          a = m3;
          b = ${E}_sub_lax(s, x);
        }
        case 7u: { b = zz; }
        case 8u: {
          a = w;
          b = zzz;
        }
        default: {
          a = product;
          b = zzz;
        }
      }
      let m = ${E}_mul(a, b);
      switch at {
        case 0u: { v = m; }
        case 1u: { w = m; }
        case 2u: { s = m; }
        case 3u: { m3 = ${E}_add(${E}_double(m), m); }
        case 4u: { x = ${E}_settle(${E}_sub_both_lax(m, s, s)); }
        case 5u: { y = m; }
        case 6u: { y = ${E}_sub(m, y); }
        case 7u: { zz = m; }
        case 8u: { zzz = m; }
        default: {
          ${E}_store_lazy_target_(2u * i, x);
          ${E}_store_lazy_target_(2u * i + 1u, y);
          ${E}_store_lazy_scratch(3u * i, zz);
          ${E}_store_lazy_scratch(3u * i + 1u, zzz);
          ${E}_store_lazy_scratch(3u * i + 2u, product);
          product = m;
        }
      }
    }
  }
  // 1 / (the ZZZ up to and with that of the point at hand).
  var inverse = ${E}_invert(product);
  for (var k = (params.n - t + params.threads - 1u) / params.threads; k > 0u; k--) {
    let i = t + (k - 1u) * params.threads;
    let x = ${E}_load_target_(2u * i);
    let y = ${E}_load_target_(2u * i + 1u);
    if (${E}_is_blank(x) && ${E}_is_blank(y)) { continue; }
    let zzz = ${E}_load_scratch(3u * i + 1u);
    var a = inverse;
    var b = ${E}_load_scratch(3u * i + 2u);
    var inverted = a;  // 1/ZZZ
    for (var step = 0u; step < 6u + params.launch.zero; step++) {
      let m = ${E}_mul(a, b);
      switch step {
        case 0u: {
          inverted = m;
          b = zzz;
        }
        case 1u: {
          inverse = m;
          a = inverted;
          b = y;
        }
        case 2u: {
          ${E}_store_target_(2u * i + 1u, m);
          b = ${E}_load_scratch(3u * i);
        }
        case 3u: {
          // ZZ/ZZZ = 1/Z, and its square is 1/ZZ.
          a = m;
          b = m;
        }
        case 4u: {
          a = m;
          b = x;
        }
        default: { ${E}_store_target_(2u * i, m); }
      }
    }
  }
}
