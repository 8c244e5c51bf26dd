// One operation of the field on two vectors: for tests and the self-test.
// lhs and rhs hold values below 2p; the result is the canonical form of
//   op 0: lhs + rhs, 1: lhs − rhs, 2: the product of working forms, 3: the product of forms at
//   rest, 4: lhs == rhs as 1 or 0.
#import launch
struct Params { launch: Launch, n: u32, op: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> lhs: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> rhs: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<u32>>;
#if FIELD == fq
#import base_field GROUP=g1 FORMS=strict
#else
#import scalar_field
#end
#import buffer_${FIELD} BUF=lhs
#import buffer_${FIELD} BUF=rhs
#import buffer_${FIELD} BUF=result

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  let a = ${FIELD}_load_lhs(i);
  var b = ${FIELD}_load_rhs(i);
  if (params.op == 3u) { b = ${FIELD}_load_up_rhs(i); }
  var r = ${FIELD}_zero();
  switch params.op {
    case 0u: { r = ${FIELD}_add(a, b); }
    case 1u: { r = ${FIELD}_sub(a, b); }
    case 2u, 3u: { r = ${FIELD}_mul(a, b); }
    default: { if (${FIELD}_is_zero(${FIELD}_sub(a, b))) { r.l0 = 1u; } }
  }
  ${FIELD}_store_result(i, r);
}
