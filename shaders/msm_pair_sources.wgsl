// The two points of each pair: indices with the top bit for the negative, and for the second
// NONE where there is none.
#import launch
struct Params { launch: Launch, first: u32, buckets: u32, run: u32, direct: u32 }
@group(0) @binding(0) var<uniform> params: Params;
// Where the buckets' points begin (from offsets[first] on), and where their pairs do.
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> pair_offsets: array<u32>;
// Not used if direct is 1: every point is an entry, in order.
@group(0) @binding(3) var<storage, read_write> entries: array<u32>;
@group(0) @binding(4) var<storage, read_write> pairs: array<vec2<u32>>;

const NONE: u32 = 0xffffffffu;

fn entry(k: u32) -> u32 {
  if (params.direct == 1u) { return k; }
  return entries[k];
}

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
  let total = pair_offsets[params.buckets];
  // Invocations of a workgroup take neighbouring pairs.
  let first = g * 64u * params.run + local;
  for (var i = 0u; i < params.run; i++) {
    let j = first + 64u * i;
    if (j >= total) { return; }
    let b = bucket_of(j);
    let at = offsets[params.first + b] + 2u * (j - pair_offsets[b]);
    var second = NONE;
    if (at + 1u < offsets[params.first + b + 1u]) { second = entry(at + 1u); }
    pairs[j] = vec2<u32>(entry(at), second);
  }
}
