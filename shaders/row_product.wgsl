// Sparse rows times a vector: result[slot] = Σ coefficient·vector[wire] over the entries (wire,
// number of the coefficient) of a row's first piece, or of a piece that `pieces` lists.
// Coefficients are v·R² at rest and vector canonical, so sums are forms at rest.
//
// A pass sees as many wires as four parts of the vector have, and one part of the dictionary; it
// leaves out entries of others. Passes after the first one, and the pieces of long rows, add to
// what is there.
#import launch
struct Params {
  launch: Launch,
  // Rows or listed pieces, and the first of them.
  count: u32, first: u32,
  // Rows: the row of pieces[0], the entry of entries[0], and the most entries of a piece.
  first_row: u32, first_entry: u32, most: u32,
  // Slots of result.
  first_slot: u32, slots: u32,
  first_coefficient: u32, coefficients: u32,
  first_wire: u32, wires_per_part: u32,
  mode: u32,
}
// Bits of mode: pieces are begin, end and slot of each; entries of vector0 itself are added up,
// which holds forms at rest; to what is there.
const LISTED = 1u;
const SUMS = 2u;
const ADD = 4u;
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> pieces: array<u32>;
@group(0) @binding(2) var<storage, read_write> entries: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> dictionary: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> vector0: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> vector1: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> vector2: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> vector3: array<vec4<u32>>;
@group(0) @binding(8) var<storage, read_write> result: array<vec4<u32>>;
#import scalar_field
#import buffer_fr BUF=dictionary
#import buffer_fr BUF=vector0
#import buffer_fr BUF=result

// Element `wire` of the four parts.
fn element(wire: u32) -> Fr {
  let n = params.wires_per_part;
  var k = 2u * wire;
  var low: vec4<u32>;
  var high: vec4<u32>;
  if (wire < n) {
    low = vector0[k];
    high = vector0[k + 1u];
  } else if (wire < 2u * n) {
    k -= 2u * n;
    low = vector1[k];
    high = vector1[k + 1u];
  } else if (wire < 3u * n) {
    k -= 4u * n;
    low = vector2[k];
    high = vector2[k + 1u];
  } else {
    k -= 6u * n;
    low = vector3[k];
    high = vector3[k + 1u];
  }
  return fr_unpack(low, high);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let g = launch_group(group, groups);
  let i = g * 64u + local;
  if (g >= params.launch.end_group || i >= params.count) { return; }
  let number = params.first + i;
  var at: u32;
  var end: u32;
  var slot: u32;
  if ((params.mode & LISTED) != 0u) {
    at = pieces[3u * number];
    end = pieces[3u * number + 1u];
    slot = pieces[3u * number + 2u] - params.first_slot;
  } else {
    let row = number - params.first_row;
    at = pieces[row] - params.first_entry;
    end = min(pieces[row + 1u] - params.first_entry, at + params.most);
    slot = number - params.first_slot;
  }
  if (slot >= params.slots) { return; }
  var sum = fr_zero();
  if ((params.mode & ADD) != 0u) { sum = fr_load_result(slot); }
  if ((params.mode & SUMS) != 0u) {
    for (; at < end; at++) { sum = fr_add(sum, fr_load_vector0(at)); }
  } else {
    for (; at < end; at++) {
      let entry = entries[at];
      let wire = entry.x - params.first_wire;
      let coefficient = entry.y - params.first_coefficient;
      if (wire < 4u * params.wires_per_part && coefficient < params.coefficients) {
        sum = fr_add(sum, fr_mul(element(wire), fr_load_up_dictionary(coefficient)));
      }
    }
  }
  fr_store_result(slot, sum);
}
