//! Transforms.

use super::{
    CaseError, Outcome, Prepared, Size, at_rest, check, expect_scalars, random, rng, run_recording,
};
use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::GpuDevice;
use crate::device::recording::Recording;
use crate::domain::{Domain, RootConvention};
use crate::ntt::{
    Finish, Order, PowerTable, block_log, record_roots, record_transform, root_powers,
};
use crate::parts::Parts;
use ark_ff::{FftField, Field, One};
use ark_poly::{EvaluationDomain, Radix2EvaluationDomain};
use rayon::prelude::*;

/// Values to coefficients, and to values on a coset, in both root conventions, at sizes of one and
/// of several passes.
pub(super) fn transforms<C: GpuCurve>(size: Size) -> Prepared {
    let small: &[u32] = &[1, 2, 5, 9, 10, 11];
    let large: &[u32] = &[1, 2, 3, 7, 8, 9, 10, 11, 14, 16, 17];
    let huge: &[u32] = &[1, 8, 9, 10, 11, 17, 18, 19, 20, 21, 22];
    let sizes = match size {
        Size::Huge => huge,
        _ => size.pick(small, large),
    };
    let conventions = [RootConvention::Snarkjs, RootConvention::Arkworks];
    let each = |log_n: u32| conventions.map(|roots| Vectors::<C>::new(log_n, roots));
    let vectors: Vec<_> = sizes.par_iter().map(|log_n| each(*log_n)).collect();
    let vectors: Vec<_> = vectors.into_iter().flatten().collect::<Result<_, _>>()?;
    check(move |gpu| {
        for v in &vectors {
            // In one part, and in two, four or eight.
            for split_log in [0, 1 + v.log_n % 3] {
                if 2 * split_log <= v.log_n {
                    let roots = v.roots;
                    transform::<C>(gpu, v, split_log)
                        .map_err(|e| format!("2^{}, {roots:?}, split {split_log}: {e}", v.log_n))?;
                }
            }
        }
        Ok(())
    })
}

/// A polynomial in three forms.
struct Vectors<C: GpuCurve> {
    log_n: u32,
    roots: RootConvention,
    coefficients: Vec<C::Fr>,
    /// At rest.
    values: Bytes,
    coset_values: Vec<C::Fr>,
}

fn no_domain(log_n: u32) -> String {
    format!("no domain of 2^{log_n} elements")
}

fn invert<F: Field>(x: F) -> F {
    x.inverse().expect("not zero")
}

impl<C: GpuCurve> Vectors<C> {
    fn new(log_n: u32, roots: RootConvention) -> Result<Self, String> {
        let n = 1usize << log_n;
        let no_domain = || no_domain(log_n);
        let domain = Domain::<C::Fr>::new(log_n, roots).ok_or_else(no_domain)?;
        let reference = Radix2EvaluationDomain {
            group_gen: domain.generator,
            group_gen_inv: invert(domain.generator),
            ..Radix2EvaluationDomain::<C::Fr>::new(n).ok_or_else(no_domain)?
        };
        let coefficients = random::<C>(n, &mut rng(4 + u64::from(log_n)));
        let values = at_rest::<C>(&reference.fft(&coefficients));
        let mut power = C::Fr::one();
        let mut shifted = coefficients.clone();
        for x in &mut shifted {
            *x *= power;
            power *= C::Fr::GENERATOR;
        }
        Ok(Self {
            log_n,
            roots,
            coefficients,
            values,
            coset_values: reference.fft(&shifted),
        })
    }
}

fn transform<C: GpuCurve>(gpu: &GpuDevice, v: &Vectors<C>, split_log: u32) -> Outcome {
    let sizes = (v.log_n - split_log, split_log);
    let [first, second] = to_coefficients_and_coset::<C>(gpu, sizes, v.roots, &v.values)?;
    expect_scalars::<C>(&first, &v.coefficients, "coefficients")?;
    expect_scalars::<C>(&second, &v.coset_values, "values on a coset")
}

/// What a polynomial with these values (at rest) has for coefficients, in natural order, and for
/// values on the coset of the field's generator; in 2^split_log parts.
pub(super) fn to_coefficients_and_coset<C: GpuCurve>(
    gpu: &GpuDevice,
    (part_log, split_log): (u32, u32),
    roots: RootConvention,
    values: &Bytes,
) -> Result<[Vec<u8>; 2], CaseError> {
    let log_n = part_log + split_log;
    let (shift, n) = (C::Fr::GENERATOR, 1 << log_n);
    let mut rec = Recording::new();
    let [inverse, forward] = [true, false].map(|inverse| {
        // Roots by position in one direction, powers between passes in the other.
        let blocks = block_log(part_log, u64::MAX).filter(|log| inverse == (log % 2 == 0));
        let powers = root_powers::<C>(log_n, roots, inverse)?.upload(&mut rec);
        Some(record_roots::<C>(
            &mut rec,
            (part_log, split_log),
            powers,
            blocks,
        ))
    });
    let (inverse, forward) = inverse.zip(forward).ok_or_else(|| no_domain(log_n))?;
    let n_inv = invert(C::Fr::from(n as u64));
    let scale = PowerTable::new::<C>(C::Fr::one(), n_inv, log_n).upload(&mut rec);
    let coset = match log_n % 2 {
        0 => PowerTable::whole::<C>(shift, n_inv, log_n),
        _ => PowerTable::new::<C>(shift, n_inv, log_n),
    };
    let coset = coset.upload(&mut rec);
    let [x, y, z] = ["x", "y", "z"].map(|label| Parts::secret(&mut rec, label, n, 1 << part_log));
    for target in [&x, &z] {
        for (range, part) in target.iter() {
            rec.upload(part, values.slice(32 * range.start..32 * range.end));
        }
    }
    // To coefficients in natural order, out of place.
    let natural = Finish {
        powers: Some(scale),
        natural: true,
    };
    record_transform::<C>(
        &mut rec,
        &inverse,
        Order::NaturalToReversed,
        &x,
        &y,
        natural,
    );
    y.slices().iter().for_each(|part| {
        rec.download(*part);
    });
    // To values on the coset, in place.
    let to_coset = Finish {
        powers: Some(coset),
        natural: false,
    };
    record_transform::<C>(
        &mut rec,
        &inverse,
        Order::NaturalToReversed,
        &z,
        &z,
        to_coset,
    );
    let plain = Finish::default();
    record_transform::<C>(&mut rec, &forward, Order::ReversedToNatural, &z, &z, plain);
    z.slices().iter().for_each(|part| {
        rec.download(*part);
    });
    let output = run_recording(gpu, &rec)?;
    let (first, second) = output.downloads.split_at(1 << split_log);
    Ok([first.concat(), second.concat()])
}
