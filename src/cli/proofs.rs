//! `bench prove`: whole proofs of a synthetic circuit, under one limit of device memory or several.

use super::args::DeviceChoice;
use super::bench::{Bench, Synthetic, Timed, check_density, describe, shape_of, time, wrong};
use super::{Output, engine};
use clap::{Args, ValueEnum};
use groth16_gpu::curve::GpuCurve;
use groth16_gpu::formats::json::proof_to_json;
use groth16_gpu::host::key_bytes;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::report::peak_host_bytes;
use groth16_gpu::synthetic::Shape;
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
    /// A circuit shaped like a known one, scaled to --log2: porep, one partition of Filecoin's proof
    /// of replication for sectors of 32 GiB, in full 2^27
    #[arg(long, value_name = "NAME", conflicts_with = "density")]
    profile: Option<Profile>,
}

/// A known circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    Porep,
}

#[derive(Debug)]
pub struct Proofs {
    density: f64,
    profile: Option<Profile>,
    vram_limits: Vec<Option<u64>>,
}

impl RawProofs {
    pub fn resolve(mut self) -> Result<(Timed, Proofs)> {
        let proofs = Proofs {
            density: check_density(self.density)?,
            profile: self.profile,
            vram_limits: self.timed.common.device.take_vram_limits()?,
        };
        Ok((self.timed, proofs))
    }
}

impl Proofs {
    /// The size that is meant if none is given.
    pub fn default_log2(&self) -> &'static str {
        match self.profile {
            Some(Profile::Porep) => "27",
            None => "16",
        }
    }

    fn profile_name(&self) -> Option<String> {
        let value = self.profile?.to_possible_value()?;
        Some(value.get_name().to_owned())
    }

    fn shape(&self, log2: u32) -> Shape {
        match self.profile {
            Some(Profile::Porep) => Shape::porep(log2),
            None => shape_of(log2, self.density),
        }
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
    let made = Synthetic::new::<C>(what.shape(log2), &bench.device, &what.vram_limits)?;
    let (key, witness) = (&made.key, &made.witness);
    let key_bytes = key_bytes(key);
    let setup_peak_host = peak_host_bytes();
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
        prover.prove(key, witness, &options)?;
        let cold = cold.elapsed();
        options.self_verify = false;
        let run = || prover.prove(key, witness, &options);
        let (times, (_, report)) = time(bench.reps, trace, run)?;
        // The other check: the same under every limit, coordinate by coordinate.
        let blinding = [3u8; 32];
        let proof = prover.prove_with_blinding(key, witness, &options, &blinding, &blinding)?;
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
            "bench": "prove", "curve": C::ID.name(), "log2": log2,
            "constraints": made.shape.constraints, "density": made.shape.bits,
            "profile": what.profile_name(),
            "vram_limit": vram_limit.unwrap_or(0), "key_bytes": key_bytes,
            "circuit_ms": made.circuit_ms, "setup_ms": made.setup_ms,
            "setup_device": made.setup.device, "setup_stages": made.setup.stages_ms(),
            "setup_peak_host": setup_peak_host, "cold_ms": ms(cold), "warm_median_ms": times[0],
            "device_ms": report.device_ms, "phases": phases, "memory": report.memory,
            "peak_vram": device.gpu().map(|g| g.memory().peak_total),
            "peak_host": report.peak_host_bytes,
            "peak_host_per_key_byte":
                report.peak_host_bytes.map(|peak| peak as f64 / key_bytes as f64),
        });
        describe(&mut line, &device, times, bench.reps);
        out.result(&line, &line.to_string())?;
    }
    Ok(())
}
