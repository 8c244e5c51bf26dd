//! The proving key: the queries of Groth16 ([Groth 2016](https://eprint.iacr.org/2016/260), §3.2)
//! as raw points, and the rows of the constraint matrices A and B.
//!
//! Points are kept in the form in which snarkjs and arkworks store them and in which the kernels
//! read them: affine, little-endian, Montgomery with R = 2^(32·words), infinity as all zeros.
//! A `.zkey` is therefore used where it lies in the mapped file.

use crate::bytes::Bytes;
use crate::curve::{CurveId, G1Affine, G2Affine, GpuCurve};
use crate::domain::RootConvention;
use ark_ec::AffineRepr;
use ark_ff::Zero;
use std::path::PathBuf;
use std::sync::Arc;

/// How the quotient's scalars relate to the h query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QapReduction {
    /// snarkjs: scalars are a·b − c on the coset of the odd 2n-th roots, h query in Lagrange form.
    Circom,
    /// arkworks, bellman: scalars are the coefficients of (a·b − c)/z, h query in monomial form.
    Libsnark,
}

/// One of the matrices A, B in compressed rows.
///
/// Values are v·R² (R = 2^256) in canonical range: one Montgomery multiplication by a canonical
/// witness value gives the product in Montgomery form.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// Start of each row in `columns` and `values`; `rows + 1` entries.
    pub row_starts: Vec<u32>,
    /// Wire index of each entry.
    pub columns: Vec<u32>,
    /// 32 little-endian bytes an entry.
    pub values: Vec<[u8; 32]>,
}

impl Matrix {
    /// Number of rows that the matrix lists; rows beyond are empty.
    pub fn rows(&self) -> usize {
        self.row_starts.len().saturating_sub(1)
    }
}

/// A proving key of either curve, from whatever source.
#[derive(Clone, Debug)]
pub struct ProvingKey {
    pub curve: CurveId,
    pub reduction: QapReduction,
    pub roots: RootConvention,
    /// Where it was read from, for messages.
    pub source: Option<PathBuf>,
    /// Wires, the constant 1 included.
    pub n_vars: usize,
    /// Public wires, the constant 1 not included.
    pub n_public: usize,
    /// Size of the evaluation domain, a power of two.
    pub domain_size: usize,
    /// Rows of A and B (`rows() <= domain_size`), the public-input rows of the reduction included.
    pub a: Arc<Matrix>,
    pub b: Arc<Matrix>,
    pub alpha_g1: Bytes,
    pub beta_g1: Bytes,
    pub beta_g2: Bytes,
    pub gamma_g2: Bytes,
    pub delta_g1: Bytes,
    pub delta_g2: Bytes,
    /// Verifying key's `n_public + 1` points; `None` if the file lacks them.
    pub ic: Option<Bytes>,
    /// `n_vars` G1 points.
    pub a_query: Bytes,
    /// `n_vars` G1 points.
    pub b_g1_query: Bytes,
    /// `n_vars` G2 points.
    pub b_g2_query: Bytes,
    /// `n_vars - n_public - 1` G1 points, for the private wires.
    pub l_query: Bytes,
    /// `domain_size` (circom) or `domain_size - 1` (libsnark) G1 points.
    pub h_query: Bytes,
}

fn push_limbs(limbs: &[u64], out: &mut Vec<u8>) {
    for limb in limbs {
        out.extend_from_slice(&limb.to_le_bytes());
    }
}

/// Decodes an affine G1 point at rest; `None` if a coordinate is not below the modulus.
/// Does not check the curve equation.
pub fn g1_from_raw<C: GpuCurve>(bytes: &[u8]) -> Option<G1Affine<C>> {
    let n = C::ID.fq_bytes();
    let x = C::fq_from_montgomery(&bytes[..n])?;
    let y = C::fq_from_montgomery(&bytes[n..2 * n])?;
    if x.is_zero() && y.is_zero() {
        return Some(G1Affine::<C>::identity());
    }
    Some(G1Affine::<C>::new_unchecked(x, y))
}

/// Decodes an affine G2 point at rest, like [`g1_from_raw`].
pub fn g2_from_raw<C: GpuCurve>(bytes: &[u8]) -> Option<G2Affine<C>> {
    let n = C::ID.fq_bytes();
    let mut c = [C::Fq::zero(); 4];
    for (c, chunk) in c.iter_mut().zip(bytes.chunks_exact(n)) {
        *c = C::fq_from_montgomery(chunk)?;
    }
    let (x, y) = (C::fq2_from_parts(c[0], c[1]), C::fq2_from_parts(c[2], c[3]));
    if x.is_zero() && y.is_zero() {
        return Some(G2Affine::<C>::identity());
    }
    Some(G2Affine::<C>::new_unchecked(x, y))
}

/// Appends the form at rest of a G1 point.
pub fn g1_to_raw<C: GpuCurve>(p: &G1Affine<C>, out: &mut Vec<u8>) {
    if p.is_zero() {
        out.resize(out.len() + C::ID.g1_bytes(), 0);
    } else {
        push_limbs(C::fq_montgomery(&p.x), out);
        push_limbs(C::fq_montgomery(&p.y), out);
    }
}

/// Appends the form at rest of a G2 point.
pub fn g2_to_raw<C: GpuCurve>(p: &G2Affine<C>, out: &mut Vec<u8>) {
    if p.is_zero() {
        out.resize(out.len() + C::ID.g2_bytes(), 0);
    } else {
        for c in [&p.x, &p.y].iter().flat_map(|c| C::fq2_parts(c)) {
            push_limbs(C::fq_montgomery(&c), out);
        }
    }
}
