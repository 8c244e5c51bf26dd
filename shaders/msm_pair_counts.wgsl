// Pairs of each bucket: half its points, rounded up. counts[buckets] becomes 0, for the scan that
// turns counts into offsets.
#import launch
struct Params { launch: Launch, first: u32, buckets: u32 }
@group(0) @binding(0) var<uniform> params: Params;
// offsets[first + b] is where bucket b begins, and offsets[first + b + 1] where it ends.
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> counts: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let b = g * 64u + local;
  if (g >= params.launch.end_group || b > params.buckets) { return; }
  if (b == params.buckets) {
    counts[b] = 0u;
    return;
  }
  let size = offsets[params.first + b + 1u] - offsets[params.first + b];
  counts[b] = (size + 1u) >> 1u;
}
