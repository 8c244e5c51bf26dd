// Pairs of affine points of ${GROUP} in working form (infinity: all zeros): which points they are,
// and what their sum divides by. In the buffers points, entries and sources.

// Entry of point k of the list before: its index in points, the top bit for its negative.
fn entry(k: u32) -> u32 {
  if (params.direct == 1u) { return k; }
  return entries[k];
}
fn entry_x(e: u32) -> ${ET} { return ${E}_load_points(2u * (e & 0x7fffffffu)); }
fn entry_y(e: u32) -> ${ET} {
  let y = ${E}_load_points(2u * (e & 0x7fffffffu) + 1u);
  if ((e >> 31u) != 0u) { return ${E}_sub(${E}_zero(), y); }
  return y;
}
fn entry_is_infinity(e: u32, x: ${ET}) -> bool {
  return ${E}_is_zero(x) && ${E}_is_zero(entry_y(e));
}

const PAIR_ADD: u32 = 0u;
const PAIR_DOUBLE: u32 = 1u;
// The sum is one of the points, or infinity: nothing to divide.
const PAIR_FIRST: u32 = 2u;
const PAIR_SECOND: u32 = 3u;
const PAIR_INFINITY: u32 = 4u;

struct Pair { kind: u32, first: u32, second: u32, x: ${ET}, denominator: ${ET} }

fn pair_load(j: u32) -> Pair {
  let source = sources[j];
  let at = source & 0x7fffffffu;
  let first = entry(at);
  var p = Pair(PAIR_FIRST, first, first, entry_x(first), ${E}_one());
  if ((source >> 31u) != 0u) { return p; }
  p.second = entry(at + 1u);
  let x = entry_x(p.second);
  if (entry_is_infinity(p.second, x)) { return p; }
  if (entry_is_infinity(first, p.x)) {
    p.kind = PAIR_SECOND;
    return p;
  }
  let d = ${E}_sub(x, p.x);
  if (!${E}_is_zero(d)) {
    p.kind = PAIR_ADD;
    p.denominator = d;
    return p;
  }
  // P + P has 2y here, P − P has 0.
  let y = ${E}_add(entry_y(first), entry_y(p.second));
  if (${E}_is_zero(y)) {
    p.kind = PAIR_INFINITY;
  } else {
    p.kind = PAIR_DOUBLE;
    p.denominator = y;
  }
  return p;
}
