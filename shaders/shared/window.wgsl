// The parameters of a digit sort.
struct Params {
  launch: Launch,
  n: u32,
  window_bits: u32,
  windows: u32,
  buckets: u32,
  // Windows w, w + sets, w + 2·sets, … share buckets: each has a table of bases of its own.
  sets: u32,
  // Tables whose entries are sorted together.
  together: u32,
  // From one table to the next, in points.
  stride: u32,
  // Workgroups of one window.
  groups: u32,
}

// Signed digits of canonical 256-bit scalars (modified Booth recoding): digit w is the c bits from
// c·w on as a two's complement number, plus the bit below them. It needs no carry, so windows are
// independent. A digit d stands for d·2^(c·w), |d| ≤ 2^(c−1); 0 takes part in nothing.
struct Digit { magnitude: u32, negative: bool }

// Digit w of scalar i.
fn scalar_digit(i: u32, w: u32, c: u32) -> Digit {
  // The c bits with the one below, which for the first window is 0.
  var raw = 0u;
  if (w == 0u) {
    raw = scalars[8u * i] << 1u;
  } else {
    let bit = w * c - 1u;
    let word = bit >> 5u;
    let shift = bit & 31u;
    if (word < 8u) {
      raw = scalars[8u * i + word] >> shift;
      if (shift + c + 1u > 32u && word < 7u) { raw |= scalars[8u * i + word + 1u] << (32u - shift); }
    }
  }
  let digit = ((raw >> 1u) & ((1u << c) - 1u)) + (raw & 1u);
  if (((raw >> c) & 1u) != 0u) { return Digit((1u << c) - digit, true); }
  return Digit(digit, false);
}

// The row of counts that window w goes to: its set of buckets within its list of tables.
fn window_row(w: u32) -> u32 {
  let list = w / params.sets / params.together;
  return list * params.sets + w % params.sets;
}

// The window and the scalar that invocation `local` of workgroup g has: windows come one after the
// other, so that what one scatters to stays in caches.
fn window_of(g: u32) -> u32 { return g / params.groups; }
fn scalar_of(g: u32, local: u32) -> u32 { return (g % params.groups) * 64u + local; }
