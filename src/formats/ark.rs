//! Proving keys of ark-groth16 (`LibsnarkReduction`), in memory and as `CanonicalSerialize`
//! writes them, compressed and not.
//!
//! The file has no magic number and does not name its curve. Points are in arkworks' encoding of
//! the curve (for BLS12-381 that of Zcash), `n×` is a little-endian `u64` count before the points:
//!
//! | order | field |
//! |---|---|
//! | 1–4 | α G1, β G2, γ G2, δ G2 |
//! | 5 | n× IC, G1: 1 + public wires |
//! | 6, 7 | β G1, δ G1 |
//! | 8 | n× A, G1: wires |
//! | 9 | n× B, G1: wires |
//! | 10 | n× B, G2: wires |
//! | 11 | n× H, G1: domain size − 1 |
//! | 12 | n× L, G1: private wires |
//!
//! The matrices are not in the file and come from the circuit's `.r1cs`. The domain has one row a
//! constraint, then one a public wire (1 included).

use super::libsnark::{Encoding, Field, Layout, Points, assemble, best_layout, decode_points};
use super::map_file;
use super::r1cs::R1cs;
use crate::curve::GpuCurve;
use crate::error::Result;
use crate::proving_key::{KeyCheck, ProvingKey, g1_to_raw, g2_to_raw};
use std::path::Path;

const FIELDS: &[Field] = &[
    Field::AlphaG1,
    Field::BetaG2,
    Field::GammaG2,
    Field::DeltaG2,
    Field::Ic,
    Field::BetaG1,
    Field::DeltaG1,
    Field::A,
    Field::BG1,
    Field::BG2,
    Field::H,
    Field::L,
];

pub(crate) const UNCOMPRESSED: Encoding = Encoding {
    fields: FIELDS,
    compressed: false,
    short_counts: false,
};
pub(crate) const COMPRESSED: Encoding = Encoding {
    compressed: true,
    ..UNCOMPRESSED
};

/// Decodes a key whose lengths agree.
pub(crate) fn decode(
    bytes: &[u8],
    layout: &Layout,
    path: &Path,
    r1cs: &R1cs,
) -> Result<ProvingKey> {
    assemble(decode_points(bytes, layout, path)?, r1cs, Some(path))
}

impl ProvingKey {
    /// Reads a serialized ark-groth16 key, compressed or not, for the circuit `r1cs`, which also
    /// tells the curve. Checks that the points lie on it.
    ///
    /// # Errors
    /// `truncated`, `bad_section` (bytes left over), `invalid_point`, `count_mismatch` between key
    /// and circuit.
    pub fn from_ark_file(path: impl AsRef<Path>, r1cs: &R1cs) -> Result<Self> {
        Self::from_ark_file_checked(path, r1cs, KeyCheck::default())
    }

    /// As [`Self::from_ark_file`], with another depth of checks.
    pub fn from_ark_file_checked(
        path: impl AsRef<Path>,
        r1cs: &R1cs,
        level: KeyCheck,
    ) -> Result<Self> {
        let path = path.as_ref();
        let bytes = map_file(path)?;
        let (_, layout) = best_layout(&[UNCOMPRESSED, COMPRESSED], &bytes, path, r1cs)?;
        let key = decode(&bytes, &layout, path, r1cs)?;
        key.check(level)?;
        Ok(key)
    }

    /// Converts a key of ark-groth16, whose points are taken as they are.
    ///
    /// # Errors
    /// `curve_mismatch` if the circuit is over another curve; `count_mismatch`.
    pub fn from_ark<C: GpuCurve>(
        key: &ark_groth16::ProvingKey<C::Pairing>,
        r1cs: &R1cs,
    ) -> Result<Self> {
        crate::verifying_key::expect_curve::<C>(r1cs.curve)?;
        let g1 = |points: &[crate::curve::G1Affine<C>]| {
            let mut out = Vec::with_capacity(points.len() * C::ID.g1_bytes());
            for p in points {
                g1_to_raw::<C>(p, &mut out);
            }
            out
        };
        let g2 = |points: &[crate::curve::G2Affine<C>]| {
            let mut out = Vec::with_capacity(points.len() * C::ID.g2_bytes());
            for p in points {
                g2_to_raw::<C>(p, &mut out);
            }
            out
        };
        let points = Points {
            alpha_g1: g1(&[key.vk.alpha_g1]),
            beta_g1: g1(&[key.beta_g1]),
            beta_g2: g2(&[key.vk.beta_g2]),
            gamma_g2: g2(&[key.vk.gamma_g2]),
            delta_g1: g1(&[key.delta_g1]),
            delta_g2: g2(&[key.vk.delta_g2]),
            ic: g1(&key.vk.gamma_abc_g1),
            a: g1(&key.a_query),
            b_g1: g1(&key.b_g1_query),
            b_g2: g2(&key.b_g2_query),
            l: g1(&key.l_query),
            h: g1(&key.h_query),
        };
        assemble(points, r1cs, None)
    }
}
