//! Multi-scalar multiplications.

use super::{CaseError, Prepared, Size, check, ensure, rng, run_recording, upload};
use crate::bytes::Bytes;
use crate::curve::{G1, G1Affine, G2, G2Affine, GpuCurve};
use crate::device::GpuDevice;
use crate::device::recording::{DownloadId, Recording};
use crate::msm::{
    Bases, Geometry, Group, finish_g1, finish_g2, record_sort, record_sums, record_tables,
    scalar_bits,
};
use crate::proving_key::{g1_to_raw, g2_to_raw};
use ark_ec::{AffineRepr, CurveGroup, PrimeGroup, VariableBaseMSM};
use ark_ff::{BigInteger, PrimeField, UniformRand};
use rand::rngs::StdRng;
use rayon::prelude::*;

/// What the scalars of a case look like.
#[derive(Clone, Copy, Debug)]
enum Scalars {
    Uniform,
    Zeros,
    Ones,
    Equal,
    MinusOne,
    Boolean,
}

const SKEWED: [Scalars; 5] = [
    Scalars::Zeros,
    Scalars::Ones,
    Scalars::Equal,
    Scalars::MinusOne,
    Scalars::Boolean,
];

fn scalars<F: PrimeField>(kind: Scalars, n: usize, rng: &mut StdRng) -> Vec<F> {
    let fixed = F::rand(rng);
    (0..n)
        .map(|i| match kind {
            Scalars::Uniform => F::rand(rng),
            Scalars::Zeros => F::zero(),
            Scalars::Ones => F::one(),
            Scalars::Equal => fixed,
            Scalars::MinusOne => -F::one(),
            Scalars::Boolean => F::from(u64::from(i * 7 % 3 == 1)),
        })
        .collect()
}

/// A few distinct points, then repeats with signs and infinities: cheap to make, and full of the
/// special cases of the addition (p07, p08).
fn points<P: PrimeGroup + CurveGroup>(n: usize, rng: &mut StdRng) -> Vec<P::Affine> {
    let distinct: Vec<P> = (0..n.min(64))
        .map(|_| P::generator() * P::ScalarField::rand(rng))
        .collect();
    let affine = P::normalize_batch(&distinct);
    (0..n)
        .map(|i| match (i / 64) % 4 {
            3 if i % 5 == 0 => P::Affine::zero(),
            1 => (-affine[i % 64].into_group()).into_affine(),
            _ => affine[i % 64],
        })
        .collect()
}

/// How a sum is computed; what is not said is as in production.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    pub window: Option<u32>,
    pub pair_levels: Option<u32>,
    /// Tables of multiples at most; 0: none.
    pub tables: u32,
    /// Instead of the device's.
    pub max_binding: Option<u64>,
}

/// Scalars and bases, as a device gets them.
pub(super) struct MsmInput {
    group: Group,
    scalars: Bytes,
    bases: Bytes,
}

impl MsmInput {
    /// Uniform scalars; few bases are distinct.
    pub fn new<C: GpuCurve>(group: Group, n: usize) -> Self {
        let rng = &mut rng(n as u64);
        let s = scalars::<C::Fr>(Scalars::Uniform, n, rng);
        let mut bases = Vec::with_capacity(n * group.affine_bytes(C::ID) as usize);
        match group {
            Group::G1 => points::<G1<C>>(n, rng)
                .iter()
                .for_each(|p| g1_to_raw::<C>(p, &mut bases)),
            Group::G2 => points::<G2<C>>(n, rng)
                .iter()
                .for_each(|p| g2_to_raw::<C>(p, &mut bases)),
        }
        Self {
            group,
            scalars: canonical::<C>(&s),
            bases: bases.into(),
        }
    }

    pub fn len(&self) -> usize {
        self.scalars.len() / 32
    }
}

/// A sum as production computes it, in a phase of this name; `None` if it does not fit the device.
pub(super) fn record_msm<C: GpuCurve>(
    gpu: &GpuDevice,
    input: &MsmInput,
    phase: &'static str,
) -> Option<Recording> {
    let (scalars, bases) = (&input.scalars, &input.bases);
    let (rec, ..) = record::<C>(gpu, input.group, scalars, bases, Way::default(), phase).ok()?;
    Some(rec)
}

/// Window sums from the device.
pub(super) fn on_device<C: GpuCurve>(
    gpu: &GpuDevice,
    group: Group,
    scalars: &Bytes,
    bases: &Bytes,
    way: Way,
) -> Result<(Vec<u8>, Geometry), CaseError> {
    let (rec, download, geometry) = record::<C>(gpu, group, scalars, bases, way, "sum")?;
    let mut output = run_recording(gpu, &rec)?;
    let bytes = output.downloads.swap_remove(download.0 as usize);
    Ok((bytes, geometry))
}

fn record<C: GpuCurve>(
    gpu: &GpuDevice,
    group: Group,
    scalars: &Bytes,
    bases: &Bytes,
    way: Way,
    phase: &'static str,
) -> Result<(Recording, DownloadId, Geometry), CaseError> {
    let n = scalars.len() / 32;
    let bits = scalar_bits::<C>();
    let largest = gpu.limits().plan().largest();
    let max_binding = way.max_binding.unwrap_or(largest);
    let tuning = gpu.limits().msm.of(C::ID);
    let geometry = match way.window {
        Some(c) => Geometry::with_window(n, bits, c, max_binding),
        None => tuning.geometry(n, n, bits, group.point_bytes(C::ID), max_binding),
    };
    let geometry = geometry.ok_or_else(|| format!("{n} scalars fit no binding"))?;
    let geometry = geometry.tabled(way.tables, group.affine_bytes(C::ID));
    let geometry = geometry.ok_or_else(|| format!("{n} bases fit no binding"))?;
    let mut geometry = tuning.passes(group, geometry, n);
    geometry.pair_levels = way.pair_levels.unwrap_or(geometry.pair_levels);
    let mut rec = Recording::new();
    let scalars = upload(&mut rec, "scalars", scalars);
    let bases = upload(&mut rec, "bases", bases);
    let (scalars, bases) = (rec.whole(scalars), rec.whole(bases));
    rec.phase(phase);
    let sorted = record_sort(&mut rec, C::ID, scalars, geometry);
    let bases = if way.tables == 0 {
        Bases::AtRest(bases)
    } else {
        let lists: Vec<_> = (0..geometry.lists())
            .map(|l| rec.transient("tables", geometry.list_bytes(l, group, C::ID)))
            .collect();
        let lists: Vec<_> = lists.into_iter().map(|l| rec.whole(l)).collect();
        record_tables(&mut rec, C::ID, group, &geometry, bases, &lists);
        Bases::Tables(lists)
    };
    let sums = record_sums(&mut rec, C::ID, group, &[(sorted, bases)]);
    Ok((rec, sums.download, geometry))
}

/// Scalars as the digit sort reads them.
pub(super) fn canonical<C: GpuCurve>(scalars: &[C::Fr]) -> Bytes {
    let bytes = |x: &C::Fr| x.into_bigint().to_bytes_le();
    scalars.iter().flat_map(bytes).collect::<Vec<u8>>().into()
}

fn sum_g1<C: GpuCurve>(n: usize, kind: Scalars, way: Way) -> Prepared {
    let rng = &mut rng(n as u64);
    let s = scalars::<C::Fr>(kind, n, rng);
    let bases: Vec<G1Affine<C>> = points::<G1<C>>(n, rng);
    let mut raw = Vec::with_capacity(n * Group::G1.affine_bytes(C::ID) as usize);
    bases.iter().for_each(|p| g1_to_raw::<C>(p, &mut raw));
    let expected = G1::<C>::msm_unchecked(&bases, &s);
    let (scalars, raw) = (canonical::<C>(&s), Bytes::from(raw));
    check(move |gpu| {
        let (bytes, geometry) = on_device::<C>(gpu, Group::G1, &scalars, &raw, way)?;
        let what = || format!("{n} bases, scalars {kind:?}, {geometry:?}");
        let got = finish_g1::<C>(&bytes, &geometry).map_err(|e| format!("{}: {e}", what()))?;
        ensure!(got == expected, "{}: wrong sum", what());
        Ok(())
    })
}

fn sum_g2<C: GpuCurve>(n: usize, kind: Scalars, way: Way) -> Prepared {
    let rng = &mut rng(n as u64);
    let s = scalars::<C::Fr>(kind, n, rng);
    let bases: Vec<G2Affine<C>> = points::<G2<C>>(n, rng);
    let mut raw = Vec::with_capacity(n * Group::G2.affine_bytes(C::ID) as usize);
    bases.iter().for_each(|p| g2_to_raw::<C>(p, &mut raw));
    let expected = G2::<C>::msm_unchecked(&bases, &s);
    let (scalars, raw) = (canonical::<C>(&s), Bytes::from(raw));
    check(move |gpu| {
        let (bytes, geometry) = on_device::<C>(gpu, Group::G2, &scalars, &raw, way)?;
        let what = || format!("{n} bases, scalars {kind:?}, {geometry:?}");
        let got = finish_g2::<C>(&bytes, &geometry).map_err(|e| format!("{}: {e}", what()))?;
        ensure!(got == expected, "{}: wrong sum", what());
        Ok(())
    })
}

/// A case of many sums.
fn each<T: Send>(
    list: impl IntoIterator<Item = T>,
    sum: impl Fn(T) -> Prepared + Send + Sync,
) -> Prepared {
    let list: Vec<T> = list.into_iter().collect();
    let checks: Vec<_> = list.into_par_iter().map(sum).collect::<Result<_, _>>()?;
    check(move |gpu| checks.iter().try_for_each(|check| check(gpu)))
}

/// p09: no hidden precondition on the length.
pub(super) fn sizes_g1<C: GpuCurve>(size: Size) -> Prepared {
    let small: &[usize] = &[1, 2, 33, 65];
    let large: &[usize] = &[
        1, 2, 3, 31, 32, 33, 63, 64, 65, 237, 255, 256, 257, 511, 512, 513, 1023, 1025,
    ];
    each(size.pick(small, large), |n| {
        sum_g1::<C>(*n, Scalars::Uniform, Way::default())
    })
}

/// As [`sizes_g1`].
pub(super) fn sizes_g2<C: GpuCurve>(size: Size) -> Prepared {
    let small: &[usize] = &[1, 33];
    let large: &[usize] = &[1, 2, 31, 64, 257, 1025];
    each(size.pick(small, large), |n| {
        sum_g2::<C>(*n, Scalars::Uniform, Way::default())
    })
}

/// p08, p68: the sum is right whatever the scalars are.
pub(super) fn skewed_g1<C: GpuCurve>(size: Size) -> Prepared {
    each(SKEWED, |kind| {
        sum_g1::<C>(size.pick(70, 3000), kind, Way::default())
    })
}

/// As [`skewed_g1`].
pub(super) fn skewed_g2<C: GpuCurve>(size: Size) -> Prepared {
    // Equal scalars meet what the others do, and doublings besides.
    let small: &[Scalars] = &[Scalars::Equal];
    each(size.pick(small, &SKEWED), |kind| {
        sum_g2::<C>(size.pick(40, 300), *kind, Way::default())
    })
}

/// Every digit size gives the same sum.
pub(super) fn windows<C: GpuCurve>(size: Size) -> Prepared {
    let (n, windows) = size.pick((20, 2..=5), (300, 2..=13));
    let way = |c| Way {
        window: Some(c),
        ..Way::default()
    };
    each(windows, |c| sum_g1::<C>(n, Scalars::Uniform, way(c)))
}

/// Sums, scalars and passes for the cases of pairs: empty buckets, odd ones out, everything in one
/// bucket, sums that are infinity at once or after passes, more passes than there are pairs.
fn pairs(size: Size) -> Vec<(usize, Scalars, Way)> {
    let way = |window, levels| Way {
        window: Some(window),
        pair_levels: Some(levels),
        tables: 0,
        max_binding: None,
    };
    let mut list = vec![
        (200, Scalars::Uniform, way(4, 2)),
        (200, Scalars::Equal, way(4, 3)),
    ];
    if size != Size::Small {
        for kind in SKEWED {
            list.push((1000, kind, way(5, 4)));
        }
        list.push((1, Scalars::Uniform, way(3, 1)));
        list.push((3000, Scalars::Uniform, way(6, 13)));
        list.push((2049, Scalars::Uniform, way(10, 1)));
    }
    list
}

/// Pairs summed first, which on cards production does not do.
pub(super) fn pairs_g1<C: GpuCurve>(size: Size) -> Prepared {
    each(pairs(size), |(n, kind, way)| sum_g1::<C>(n, kind, way))
}

/// As [`pairs_g1`].
pub(super) fn pairs_g2<C: GpuCurve>(size: Size) -> Prepared {
    each(pairs(size), |(n, kind, way)| sum_g2::<C>(n, kind, way))
}

/// Sums and tables: one set of buckets and several, windows that do not divide evenly, tables in
/// one binding and in several, with and without pairs.
fn tables(size: Size) -> Vec<(usize, Scalars, Way)> {
    let way = |window, levels, tables| Way {
        window: Some(window),
        pair_levels: Some(levels),
        tables,
        max_binding: None,
    };
    let mut list = vec![(70, Scalars::Uniform, way(7, 0, 8))];
    if size != Size::Small {
        list.push((203, Scalars::Uniform, way(5, 2, 64)));
        for kind in SKEWED {
            list.push((300, kind, way(6, 1, 5)));
        }
        let apart = Way {
            max_binding: Some(40_000),
            ..way(6, 1, 7)
        };
        list.push((101, Scalars::Uniform, apart));
        list.push((101, Scalars::Equal, apart));
    }
    list
}

/// Tables of multiples, computed on the device.
pub(super) fn tables_g1<C: GpuCurve>(size: Size) -> Prepared {
    each(tables(size), |(n, kind, way)| sum_g1::<C>(n, kind, way))
}

/// As [`tables_g1`].
pub(super) fn tables_g2<C: GpuCurve>(size: Size) -> Prepared {
    each(tables(size), |(n, kind, way)| sum_g2::<C>(n, kind, way))
}

/// Many runs and levels.
pub(super) fn large<C: GpuCurve>(size: Size) -> Prepared {
    let n = match size {
        Size::Huge => (1 << 21) - 1,
        _ => size.pick(513, 131_071),
    };
    sum_g1::<C>(n, Scalars::Uniform, Way::default())
}
