// From the bit-reversed to the natural order of a vector of 2^(part_log + split_log) elements in
// 2^split_log parts: what part number `part` of the natural order has of the part number
// `reversed_part`, read backwards in its bits, of the reversed one. These are its elements whose low
// split_log bits are reversed_part.
#import launch
struct Params { launch: Launch, n: u32, part_log: u32, split_log: u32, part: u32, reversed_part: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> reversed_: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> natural: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let j = g * 64u + local;
  if (g >= params.launch.end_group || j >= params.n) { return; }
  let high = (params.part << (params.part_log - params.split_log)) | j;
  let from_ = reverseBits(high) >> (32u - params.part_log);
  let to = (j << params.split_log) | params.reversed_part;
  for (var k = 0u; k < ${RWORDS / 4}u; k++) {
    natural[to * ${RWORDS / 4}u + k] = reversed_[from_ * ${RWORDS / 4}u + k];
  }
}
