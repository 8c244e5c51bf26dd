// quotient[i] = (a[i]·b[i] − c[i])·factor: the numerator of the QAP's quotient on a coset, times a
// constant (1/z of the coset, or 2^−256, which makes the result canonical). All forms at rest.
#import launch
struct Params { launch: Launch, n: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> a: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> b: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> factor: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> quotient: array<vec4<u32>>;
#import scalar_field
#import buffer_fr BUF=a
#import buffer_fr BUF=b
#import buffer_fr BUF=c
#import buffer_fr BUF=factor
#import buffer_fr BUF=quotient

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  let numerator = fr_sub(fr_mul(fr_load_a(i), fr_load_up_b(i)), fr_load_c(i));
  fr_store_quotient(i, fr_mul(numerator, fr_load_up_factor(0u)));
}
