//! The witness: one canonical scalar a wire, wire 0 being the constant 1.

use crate::bytes::Bytes;
use crate::curve::CurveId;
use rayon::prelude::*;
use std::ops::Range;

/// Values of all wires in the order of the circuit: 1, public outputs and inputs, private wires.
///
/// Canonical (not Montgomery) little-endian, 32 bytes each; readers check that every value is
/// below the field's modulus.
#[derive(Clone)]
pub struct Witness {
    pub curve: CurveId,
    /// `32 * len()` bytes.
    pub values: Bytes,
}

impl Witness {
    /// Number of wires, the constant 1 included.
    pub fn len(&self) -> usize {
        self.values.len() / 32
    }
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// How many values of these wires are neither 0 nor 1.
    ///
    /// # Panics
    /// If there are no such wires.
    pub fn dense(&self, wires: Range<usize>) -> usize {
        self.values[32 * wires.start..32 * wires.end]
            .par_chunks_exact(32)
            .filter(|v| v[0] > 1 || v[1..].iter().any(|b| *b != 0))
            .count()
    }
    /// Canonical little-endian bytes of wire `i`.
    pub fn value(&self, i: usize) -> &[u8] {
        &self.values[32 * i..32 * (i + 1)]
    }
}

impl std::fmt::Debug for Witness {
    // The values are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Witness({}, {} wires)", self.curve, self.len())
    }
}
