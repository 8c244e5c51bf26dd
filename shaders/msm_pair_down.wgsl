// Sums of pairs in affine coordinates, with the inverses that msm_pair_up prepared: totals holds
// the inverses of what it left there. Pairs are taken in the opposite order.
#import launch
struct Params { launch: Launch, threads: u32, buckets: u32, direct: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> points: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> entries: array<u32>;
@group(0) @binding(3) var<storage, read_write> sources: array<u32>;
@group(0) @binding(4) var<storage, read_write> pair_offsets: array<u32>;
@group(0) @binding(5) var<storage, read_write> prefixes: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> totals: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> sums: array<vec4<u32>>;
#import base_field
#import buffer_${E} BUF=points
#import buffer_${E} BUF=prefixes
#import buffer_${E} BUF=totals
#import buffer_${E} BUF=sums
#import pairs

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let t = g * 64u + local;
  if (g >= params.launch.end_group || t >= params.threads) { return; }
  let pairs = pair_offsets[params.buckets];
  if (t >= pairs) { return; }
  // 1 / (the denominators up to and with that of the pair at hand).
  var inverse = ${E}_load_totals(t);
  for (var i = (pairs - t + params.threads - 1u) / params.threads; i > 0u; i--) {
    let j = t + (i - 1u) * params.threads;
    let p = pair_load(j);
    if (p.kind > PAIR_DOUBLE) {
      var x = ${E}_zero();
      var y = x;
      if (p.kind != PAIR_INFINITY) {
        let e = select(p.first, p.second, p.kind == PAIR_SECOND);
        x = entry_x(e);
        y = entry_y(e);
      }
      ${E}_store_sums(2u * j, x);
      ${E}_store_sums(2u * j + 1u, y);
      continue;
    }
    let y = entry_y(p.first);
    var slope = ${E}_zero();  // its numerator first
    var x2 = p.x;
    if (p.kind == PAIR_ADD) {
      slope = ${E}_sub(entry_y(p.second), y);
      x2 = entry_x(p.second);
    }
    var a = inverse;
    var b = ${E}_load_prefixes(j);
    var x = p.x;
    var inverted = a;
    let steps = 6u + params.launch.zero;
    // One multiplication site for all products.
    for (var step = 0u; step < steps; step++) {
      let m = ${E}_mul(a, b);
      switch step {
        case 0u: {
          inverted = m;
          a = inverse;
          b = p.denominator;
        }
        case 1u: {
          inverse = m;
          a = slope;
          b = inverted;
          if (p.kind == PAIR_DOUBLE) {
            a = p.x;
            b = p.x;
          } else {
            step = 2u;  // only a doubling needs 3·x²
          }
        }
        case 2u: {
          a = ${E}_add(${E}_double(m), m);
          b = inverted;
        }
        case 3u: {
          slope = m;
          a = m;
          b = m;
        }
        case 4u: {
          x = ${E}_sub(${E}_sub(m, p.x), x2);
          a = slope;
          b = ${E}_sub(p.x, x);
        }
        default: {
          ${E}_store_sums(2u * j, x);
          ${E}_store_sums(2u * j + 1u, ${E}_sub(m, y));
        }
      }
    }
  }
}
