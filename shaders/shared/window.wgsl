// Signed digits of canonical 256-bit scalars, window by window from the least significant.
// A digit d stands for |d|·2^(c·w), 1 ≤ |d| ≤ 2^(c−1); 0 takes part in nothing.
struct Digit {
  // |d|
  magnitude: u32,
  negative: bool,
  // Into the next window.
  carry: u32,
}

// The digit of window w of scalar i, given the carry out of the window below.
fn scalar_digit(i: u32, w: u32, c: u32, carry: u32) -> Digit {
  let bit = w * c;
  let word = bit >> 5u;
  let shift = bit & 31u;
  var raw = 0u;
  if (word < 8u) {
    raw = scalars[8u * i + word] >> shift;
    if (shift + c > 32u && word < 7u) { raw |= scalars[8u * i + word + 1u] << (32u - shift); }
  }
  let digit = (raw & ((1u << c) - 1u)) + carry;
  if (digit > (1u << (c - 1u))) { return Digit((1u << c) - digit, true, 1u); }
  return Digit(digit, false, 0u);
}

// The row of counts that window w goes to: its set of buckets within its list of tables.
fn window_row(w: u32) -> u32 {
  let list = w / params.sets / params.together;
  return list * params.sets + w % params.sets;
}
