//! `bench prove`: whole proofs of a synthetic circuit, under one limit of device memory or several.

use super::args::DeviceChoice;
use super::bench::{Bench, Timed, check_density, describe, synthetic_key, time, wrong};
use super::{Output, engine};
use clap::Args;
use groth16_gpu::curve::GpuCurve;
use groth16_gpu::formats::json::proof_to_json;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::trace::Trace;
use groth16_gpu::{Result, with_curve};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub struct RawProofs {
    #[command(flatten)]
    timed: Timed,
    /// Share of the witness that is 0 or 1
    #[arg(long, default_value_t = 0.0)]
    density: f64,
}

#[derive(Debug)]
pub struct Proofs {
    density: f64,
    vram_limits: Vec<Option<u64>>,
}

impl RawProofs {
    pub fn resolve(mut self) -> Result<(Timed, Proofs)> {
        let proofs = Proofs {
            density: check_density(self.density)?,
            vram_limits: self.timed.common.device.take_vram_limits()?,
        };
        Ok((self.timed, proofs))
    }
}

/// Prints a line for each size and limit. Proofs with the same blinding under all limits of a size
/// are compared.
pub fn run(bench: &Bench, what: &Proofs, trace: &Trace, out: &Output) -> Result<()> {
    for log2 in bench.sizes.clone() {
        with_curve!(bench.curve, C => run_size::<C>(bench, what, trace, log2, out))?;
    }
    Ok(())
}

fn run_size<C: GpuCurve>(
    bench: &Bench,
    what: &Proofs,
    trace: &Trace,
    log2: u32,
    out: &Output,
) -> Result<()> {
    let start = Instant::now();
    let (key, witness, constraints) = synthetic_key::<C>(log2, what.density)?;
    let setup = start.elapsed();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let mut first = None;
    for &vram_limit in &what.vram_limits {
        let device = engine::open(&DeviceChoice {
            vram_limit,
            ..bench.device.clone()
        })?;
        let prover = Prover::new(device.clone());
        let mut options = ProveOptions::default();
        options.trace = Some(trace.clone());
        let cold = Instant::now();
        // Verified before it is returned: the check of this bench.
        prover.prove(&key, &witness, &options)?;
        let cold = cold.elapsed();
        options.self_verify = false;
        let run = || prover.prove(&key, &witness, &options);
        let (times, (_, report)) = time(bench.reps, trace, run)?;
        // The other check: the same under every limit, coordinate by coordinate.
        let blinding = [3u8; 32];
        let proof = prover.prove_with_blinding(&key, &witness, &options, &blinding, &blinding)?;
        let proof = proof_to_json(&proof.0)?;
        if *first.get_or_insert_with(|| proof.clone()) != proof {
            return Err(wrong(&device));
        }
        let phases: BTreeMap<&str, f64> = report
            .phases
            .iter()
            .map(|p| (p.name.as_str(), p.device_ms.unwrap_or(p.wall_ms)))
            .collect();
        let mut line = json!({
            "bench": "prove", "curve": C::ID.name(), "log2": log2, "constraints": constraints,
            "density": what.density, "vram_limit": vram_limit.unwrap_or(0),
            "setup_ms": ms(setup), "cold_ms": ms(cold), "warm_median_ms": times[0],
            "device_ms": report.device_ms, "phases": phases, "memory": report.memory,
            "peak_vram": device.gpu().map(|g| g.memory().peak_total),
            "peak_host": report.peak_host_bytes,
        });
        describe(&mut line, &device, times, bench.reps);
        out.result(&line, &line.to_string())?;
    }
    Ok(())
}
