// roots[i] = w^(i·2^spacing_log), in working form, from two short tables of powers of w at rest,
// w^e = high[e >> low_log]·low[e mod 2^low_log].
#import launch
struct Params { launch: Launch, n: u32, spacing_log: u32, low_log: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> low: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> high: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> roots: array<vec4<u32>>;
#import scalar_field
#import buffer_fr BUF=low
#import buffer_fr BUF=high
#import buffer_fr BUF=roots

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.n) { return; }
  let e = i << params.spacing_log;
  let at_rest = fr_canon(fr_mul(fr_load_low(e & ((1u << params.low_log) - 1u)), fr_load_up_high(e >> params.low_log)));
  let shifted = fr_unpack_up(fr_pack0(at_rest), fr_pack1(at_rest));
  fr_store_roots(i, fr_mul(fr_one(), shifted));
}
