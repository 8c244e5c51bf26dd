//! How fast a device is, roughly: one number for products, transforms and sums over each curve.

use super::field::pointwise_commands;
use super::msm::{MsmInput, record_msm};
use super::{Size, at_rest, random, rng, run_recording};
use crate::bytes::Bytes;
use crate::curve::{CurveId, GpuCurve};
use crate::device::GpuDevice;
use crate::device::recording::{Dispatch, Recording};
use crate::domain::RootConvention;
use crate::kernels::Kernel;
use crate::msm::Group;
use crate::ntt::{Finish, Order, block_log, record_roots, record_transform, root_powers};
use crate::parts::Parts;
use crate::selftest::report::Throughput;
use crate::with_curve;
use std::sync::Arc;

/// Runs of which the best counts.
const RUNS: usize = 3;
/// Name of the phase that is timed.
const TIMED: &str = "timed";

/// What is worked on over one curve.
pub(super) struct Inputs {
    curve: CurveId,
    log2: u32,
    scalars: Bytes,
    /// A power of two fewer in G2.
    bases: [MsmInput; 2],
}

impl Inputs {
    /// For both curves.
    pub fn new(size: Size) -> Vec<Self> {
        let new = |curve| with_curve!(curve, C => Self::over::<C>(size));
        CurveId::ALL.map(new).into()
    }

    fn over<C: GpuCurve>(size: Size) -> Self {
        let log2 = size.pick(10, 18);
        let scalars = random::<C>(1 << log2, &mut rng(9));
        let bases = [(Group::G1, log2), (Group::G2, log2 - 2)];
        Self {
            curve: C::ID,
            log2,
            scalars: at_rest::<C>(&scalars),
            bases: bases.map(|(group, log2)| MsmInput::new::<C>(group, 1 << log2)),
        }
    }
}

/// Measures; what fails is left out, since the cases passed and every proof is verified.
pub(super) fn measure(gpu: &Arc<GpuDevice>, inputs: &Inputs) -> Vec<Throughput> {
    with_curve!(inputs.curve, C => over::<C>(gpu, inputs))
}

fn over<C: GpuCurve>(gpu: &Arc<GpuDevice>, inputs: &Inputs) -> Vec<Throughput> {
    let log2 = inputs.log2;
    let n = 1u64 << log2;
    let best = |name: &str, unit, (log2, units): (u32, u64), rec: Option<Recording>| {
        let rec = rec?;
        let times = (0..RUNS).filter_map(|_| {
            let report = run_recording(gpu, &rec).ok()?.report;
            let phase = report.phases.iter().find(|p| p.name == TIMED)?;
            let device = phase.device_ms.filter(|ms| *ms > 0.0);
            Some((device.unwrap_or(phase.wall_ms), device.is_some()))
        });
        let (ms, device_clock) = times.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Throughput {
            name: format!("{name}/{}", C::ID),
            unit,
            log2,
            per_second: units as f64 / ms * 1e3,
            ms,
            device_clock,
        })
    };
    let products = field_products::<C>(inputs);
    let pointwise = pointwise_commands::<C>(TIMED, &inputs.scalars);
    let ntt = transform::<C>(inputs);
    let mut all = vec![
        best("field_ops_fr", "Mproducts/s", (log2, n), Some(products)),
        best("pointwise_mul", "Mproducts/s", (log2, n), Some(pointwise)),
        best("ntt", "Melements/s", (log2, n), ntt),
    ];
    for (name, input) in ["msm_g1", "msm_g2"].into_iter().zip(&inputs.bases) {
        let log2 = input.len().ilog2();
        let rec = record_msm::<C>(gpu, input, TIMED);
        all.push(best(name, "Mpoints/s", (log2, 1 << log2), rec));
    }
    all.into_iter().flatten().collect()
}

/// A product of each scalar with itself, loads and stores included.
fn field_products<C: GpuCurve>(inputs: &Inputs) -> Recording {
    let n = 1u32 << inputs.log2;
    let mut rec = Recording::new();
    let a = super::upload(&mut rec, "factors", &inputs.scalars);
    let out = rec.transient("products", u64::from(n) * 32);
    let bindings = [a, a, out].map(|id| rec.whole(id)).to_vec();
    rec.phase(TIMED);
    rec.dispatch(Dispatch {
        kernel: Kernel::FieldOpsFr,
        curve: C::ID,
        bindings,
        params: vec![n, 3],
        groups: n.div_ceil(64),
        work_per_group: 64,
    });
    rec
}

/// A transform, its table of roots made before.
fn transform<C: GpuCurve>(inputs: &Inputs) -> Option<Recording> {
    let log2 = inputs.log2;
    let mut rec = Recording::new();
    let powers = root_powers::<C>(log2, RootConvention::Arkworks, false)?.upload(&mut rec);
    let blocks = block_log(log2, u64::MAX);
    let buffers = record_roots::<C>(&mut rec, (log2, 0), powers, blocks);
    let x = Parts::secret(&mut rec, "x", 1 << log2, 1 << log2);
    for (_, part) in x.iter() {
        rec.upload(part, inputs.scalars.clone());
    }
    rec.phase(TIMED);
    let finish = Finish::default();
    record_transform::<C>(&mut rec, &buffers, Order::NaturalToReversed, &x, &x, finish);
    Some(rec)
}
