//! Who goes first where jobs wait for each other.

use super::{
    Outcome, job, limit_for, no_host_memory_held, nothing_held, open, options, prove_fixed,
    prover_on, wait_until,
};
use crate::common::{self, TestDevice, ensure};
use groth16_gpu::control::Priority;
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::recording::Recording;
use groth16_gpu::device::{Device, DeviceOptions, GpuDevice, RunOptions};
use groth16_gpu::prover::{Prover, ProverOptions};
use groth16_gpu::trace::Trace;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Blocks whoever calls it, after having said so, until it is told to let go.
#[derive(Clone, Default)]
struct Gate(Arc<[AtomicBool; 2]>);

impl Gate {
    fn enter(&self) {
        self.0[0].store(true, Ordering::SeqCst);
        while !self.0[1].load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    /// Runs `occupant`, which is to enter, and `meanwhile` while it is inside.
    fn occupied(
        &self,
        occupant: impl FnOnce() -> Outcome + Send,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome {
        std::thread::scope(|scope| {
            let occupant = scope.spawn(occupant);
            let inside = || self.0[0].load(Ordering::SeqCst);
            let outcome = wait_until("the occupant", inside).and_then(|()| meanwhile());
            self.0[1].store(true, Ordering::SeqCst);
            let ended = occupant.join().unwrap_or_else(|_| Err("a panic".into()));
            outcome.and(ended)
        })
    }
}

/// Where jobs wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Line {
    Turn,
    Arena,
    Host,
}

/// Of jobs that wait for the same thing, a critical one that came last goes before low ones.
pub fn priorities(d: &TestDevice) -> Outcome {
    let job = &job(CurveId::Bn254, 125, 1)?;
    let probe = prover_on(&open(d, None)?);
    let (_, report) = prove_fixed(&probe, &job.key, &job.witnesses[0])?;
    let host = probe.job_bytes(&job.key, Some(&job.witnesses[0]));
    let memory = report.memory.ok_or("no memory plan")?;
    let (key, proof) = (memory.resident_bytes, memory.reserved_bytes);
    for line in [Line::Turn, Line::Arena, Line::Host] {
        let device_options = DeviceOptions {
            // For the turn, with pages and staging buffers for all of them.
            vram_limit: match line {
                Line::Turn => None,
                _ => Some(limit_for(key + 8 * proof)?),
            },
            submission: Duration::from_millis(1),
            ..common::options(d.gpu.tier())
        };
        let gpu = &GpuDevice::open(d.gpu.info(), &device_options)?;
        // One and a half jobs that come once the key is there.
        let host_limit = (line == Line::Host).then_some(host + host / 2);
        let devices = vec![Device::Gpu(gpu.clone())];
        let prover = &Prover::with_options(
            devices,
            ProverOptions {
                host_limit,
                ..Default::default()
            },
        );
        prover.preload(&job.key)?;
        let trace = Trace::new();
        let gate = Gate::default();
        let blocked = gate.clone();
        let occupant = || -> Outcome {
            if line == Line::Host {
                let mut options = options();
                options.progress = Some(Arc::new(move |_, _| blocked.enter()));
                prover.prove(&job.key, &job.witnesses[0], &options)?;
                return Ok(());
            }
            // In the device's turn, with a little of its memory or with nearly all.
            let size = match line {
                Line::Arena => gpu.limits().memory_budget - key - proof / 2 - 256,
                _ => 1 << 20,
            };
            let mut rec = Recording::new();
            let all = rec.transient("all", size & !255);
            (0..200).for_each(|_| rec.clear(rec.whole(all)));
            let options = RunOptions {
                // After a submission, with more of them to come.
                progress: Some(Arc::new(move |_| blocked.enter())),
                ..Default::default()
            };
            gpu.run(&rec, &options)?;
            Ok(())
        };
        let done = &Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            gate.occupied(occupant, || {
                for i in 0..4 {
                    let critical = i == 3;
                    let priority = if critical {
                        Priority::Critical
                    } else {
                        Priority::Low
                    };
                    let mut options = options();
                    (options.priority, options.self_verify) = (priority, false);
                    options.trace = Some(trace.clone());
                    scope.spawn(move || {
                        options
                            .trace
                            .iter()
                            .for_each(|t| t.name_thread(priority.name()));
                        let made = prover.prove(&job.key, &job.witnesses[0], &options);
                        done.lock().unwrap().push((priority, made.is_ok()));
                    });
                    let waits = || match line {
                        Line::Turn => trace.spans().iter().filter(|s| s.name == "stage").count(),
                        Line::Arena => gpu.memory().waiting,
                        Line::Host => prover.host_memory().waiting,
                    };
                    wait_until(&format!("{line:?}, {i}"), || waits() == i + 1)?;
                }
                // From staging it is a step to the line.
                std::thread::sleep(Duration::from_millis(50));
                let none = done.lock().unwrap().is_empty();
                ensure!(none, "{line:?}: somebody did not wait");
                Ok(())
            })
        })?;
        let spans = trace.spans();
        let turns: Vec<&str> = spans
            .iter()
            .filter(|s| s.name == "turn")
            .map(|s| s.track.as_str())
            .collect();
        // Two have memory at a time, and either may be staged first.
        let among = if line == Line::Arena { 2 } else { 1 };
        let first = turns[..among].contains(&"critical");
        ensure!(turns.len() == 4 && first, "{line:?}: {turns:?}");
        let done = done.lock().unwrap();
        let fine = done.iter().all(|d| d.1) && done[3].0 == Priority::Low;
        ensure!(fine, "{line:?}: {done:?}");
        nothing_held(gpu)?;
        no_host_memory_held(prover)?;
    }
    Ok(())
}
