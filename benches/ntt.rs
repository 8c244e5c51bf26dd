//! Forward number-theoretic transforms of scalars: the CPU path beside ark-poly, and the kernels on
//! every software adapter, in place of data on the device.
//!
//! ```text
//! cargo bench --bench ntt [-- FILTER]          # FILTER: cpu, bn254, u32, ...
//! BENCH_LOG2=10..20 cargo bench --bench ntt
//! ```
//! Each way's values are compared, all of them, before it is timed: the CPU path's with ark-poly's,
//! the kernels' with the CPU path's. The CPU path and ark-poly give natural order, the kernels
//! bit-reversed order, as a proof uses them. On cards, use `groth16-gpu bench ntt`.

mod common;

use ark_poly::{EvaluationDomain, Radix2EvaluationDomain};
use common::inputs::{Scalars, make_scalars};
use common::{LazyDevice, sizes, software_devices};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use groth16_gpu::cpu::ntt::Ntt;
use groth16_gpu::curve::{Bls12381, Bn254, GpuCurve};
use groth16_gpu::device::recording::Recording;
use groth16_gpu::device::{GpuDevice, RunOptions};
use groth16_gpu::domain::{Domain, RootConvention};
use groth16_gpu::ntt::{Finish, Order, ResidentRoots, record_transform};
use groth16_gpu::parts::Parts;
use std::cell::LazyCell;

const ROOTS: RootConvention = RootConvention::Arkworks;

/// Coefficients, and their values in natural order.
struct Problem<C: GpuCurve> {
    ntt: Ntt<C::Fr>,
    ark: Radix2EvaluationDomain<C::Fr>,
    coefficients: Vec<C::Fr>,
    values: Vec<C::Fr>,
}

impl<C: GpuCurve> Problem<C> {
    /// # Panics
    /// If the CPU path and ark-poly differ.
    fn new(log2: u32) -> Self {
        let domain = Domain::<C::Fr>::new(log2, ROOTS).expect("a domain");
        let ark = Radix2EvaluationDomain::new(1 << log2).expect("a domain");
        assert_eq!(ark.group_gen(), domain.generator);
        let ntt = Ntt::new(domain);
        let coefficients: Vec<C::Fr> = make_scalars(Scalars::Uniform, 1 << log2);
        let mut values = coefficients.clone();
        ntt.forward(&mut values);
        assert_eq!(values, ark.fft(&coefficients), "cpu");
        Self {
            ntt,
            ark,
            coefficients,
            values,
        }
    }
}

/// A transform in place of data on a device, ready to be run.
struct OnDevice {
    recording: Recording,
}

impl OnDevice {
    /// # Panics
    /// If a first run gives other values than the CPU path.
    fn new<C: GpuCurve>(gpu: &GpuDevice, label: &str, log2: u32) -> Self {
        let problem = Problem::<C>::new(log2);
        let limbs = problem.coefficients.iter().flat_map(C::fr_montgomery);
        let bytes: Vec<u8> = limbs.flat_map(|limb| limb.to_le_bytes()).collect();
        let options = RunOptions::default();
        let roots = ResidentRoots::new::<C>(gpu, (log2, 0), ROOTS, false, &options);
        let roots = roots.expect("a domain, and room for its roots");
        let resident = gpu.upload_resident(&[("data", bytes.into())], &options);
        let resident = resident.expect("room for it");
        let record = |check: bool| {
            let mut rec = Recording::new();
            let buffers = roots.declare(&mut rec);
            let id = rec.resident("bench", &resident[0]);
            let whole = rec.whole(id);
            let vector = Parts::whole(whole);
            let order = Order::NaturalToReversed;
            record_transform::<C>(
                &mut rec,
                &buffers,
                order,
                &vector,
                &vector,
                Finish::default(),
            );
            if check {
                rec.download(whole);
            }
            rec
        };
        let output = gpu.run(&record(true), &RunOptions::default());
        let output = output.expect("the device works");
        for (i, bytes) in output.downloads[0].chunks_exact(32).enumerate() {
            let at = i.reverse_bits() >> (usize::BITS - log2);
            let value = C::fr_from_montgomery(bytes);
            assert_eq!(value, Some(problem.values[at]), "{label}, element {i}");
        }
        Self {
            recording: record(false),
        }
    }
}

fn bench_curve<C: GpuCurve>(criterion: &mut Criterion, devices: &[(String, LazyDevice)]) {
    let mut bench = criterion.benchmark_group(format!("ntt/{}", C::ID.name()));
    for log2 in sizes(&[10, 12, 14]) {
        bench.throughput(Throughput::Elements(1 << log2));
        let problem = LazyCell::new(|| Problem::<C>::new(log2));
        bench.bench_function(BenchmarkId::new("cpu", log2), |b| {
            let values = || problem.coefficients.clone();
            let run = |values: &mut Vec<C::Fr>| problem.ntt.forward(values);
            b.iter_batched_ref(values, run, BatchSize::LargeInput);
        });
        bench.bench_function(BenchmarkId::new("ark-poly", log2), |b| {
            let values = || problem.coefficients.clone();
            let run = |values: &mut Vec<C::Fr>| problem.ark.fft_in_place(values);
            b.iter_batched_ref(values, run, BatchSize::LargeInput);
        });
    }
    for (label, gpu) in devices {
        for log2 in sizes(&[10, 12, 14]) {
            bench.throughput(Throughput::Elements(1 << log2));
            let ready = LazyCell::new(|| OnDevice::new::<C>(gpu, label, log2));
            bench.bench_function(BenchmarkId::new(label, log2), |b| {
                LazyCell::force(&ready);
                // Each run transforms what the last one left: the time is the same for any values.
                b.iter(|| {
                    gpu.run(&ready.recording, &RunOptions::default())
                        .expect("runs")
                });
            });
        }
    }
    bench.finish();
}

fn main() {
    let mut criterion = common::criterion();
    let devices = software_devices();
    bench_curve::<Bls12381>(&mut criterion, &devices);
    bench_curve::<Bn254>(&mut criterion, &devices);
    criterion.final_summary();
}
