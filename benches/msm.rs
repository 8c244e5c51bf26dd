//! Multi-scalar multiplication with uniform scalars: the CPU path beside ark-ec, and the kernels on
//! every software adapter, whose points and scalars are on the device.
//!
//! ```text
//! cargo bench --bench msm [-- FILTER]          # FILTER: cpu, bn254/g1, u32, ...
//! BENCH_LOG2=10..18 cargo bench --bench msm
//! ```
//! Each way's sum is compared, before it is timed, with ark-ec's and with the one that follows from
//! the points' known logarithms. On cards, use `groth16-gpu bench msm`.

mod common;

use ark_ec::CurveGroup;
use ark_ff::{BigInteger, PrimeField, UniformRand};
use common::inputs::{Scalars, make_scalars, progression, raw_points};
use common::{LazyDevice, sizes, software_devices};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use groth16_gpu::Result;
use groth16_gpu::bytes::Bytes;
use groth16_gpu::cpu::msm::{msm_g1, msm_g2};
use groth16_gpu::curve::{Bls12381, Bn254, G1, G2, GpuCurve};
use groth16_gpu::device::recording::Recording;
use groth16_gpu::device::{GpuDevice, ResidentBuffer, RunOptions};
use groth16_gpu::msm::{self, Geometry, Group, WindowSums, finish_g1, finish_g2};
use groth16_gpu::proving_key::{g1_to_raw, g2_to_raw};
use rand::{SeedableRng, rngs::StdRng};
use std::cell::LazyCell;

/// A group of a curve, with the functions that differ between the groups.
#[derive(Clone, Copy)]
struct GroupOps<P: CurveGroup> {
    group: Group,
    name: &'static str,
    to_raw: fn(&P::Affine, &mut Vec<u8>),
    cpu: fn(&[u8], &[u8]) -> Result<P>,
    finish: fn(&[u8], &Geometry) -> Result<P>,
}

/// Points, scalars and their sum.
struct Problem<P: CurveGroup> {
    bases: Vec<P::Affine>,
    scalars: Vec<P::ScalarField>,
    raw_bases: Bytes,
    raw_scalars: Bytes,
    sum: P,
}

impl<P: CurveGroup> Problem<P> {
    /// # Panics
    /// If ark-ec's sum is not the one that follows from the points' logarithms.
    fn new(ops: &GroupOps<P>, n: usize) -> Self {
        let rng = &mut StdRng::seed_from_u64(9);
        let (a, b) = (P::ScalarField::rand(rng), P::ScalarField::rand(rng));
        let bases = progression::<P>(n, a, b);
        let scalars: Vec<P::ScalarField> = make_scalars(Scalars::Uniform, n);
        let logs = (0..n).map(|i| a + b * P::ScalarField::from(i as u64));
        let log: P::ScalarField = logs.zip(&scalars).map(|(log, s)| log * s).sum();
        let sum = P::generator() * log;
        assert_eq!(P::msm_unchecked(&bases, &scalars), sum, "ark-ec");
        let canonical = |s: &P::ScalarField| s.into_bigint().to_bytes_le();
        Self {
            raw_bases: raw_points(&bases, ops.to_raw).into(),
            raw_scalars: scalars
                .iter()
                .flat_map(canonical)
                .collect::<Vec<u8>>()
                .into(),
            bases,
            scalars,
            sum,
        }
    }
}

/// A sum on a device, ready to be run.
struct OnDevice {
    recording: Recording,
    sums: WindowSums,
    _resident: Vec<ResidentBuffer>,
}

impl OnDevice {
    fn new<C: GpuCurve, P: CurveGroup>(
        gpu: &GpuDevice,
        ops: &GroupOps<P>,
        problem: &Problem<P>,
    ) -> Self {
        let n = problem.scalars.len();
        let data = [
            ("scalars", problem.raw_scalars.clone()),
            ("bases", problem.raw_bases.clone()),
        ];
        let resident = gpu.upload_resident(&data, &RunOptions::default());
        let resident = resident.expect("room for it");
        let max_binding = gpu.limits().plan().largest();
        let tuning = gpu.limits().msm.of(C::ID);
        let (bits, point) = (msm::scalar_bits::<C>(), ops.group.point_bytes(C::ID));
        let geometry = tuning.geometry(n, n, bits, point, max_binding);
        let geometry = tuning.passes(ops.group, geometry.expect("it fits a binding"), n);
        let mut rec = Recording::new();
        let [scalars, bases] = [0, 1].map(|i| {
            let id = rec.resident("bench", &resident[i]);
            rec.whole(id)
        });
        let sorted = msm::record_sort(&mut rec, C::ID, scalars, geometry);
        let parts = [(sorted, msm::Bases::AtRest(bases))];
        let sums = msm::record_sums(&mut rec, C::ID, ops.group, &parts);
        Self {
            recording: rec,
            sums,
            _resident: resident,
        }
    }

    fn sum<P: CurveGroup>(&self, gpu: &GpuDevice, ops: &GroupOps<P>) -> P {
        let output = gpu.run(&self.recording, &RunOptions::default());
        let output = output.expect("the device works");
        let bytes = &output.downloads[self.sums.download.0 as usize];
        (ops.finish)(bytes, &self.sums.geometry).expect("points")
    }
}

fn bench_group<C: GpuCurve, P: CurveGroup>(
    criterion: &mut Criterion,
    devices: &[(String, LazyDevice)],
    ops: GroupOps<P>,
) {
    let name = format!("msm/{}/{}", C::ID.name(), ops.name);
    let mut bench = criterion.benchmark_group(name);
    // Samples of one sum each, where it takes long.
    bench.sampling_mode(SamplingMode::Flat);
    for log2 in sizes(&[10, 12, 14]) {
        bench.throughput(Throughput::Elements(1 << log2));
        let problem = LazyCell::new(|| Problem::new(&ops, 1 << log2));
        let ours = || (ops.cpu)(&problem.raw_bases, &problem.raw_scalars).expect("a sum");
        let checked = LazyCell::new(|| assert_eq!(ours(), problem.sum, "cpu"));
        bench.bench_function(BenchmarkId::new("cpu", log2), |b| {
            LazyCell::force(&checked);
            b.iter(ours);
        });
        bench.bench_function(BenchmarkId::new("ark-ec", log2), |b| {
            LazyCell::force(&problem);
            b.iter(|| P::msm_unchecked(&problem.bases, &problem.scalars));
        });
    }
    for (label, gpu) in devices {
        for log2 in sizes(&[10, 12]) {
            bench.throughput(Throughput::Elements(1 << log2));
            let ready = LazyCell::new(|| {
                let problem = Problem::new(&ops, 1 << log2);
                let ready = OnDevice::new::<C, P>(gpu, &ops, &problem);
                assert_eq!(ready.sum(gpu, &ops), problem.sum, "{label}");
                ready
            });
            bench.bench_function(BenchmarkId::new(label, log2), |b| {
                LazyCell::force(&ready);
                b.iter(|| ready.sum(gpu, &ops));
            });
        }
    }
    bench.finish();
}

fn bench_curve<C: GpuCurve>(criterion: &mut Criterion, devices: &[(String, LazyDevice)]) {
    let g1 = GroupOps::<G1<C>> {
        group: Group::G1,
        name: "g1",
        to_raw: g1_to_raw::<C>,
        cpu: msm_g1::<C>,
        finish: finish_g1::<C>,
    };
    let g2 = GroupOps::<G2<C>> {
        group: Group::G2,
        name: "g2",
        to_raw: g2_to_raw::<C>,
        cpu: msm_g2::<C>,
        finish: finish_g2::<C>,
    };
    bench_group::<C, _>(criterion, devices, g1);
    bench_group::<C, _>(criterion, devices, g2);
}

fn main() {
    let mut criterion = common::criterion();
    let devices = software_devices();
    bench_curve::<Bls12381>(&mut criterion, &devices);
    bench_curve::<Bn254>(&mut criterion, &devices);
    criterion.final_summary();
}
