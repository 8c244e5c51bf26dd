// result[i] = lhs[i]·rhs[i], all forms at rest.
#import launch
struct Params { launch: Launch, n: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> lhs: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> rhs: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<u32>>;
#import scalar_field
#import buffer_fr BUF=lhs
#import buffer_fr BUF=rhs
#import buffer_fr BUF=result

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  fr_store_result(i, fr_mul(fr_load_lhs(i), fr_load_up_rhs(i)));
}
