// Adds to each block of 1024 counts the scanned sum of the blocks before it.
#import launch
struct Params { launch: Launch, n: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> counts: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  if (g >= params.launch.end_group) { return; }
  let offset = sums[g];
  for (var k = 0u; k < 8u; k++) {
    let i = g * 1024u + k * 128u + local;
    if (i < params.n) { counts[i] += offset; }
  }
}
