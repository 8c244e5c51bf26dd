// Folds runs of affine points into XYZZ sums: for tests and the self-test. sums[i] is the sum of
// the points [i·run, (i+1)·run): the mixed addition in the order in which a bucket uses it.
#import launch
struct Params { launch: Launch, n: u32, run: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> bases: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> sums: array<vec4<u32>>;
#import base_field FORMS=lax
#import buffer_${E} BUF=sums
#import points
#import buffer_points BUF=sums
#import bases
#import sums

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  var sum = sum_empty(local);
  for (var j = i * params.run; j < (i + 1u) * params.run; j++) {
    let base = base_load(j * ${POINT_VEC4S}u, 1u);
    if (!base_is_infinity(base)) {
      sum = sum_add(sum, local, base_x(base), base_y(base));
    }
  }
  point_store_sums(i, sum_point(sum, local));
}
