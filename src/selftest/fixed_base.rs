//! Many multiples of one point.

use super::msm::canonical;
use super::{Outcome, Prepared, Size, check, ensure, random, rng, run_recording, upload};
use crate::bytes::Bytes;
use crate::curve::{G1Affine, G2Affine, GpuCurve};
use crate::device::GpuDevice;
use crate::device::recording::Recording;
use crate::msm::{
    FixedBaseWindows, Group, record_fixed_base_entries, record_fixed_base_table, record_multiples,
};
use crate::proving_key::{g1_to_raw, g2_to_raw};
use ark_ec::models::short_weierstrass::{Affine, Projective, SWCurveConfig};
use ark_ec::{CurveGroup, PrimeGroup};
use ark_ff::{Field, One, Zero};
use rayon::prelude::*;

/// Scalars whose digits are 0, of either sign, and the largest that there are, and random ones.
fn scalars<C: GpuCurve>(n: usize) -> Vec<C::Fr> {
    let power = |log2| C::Fr::from(2u64).pow([log2]);
    let mut scalars = vec![C::Fr::zero(), C::Fr::one(), -C::Fr::one()];
    for log2 in [7, 8, 15, 16, 31, 32, 127, 128, 252] {
        scalars.extend([power(log2), power(log2) - C::Fr::one(), -power(log2)]);
    }
    scalars.extend(random::<C>(
        n.saturating_sub(scalars.len()),
        &mut rng(n as u64),
    ));
    scalars.truncate(n);
    scalars
}

/// The entries of each scalar stand for summands of it.
fn entries<C: GpuCurve>(gpu: &GpuDevice, windows: FixedBaseWindows, n: usize) -> Outcome {
    let scalars = scalars::<C>(n);
    let mut rec = Recording::new();
    let id = upload(&mut rec, "scalars", &canonical::<C>(&scalars));
    let entries = rec.whole(id);
    let entries = record_fixed_base_entries(&mut rec, C::ID, windows, entries);
    rec.download(entries);
    let output = run_recording(gpu, &rec)?;
    let count = windows.count() as usize;
    let infinity = windows.table_points() as u32 - 1;
    let each = infinity as usize / count;
    let words = output.downloads[0].chunks_exact(4);
    let words: Vec<u32> = words
        .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
        .collect();
    for (scalar, entries) in scalars.iter().zip(words.chunks_exact(count)) {
        let mut sum = C::Fr::zero();
        for (w, entry) in entries.iter().enumerate() {
            if *entry == infinity {
                continue;
            }
            let index = (entry & !(1 << 31)) as usize;
            ensure!(index / each == w, "{scalar}: entry {index} in window {w}");
            let weight = C::Fr::from(2u64).pow([(256 / count * w) as u64]);
            let summand = weight * C::Fr::from((index % each + 1) as u64);
            sum += if entry >> 31 == 0 { summand } else { -summand };
        }
        ensure!(sum == *scalar, "{scalar}: the entries stand for {sum}");
    }
    Ok(())
}

/// Multiples of a point.
fn multiples<C: GpuCurve, P: SWCurveConfig<ScalarField = C::Fr>>(
    group: Group,
    push: fn(&Affine<P>, &mut Vec<u8>),
    (windows, base, n): (FixedBaseWindows, Projective<P>, usize),
) -> Prepared {
    let scalars = scalars::<C>(n);
    let raw = |points: &[Affine<P>]| {
        let mut bytes = Vec::new();
        points.iter().for_each(|p| push(p, &mut bytes));
        Bytes::from(bytes)
    };
    let table_at_rest = raw(&windows.table(base));
    let expected: Vec<_> = scalars.par_iter().map(|k| base * k).collect();
    let expected = raw(&Projective::normalize_batch(&expected));
    let scalars = canonical::<C>(&scalars);
    check(move |gpu| {
        let mut rec = Recording::new();
        let at_rest = upload(&mut rec, "table at rest", &table_at_rest);
        let table = rec.transient("table", rec.whole(at_rest).size);
        let (at_rest, table) = (rec.whole(at_rest), rec.whole(table));
        record_fixed_base_table(&mut rec, C::ID, group, at_rest, table);
        let id = upload(&mut rec, "scalars", &scalars);
        let uploaded = rec.whole(id);
        let multiples = record_multiples(&mut rec, C::ID, group, windows, table, uploaded);
        rec.download(multiples);
        let output = run_recording(gpu, &rec)?;
        let size = group.affine_bytes(C::ID) as usize;
        let pairs = output.downloads[0].chunks_exact(size);
        ensure!(pairs.len() == n, "{} of {n} multiples", pairs.len());
        for (i, (got, expected)) in pairs.zip(expected.chunks_exact(size)).enumerate() {
            ensure!(got == expected, "{n} multiples, {windows:?}: number {i}");
        }
        Ok(())
    })
}

/// Multiples of the generator, and of infinity where a table is full of it.
fn all<C: GpuCurve, P: SWCurveConfig<ScalarField = C::Fr>>(
    size: Size,
    group: Group,
    push: fn(&Affine<P>, &mut Vec<u8>),
) -> Prepared {
    let g = Projective::<P>::generator();
    let small = |n: &usize| (FixedBaseWindows::SMALL, g, *n);
    let lengths = size.pick(&[1, 70][..], &[1, 31, 33, 300, 5000]);
    let mut list: Vec<_> = lengths.iter().map(small).collect();
    list.push((FixedBaseWindows::SMALL, Projective::zero(), 5));
    // Its table takes seconds on two cores.
    if size != Size::Small {
        list.push((FixedBaseWindows::LARGE, g, 5000));
    }
    let prepare = |what| multiples::<C, P>(group, push, what);
    let checks: Vec<_> = list
        .into_par_iter()
        .map(prepare)
        .collect::<Result<_, _>>()?;
    check(move |gpu| checks.iter().try_for_each(|check| check(gpu)))
}

pub(super) fn entries_of<C: GpuCurve>(size: Size) -> Prepared {
    check(move |gpu| {
        for windows in [FixedBaseWindows::SMALL, FixedBaseWindows::LARGE] {
            for n in [1, size.pick(40, 1000)] {
                entries::<C>(gpu, windows, n)?;
            }
        }
        Ok(())
    })
}

pub(super) fn multiples_g1<C: GpuCurve>(size: Size) -> Prepared {
    let push: fn(&G1Affine<C>, &mut Vec<u8>) = g1_to_raw::<C>;
    all::<C, _>(size, Group::G1, push)
}

pub(super) fn multiples_g2<C: GpuCurve>(size: Size) -> Prepared {
    let push: fn(&G2Affine<C>, &mut Vec<u8>) = g2_to_raw::<C>;
    all::<C, _>(size, Group::G2, push)
}
