// Denominators of the sums of pairs, multiplied up for one shared inversion (Montgomery 1987,
// "Speeding the Pollard and elliptic curve methods of factorization", §10.3.1): thread t takes the
// pairs t, t + threads, …, and leaves the products before each of them, and of all of them.
#import launch
struct Params { launch: Launch, threads: u32, buckets: u32, direct: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> points: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> entries: array<u32>;
@group(0) @binding(3) var<storage, read_write> sources: array<u32>;
// pair_offsets[buckets] is the number of pairs.
@group(0) @binding(4) var<storage, read_write> pair_offsets: array<u32>;
@group(0) @binding(5) var<storage, read_write> prefixes: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> totals: array<vec4<u32>>;
#import base_field
#import buffer_${E} BUF=points
#import buffer_${E} BUF=prefixes
#import buffer_${E} BUF=totals
#import pairs

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let t = g * 64u + local;
  if (g >= params.launch.end_group || t >= params.threads) { return; }
  let pairs = pair_offsets[params.buckets];
  var product = ${E}_one();
  for (var j = t; j < pairs; j += params.threads) {
    ${E}_store_prefixes(j, product);
    let p = pair_load(j);
    if (p.kind <= PAIR_DOUBLE) { product = ${E}_mul(product, p.denominator); }
  }
  ${E}_store_totals(t, product);
}
