// Counts the members of each bucket and gives every digit its rank in its bucket: the first half
// of a counting sort. counts must be zero before; bucket b of row r is at r·buckets + b − 1.
#import launch
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> scalars: array<u32>;
@group(0) @binding(2) var<storage, read_write> counts: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> ranks: array<u32>;
#import window

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let w = window_of(g);
  let i = scalar_of(g, local);
  if (g >= params.launch.end_group || i >= params.n) { return; }
  let d = scalar_digit(i, w, params.window_bits);
  if (d.magnitude != 0u) {
    let at = window_row(w) * params.buckets + d.magnitude - 1u;
    ranks[w * params.n + i] = atomicAdd(&counts[at], 1u);
  }
}
