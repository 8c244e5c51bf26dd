//! The proof, its public inputs, and the sums that a backend hands to the prover.

use crate::curve::{CurveId, G1, G1Affine, G2, G2Affine, GpuCurve};
use crate::error::Result;
use crate::proving_key::{g1_to_raw, g2_to_raw};
use crate::verifying_key::{checked_g1, checked_g2, expect_curve};
use ark_ff::PrimeField;

/// The five multi-scalar sums of a proof (Groth 2016, §3.2), before blinding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofSums<C: GpuCurve> {
    /// `Σ wᵢ·a_query[i]`
    pub a: G1<C>,
    /// `Σ wᵢ·b_g1_query[i]`
    pub b_g1: G1<C>,
    /// `Σ wᵢ·b_g2_query[i]`
    pub b_g2: G2<C>,
    /// `Σ wᵢ·l_query[i − n_public − 1]` over the private wires
    pub l: G1<C>,
    /// `Σ hᵢ·h_query[i]`
    pub h: G1<C>,
}

/// The three points of a Groth16 proof over a curve known at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurveProof<C: GpuCurve> {
    pub a: G1Affine<C>,
    pub b: G2Affine<C>,
    pub c: G1Affine<C>,
}

/// A proof over either curve: affine points in the form at rest of [`crate::proving_key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub curve: CurveId,
    pub a: Vec<u8>,
    pub b: Vec<u8>,
    pub c: Vec<u8>,
    /// Canonical little-endian public inputs, without the constant 1.
    pub public_inputs: Vec<[u8; 32]>,
}

impl Proof {
    /// The proof of a curve known at compile time, with its public inputs (canonical).
    pub fn new<C: GpuCurve>(points: &CurveProof<C>, public_inputs: Vec<[u8; 32]>) -> Self {
        let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
        g1_to_raw::<C>(&points.a, &mut a);
        g2_to_raw::<C>(&points.b, &mut b);
        g1_to_raw::<C>(&points.c, &mut c);
        Self {
            curve: C::ID,
            a,
            b,
            c,
            public_inputs,
        }
    }

    /// Converts from arkworks. The points are taken as they are; the inputs are canonicalised.
    pub fn from_ark<C: GpuCurve>(proof: &ark_groth16::Proof<C::Pairing>, inputs: &[C::Fr]) -> Self {
        let points = CurveProof::<C> {
            a: proof.a,
            b: proof.b,
            c: proof.c,
        };
        let canonical = |x: &C::Fr| {
            let mut bytes = [0; 32];
            for (chunk, limb) in bytes.chunks_exact_mut(8).zip(x.into_bigint().as_ref()) {
                chunk.copy_from_slice(&limb.to_le_bytes());
            }
            bytes
        };
        Self::new(&points, inputs.iter().map(canonical).collect())
    }

    /// Converts the points to arkworks, checking that they lie in their subgroups.
    ///
    /// # Errors
    /// `invalid_point`; `curve_mismatch` if `C` is not this proof's curve.
    pub fn to_ark<C: GpuCurve>(&self) -> Result<ark_groth16::Proof<C::Pairing>> {
        expect_curve::<C>(self.curve)?;
        Ok(ark_groth16::Proof {
            a: checked_g1::<C>(&self.a, "proof point A", None)?,
            b: checked_g2::<C>(&self.b, "proof point B")?,
            c: checked_g1::<C>(&self.c, "proof point C", None)?,
        })
    }
}
