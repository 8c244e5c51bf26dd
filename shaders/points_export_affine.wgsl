// Affine points of an interleaved list, from working form to the form at rest, one after the other;
// infinity stays all zeros.
#import launch
struct Params {
  launch: Launch,
  // Field elements in all, and of a point.
  n: u32,
  elements: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> source: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> target_: array<vec4<u32>>;
#import base_field GROUP=g1 FORMS=strict
#import interleaved BLOCK=32
#import buffer_fq BUF=source
#import buffer_fq BUF=target_

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  let size = ${QWORDS / 4}u;  // of an element, in vec4s
  let at = interleaved(i / params.elements, params.elements * size) + i % params.elements * size * BLOCK;
  // As in points_export.
  let radix = Fq(#{j in 0..QN;, ;${qrest[j]}u});
  fq_store_target_(i, fq_mul(fq_load_from_source(at, BLOCK), radix));
}
