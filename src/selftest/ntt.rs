//! Transforms.

use super::{Outcome, Size, at_rest, expect_scalars, random, rng, run_recording};
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
use std::sync::Arc;

/// Values to coefficients, and to values on a coset, in both root conventions, at sizes of one and
/// of several passes.
pub(super) fn transforms<C: GpuCurve>(gpu: &Arc<GpuDevice>, size: Size) -> Outcome {
    let small: &[u32] = &[1, 2, 5, 9, 10, 11];
    let large: &[u32] = &[1, 2, 3, 7, 8, 9, 10, 11, 14, 16, 17];
    for &log_n in size.pick(small, large) {
        for roots in [RootConvention::Snarkjs, RootConvention::Arkworks] {
            // In one part, and in two, four or eight.
            for split_log in [0, 1 + log_n % 3] {
                if 2 * split_log <= log_n {
                    transform::<C>(gpu, (log_n - split_log, split_log), roots)
                        .map_err(|e| format!("2^{log_n}, {roots:?}, split {split_log}: {e}"))?;
                }
            }
        }
    }
    Ok(())
}

fn transform<C: GpuCurve>(
    gpu: &GpuDevice,
    (part_log, split_log): (u32, u32),
    roots: RootConvention,
) -> Outcome {
    let log_n = part_log + split_log;
    let n = 1usize << log_n;
    let no_domain = || format!("no domain of {n} elements");
    let invert = |x: C::Fr| x.inverse().expect("not zero");
    let domain = Domain::<C::Fr>::new(log_n, roots).ok_or_else(no_domain)?;
    let reference = Radix2EvaluationDomain {
        group_gen: domain.generator,
        group_gen_inv: invert(domain.generator),
        ..Radix2EvaluationDomain::<C::Fr>::new(n).ok_or_else(no_domain)?
    };
    let coefficients = random::<C>(n, &mut rng(4 + u64::from(log_n)));
    let values = reference.fft(&coefficients);
    let shift = C::Fr::GENERATOR;
    let mut power = C::Fr::one();
    let mut shifted = coefficients.clone();
    for x in &mut shifted {
        *x *= power;
        power *= shift;
    }
    let coset_values = reference.fft(&shifted);

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
    let (inverse, forward) = inverse.zip(forward).ok_or_else(no_domain)?;
    let n_inv = invert(C::Fr::from(n as u64));
    let scale = PowerTable::new::<C>(C::Fr::one(), n_inv, log_n).upload(&mut rec);
    let coset = match log_n % 2 {
        0 => PowerTable::whole::<C>(shift, n_inv, log_n),
        _ => PowerTable::new::<C>(shift, n_inv, log_n),
    };
    let coset = coset.upload(&mut rec);
    let [x, y, z] = ["x", "y", "z"].map(|label| Parts::secret(&mut rec, label, n, 1 << part_log));
    let values = Bytes::from(at_rest::<C>(&values));
    for v in [&x, &z] {
        for (range, part) in v.iter() {
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
    expect_scalars::<C>(&first.concat(), &coefficients, "coefficients")?;
    expect_scalars::<C>(&second.concat(), &coset_values, "values on a coset")
}
