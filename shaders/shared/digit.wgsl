// Signed digits of the canonical 256-bit scalars in `scalars` (modified Booth recoding): digit w is the c bits from
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
