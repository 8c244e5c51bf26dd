// Inverses of many elements of the coordinate field of ${GROUP} from one of each thread, in the
// steps of Montgomery 1987, §10.3.1; no element is 0.
//   mode 0: multiplies up, as msm_pair_up does: products before each element, and of all
//   mode 1: takes the inverses of the products back to the elements, in place
//   mode 2: inverts each element by itself, x^(p − 2)
#import launch
struct Params {
  launch: Launch,
  mode: u32,
  n: u32,
  threads: u32,
  reserved: u32,
  // p − 2, 32 bits a component, the lowest first.
  exponent: array<vec4<u32>, ${QWORDS / 4}>,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> values: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> prefixes: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> totals: array<vec4<u32>>;
#import base_field
#import buffer_${E} BUF=values
#import buffer_${E} BUF=prefixes
#import buffer_${E} BUF=totals

fn power(x: Fq) -> Fq {
  var result = fq_one();
  for (var bit = ${32 * QWORDS}u; bit > 0u; bit--) {
    let at = bit - 1u;
    let word = params.exponent[at >> 7u][(at >> 5u) & 3u];
    let odd = (word >> (at & 31u)) & 1u;
    // The square, then the product where the bit is set.
    for (var k = 0u; k < 1u + odd + params.launch.zero; k++) {
      var factor = result;
      if (k == 1u) { factor = x; }
      result = fq_mul(result, factor);
    }
  }
  return result;
}

#if GROUP == g1
fn inverse(x: Fq) -> Fq { return power(x); }
#else
// (c0 − c1·u) / (c0² + c1²)
fn inverse(x: Fq2) -> Fq2 {
  let conjugate = Fq2(x.c0, fq_sub(fq_zero(), x.c1));
  let norm = power(fq2_mul(x, conjugate).c0);
  return fq2_mul(conjugate, Fq2(norm, fq_zero()));
}
#end

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let t = g * 64u + local;
  if (g >= params.launch.end_group || t >= params.threads) { return; }
  if (params.mode == 2u) {
    ${E}_store_values(t, inverse(${E}_load_values(t)));
    return;
  }
  if (params.mode == 0u) {
    var product = ${E}_one();
    for (var j = t; j < params.n; j += params.threads) {
      ${E}_store_prefixes(j, product);
      product = ${E}_mul(product, ${E}_load_values(j));
    }
    ${E}_store_totals(t, product);
    return;
  }
  var inverted = ${E}_load_totals(t);
  for (var i = (params.n - t + params.threads - 1u) / params.threads; i > 0u; i--) {
    let j = t + (i - 1u) * params.threads;
    var a = inverted;
    var b = ${E}_load_prefixes(j);
    for (var k = 0u; k < 2u + params.launch.zero; k++) {
      let m = ${E}_mul(a, b);
      if (k == 0u) {
        b = ${E}_load_values(j);
        ${E}_store_values(j, m);
      } else {
        inverted = m;
      }
    }
  }
}
