// Where a table of multiples of one point has the summands of scalar·point: for window w and a digit
// of magnitude m > 0, entry w·2^(window_bits − 1) + m − 1, with the digit's sign in bit 31; for 0 the
// entry behind all of these, infinity. The entries of a scalar are next to each other.
#import launch
struct Params { launch: Launch, n: u32, window_bits: u32, windows: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> scalars: array<u32>;
@group(0) @binding(2) var<storage, read_write> entries: array<u32>;
#import digit

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let e = g * 64u + local;
  if (g >= params.launch.end_group || e >= params.n * params.windows) { return; }
  let w = e % params.windows;
  let half = params.window_bits - 1u;
  let d = scalar_digit(e / params.windows, w, params.window_bits);
  if (d.magnitude == 0u) {
    entries[e] = params.windows << half;
  } else {
    entries[e] = ((w << half) + d.magnitude - 1u) | (u32(d.negative) << 31u);
  }
}
