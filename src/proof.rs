//! The proof, its public inputs, and the sums that a backend hands to the prover.

use crate::curve::{CurveId, G1, G1Affine, G2, G2Affine, GpuCurve};

/// The five multi-scalar sums of a proof (Groth 2016, §3.2), before blinding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofSums<C: GpuCurve> {
    /// Σ wᵢ·a_query[i]
    pub a: G1<C>,
    /// Σ wᵢ·b_g1_query[i]
    pub b_g1: G1<C>,
    /// Σ wᵢ·b_g2_query[i]
    pub b_g2: G2<C>,
    /// Σ wᵢ·l_query[i − n_public − 1] over the private wires
    pub l: G1<C>,
    /// Σ hᵢ·h_query[i]
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
