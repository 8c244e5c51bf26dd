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

mod multiples;

use self::multiples::{Form, Multiples};
use crate::curve::{G1, G2, GpuCurve};
use crate::device::Device;
use crate::domain::{Domain, RootConvention};
use crate::error::{Error, InputClass, InputError, Result};
use crate::formats::r1cs::{R1cs, R1csMatrix};
use crate::msm::Group;
use crate::prover::Fallback;
use crate::proving_key::{ProvingKey, QapReduction, g1_to_raw, g2_to_raw};
use crate::with_curve;
use ark_ec::PrimeGroup;
use ark_ff::{FftField, Field, One, PrimeField};
use rand::rngs::{OsRng, StdRng};
use rand::{RngCore, SeedableRng};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Powers that one task computes.
const CHUNK: usize = 1 << 12;

/// How to make a key.
#[derive(Clone, Debug)]
pub struct SetupOptions {
    /// With [`QapReduction::Libsnark`] the roots are those of arkworks.
    pub reduction: QapReduction,
    /// What multiplies the generators: nearly all of the work.
    pub device: Device,
    /// What to do when the device fails.
    pub fallback: Fallback,
}

impl Default for SetupOptions {
    /// As snarkjs makes keys, on the CPU.
    fn default() -> Self {
        Self {
            reduction: QapReduction::Circom,
            device: Device::Cpu,
            fallback: Fallback::Never,
        }
    }
}

/// What a setup took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetupReport {
    /// Who multiplied the generators; the CPU if it had to take over.
    pub device: String,
    /// What was computed, in order, and how long it took.
    pub stages: Vec<(&'static str, Duration)>,
}

impl SetupReport {
    /// Milliseconds of each stage.
    pub fn stages_ms(&self) -> BTreeMap<&'static str, f64> {
        let ms = |(name, time): &(_, Duration)| (*name, time.as_secs_f64() * 1e3);
        self.stages.iter().map(ms).collect()
    }
}

/// Measures stages.
struct Stages {
    report: SetupReport,
    since: Instant,
}

impl Stages {
    fn new() -> Self {
        Self {
            report: SetupReport::default(),
            since: Instant::now(),
        }
    }

    fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.report.stages.push((name, now - self.since));
        self.since = now;
    }
}

/// Host memory that making a key for a circuit takes, the circuit and the key among it.
pub fn setup_bytes(r1cs: &R1cs) -> u64 {
    let (wires, n) = (r1cs.n_wires as u64, domain_size(r1cs) as u64);
    let curve = r1cs.curve;
    let [g1, g2] = [Group::G1, Group::G2].map(|g| g.affine_bytes(curve));
    let rows = [&r1cs.a, &r1cs.b, &r1cs.c].map(|m| 4 * m.row_starts.len() + 8 * m.columns.len());
    let scalars = curve.fr_bytes() as u64;
    let points = wires * (3 * g1 + g2) + n * g1;
    let columns = scalars * (3 * wires + n);
    rows.iter().sum::<usize>() as u64 + columns.max(points + scalars * n)
}

/// The smallest power of two above constraints + public wires, at least 2.
fn domain_size(r1cs: &R1cs) -> usize {
    let rows = r1cs.n_constraints + r1cs.n_public() + 1;
    rows.next_power_of_two().max(2)
}

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
    let options = SetupOptions {
        reduction,
        ..SetupOptions::default()
    };
    setup_insecure_with(r1cs.clone(), &options).map(|(key, _)| key)
}

/// As [`setup_insecure`], with options. The circuit's rows become the key's. Besides key and circuit
/// this takes four scalars of 32 bytes a wire at first, and one while points are computed.
///
/// # Errors
/// Those of [`setup_insecure`]; with a device and without fallback also [`Error::OutOfMemory`],
/// [`Error::DeviceFault`] and [`Error::Timeout`].
pub fn setup_insecure_with(
    r1cs: R1cs,
    options: &SetupOptions,
) -> Result<(ProvingKey, SetupReport)> {
    with_curve!(r1cs.curve, C => setup_over::<C>(r1cs, options, &Trapdoor::random(&mut OsRng)))
}

/// As [`setup_insecure_as`], the same key each time: for the self-test. Anyone can forge proofs.
#[doc(hidden)]
pub fn setup_from_seed(r1cs: &R1cs, reduction: QapReduction, seed: u64) -> Result<ProvingKey> {
    let options = SetupOptions {
        reduction,
        ..SetupOptions::default()
    };
    setup_from_seed_with(r1cs, &options, seed)
}

/// As [`setup_from_seed`], with options: on all devices the same key.
#[doc(hidden)]
pub fn setup_from_seed_with(r1cs: &R1cs, options: &SetupOptions, seed: u64) -> Result<ProvingKey> {
    let rng = &mut StdRng::seed_from_u64(seed);
    let made = with_curve!(
        r1cs.curve,
        C => setup_over::<C>(r1cs.clone(), options, &Trapdoor::random(rng))
    );
    made.map(|(key, _)| key)
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
    r1cs: R1cs,
    options: &SetupOptions,
    trapdoor: &Trapdoor<C::Fr>,
) -> Result<(ProvingKey, SetupReport)> {
    let mut stages = Stages::new();
    check(&r1cs)?;
    let n_public = r1cs.n_public();
    let n = domain_size(&r1cs);
    let roots = match options.reduction {
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
    let odd_coset_shift = match options.reduction {
        QapReduction::Circom => Some(domain.odd_coset_shift().ok_or_else(too_large)?),
        QapReduction::Libsnark => None,
    };
    stages.end("check");

    let tau = *trapdoor.tau;
    let lagrange = lagrange_at(domain.generator, C::Fr::one(), n, tau);
    stages.end("lagrange");
    let R1cs {
        n_wires,
        n_constraints,
        a: rows_a,
        b: rows_b,
        c: rows_c,
        ..
    } = r1cs;
    let mut a = columns_at(&rows_a, &lagrange, n_wires);
    let b = columns_at(&rows_b, &lagrange, n_wires);
    let mut combined = columns_at(&rows_c, &lagrange, n_wires);
    drop(rows_c);
    for (wire, a) in a[..=n_public].iter_mut().enumerate() {
        *a += lagrange[n_constraints + wire];
    }
    drop(lagrange);
    let invert = |x: &C::Fr| x.inverse().expect("trapdoor values are not zero");
    let gamma_inverse = Zeroizing::new(invert(&trapdoor.gamma));
    let delta_inverse = Zeroizing::new(invert(&trapdoor.delta));
    // (β·a + α·b + c) over γ for public wires, over δ for private ones.
    combined.par_iter_mut().enumerate().for_each(|(i, c)| {
        *c += a[i] * *trapdoor.beta + b[i] * *trapdoor.alpha;
        *c *= if i <= n_public {
            *gamma_inverse
        } else {
            *delta_inverse
        };
    });
    stages.end("columns");
    // Now that there is room for two forms of them.
    let a_rows = rows_a.to_extended_key_matrix::<C>(n_public + 1);
    drop(rows_a);
    let b_rows = rows_b.to_key_matrix::<C>();
    drop(rows_b);
    stages.end("rows");

    let on = (&options.device, options.fallback);
    let form_g1 = Form::<C::G1Config> {
        curve: C::ID,
        group: Group::G1,
        push: g1_to_raw::<C>,
    };
    let form_g2 = Form::<C::G2Config> {
        curve: C::ID,
        group: Group::G2,
        push: g2_to_raw::<C>,
    };
    let mut g1 = Multiples::new(G1::<C>::generator(), form_g1, 3 * n_wires + n, on)?;
    let mut g2 = Multiples::new(G2::<C>::generator(), form_g2, n_wires, on)?;
    stages.end("tables");
    // One after the other into its place, and its scalars freed: what the host holds grows to the
    // key and no further.
    let ic = g1.of(&combined[..=n_public])?;
    let l_query = g1.of(&combined[n_public + 1..])?;
    drop(combined);
    stages.end("l");
    let a_query = g1.of(&a)?;
    drop(a);
    stages.end("a");
    let b_g1_query = g1.of(&b)?;
    stages.end("b_g1");
    let b_g2_query = g2.of(&b)?;
    drop(b);
    stages.end("b_g2");
    let h = match odd_coset_shift {
        Some(shift) => {
            let mut h = lagrange_at(domain.generator, shift, n, tau);
            let factor = odd_factor(tau, n) * *delta_inverse;
            h.par_iter_mut().for_each(|x| *x *= factor);
            h
        }
        // τⁱ·z(τ)/δ, of which the quotient of degree n − 2 needs n − 1.
        None => {
            let z = tau.pow([n as u64]) - C::Fr::one();
            powers(z * *delta_inverse, tau, n - 1)
        }
    };
    let h_query = g1.of(&h)?;
    drop(h);
    stages.end("h");
    let key = ProvingKey {
        curve: C::ID,
        reduction: options.reduction,
        roots,
        source: None,
        n_vars: n_wires,
        n_public,
        domain_size: n,
        a: Arc::new(a_rows),
        b: Arc::new(b_rows),
        alpha_g1: g1.one(&trapdoor.alpha),
        beta_g1: g1.one(&trapdoor.beta),
        beta_g2: g2.one(&trapdoor.beta),
        gamma_g2: g2.one(&trapdoor.gamma),
        delta_g1: g1.one(&trapdoor.delta),
        delta_g2: g2.one(&trapdoor.delta),
        ic: Some(ic),
        a_query,
        b_g1_query,
        b_g2_query,
        l_query,
        h_query,
    };
    stages.report.device = match g1.on_cpu() || g2.on_cpu() {
        true => Device::Cpu.to_string(),
        false => options.device.to_string(),
    };
    Ok((key, stages.report))
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
        let below = |list: &[u32], n: usize| list.par_iter().all(|i| (*i as usize) < n);
        let in_range = below(&matrix.columns, r1cs.n_wires)
            && below(&matrix.values, matrix.coefficients().len());
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

/// n zeros. All threads write them: one alone takes seconds to get so much memory from the system.
fn zeros<F: PrimeField>(n: usize) -> Zeroizing<Vec<F>> {
    Zeroizing::new(rayon::iter::repeat_n(F::zero(), n).collect())
}

/// factor·baseⁱ for all i < n.
fn powers<F: PrimeField>(factor: F, base: F, n: usize) -> Zeroizing<Vec<F>> {
    let mut powers = zeros(n);
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
    let mut values = powers(shift, generator, n);
    let shift_n = shift.pow([n as u64]);
    let factor = (tau.pow([n as u64]) - shift_n) / (F::from(n as u64) * shift_n);
    // Inversions are shared within a chunk, so that there is no second vector.
    values.par_chunks_mut(CHUNK).for_each(|points| {
        let mut inverses = Zeroizing::new(points.iter().map(|x| tau - x).collect::<Vec<_>>());
        ark_ff::batch_inversion_and_mul(&mut inverses, &factor);
        for (x, inverse) in points.iter_mut().zip(&*inverses) {
            *x *= inverse;
        }
    });
    values
}

/// The Lagrange polynomial of an odd point among the 2n points over the one among the n odd points
/// alone, at τ: it also vanishes at the even points, z(τ)/z(odd point) = (τⁿ − 1)/(−2).
fn odd_factor<F: FftField>(tau: F, n: usize) -> F {
    (F::one() - tau.pow([n as u64])) / F::from(2u64)
}

/// A coefficient, by what it takes to multiply by it.
enum Coefficient<F> {
    One,
    MinusOne,
    Other(F),
}

impl<F: PrimeField> Coefficient<F> {
    fn new(canonical: &[u8; 32]) -> Self {
        match F::from_le_bytes_mod_order(canonical) {
            x if x.is_one() => Self::One,
            x if x == -F::one() => Self::MinusOne,
            x => Self::Other(x),
        }
    }
}

/// Σ over rows of value·`row_values[row]`, for every column.
///
/// Each thread goes over all rows and adds up what is in its range of columns: the matrix is read
/// several times, and needs no transposed copy.
fn columns_at<F: PrimeField>(
    matrix: &R1csMatrix,
    row_values: &[F],
    n_columns: usize,
) -> Zeroizing<Vec<F>> {
    let coefficients = matrix.coefficients().iter();
    let coefficients: Vec<_> = coefficients.map(Coefficient::<F>::new).collect();
    let mut sums = zeros(n_columns);
    let part = n_columns.div_ceil(rayon::current_num_threads()).max(CHUNK);
    sums.par_chunks_mut(part).enumerate().for_each(|(i, sums)| {
        let first = i * part;
        for (row, row_value) in row_values.iter().enumerate().take(matrix.rows()) {
            for (column, value) in matrix.row_entries(row) {
                let place = (column as usize).wrapping_sub(first);
                let Some(sum) = sums.get_mut(place) else {
                    continue;
                };
                match &coefficients[value as usize] {
                    Coefficient::One => *sum += row_value,
                    Coefficient::MinusOne => *sum -= row_value,
                    Coefficient::Other(k) => *sum += *k * row_value,
                }
            }
        }
    });
    sums
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
