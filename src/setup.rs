//! One-party setup, for development and tests.
//!
//! **Insecure**: whoever runs this could keep the trapdoor and forge proofs. Keys for real use come
//! from a multi-party ceremony. [`setup_insecure`] makes a key in the form of snarkjs' phase 2: the
//! circom reduction, snarkjs' roots, one row of A per public wire after the constraints.
//! [`setup_insecure_as`] also makes keys in the form of arkworks.
//!
//! ## The h query of the circom reduction
//! Let x_k = ω^k for the primitive 2n-th root ω. P = A·B − C has a degree below 2n and, for a right
//! witness, vanishes at the even points, which are the n-th roots of unity. By Lagrange
//! interpolation over all 2n points
//!
//! P(τ) = Σ P(x_{2i+1})·L_{2i+1}(τ), with L_k(τ) = (τ^2n − 1)/2n · x_k/(τ − x_k),
//!
//! and since P = h·z, the points H_i = L_{2i+1}(τ)/δ · G give Σ P(x_{2i+1})·H_i = h(τ)z(τ)/δ · G.

use crate::bytes::Bytes;
use crate::cpu::fixed_base::FixedBase;
use crate::curve::{G1, G1Affine, G2, G2Affine, GpuCurve};
use crate::domain::{Domain, RootConvention};
use crate::error::{Error, InputClass, InputError, Result};
use crate::formats::r1cs::{R1cs, R1csMatrix};
use crate::proving_key::{ProvingKey, QapReduction, g1_to_raw, g2_to_raw};
use crate::with_curve;
use ark_ec::{CurveGroup, PrimeGroup};
use ark_ff::{FftField, Field, One, PrimeField};
use rand::rngs::{OsRng, StdRng};
use rand::{RngCore, SeedableRng};
use rayon::prelude::*;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Powers that one task computes.
const CHUNK: usize = 1 << 12;

/// Makes a key for `r1cs` with a trapdoor of this process' own, which is wiped afterwards.
///
/// The domain is the smallest power of two above constraints + public wires, at least 2.
///
/// # Errors
/// `bad_constraint` for terms over no wire of the circuit or matrices of different height,
/// `count_mismatch` if there are more public wires than wires, [`Error::Usage`] if the circuit is
/// too large for the curve's scalar field.
pub fn setup_insecure(r1cs: &R1cs) -> Result<ProvingKey> {
    setup_insecure_as(r1cs, QapReduction::Circom)
}

/// As [`setup_insecure`], for either reduction; with [`QapReduction::Libsnark`] the roots are those
/// of arkworks.
pub fn setup_insecure_as(r1cs: &R1cs, reduction: QapReduction) -> Result<ProvingKey> {
    with_curve!(r1cs.curve, C => setup_over::<C>(r1cs, reduction, &Trapdoor::random(&mut OsRng)))
}

/// As [`setup_insecure_as`], the same key each time: for the self-test. Anyone can forge proofs.
#[doc(hidden)]
pub fn setup_from_seed(r1cs: &R1cs, reduction: QapReduction, seed: u64) -> Result<ProvingKey> {
    let rng = &mut StdRng::seed_from_u64(seed);
    with_curve!(r1cs.curve, C => setup_over::<C>(r1cs, reduction, &Trapdoor::random(rng)))
}

/// What nobody may know about a key in use; wiped when dropped.
struct Trapdoor<F: PrimeField> {
    tau: Zeroizing<F>,
    alpha: Zeroizing<F>,
    beta: Zeroizing<F>,
    gamma: Zeroizing<F>,
    delta: Zeroizing<F>,
}

impl<F: PrimeField> Trapdoor<F> {
    fn random(rng: &mut impl RngCore) -> Self {
        let mut nonzero = || loop {
            let x = F::rand(rng);
            if !x.is_zero() {
                return Zeroizing::new(x);
            }
        };
        Self {
            tau: loop {
                // Outside every domain, so that no Lagrange denominator vanishes.
                let tau = nonzero();
                let order = F::TWO_ADICITY;
                if (0..order).fold(*tau, |x, _| x.square()) != F::one() {
                    break tau;
                }
            },
            alpha: nonzero(),
            beta: nonzero(),
            gamma: nonzero(),
            delta: nonzero(),
        }
    }
}

fn setup_over<C: GpuCurve>(
    r1cs: &R1cs,
    reduction: QapReduction,
    trapdoor: &Trapdoor<C::Fr>,
) -> Result<ProvingKey> {
    check(r1cs)?;
    let n_public = r1cs.n_public();
    let n = (r1cs.n_constraints + n_public + 1)
        .next_power_of_two()
        .max(2);
    let roots = match reduction {
        QapReduction::Circom => RootConvention::Snarkjs,
        QapReduction::Libsnark => RootConvention::Arkworks,
    };
    let too_large = || {
        Error::Usage(format!(
            "a circuit of {} constraints is too large for {}",
            r1cs.n_constraints, r1cs.curve
        ))
    };
    let domain = Domain::<C::Fr>::new(n.trailing_zeros(), roots).ok_or_else(too_large)?;

    let tau = *trapdoor.tau;
    let lagrange = lagrange_at(domain.generator, C::Fr::one(), n, tau);
    let (mut a, (b, c)) = rayon::join(
        || columns_at(&r1cs.a, &lagrange, r1cs.n_wires),
        || {
            rayon::join(
                || columns_at(&r1cs.b, &lagrange, r1cs.n_wires),
                || columns_at(&r1cs.c, &lagrange, r1cs.n_wires),
            )
        },
    );
    for (wire, a) in a[..=n_public].iter_mut().enumerate() {
        *a += lagrange[r1cs.n_constraints + wire];
    }

    let invert = |x: &C::Fr| x.inverse().expect("trapdoor values are not zero");
    let gamma_inverse = Zeroizing::new(invert(&trapdoor.gamma));
    let delta_inverse = Zeroizing::new(invert(&trapdoor.delta));
    // (β·a + α·b + c) over γ for public wires, over δ for private ones.
    let combined: Zeroizing<Vec<C::Fr>> = Zeroizing::new(
        (0..r1cs.n_wires)
            .into_par_iter()
            .map(|i| {
                let sum = a[i] * *trapdoor.beta + b[i] * *trapdoor.alpha + c[i];
                sum * if i <= n_public {
                    *gamma_inverse
                } else {
                    *delta_inverse
                }
            })
            .collect(),
    );
    let h = match reduction {
        QapReduction::Circom => {
            let shift = domain.odd_coset_shift().ok_or_else(too_large)?;
            let mut h = lagrange_at(domain.generator, shift, n, tau);
            let factor = odd_factor(tau, n) * *delta_inverse;
            h.par_iter_mut().for_each(|x| *x *= factor);
            h
        }
        // τⁱ·z(τ)/δ, of which the quotient of degree n − 2 needs n − 1.
        QapReduction::Libsnark => {
            let z = tau.pow([n as u64]) - C::Fr::one();
            powers(z * *delta_inverse, tau, n - 1)
        }
    };

    let g1 = FixedBase::new(G1::<C>::generator(), 3 * r1cs.n_wires + n);
    let g2 = FixedBase::new(G2::<C>::generator(), r1cs.n_wires);
    let one_g1 = |x: &C::Fr| g1_bytes::<C>(&[(G1::<C>::generator() * x).into_affine()]);
    let one_g2 = |x: &C::Fr| g2_bytes::<C>(&[(G2::<C>::generator() * x).into_affine()]);
    Ok(ProvingKey {
        curve: C::ID,
        reduction,
        roots,
        source: None,
        n_vars: r1cs.n_wires,
        n_public,
        domain_size: n,
        a: Arc::new(r1cs.a.to_extended_key_matrix::<C>(n_public + 1)),
        b: Arc::new(r1cs.b.to_key_matrix::<C>()),
        alpha_g1: one_g1(&trapdoor.alpha),
        beta_g1: one_g1(&trapdoor.beta),
        beta_g2: one_g2(&trapdoor.beta),
        gamma_g2: one_g2(&trapdoor.gamma),
        delta_g1: one_g1(&trapdoor.delta),
        delta_g2: one_g2(&trapdoor.delta),
        ic: Some(g1_bytes::<C>(&g1.multiples(&combined[..=n_public]))),
        a_query: g1_bytes::<C>(&g1.multiples(&a)),
        b_g1_query: g1_bytes::<C>(&g1.multiples(&b)),
        b_g2_query: g2_bytes::<C>(&g2.multiples(&b)),
        l_query: g1_bytes::<C>(&g1.multiples(&combined[n_public + 1..])),
        h_query: g1_bytes::<C>(&g1.multiples(&h)),
    })
}

fn check(r1cs: &R1cs) -> Result<()> {
    let error = |class, message: String| {
        let mut e = InputError::new(class, message);
        e.file.clone_from(&r1cs.source);
        Err(e.into())
    };
    if r1cs.n_public() >= r1cs.n_wires {
        return error(
            InputClass::CountMismatch,
            format!(
                "{} public wires, but only {} wires",
                r1cs.n_public() + 1,
                r1cs.n_wires
            ),
        );
    }
    for (name, matrix) in [("A", &r1cs.a), ("B", &r1cs.b), ("C", &r1cs.c)] {
        let entries = matrix.columns.len();
        let in_order = matrix.row_starts.is_sorted()
            && matrix
                .row_starts
                .last()
                .is_none_or(|n| *n as usize == entries)
            && matrix.values.len() == entries;
        let in_range = matrix
            .columns
            .iter()
            .all(|wire| (*wire as usize) < r1cs.n_wires);
        if matrix.rows() != r1cs.n_constraints || !in_order || !in_range {
            return error(
                InputClass::BadConstraint,
                format!(
                    "matrix {name} is not one of {} rows over {} wires",
                    r1cs.n_constraints, r1cs.n_wires
                ),
            );
        }
    }
    Ok(())
}

/// factor·baseⁱ for all i < n.
fn powers<F: PrimeField>(factor: F, base: F, n: usize) -> Zeroizing<Vec<F>> {
    let mut powers = Zeroizing::new(vec![F::zero(); n]);
    powers
        .par_chunks_mut(CHUNK)
        .enumerate()
        .for_each(|(chunk, powers)| {
            let mut x = factor * base.pow([(chunk * CHUNK) as u64]);
            for power in powers {
                *power = x;
                x *= base;
            }
        });
    powers
}

/// The i-th Lagrange polynomial of the points shift·gⁱ at τ, for all i < n, where gⁿ = 1:
/// (τⁿ − shiftⁿ)/(n·shiftⁿ) · xᵢ/(τ − xᵢ).
fn lagrange_at<F: PrimeField>(generator: F, shift: F, n: usize, tau: F) -> Zeroizing<Vec<F>> {
    let mut points = powers(shift, generator, n);
    let mut inverses = Zeroizing::new(points.par_iter().map(|x| tau - x).collect::<Vec<_>>());
    ark_ff::batch_inversion(&mut inverses);
    let shift_n = shift.pow([n as u64]);
    let factor = (tau.pow([n as u64]) - shift_n) / (F::from(n as u64) * shift_n);
    points
        .par_iter_mut()
        .zip(&*inverses)
        .for_each(|(x, inverse)| *x *= *inverse * factor);
    points
}

/// The Lagrange polynomial of an odd point among the 2n points over the one among the n odd points
/// alone, at τ: it also vanishes at the even points, z(τ)/z(odd point) = (τⁿ − 1)/(−2).
fn odd_factor<F: FftField>(tau: F, n: usize) -> F {
    (F::one() - tau.pow([n as u64])) / F::from(2u64)
}

/// Σ over rows of value·`row_values[row]`, for every column.
fn columns_at<F: PrimeField>(
    matrix: &R1csMatrix,
    row_values: &[F],
    n_columns: usize,
) -> Zeroizing<Vec<F>> {
    let mut sums = Zeroizing::new(vec![F::zero(); n_columns]);
    for (row, row_value) in row_values.iter().enumerate().take(matrix.rows()) {
        for (column, value) in matrix.row(row) {
            sums[column as usize] += F::from_le_bytes_mod_order(value) * row_value;
        }
    }
    sums
}

fn g1_bytes<C: GpuCurve>(points: &[G1Affine<C>]) -> Bytes {
    let mut bytes = Vec::with_capacity(points.len() * C::ID.g1_bytes());
    points.iter().for_each(|p| g1_to_raw::<C>(p, &mut bytes));
    bytes.into()
}

fn g2_bytes<C: GpuCurve>(points: &[G2Affine<C>]) -> Bytes {
    let mut bytes = Vec::with_capacity(points.len() * C::ID.g2_bytes());
    points.iter().for_each(|p| g2_to_raw::<C>(p, &mut bytes));
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ark_ff::{UniformRand, Zero};
    use ark_std::test_rng;

    /// The identity behind the h query: Σ P(x_{2i+1})·L_{2i+1}(τ) = P(τ) where P vanishes at the
    /// even points.
    #[test]
    fn odd_points_interpolate_multiples_of_z() {
        type F = ark_bls12_381::Fr;
        let rng = &mut test_rng();
        for log2 in 0..6 {
            let n = 1usize << log2;
            let double = Domain::<F>::new(log2 + 1, RootConvention::Snarkjs).unwrap();
            let quotient: Vec<F> = (0..n - n / 2).map(|_| F::rand(rng)).collect();
            let p = |x: F| {
                let h = quotient.iter().rev().fold(F::zero(), |sum, c| sum * x + c);
                h * (x.pow([n as u64]) - F::one())
            };
            let tau = F::rand(rng);
            let lagrange = lagrange_at(double.generator.square(), double.generator, n, tau);
            let mut x = double.generator;
            let mut sum = F::zero();
            for l in &*lagrange {
                sum += p(x) * l * odd_factor(tau, n);
                x *= double.generator.square();
            }
            assert_eq!(sum, p(tau), "n = {n}");
        }
    }
}
