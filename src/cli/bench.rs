//! `bench`: measures primitives and proofs on one device. Every result is checked against an
//! independent computation before its line is printed.

use super::args::{DeviceChoice, RawDevice};
use super::bench_msm;
use super::commands::{check_outputs, trace_files};
use super::inputs::{Scalars, make_scalars, progression, raw_points};
use super::proofs::{self, Proofs, RawProofs};
use super::throughput::{self, Throughput};
use super::{Output, engine, tune};
use ark_ec::PrimeGroup;
use ark_ff::{BigInteger, FftField, Field, One, PrimeField, UniformRand, Zero};
use clap::{Args, Subcommand};
use groth16_gpu::bytes::Bytes;
use groth16_gpu::curve::{CurveId, G1, G2, GpuCurve};
use groth16_gpu::device::recording::{BufferSlice, Recording};
use groth16_gpu::device::{Adapters, Device, GpuDevice, RunOptions, RunReport};
use groth16_gpu::domain::{Domain, RootConvention};
use groth16_gpu::msm::{self, Group};
use groth16_gpu::ntt::{Finish, Order, PowerBuffers, PowerTable, ResidentRoots, record_transform};
use groth16_gpu::parts::Parts;
use groth16_gpu::proving_key::{ProvingKey, g1_to_raw, g2_to_raw};
use groth16_gpu::setup::SetupReport;
use groth16_gpu::synthetic::{self, Shape};
use groth16_gpu::trace::Trace;
use groth16_gpu::witness::Witness;
use groth16_gpu::{Error, Result, cpu, with_curve};
use rand::{SeedableRng, rngs::StdRng};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, Subcommand)]
pub enum RawBench {
    /// Multi-scalar multiplication over resident bases
    Msm(RawMsm),
    /// Number-theoretic transform of data on the device
    Ntt(RawNtt),
    /// Whole proofs of a synthetic circuit, key resident
    Prove(RawProofs),
    /// Several threads that prove with one key on one device
    #[command(mut_arg("vram_limit", |a| a.value_name("SIZE,..").help(throughput::LIMITS_HELP)))]
    Throughput(throughput::RawThroughput),
}

#[derive(Debug, Args)]
pub struct Common {
    #[arg(long, default_value = "bls12_381")]
    curve: String,
    /// Sizes, as log2: 22 or 16..26 [default: 16]
    #[arg(long, value_name = "N|A..B")]
    log2: Option<String>,
    /// Write what ran when as Chrome trace events, and as a picture to FILE.svg
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    pub device: RawDevice,
    /// Measure the device anew: word tier, accumulation method, digits; remembered for later runs
    #[arg(long)]
    retune: bool,
}

#[derive(Debug, Args)]
pub struct Timed {
    #[command(flatten)]
    pub common: Common,
    /// Timed runs of each size, after a warm-up
    #[arg(long, default_value_t = 9, value_parser = at_least_one)]
    reps: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least one run has to be timed".into()),
        Ok(n) => Ok(n),
        Err(e) => Err(format!("{e}")),
    }
}

#[derive(Debug, Args)]
pub struct RawMsm {
    #[command(flatten)]
    timed: Timed,
    /// g1 or g2
    #[arg(long, default_value = "g1")]
    group: String,
    /// Scalars and bases, instead of a power of two
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    points: Option<u32>,
    /// uniform, zeros, ones, equal, minus-one, boolean or witness (90 % of 0 and 1)
    #[arg(long, default_value = "uniform")]
    scalars: String,
    /// Forces the bits of a digit
    #[arg(long, value_name = "BITS")]
    window: Option<u32>,
    /// Forces the passes that sum pairs before the rest is accumulated
    #[arg(long, value_name = "PASSES")]
    pairs: Option<u32>,
}

#[derive(Debug, Args)]
pub struct RawNtt {
    #[command(flatten)]
    timed: Timed,
    /// Multiply by the powers of a coset's shift, too, from a table as long as the vector
    #[arg(long)]
    coset: bool,
}

#[derive(Debug)]
enum What {
    Msm {
        group: Group,
        scalars: Scalars,
        name: String,
        form: bench_msm::Form,
    },
    Ntt {
        coset: bool,
    },
    Prove(Proofs),
    Throughput(Throughput),
}

#[derive(Debug)]
pub struct Bench {
    what: What,
    pub curve: CurveId,
    pub sizes: RangeInclusive<u32>,
    pub reps: usize,
    pub device: DeviceChoice,
    trace: Option<PathBuf>,
}

impl RawBench {
    pub fn resolve(self) -> Result<Bench> {
        let (Timed { common, reps }, what) = match self {
            Self::Msm(raw) => {
                let group = match raw.group.as_str() {
                    "g1" => Group::G1,
                    "g2" => Group::G2,
                    other => return Err(Error::Usage(format!("no group `{other}`: g1, g2"))),
                };
                let scalars = raw.scalars.parse()?;
                if raw.window.is_some_and(|c| !(2..=20).contains(&c)) {
                    return Err(Error::Usage("--window takes 2 to 20 bits".into()));
                }
                let what = What::Msm {
                    group,
                    scalars,
                    name: raw.scalars,
                    form: bench_msm::Form {
                        points: raw.points,
                        window: raw.window,
                        pairs: raw.pairs,
                        tables: raw.timed.common.device.tables,
                    },
                };
                (raw.timed, what)
            }
            Self::Ntt(raw) => (raw.timed, What::Ntt { coset: raw.coset }),
            Self::Prove(raw) => {
                let (timed, what) = raw.resolve()?;
                (timed, What::Prove(what))
            }
            Self::Throughput(raw) => {
                let (common, what) = raw.resolve()?;
                (Timed { common, reps: 1 }, What::Throughput(what))
            }
        };
        let number = |text: &str| {
            text.parse::<u32>()
                .ok()
                .filter(|n| (1..=28).contains(n))
                .ok_or_else(|| Error::Usage(format!("--log2 {text}: a size from 1 to 28")))
        };
        let log2 = common.log2.as_deref().unwrap_or(match &what {
            What::Prove(proofs) => proofs.default_log2(),
            _ => "16",
        });
        let sizes = match log2.split_once("..") {
            Some((a, b)) => number(a)?..=number(b)?,
            None => number(log2)?..=number(log2)?,
        };
        if sizes.is_empty() {
            let (a, b) = (sizes.start(), sizes.end());
            return Err(Error::Usage(format!(
                "--log2 {a}..{b}: from the smaller to the larger"
            )));
        }
        Ok(Bench {
            what,
            curve: common.curve.parse()?,
            sizes,
            reps,
            device: DeviceChoice {
                retune: common.retune,
                ..common.device.resolve()?
            },
            trace: common.trace,
        })
    }
}

/// A share of the witness.
pub fn check_density(density: f64) -> Result<f64> {
    match (0.0..=1.0).contains(&density) {
        true => Ok(density),
        false => Err(Error::Usage("--density takes 0 to 1".into())),
    }
}

/// Runs a bench and prints its lines.
pub fn run(mut bench: Bench, out: &Output) -> Result<()> {
    if let Some(path) = &bench.trace {
        check_outputs(trace_files(path))?;
    }
    let trace = Trace::new();
    trace.name_thread("main");
    let proof_log2 = match &bench.what {
        What::Prove(_) | What::Throughput(_) => Some(*bench.sizes.end()),
        _ => None,
    };
    let adapters = match tune::may_measure(&bench.device, proof_log2) {
        true => engine::find(&bench.device),
        false => Adapters::default(),
    };
    let tuned = tune::tune(&bench.device, bench.curve, proof_log2, &adapters, out)?;
    if out.json && bench.device.retune {
        for mut line in tuned.json {
            line["bench"] = json!("tuning");
            out.result(&line, "")?;
        }
    } else {
        tuned.note(out);
    }
    bench.device = tuned.choice;
    match &bench.what {
        What::Prove(what) => proofs::run(&bench, what, &trace, out)?,
        What::Throughput(what) => throughput::run(&bench, what, &trace, out)?,
        what => run_sizes(&bench, what, &trace, out)?,
    }
    bench.trace.iter().try_for_each(|path| trace.write(path))
}

/// A line a size.
fn run_sizes(bench: &Bench, what: &What, trace: &Trace, out: &Output) -> Result<()> {
    let device = engine::open(&bench.device)?;
    for log2 in bench.sizes.clone() {
        let line = with_curve!(bench.curve, C => match what {
            What::Msm { group, scalars, name, form } => {
                bench_msm::<C>(bench, &device, trace, log2, *group, *scalars, form).map(|mut v| {
                    v["scalars"] = json!(name);
                    v
                })
            }
            What::Ntt { coset } => bench_ntt::<C>(bench, &device, trace, log2, *coset),
            // These open devices of their own.
            What::Prove(_) | What::Throughput(_) => continue,
        })?;
        out.result(&line, &line.to_string())?;
    }
    Ok(())
}

/// Median, least and greatest of `reps` runs after one that does not count, and the last result.
pub fn time<T>(
    reps: usize,
    trace: &Trace,
    mut run: impl FnMut() -> Result<T>,
) -> Result<([f64; 3], T)> {
    let mut timed = |name| -> Result<(T, f64)> {
        let start = Instant::now();
        let result = run()?;
        let end = Instant::now();
        trace.host(name, start, end);
        Ok((result, (end - start).as_secs_f64() * 1e3))
    };
    let (mut result, _) = timed("warm-up")?;
    let mut times = Vec::with_capacity(reps);
    for _ in 0..reps {
        let ms;
        (result, ms) = timed("run")?;
        times.push(ms);
    }
    times.sort_by(f64::total_cmp);
    Ok(([times[reps / 2], times[0], times[reps - 1]], result))
}

pub fn wrong(device: &Device) -> Error {
    Error::DeviceFault {
        device: device.to_string(),
        message: "the result differs from the independent computation".into(),
    }
}

/// Device time of each phase, those of one name added up.
fn phases(report: &RunReport) -> BTreeMap<&'static str, f64> {
    let mut out = BTreeMap::new();
    for p in &report.phases {
        *out.entry(p.name).or_insert(0.0) += p.device_ms.unwrap_or(p.wall_ms);
    }
    out
}

/// Where a line was measured.
pub fn describe_device(line: &mut Value, device: &Device) {
    line["device"] = json!(device.to_string());
    line["backend"] = json!(device.backend());
    line["tier"] = json!(device.gpu().map(|g| g.tier().name()));
}

pub fn describe(line: &mut Value, device: &Device, times: [f64; 3], reps: usize) {
    describe_device(line, device);
    line["reps"] = json!(reps);
    line["median_ms"] = json!(times[0]);
    line["min_ms"] = json!(times[1]);
    line["max_ms"] = json!(times[2]);
    line["checked"] = json!(true);
}

/// A sum in either group.
#[derive(PartialEq)]
enum Sum<C: GpuCurve> {
    G1(G1<C>),
    G2(G2<C>),
}

fn bench_msm<C: GpuCurve>(
    bench: &Bench,
    device: &Device,
    trace: &Trace,
    log2: u32,
    group: Group,
    kind: Scalars,
    form: &bench_msm::Form,
) -> Result<Value> {
    let n = form.points.map_or(1 << log2, |n| n as usize);
    let mut rng = StdRng::seed_from_u64(9);
    let (a, b) = (C::Fr::rand(&mut rng), C::Fr::rand(&mut rng));
    let bases: Bytes = match group {
        Group::G1 => raw_points(&progression::<G1<C>>(n, a, b), g1_to_raw::<C>),
        Group::G2 => raw_points(&progression::<G2<C>>(n, a, b), g2_to_raw::<C>),
    }
    .into();
    let scalars = make_scalars::<C::Fr>(kind, n);
    // The bases' logarithms are known: an independent computation in the field.
    let log = scalars
        .par_iter()
        .enumerate()
        .map(|(i, s)| (a + b * C::Fr::from(i as u64)) * s)
        .reduce(C::Fr::zero, |x, y| x + y);
    let expected = match group {
        Group::G1 => Sum::<C>::G1(G1::<C>::generator() * log),
        Group::G2 => Sum::<C>::G2(G2::<C>::generator() * log),
    };
    let dense = scalars
        .par_iter()
        .filter(|s| !s.is_zero() && !s.is_one())
        .count();
    let scalar_bytes: Bytes = scalars
        .par_iter()
        .flat_map_iter(|s| s.into_bigint().to_bytes_le())
        .collect::<Vec<u8>>()
        .into();
    drop(scalars);
    let mut line = json!({
        "bench": "msm", "curve": C::ID.name(), "log2": n.ilog2(), "points": n, "scalars": "",
        "group": match group { Group::G1 => "g1", Group::G2 => "g2" },
        "resident": true,
    });
    let (times, sum) = match device {
        Device::Cpu => time(bench.reps, trace, || {
            Ok(match group {
                Group::G1 => Sum::G1(cpu::msm::msm_g1::<C>(&bases, &scalar_bytes)?),
                Group::G2 => Sum::G2(cpu::msm::msm_g2::<C>(&bases, &scalar_bytes)?),
            })
        })?,
        Device::Gpu(gpu) => {
            let input = bench_msm::Input {
                group,
                n,
                dense,
                bases: &bases,
                scalars: &scalar_bytes,
            };
            let options = RunOptions {
                trace: Some(trace.clone()),
                ..RunOptions::default()
            };
            let msm = bench_msm::OnDevice::new::<C>(gpu, &input, form, &options)?;
            msm.describe(&mut line);
            let mut last = RunReport::default();
            let (times, sum) = time(bench.reps, trace, || {
                let output = gpu.run(&msm.recording, &options)?;
                let tail = Instant::now();
                let bytes = &output.downloads[0];
                let sum = match group {
                    Group::G1 => Sum::G1(msm::finish_g1::<C>(bytes, &msm.geometry)?),
                    Group::G2 => Sum::G2(msm::finish_g2::<C>(bytes, &msm.geometry)?),
                };
                line["host_tail_ms"] = json!(tail.elapsed().as_secs_f64() * 1e3);
                last = output.report;
                Ok(sum)
            })?;
            report_run(&mut line, gpu, &last);
            (times, sum)
        }
    };
    if sum != expected {
        return Err(wrong(device));
    }
    describe(&mut line, device, times, bench.reps);
    Ok(line)
}

fn report_run(line: &mut Value, gpu: &GpuDevice, report: &RunReport) {
    line["phases"] = json!(phases(report));
    line["submissions"] = json!(report.submissions);
    line["slowest_submission_ms"] = json!(report.slowest_submission_ms);
    line["overhead_ms"] = json!({
        "reserve": report.reserve_ms, "staging": report.staging_ms,
        "turn_wait": report.turn_wait_ms, "turn": report.turn_ms, "total": report.total_ms,
    });
    line["peak_vram"] = json!(gpu.memory().peak_in_use);
}

fn bench_ntt<C: GpuCurve>(
    bench: &Bench,
    device: &Device,
    trace: &Trace,
    log2: u32,
    coset: bool,
) -> Result<Value> {
    let n = 1usize << log2;
    let roots = RootConvention::Arkworks;
    let domain = Domain::<C::Fr>::new(log2, roots)
        .ok_or_else(|| Error::Usage(format!("{} has no domain of 2^{log2}", C::ID)))?;
    let Device::Gpu(gpu) = device else {
        return Err(Error::NoDevice(
            "bench ntt measures transforms on a device, and there is none, or it was the CPU that was \
             asked for; `groth16-gpu devices` lists them, --device software takes a software driver"
                .to_owned(),
        ));
    };
    let coefficients = make_scalars::<C::Fr>(Scalars::Uniform, n);
    let bytes: Bytes = coefficients
        .par_iter()
        .flat_map_iter(|x| C::fr_montgomery(x).iter().flat_map(|l| l.to_le_bytes()))
        .collect::<Vec<u8>>()
        .into();
    let options = RunOptions {
        trace: Some(trace.clone()),
        ..RunOptions::default()
    };
    // In parts that fit a binding.
    let split_log = (32u64 << log2).div_ceil(gpu.limits().max_binding);
    let split_log = split_log.next_power_of_two().trailing_zeros();
    let sizes = (log2 - split_log, split_log);
    let part_bytes = 32usize << sizes.0;
    let roots = ResidentRoots::new::<C>(gpu, sizes, roots, false, &options)?;
    let parts: Vec<_> = (0..bytes.len())
        .step_by(part_bytes)
        .map(|at| ("data", bytes.slice(at..at + part_bytes)))
        .collect();
    let data = gpu.upload_resident(&parts, &options)?;
    drop((parts, bytes));
    let shift = C::Fr::GENERATOR;
    // As long as the vector where that fits a binding: half the products.
    let powers = match coset && split_log == 0 {
        true => PowerTable::whole::<C>(shift, C::Fr::one(), log2),
        false => PowerTable::new::<C>(shift, C::Fr::one(), log2),
    };
    let tables = [
        ("powers", powers.low.clone()),
        ("powers", powers.high.clone()),
    ];
    let tables = gpu.upload_resident(&tables, &options)?;
    let record = |download: bool| {
        let mut rec = Recording::new();
        let buffers = roots.declare(&mut rec);
        let slices = data.iter().map(|d| {
            let id = rec.resident("bench", d);
            rec.whole(id)
        });
        let vector = Parts::new(1 << sizes.0, slices.collect());
        let order = Order::NaturalToReversed;
        let [low, high] = [0, 1].map(|i| rec.resident("powers", &tables[i]));
        let low_log = powers.low_log;
        let finish = Finish {
            powers: coset.then_some(PowerBuffers { low_log, low, high }),
            natural: false,
        };
        rec.phase("transform");
        record_transform::<C>(&mut rec, &buffers, order, &vector, &vector, finish);
        if download {
            for i in CHECKED {
                let at = (i % n).reverse_bits() >> (usize::BITS - log2);
                rec.download(BufferSlice {
                    offset: 32 * (at % vector.per_part()) as u64,
                    size: 32,
                    ..vector.slices()[at / vector.per_part()]
                });
            }
        }
        rec
    };
    /// Indices of the values that are checked against the definition.
    const CHECKED: [usize; 3] = [1, 12345, usize::MAX];
    let output = gpu.run(&record(true), &options)?;
    for (i, got) in CHECKED.iter().zip(&output.downloads) {
        let x = domain.generator.pow([(i % n) as u64]);
        const PART: usize = 1 << 14;
        let value = coefficients
            .par_chunks(PART)
            .enumerate()
            .map(|(k, part)| {
                let inner = part.iter().rev().fold(C::Fr::zero(), |acc, c| acc * x + c);
                inner * x.pow([(k * PART) as u64])
            })
            .reduce(C::Fr::zero, |a, b| a + b);
        let factor = match coset {
            true => shift.pow([(i % n) as u64]),
            false => C::Fr::one(),
        };
        if C::fr_from_montgomery(got) != Some(value * factor) {
            return Err(wrong(device));
        }
    }
    let rec = record(false);
    let mut last = RunReport::default();
    let mut device_ms = Vec::new();
    let (times, ()) = time(bench.reps, trace, || {
        last = gpu.run(&rec, &options)?.report;
        device_ms.extend(phases(&last).get("transform").copied());
        Ok(())
    })?;
    device_ms.sort_by(f64::total_cmp);
    let mut line = json!({
        "bench": "ntt", "curve": C::ID.name(), "log2": log2, "direction": "forward", "order": "NR",
        "coset": coset,
        "device_ms": device_ms.get(device_ms.len() / 2),
    });
    report_run(&mut line, gpu, &last);
    describe(&mut line, device, times, bench.reps);
    Ok(line)
}

/// A synthetic circuit's key and witness.
pub struct Synthetic {
    pub key: ProvingKey,
    pub witness: Witness,
    pub shape: Shape,
    /// Making the circuit, and the key.
    pub circuit_ms: f64,
    pub setup_ms: f64,
    pub setup: SetupReport,
}

/// The shape of a circuit whose domain is 2^log2.
pub fn shape_of(log2: u32, density: f64) -> Shape {
    // The reduction adds rows for the public input: just below the power of two.
    Shape::new((1usize << log2).saturating_sub(4).max(1), density)
}

impl Synthetic {
    /// Made on the device of `choice`, within the largest of `vram_limits`.
    pub fn new<C: GpuCurve>(
        shape: Shape,
        choice: &DeviceChoice,
        vram_limits: &[Option<u64>],
    ) -> Result<Self> {
        let unlimited = vram_limits.contains(&None);
        let largest = vram_limits.iter().flatten().max().copied();
        let choice = DeviceChoice {
            vram_limit: largest.filter(|_| !unlimited),
            // The limit is for proofs.
            host_limit: None,
            ..choice.clone()
        };
        let ms = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        let (circuit, witness) = synthetic::circuit_of::<C>(shape, 1);
        let (circuit_ms, start) = (ms(start), Instant::now());
        let (key, setup) = engine::setup(circuit, &choice)?;
        Ok(Self {
            key,
            witness,
            shape,
            circuit_ms,
            setup_ms: ms(start),
            setup,
        })
    }
}
