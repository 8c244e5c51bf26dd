// One level of the buckets' weighted sum Σ (i+1)·B_i, i from 0, by the bits of i:
//   Σ i·B_i = Σ_k 2^k·T_k,  T_k = Σ of the B_i with bit k of i set.
// A node of level k stands for 2^k buckets and holds k+1 points: their sum, then T_0 … T_{k−1}. Two
// neighbours make one node of the next level by k+1 independent additions and one copy
// (T_k = the sum of the upper one): two additions a bucket in all, with no doubling and no serial
// part. The host evaluates the powers of two together with those of the windows.
//
// Layout: point j of node m of window w at ((w·points) + j)·nodes + m.
#import launch
struct Params { launch: Launch, windows: u32, log_nodes: u32, level: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> nodes_in: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> nodes_out: array<vec4<u32>>;
#import base_field FORMS=lax
#import buffer_${E} BUF=nodes_in
#import buffer_${E} BUF=nodes_out
#import points
#import buffer_points BUF=nodes_in
#import buffer_points BUF=nodes_out

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let t = g * 64u + local;
  // log_nodes: nodes of the output level; level: that of the input.
  let points_in = params.level + 1u;
  let points_out = params.level + 2u;
  if (g >= params.launch.end_group || t >= ((params.windows * points_out) << params.log_nodes)) { return; }
  let node = t & ((1u << params.log_nodes) - 1u);
  let row = t >> params.log_nodes;
  let w = row / points_out;
  let j = row % points_out;
  let last = j == points_out - 1u;
  let lower = ((w * points_in + select(j, 0u, last)) << (params.log_nodes + 1u)) + 2u * node;
  var p = point_load_nodes_in(lower + 1u);
  if (!last) { p = point_add(point_load_nodes_in(lower), p); }
  point_store_nodes_out(t, p);
}
