// Sums the sorted entries into buckets. Each thread takes a run of consecutive entries, whatever
// buckets they belong to, so that no distribution of scalars unbalances it.
//
// A bucket that lies inside one run is written at once. What a run holds of a bucket that begins
// before it or ends behind it goes into the run's two slots (head, tail), which msm_merge adds up.
// Slots are sorted by bucket; a slot with nothing to add holds infinity under the bucket beside it.
//
// What the buckets hold before is added to (seeded = 1), or infinity everywhere. The run in which a
// bucket begins takes that in, and leaves infinity if the bucket goes on behind it: msm_merge then
// writes the whole sum.
#import launch
struct Params {
  launch: Launch,
  // The list's buckets: offsets[first + b] is where the entries of bucket b begin, and
  // offsets[first + b + 1] where they end; their sum goes to buckets[target + b].
  buckets: u32,
  first: u32,
  target_: u32,
  runs: u32,
  min_run: u32,
  // 1: the bases are sums of pairs, interleaved, each an entry.
  direct: u32,
  // 1: buckets hold something already.
  seeded: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> entries: array<u32>;
@group(0) @binding(2) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(3) var<storage, read_write> bases: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> buckets: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> slot_keys: array<u32>;
@group(0) @binding(6) var<storage, read_write> slots: array<vec4<u32>>;
#import base_field FORMS=lax
#import buffer_${E} BUF=buckets
#import buffer_${E} BUF=slots
#import points
#import buffer_points BUF=buckets
#import buffer_points BUF=slots
#import interleaved BLOCK=32
#import bases
#import sums

// The bucket that entry i belongs to: the last with offsets[b] <= i.
fn bucket_of(i: u32) -> u32 {
  var low = params.first;
  var high = low + params.buckets;
  while (high - low > 1u) {
    let mid = (low + high) >> 1u;
    if (offsets[mid] <= i) { low = mid; } else { high = mid; }
  }
  return low - params.first;
}

// The sum that the run from `first` to `last` starts bucket b with, if its entries are begin to end.
fn start(b: u32, begin: u32, end: u32, first: u32, last: u32, local: u32) -> Sum {
  if (params.seeded == 0u || begin < first) { return sum_empty(local); }
  let p = point_load_buckets(params.target_ + b);
  if (end > last) { point_store_buckets(params.target_ + b, point_infinity()); }
  return sum_from(p, local);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let t = g * 64u + local;
  if (g >= params.launch.end_group || t >= params.runs) { return; }
  let origin = offsets[params.first];
  let end_of_list = offsets[params.first + params.buckets];
  let total = end_of_list - origin;
  // However many digits are zero, the others are shared out evenly.
  let run = max((total + params.runs - 1u) / params.runs, params.min_run);
  let first = origin + min(t * run, total);
  let last = min(first + run, end_of_list);
  if (first >= last) {
    slot_keys[2u * t] = 0xffffffffu;
    slot_keys[2u * t + 1u] = 0xffffffffu;
    point_store_slots(2u * t, point_infinity());
    point_store_slots(2u * t + 1u, point_infinity());
    return;
  }
  var bucket = bucket_of(first);
  let first_bucket = bucket;
  var begin = offsets[params.first + bucket];
  var end = offsets[params.first + bucket + 1u];
  var fresh = true;
  var sum = sum_empty(local);
  for (var i = first; i < last; i++) {
    if (i >= end) {
      // A bucket that began before this run goes to the head slot.
      if (begin >= first) {
        point_store_buckets(params.target_ + bucket, sum_point(sum, local));
      } else {
        point_store_slots(2u * t, sum_point(sum, local));
      }
      bucket += 1u;
      if (offsets[params.first + bucket + 1u] <= i) { bucket = bucket_of(i); }
      begin = offsets[params.first + bucket];
      end = offsets[params.first + bucket + 1u];
      fresh = true;
    }
    if (fresh) {
      sum = start(bucket, begin, end, first, last, local);
      fresh = false;
    }
    // Of sums of pairs every one is an entry.
    var entry = 0u;
    var at = interleaved(i, ${POINT_VEC4S}u);
    if (params.direct == 0u) {
      entry = entries[i];
      at = (entry & 0x7fffffffu) * ${POINT_VEC4S}u;
    }
    let base = base_load(at, select(1u, BLOCK, params.direct == 1u));
    if (!base_is_infinity(base)) {
      var y = base_y(base);
      if ((entry >> 31u) != 0u) { y = ${E}_negate(y); }
      sum = sum_add(sum, local, base_x(base), y);
    }
  }
  // The last bucket: whole, or the head slot's if it is the first one too, or the tail slot's.
  let point = sum_point(sum, local);
  let whole = begin >= first && end <= last;
  let head = !whole && bucket == first_bucket;
  if (whole) { point_store_buckets(params.target_ + bucket, point); }
  if (head) { point_store_slots(2u * t, point); }
  if (!whole && !head) {
    point_store_slots(2u * t + 1u, point);
  } else {
    point_store_slots(2u * t + 1u, point_infinity());
  }
  // Nothing else wrote the head slot if the first bucket began here.
  if (offsets[params.first + first_bucket] >= first && !head) { point_store_slots(2u * t, point_infinity()); }
  slot_keys[2u * t] = params.target_ + first_bucket;
  slot_keys[2u * t + 1u] = params.target_ + bucket;
}
