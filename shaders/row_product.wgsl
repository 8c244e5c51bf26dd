// Pieces of sparse rows times a vector: result[i] = Σ values[e]·vector[columns[e]] over the entries
// e of piece i. values are v·R² at rest and vector canonical, so sums are forms at rest. With
// unit = 1 the values are taken as 1 (sums of earlier pieces; vector holds forms at rest).
#import launch
struct Params { launch: Launch, n: u32, unit: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> starts: array<u32>;
@group(0) @binding(2) var<storage, read_write> columns: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> vector: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> result: array<vec4<u32>>;
#import scalar_field
#import buffer_fr BUF=values
#import buffer_fr BUF=vector
#import buffer_fr BUF=result

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  var sum = fr_zero();
  for (var e = starts[i]; e < starts[i + 1u]; e++) {
    var term = fr_load_vector(columns[e]);
    if (params.unit == 0u) { term = fr_mul(term, fr_load_up_values(e)); }
    sum = fr_add(sum, term);
  }
  fr_store_result(i, sum);
}
