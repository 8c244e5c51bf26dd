//! The sum from what the device sends.

use super::Geometry;
use crate::curve::{G1, G2, GpuCurve};
use crate::error::Result;
use ark_ec::AdditiveGroup;
use ark_ec::short_weierstrass::{Projective, SWCurveConfig};
use ark_ff::{PrimeField, Zero};
use rayon::prelude::*;

/// Σ_s 2^(c·s)·(S_s + Σ_k 2^k·T_{s,k}) over sets of buckets: each set on a thread of its own, then
/// Horner's rule over the sets.
fn combine<P: SWCurveConfig>(points: &[Projective<P>], g: &Geometry) -> Projective<P> {
    let c = g.set_points() as usize;
    let sets: Vec<_> = points
        .par_chunks_exact(c)
        .map(|set| {
            let mut sum = Projective::<P>::zero();
            for t in set[1..].iter().rev() {
                sum.double_in_place();
                sum += t;
            }
            sum + set[0]
        })
        .collect();
    let mut sum = Projective::<P>::zero();
    for set in sets.iter().rev() {
        for _ in 0..c {
            sum.double_in_place();
        }
        sum += set;
    }
    sum
}

/// Jacobian coordinates (X·ZZ, Y·ZZZ, ZZ) of an XYZZ point.
fn to_jacobian<P: SWCurveConfig>(c: [P::BaseField; 4]) -> Projective<P> {
    let [x, y, zz, zzz] = c;
    if zz.is_zero() {
        return Projective::zero();
    }
    Projective::new_unchecked(x * zz, y * zzz, zz)
}

fn fault(what: &str) -> crate::Error {
    crate::Error::DeviceFault {
        device: "device".into(),
        message: format!("multi-scalar multiplication returned {what}"),
    }
}

/// The sum in G1 from downloaded window sums.
///
/// # Errors
/// `DeviceFault` if the bytes are not canonical field elements.
pub fn finish_g1<C: GpuCurve>(bytes: &[u8], g: &Geometry) -> Result<G1<C>> {
    let n = C::ID.fq_bytes();
    let mut points = Vec::with_capacity(bytes.len() / (4 * n));
    for chunk in bytes.chunks_exact(4 * n) {
        let mut c = [C::Fq::zero(); 4];
        for (c, b) in c.iter_mut().zip(chunk.chunks_exact(n)) {
            *c = C::fq_from_montgomery(b).ok_or_else(|| fault("a value not below the modulus"))?;
        }
        points.push(to_jacobian::<C::G1Config>(c));
    }
    Ok(combine(&points, g))
}

/// The sum in G2 from downloaded window sums, like [`finish_g1`].
///
/// # Errors
/// `DeviceFault` if the bytes are not canonical field elements.
pub fn finish_g2<C: GpuCurve>(bytes: &[u8], g: &Geometry) -> Result<G2<C>> {
    let n = C::ID.fq_bytes();
    let mut points = Vec::with_capacity(bytes.len() / (8 * n));
    for chunk in bytes.chunks_exact(8 * n) {
        let mut c = [C::Fq2::zero(); 4];
        for (c, b) in c.iter_mut().zip(chunk.chunks_exact(2 * n)) {
            let (Some(c0), Some(c1)) = (
                C::fq_from_montgomery(&b[..n]),
                C::fq_from_montgomery(&b[n..]),
            ) else {
                return Err(fault("a value not below the modulus"));
            };
            *c = C::fq2_from_parts(c0, c1);
        }
        points.push(to_jacobian::<C::G2Config>(c));
    }
    Ok(combine(&points, g))
}

/// Bits of the scalar field's modulus.
pub fn scalar_bits<C: GpuCurve>() -> u32 {
    C::Fr::MODULUS_BIT_SIZE
}
