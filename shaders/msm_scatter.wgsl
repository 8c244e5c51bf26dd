// Writes each digit's entry to its place: the second half of the counting sort. An entry is the
// index of the base among those of its list, with the sign of the digit in bit 31.
#import launch
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> scalars: array<u32>;
@group(0) @binding(2) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(3) var<storage, read_write> ranks: array<u32>;
@group(0) @binding(4) var<storage, read_write> entries: array<u32>;
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
    let base = (w / params.sets) % params.together * params.stride + i;
    entries[offsets[at] + ranks[w * params.n + i]] = base | (u32(d.negative) << 31u);
  }
}
