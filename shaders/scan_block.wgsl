// Exclusive prefix sums of blocks of 1024 counts, in place, and the sum of each block.
// With scan_add this makes the scan of any length (Blelloch 1990, in the two-level form).
#import launch
struct Params { launch: Launch, n: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> counts: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;

const THREADS: u32 = 128u;
const EACH: u32 = 8u;
var<workgroup> partial: array<u32, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  if (g >= params.launch.end_group) { return; }
  let first = g * THREADS * EACH + local * EACH;
  var total = 0u;
  for (var k = 0u; k < EACH; k++) {
    if (first + k < params.n) { total += counts[first + k]; }
  }
  partial[local] = total;
  // Inclusive scan of the threads' totals (Hillis, Steele 1986).
  for (var d = 1u; d < THREADS; d = d << 1u) {
    workgroupBarrier();
    var before = 0u;
    if (local >= d) { before = partial[local - d]; }
    workgroupBarrier();
    partial[local] += before;
  }
  workgroupBarrier();
  var running = partial[local] - total;
  for (var k = 0u; k < EACH; k++) {
    if (first + k < params.n) {
      let count = counts[first + k];
      counts[first + k] = running;
      running += count;
    }
  }
  if (local == THREADS - 1u) { sums[g] = running; }
}
