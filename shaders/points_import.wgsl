// Coordinates of affine points from the form at rest to working form; infinity stays all zeros.
#import launch
struct Params { launch: Launch, n: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> source: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> target_: array<vec4<u32>>;
#import base_field GROUP=g1 FORMS=strict
#import buffer_fq BUF=source
#import buffer_fq BUF=target_

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  // n counts field elements.
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  // The product with 1 only brings the value below 2p.
  fq_store_target_(i, fq_mul(fq_load_up_source(i), fq_one()));
}
