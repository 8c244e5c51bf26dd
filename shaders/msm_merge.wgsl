// Adds up the slots of msm_accumulate: slots of the same bucket are neighbours. Each thread takes
// `run` slots; a bucket that ends inside is written, the rest goes into the thread's own two slots
// for the next level. The last level has one thread, which writes all.
#import launch
struct Params { launch: Launch, slots: u32, threads: u32, run: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> in_keys: array<u32>;
@group(0) @binding(2) var<storage, read_write> in_slots: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> buckets: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> out_keys: array<u32>;
@group(0) @binding(5) var<storage, read_write> out_slots: array<vec4<u32>>;
#import base_field FORMS=lax
#import buffer_${E} BUF=in_slots
#import buffer_${E} BUF=buckets
#import buffer_${E} BUF=out_slots
#import points
#import buffer_points BUF=in_slots
#import buffer_points BUF=buckets
#import buffer_points BUF=out_slots

const NONE: u32 = 0xffffffffu;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let t = g * 64u + local;
  if (g >= params.launch.end_group || t >= params.threads) { return; }
  let first = t * params.run;
  let last = min(first + params.run, params.slots);
  // Whether the first run goes on from before, and the last one beyond.
  let first_key = in_keys[first];
  let open_before = first > 0u && in_keys[max(first, 1u) - 1u] == first_key;
  var key = first_key;
  var sum = point_infinity();
  var head = point_infinity();
  var began_before = open_before;
  for (var i = first; i < last; i++) {
    if (in_keys[i] != key) {
      if (began_before) {
        head = sum;
      } else if (!point_is_infinity(sum)) {
        // An empty run must not overwrite a bucket that was written whole.
        point_store_buckets(key, sum);
      }
      began_before = false;
      sum = point_infinity();
      key = in_keys[i];
    }
    sum = point_add(sum, point_load_in_slots(i));
  }
  let open_behind = last < params.slots && in_keys[min(last, params.slots - 1u)] == key;
  var tail = point_infinity();
  if (!began_before && !open_behind) {
    if (key != NONE && !point_is_infinity(sum)) { point_store_buckets(key, sum); }
  } else if (key == first_key) {
    head = sum;
  } else {
    tail = sum;
  }
  out_keys[2u * t] = first_key;
  out_keys[2u * t + 1u] = key;
  point_store_out_slots(2u * t, head);
  point_store_out_slots(2u * t + 1u, tail);
}
