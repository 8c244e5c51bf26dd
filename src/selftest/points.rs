//! Additions of points, with every special case.

use super::{Prepared, Size, check, ensure, rng, run_recording, upload};
use crate::bytes::Bytes;
use crate::curve::{G1Affine, G2Affine, GpuCurve};
use crate::device::recording::{Dispatch, Recording};
use crate::kernels::Kernel;
use crate::proving_key::{g1_to_raw, g2_to_raw};
use ark_ec::short_weierstrass::{Affine, Projective, SWCurveConfig};
use ark_ec::{AffineRepr, CurveGroup, PrimeGroup};
use ark_ff::{AdditiveGroup, Field, UniformRand, Zero};

/// Points that one thread adds up.
const RUN: usize = 4;

/// Forms of the points of a group.
struct Forms<P: SWCurveConfig> {
    kernel: Kernel,
    push: fn(&Affine<P>, &mut Vec<u8>),
    /// A coordinate from its form at rest, if it is canonical.
    read: fn(&[u8]) -> Option<P::BaseField>,
    /// Bytes of a coordinate.
    coordinate: usize,
}

/// Runs of points that meet every case of an addition, infinity and equal and opposite points
/// among them (p07, p08), and their sums.
fn runs<P: SWCurveConfig>(size: Size) -> Vec<[Projective<P>; RUN]> {
    let rng = &mut rng(2);
    let g = Projective::<P>::generator();
    let [p, q] = [(); 2].map(|()| g * P::ScalarField::rand(rng));
    let o = Projective::<P>::zero();
    let (p2, q2) = (p.double(), q.double());
    let mut runs = vec![
        [p, q, o, o],
        [p, p, p, p],
        [p, -p, q, o],
        [o, o, o, o],
        [o, p, o, -p],
        [p, q, p + q, -(p + q)],
        [p, p, -p2, q],
        [p2, -p, -p, q2],
        [q, p, q, p],
        [p, -p, p, -p],
        [g, g, g + g, g.double().double()],
        [p, q, -(p + q), p],
    ];
    // More than one workgroup.
    for i in 0..size.pick(0, 64) {
        let x = g * P::ScalarField::from(i as u64 + 3);
        runs.push([x, q, p, -x]);
    }
    runs
}

fn operations<C: GpuCurve, P: SWCurveConfig>(size: Size, forms: Forms<P>) -> Prepared {
    let runs = runs::<P>(size);
    let n = runs.len();
    let mut bases = Vec::new();
    for x in runs.iter().flatten() {
        (forms.push)(&x.into_affine(), &mut bases);
    }
    let bases = Bytes::from(bases);
    let sums: Vec<Projective<P>> = runs.iter().map(|run| run.iter().sum()).collect();
    let sums = Projective::normalize_batch(&sums);
    check(move |gpu| {
        let mut rec = Recording::new();
        let bases = upload(&mut rec, "bases", &bases);
        let working = rec.transient("bases in working form", rec.whole(bases).size);
        let elements = (n * RUN * 2 * forms.coordinate / C::ID.fq_bytes()) as u32;
        let bindings = vec![rec.whole(bases), rec.whole(working)];
        rec.dispatch(Dispatch {
            kernel: Kernel::PointsImport,
            curve: C::ID,
            bindings,
            params: vec![elements],
            groups: elements.div_ceil(64),
            work_per_group: 64,
        });
        let out = rec.transient("sums", (n * 4 * forms.coordinate) as u64);
        let out = rec.whole(out);
        rec.clear(out);
        let bindings = vec![rec.whole(working), out];
        rec.dispatch(Dispatch {
            kernel: forms.kernel,
            curve: C::ID,
            bindings,
            params: vec![n as u32, RUN as u32],
            groups: (n as u32).div_ceil(64),
            work_per_group: 64 * RUN as u64 * 10,
        });
        let elements = (n * 4 * forms.coordinate / C::ID.fq_bytes()) as u32;
        rec.dispatch(Dispatch {
            kernel: Kernel::PointsExport,
            curve: C::ID,
            bindings: vec![out],
            params: vec![elements],
            groups: elements.div_ceil(64),
            work_per_group: 64,
        });
        rec.download(out);
        let output = run_recording(gpu, &rec)?;
        let points = output.downloads[0].chunks_exact(4 * forms.coordinate);
        for (i, (expected, bytes)) in sums.iter().zip(points).enumerate() {
            let mut c = [P::BaseField::zero(); 4];
            for (c, bytes) in c.iter_mut().zip(bytes.chunks_exact(forms.coordinate)) {
                *c = (forms.read)(bytes)
                    .ok_or_else(|| format!("run {i}: a coordinate is not below the modulus"))?;
            }
            let [x, y, zz, zzz] = c;
            if expected.is_zero() {
                ensure!(zz.is_zero(), "run {i} is not infinity");
                continue;
            }
            ensure!(!zz.is_zero(), "run {i} is infinity");
            ensure!(zz.square() * zz == zzz.square(), "run {i}: ZZ³ ≠ ZZZ²");
            let affine = Affine::<P>::new_unchecked(x / zz, y / zzz);
            ensure!(affine == *expected, "run {i}");
        }
        Ok(())
    })
}

pub(super) fn operations_g1<C: GpuCurve>(size: Size) -> Prepared {
    let push: fn(&G1Affine<C>, &mut Vec<u8>) = g1_to_raw::<C>;
    let forms = Forms::<C::G1Config> {
        kernel: Kernel::PointOpsG1,
        push,
        read: C::fq_from_montgomery,
        coordinate: C::ID.fq_bytes(),
    };
    operations::<C, _>(size, forms)
}

pub(super) fn operations_g2<C: GpuCurve>(size: Size) -> Prepared {
    let push: fn(&G2Affine<C>, &mut Vec<u8>) = g2_to_raw::<C>;
    let forms = Forms::<C::G2Config> {
        kernel: Kernel::PointOpsG2,
        push,
        read: |bytes| {
            let (c0, c1) = bytes.split_at(bytes.len() / 2);
            let parts = C::fq_from_montgomery(c0).zip(C::fq_from_montgomery(c1))?;
            Some(C::fq2_from_parts(parts.0, parts.1))
        },
        coordinate: 2 * C::ID.fq_bytes(),
    };
    operations::<C, _>(size, forms)
}
