//! Panics, refused allocations, cancelled and late jobs: what they held goes back.

use super::{
    Outcome, job, limit_for, no_host_memory_held, nothing_held, on_threads, open, options,
    prove_fixed, prover_on,
};
use crate::common::{TestDevice, ensure};
use groth16_gpu::Error;
use groth16_gpu::control::CancelToken;
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::{Device, Fault};
use groth16_gpu::prover::{Prover, ProverOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// p64: what a panic in the turn, or in a key's upload, held goes back, and the next proof is right.
pub fn a_panic_leaves_the_next_proof_working(d: &TestDevice) -> Outcome {
    let job = job(CurveId::Bn254, 60, 2)?;
    let gpu = open(d, None)?;
    let prover = prover_on(&gpu);
    // In the key's upload, then in a proof.
    for uploaded in [false, true] {
        ensure!(gpu.memory().in_use > 0 || !uploaded, "the key is not there");
        gpu.inject_fault(Fault::Panic(0));
        let panicked = std::thread::scope(|scope| {
            let prove = || prover.prove(&job.key, &job.witnesses[0], &options());
            scope.spawn(prove).join().is_err()
        });
        ensure!(panicked, "no panic");
        nothing_held(&gpu)?;
        no_host_memory_held(&prover)?;
        let (proof, _) = prove_fixed(&prover, &job.key, &job.witnesses[0])?;
        ensure!(proof == job.expected[0], "a wrong proof after a panic");
    }
    // In a batch it is the error of one item.
    gpu.inject_fault(Fault::Panic(0));
    let mut classes = Vec::new();
    let witnesses = job.witnesses.iter().cycle().take(6).cloned().map(Ok);
    prover.prove_each(&job.key, witnesses, &options(), Some(3), |_, result| {
        classes.extend(result.err().map(|e| e.class().to_owned()));
        ControlFlow::Continue(())
    })?;
    ensure!(classes == ["internal"], "errors: {classes:?}");
    nothing_held(&gpu)?;
    no_host_memory_held(&prover)
}

/// The driver refuses the first allocation, the second, and so on, until a proof needs no more.
pub fn out_of_memory_at_any_allocation(d: &TestDevice) -> Outcome {
    let job = job(CurveId::Bn254, 60, 1)?;
    let prove = |prover: &Prover| prove_fixed(prover, &job.key, &job.witnesses[0]);
    let (mut refused, mut unnoticed) = (0, 0);
    for n in 0.. {
        ensure!(n < 200, "no end of allocations");
        // A fresh one: what exists once is not allocated again.
        let gpu = open(d, Some(8 << 20))?;
        let prover = prover_on(&gpu);
        gpu.inject_fault(Fault::Allocation(n));
        let first = prove(&prover);
        gpu.inject_fault(Fault::Allocation(u32::MAX));
        nothing_held(&gpu)?;
        no_host_memory_held(&prover)?;
        match first {
            // None was refused any more, or a smaller one served as well.
            Ok((proof, _)) => {
                ensure!(proof == job.expected[0], "a wrong proof beside refusal {n}");
                unnoticed += 1;
            }
            Err(Error::OutOfMemory {
                needed, available, ..
            }) => {
                ensure!(needed > available, "{needed} bytes of {available}");
                (refused, unnoticed) = (refused + 1, 0);
            }
            Err(other) => return Err(format!("allocation {n}: {other}").into()),
        }
        let (proof, _) = prove(&prover).map_err(|e| format!("after refusal {n}: {e}"))?;
        ensure!(proof == job.expected[0], "a wrong proof after refusal {n}");
        nothing_held(&gpu)?;
        if unnoticed == 2 {
            break;
        }
    }
    eprintln!("{}: {refused} refusals", d.label);
    ensure!(refused >= 5, "only {refused} refusals were noticed");
    Ok(())
}

/// Jobs that are cancelled or late wherever they are: in the host's line, in the arena's, in the
/// device's, on the device, after it.
pub fn cancelled_and_late_jobs_give_everything_back(d: &TestDevice) -> Outcome {
    let job = job(CurveId::Bn254, 250, 1)?;
    let probe = prover_on(&open(d, None)?);
    prove_fixed(&probe, &job.key, &job.witnesses[0])?;
    let (_, report) = prove_fixed(&probe, &job.key, &job.witnesses[0])?;
    let proof_ms = report.wall_ms;
    let memory = report.memory.ok_or("no memory plan")?;
    // Room for two proofs on the device, and for five on the host.
    let budget = memory.resident_bytes + 2 * memory.reserved_bytes;
    let gpu = open(d, Some(limit_for(budget.next_multiple_of(256))?))?;
    let host_limit = Some(5 * probe.job_bytes(&job.key, None) + (1 << 20));
    let devices = vec![Device::Gpu(gpu.clone())];
    let prover = Prover::with_options(
        devices,
        ProverOptions {
            host_limit,
            ..Default::default()
        },
    );
    let ends = Mutex::new([0; 3]);
    on_threads(8, |thread| {
        let mut rng = StdRng::seed_from_u64(thread as u64);
        for i in 0..8 {
            // One is late before it began, one has time enough, the others end anywhere.
            let after = match i {
                0 => Duration::ZERO,
                6 => Duration::from_secs(60),
                _ => Duration::from_secs_f64(rng.gen_range(0.0..8e-3) * proof_ms),
            };
            let mut options = options();
            let cancel = CancelToken::new();
            if i % 2 == 0 {
                options.deadline = Some(Instant::now() + after);
            } else {
                options.cancel = Some(cancel.clone());
            }
            let end = std::thread::scope(|scope| {
                if i % 2 == 1 {
                    scope.spawn(|| {
                        std::thread::sleep(after);
                        cancel.cancel();
                    });
                }
                prover.prove(&job.key, &job.witnesses[0], &options)
            });
            let end = match end {
                Ok(_) => 0,
                Err(Error::Cancelled) if i % 2 == 1 => 1,
                Err(Error::Timeout { .. }) if i % 2 == 0 => 2,
                Err(other) => return Err(format!("{thread}, {i}: {other}").into()),
            };
            ends.lock().unwrap()[end] += 1;
        }
        Ok(())
    })?;
    let ends = ends.into_inner().unwrap();
    eprintln!("{}: done, cancelled, late: {ends:?}", d.label);
    ensure!(
        ends.iter().all(|n| *n > 0),
        "done, cancelled, late: {ends:?}"
    );
    nothing_held(&gpu)?;
    no_host_memory_held(&prover)?;
    // As many at a time as before: no staging buffer or page is missing.
    on_threads(8, |_| {
        let (proof, _) = prove_fixed(&prover, &job.key, &job.witnesses[0])?;
        ensure!(proof == job.expected[0], "a wrong proof");
        Ok(())
    })?;
    nothing_held(&gpu)?;
    no_host_memory_held(&prover)
}
