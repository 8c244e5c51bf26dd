// Where each pair's first point is in the list before; the top bit says that there is no second.
#import launch
struct Params { launch: Launch, first: u32, buckets: u32, run: u32 }
@group(0) @binding(0) var<uniform> params: Params;
// Where the buckets' points begin (from offsets[first] on), and where their pairs do.
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> pair_offsets: array<u32>;
@group(0) @binding(3) var<storage, read_write> sources: array<u32>;

// The bucket that pair j belongs to: the last with pair_offsets[b] <= j.
fn bucket_of(j: u32) -> u32 {
  var low = 0u;
  var high = params.buckets;
  while (high - low > 1u) {
    let mid = (low + high) >> 1u;
    if (pair_offsets[mid] <= j) { low = mid; } else { high = mid; }
  }
  return low;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  if (g >= params.launch.end_group) { return; }
  let pairs = pair_offsets[params.buckets];
  // Invocations of a workgroup take neighbouring pairs.
  let first = g * 64u * params.run + local;
  for (var i = 0u; i < params.run; i++) {
    let j = first + 64u * i;
    if (j >= pairs) { return; }
    let b = bucket_of(j);
    let at = offsets[params.first + b] + 2u * (j - pair_offsets[b]);
    let single = at + 1u >= offsets[params.first + b + 1u];
    sources[j] = at | select(0u, 0x80000000u, single);
  }
}
