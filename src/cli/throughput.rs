//! `bench throughput`: proofs of several partitions by several threads that share a device.

use super::args::DeviceChoice;
use super::bench::{Bench, Common, Synthetic, check_density, describe_device, shape_of};
use super::{Output, engine};
use clap::Args;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::proving_key::ProvingKey;
use groth16_gpu::report::{MemoryUse, peak_host_bytes};
use groth16_gpu::trace::Trace;
use groth16_gpu::witness::Witness;
use groth16_gpu::{Error, ProofReport, Result, with_curve};
use serde_json::{Value, json};
use std::thread;
use std::time::Instant;

pub const LIMITS_HELP: &str = "Device memory to use at most, one or a list: 2GiB,4GiB,none";

#[derive(Debug, Args)]
pub struct RawThroughput {
    #[command(flatten)]
    common: Common,
    /// Threads that prove at a time, one number or a list: 1,2,3,8
    #[arg(long, value_name = "N,..", default_value = "2")]
    workers: String,
    /// Partitions of a proof; a worker makes one proof, partition by partition
    #[arg(long, value_name = "P", default_value_t = 10)]
    partitions: usize,
    /// Share of the witness that is 0 or 1
    #[arg(long, default_value_t = 0.0)]
    density: f64,
}

#[derive(Debug)]
pub struct Throughput {
    workers: Vec<usize>,
    partitions: usize,
    density: f64,
    vram_limits: Vec<Option<u64>>,
}

impl RawThroughput {
    pub fn resolve(mut self) -> Result<(Common, Throughput)> {
        let number = |text: &str| {
            let n = text.trim().parse().ok();
            n.filter(|n| (1..=256).contains(n)).ok_or_else(|| {
                Error::Usage(format!("--workers {text}: numbers from 1 to 256, as 1,2,8"))
            })
        };
        if self.partitions == 0 {
            return Err(Error::Usage("--partitions takes 1 or more".into()));
        }
        let throughput = Throughput {
            workers: self.workers.split(',').map(number).collect::<Result<_>>()?,
            partitions: self.partitions,
            density: check_density(self.density)?,
            vram_limits: self.common.device.take_vram_limits()?,
        };
        Ok((self.common, throughput))
    }
}

/// What the workers share.
struct Job {
    prover: Prover,
    key: ProvingKey,
    /// Proved again for each partition; nothing of a proof is kept but the key.
    witness: Witness,
    options: ProveOptions,
}

impl Job {
    /// One partition: its latency in milliseconds, and its report.
    fn prove(&self) -> Result<(f64, ProofReport)> {
        let start = Instant::now();
        // Verified before it is returned: the check of this bench.
        let (_, report) = self.prover.prove(&self.key, &self.witness, &self.options)?;
        Ok((start.elapsed().as_secs_f64() * 1e3, report))
    }
}

/// What became of partitions.
#[derive(Default)]
struct Outcome {
    latencies: Vec<f64>,
    turn_waits: Vec<f64>,
    device_times: Vec<f64>,
    memory: Option<MemoryUse>,
    out_of_memory: usize,
    failed: usize,
    first_error: Option<Error>,
}

impl Outcome {
    /// Books a partition; returns whether to go on.
    fn add(&mut self, proved: Result<(f64, ProofReport)>) -> bool {
        match proved {
            Ok((latency, report)) => {
                self.latencies.push(latency);
                let waits = report.phases.iter().filter(|p| p.name == "turn_wait");
                self.turn_waits.extend(waits.map(|p| p.wall_ms));
                self.device_times.extend(report.device_ms);
                self.memory = report.memory;
                true
            }
            Err(e) => {
                let out_of_memory = matches!(e, Error::OutOfMemory { .. });
                self.out_of_memory += usize::from(out_of_memory);
                self.failed += usize::from(!out_of_memory);
                self.first_error.get_or_insert(e);
                // Memory comes back; a device that is lost does not.
                out_of_memory
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.turn_waits.extend(other.turn_waits);
        self.device_times.extend(other.device_times);
        self.memory = self.memory.take().or(other.memory);
        self.out_of_memory += other.out_of_memory;
        self.failed += other.failed;
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

/// Every worker proves its partitions; returns what became of them, and the first and last moment.
fn prove_all(job: &Job, workers: usize, partitions: usize) -> (Outcome, Instant, Instant) {
    let start = Instant::now();
    let work = |worker: usize| {
        if let Some(trace) = &job.options.trace {
            trace.name_thread(&format!("worker {worker}"));
        }
        let mut outcome = Outcome::default();
        for _ in 0..partitions {
            if !outcome.add(job.prove()) {
                break;
            }
        }
        outcome
    };
    let mut all = Outcome::default();
    thread::scope(|scope| {
        let work = &work;
        let spawn = |worker| scope.spawn(move || work(worker));
        let threads: Vec<_> = (1..=workers).map(spawn).collect();
        for thread in threads {
            match thread.join() {
                Ok(outcome) => all.merge(outcome),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    (all, start, Instant::now())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Prints a line for each size, limit and number of workers; ends with a proof's error after the
/// line that counts it.
pub fn run(bench: &Bench, what: &Throughput, trace: &Trace, out: &Output) -> Result<()> {
    for log2 in bench.sizes.clone() {
        let shape = shape_of(log2, what.density);
        let made = with_curve!(
            bench.curve,
            C => Synthetic::new::<C>(shape, &bench.device, &what.vram_limits)
        )?;
        for &vram_limit in &what.vram_limits {
            let device = engine::open(&DeviceChoice {
                vram_limit,
                ..bench.device.clone()
            })?;
            let mut options = ProveOptions::default();
            options.trace = Some(trace.clone());
            let job = Job {
                prover: Prover::new(device),
                key: made.key.clone(),
                witness: made.witness.clone(),
                options,
            };
            // Puts the key on the device and compiles kernels. If this fails, it is what is
            // reported.
            let mut first = Outcome::default();
            first.add(job.prove());
            for &workers in &what.workers {
                let mut line = json!({
                    "bench": "throughput", "curve": bench.curve.name(), "log2": log2,
                    "workers": workers, "partitions": what.partitions,
                    "vram_limit": vram_limit.unwrap_or(0),
                });
                let (outcome, from, to) = match first.first_error {
                    None => prove_all(&job, workers, what.partitions),
                    Some(_) => (std::mem::take(&mut first), Instant::now(), Instant::now()),
                };
                describe(&mut line, &job, &outcome, from, to);
                out.result(&line, &line.to_string())?;
                if let Some(error) = outcome.first_error {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Adds the figures to a line that says what was measured. Times of whole proofs are null if not
/// every proof was made.
fn describe(line: &mut Value, job: &Job, outcome: &Outcome, from: Instant, to: Instant) {
    let device = job.prover.device();
    describe_device(line, device);
    let made = outcome.first_error.is_none();
    let seconds = |proofs: &Value| {
        let proofs = proofs.as_u64().filter(|_| made)?;
        Some((to - from).as_secs_f64() / proofs as f64)
    };
    let per_proof = seconds(&line["workers"]);
    let partitions = line["partitions"].as_u64();
    line["s_per_proof"] = json!(per_proof);
    line["s_per_partition"] = json!(per_proof.zip(partitions).map(|(s, n)| s / n as f64));
    line["median_partition_ms"] = json!(median(outcome.latencies.clone()));
    line["median_device_ms"] = json!(median(outcome.device_times.clone()));
    let busy = device.gpu().zip(job.options.trace.as_ref());
    let busy = busy.map(|(gpu, trace)| trace.device_busy(&gpu.info().name, from, to));
    line["device_busy"] = json!(busy);
    line["turn_wait_ms"] = json!(median(outcome.turn_waits.clone()));
    line["oom"] = json!(outcome.out_of_memory);
    line["failed"] = json!(outcome.failed);
    // Since the device was opened, so of all numbers of workers so far.
    line["peak_vram"] = json!(device.gpu().map(|g| g.memory().peak_total));
    line["peak_host"] = json!(peak_host_bytes());
    line["memory"] = json!(outcome.memory);
    line["checked"] = json!(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted() {
        let out_of_memory = || Error::OutOfMemory {
            device: String::new(),
            needed: 2,
            available: 1,
        };
        let mut all = Outcome::default();
        let mut other = Outcome::default();
        assert!(all.add(Ok((3.0, ProofReport::default()))));
        assert!(other.add(Err(out_of_memory())), "memory comes back");
        assert!(!other.add(Err(Error::Cancelled)));
        all.merge(other);
        assert_eq!((all.out_of_memory, all.failed), (1, 1));
        assert_eq!(all.first_error.map(|e| e.class()), Some("out_of_memory"));
        assert_eq!(median(all.latencies), Some(3.0));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }
}
