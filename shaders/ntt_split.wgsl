// One stage of a transform between two parts of a vector that exceeds one binding: butterflies of
// x[i] and y[i] with the root w^((offset + i)·2^spacing_log), w^e = high[e >> low_log]·low[e mod 2^low_log].
// In frequency (x + y, (x − y)·root), in time (x + y·root, x − y·root). All forms at rest.
#import launch
struct Params { launch: Launch, n: u32, offset: u32, spacing_log: u32, low_log: u32, in_time: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> low: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> high: array<vec4<u32>>;
#import scalar_field
#import buffer_fr BUF=x
#import buffer_fr BUF=y
#import buffer_fr BUF=low
#import buffer_fr BUF=high

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  let in_time = params.in_time == 1u;
  let a = fr_load_x(i);
  let b = fr_load_y(i);
  var product = b;
  if (!in_time) { product = fr_sub(a, b); }
  let e = (params.offset + i) << params.spacing_log;
  var factor = fr_load_up_low(e & ((1u << params.low_log) - 1u));
  // One multiplication site for both factors of the root.
  for (var k = 0u; k < 2u + params.launch.zero; k++) {
    product = fr_mul(product, factor);
    factor = fr_load_up_high(e >> params.low_log);
  }
  if (in_time) {
    fr_store_x(i, fr_add(a, product));
    fr_store_y(i, fr_sub(a, product));
  } else {
    fr_store_x(i, fr_add(a, b));
    fr_store_y(i, product);
  }
}
