// XYZZ points from working form to the form at rest, in place.
#import launch
struct Params { launch: Launch, n: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> coordinates: array<vec4<u32>>;
#import base_field GROUP=g1 FORMS=strict
#import buffer_fq BUF=coordinates

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  // n counts field elements.
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  // 2^(32·words), not in Montgomery form: one product divides by the working form's radix.
  let radix = Fq(#{j in 0..QN;, ;${qrest[j]}u});
  fq_store_coordinates(i, fq_mul(fq_load_coordinates(i), radix));
}
