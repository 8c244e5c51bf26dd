//! Parameter files of bellman and bellperson, over BLS12-381.
//!
//! The file has no magic number. Points are in Zcash's uncompressed encoding (big-endian, flags in
//! the top bits), `n×` is a big-endian `u32` count before the points:
//!
//! | order | field |
//! |---|---|
//! | 1–6 | α G1, β G1, β G2, γ G2, δ G1, δ G2 |
//! | 7 | n× IC, G1: 1 + public wires |
//! | 8 | n× H, G1: domain size − 1 |
//! | 9 | n× L, G1: private wires |
//! | 10 | n× A, G1: the wires that A mentions |
//! | 11 | n× B, G1: the wires that B mentions |
//! | 12 | n× B, G2: likewise |
//!
//! A mentions every public wire, because the reduction adds a row wire · 0 = 0 for each, after the
//! constraints. Here the queries are spread over all wires, with infinity for those not mentioned.

use super::libsnark::{
    Encoding, Field, Layout, assemble, best_layout, count_error, decode_points, mentioned,
};
use super::map_file;
use super::r1cs::R1cs;
use crate::curve::CurveId;
use crate::error::{InputClass, InputError, Result};
use crate::proving_key::{KeyCheck, ProvingKey};
use std::path::Path;

pub(crate) const PARAMETERS: Encoding = Encoding {
    fields: &[
        Field::AlphaG1,
        Field::BetaG1,
        Field::BetaG2,
        Field::GammaG2,
        Field::DeltaG1,
        Field::DeltaG2,
        Field::Ic,
        Field::H,
        Field::L,
        Field::A,
        Field::BG1,
        Field::BG2,
    ],
    compressed: false,
    short_counts: true,
};

/// Decodes parameters whose lengths agree.
pub(crate) fn decode(
    bytes: &[u8],
    layout: &Layout,
    path: &Path,
    r1cs: &R1cs,
) -> Result<ProvingKey> {
    let mut points = decode_points(bytes, layout, path)?;
    let mut in_a = mentioned(&r1cs.a, r1cs.n_wires);
    in_a[..=r1cs.n_public()].fill(true);
    let in_b = mentioned(&r1cs.b, r1cs.n_wires);
    let (g1, g2) = (r1cs.curve.g1_bytes(), r1cs.curve.g2_bytes());
    points.a = spread(&points.a, g1, &in_a, Field::A, path)?;
    points.b_g1 = spread(&points.b_g1, g1, &in_b, Field::BG1, path)?;
    points.b_g2 = spread(&points.b_g2, g2, &in_b, Field::BG2, path)?;
    assemble(points, r1cs, Some(path))
}

/// Puts points of `size` bytes at the wires that are mentioned, infinity elsewhere.
fn spread(points: &[u8], size: usize, at: &[bool], field: Field, path: &Path) -> Result<Vec<u8>> {
    let expected = at.iter().filter(|mentioned| **mentioned).count();
    let found = points.len() / size;
    if found != expected {
        return Err(count_error(field, found, expected, Some(path)).into());
    }
    let mut out = vec![0; at.len() * size];
    let slots = out
        .chunks_exact_mut(size)
        .zip(at)
        .filter(|(_, mentioned)| **mentioned);
    for ((slot, _), point) in slots.zip(points.chunks_exact(size)) {
        slot.copy_from_slice(point);
    }
    Ok(out)
}

impl ProvingKey {
    /// Reads a parameter file of bellman or bellperson for the circuit `r1cs`, whose wires are in
    /// bellman's order: 1, inputs, auxiliary variables. Checks that the points lie on the curve.
    ///
    /// # Errors
    /// `unsupported_curve` if the circuit is not over BLS12-381; `truncated`, `bad_section` (bytes
    /// left over), `invalid_point`, `count_mismatch` between key and circuit.
    pub fn from_bellman(path: impl AsRef<Path>, r1cs: &R1cs) -> Result<Self> {
        Self::from_bellman_checked(path, r1cs, KeyCheck::default())
    }

    /// As [`Self::from_bellman`], with another depth of checks.
    pub fn from_bellman_checked(
        path: impl AsRef<Path>,
        r1cs: &R1cs,
        level: KeyCheck,
    ) -> Result<Self> {
        let path = path.as_ref();
        if r1cs.curve != CurveId::Bls12_381 {
            let message = format!("bellman parameters are over bls12_381, not {}", r1cs.curve);
            return Err(InputError::new(InputClass::UnsupportedCurve, message)
                .file(path)
                .into());
        }
        let bytes = map_file(path)?;
        let (_, layout) = best_layout(&[PARAMETERS], &bytes, path, r1cs)?;
        let key = decode(&bytes, &layout, path, r1cs)?;
        key.check(level)?;
        Ok(key)
    }
}
