//! What a device does wrong, made to order: each ends in a proof that verifies or in a typed error.

use crate::circuits::random_chain;
use crate::common::{self, TestDevice, ensure};
use groth16_gpu::Error;
use groth16_gpu::curve::Bn254;
use groth16_gpu::device::{Device, Fault, GpuDevice};
use groth16_gpu::proof::Proof;
use groth16_gpu::prover::{Fallback, ProveOptions, Prover};
use groth16_gpu::proving_key::{ProvingKey, QapReduction};
use groth16_gpu::setup::setup_from_seed;
use groth16_gpu::verify::verify;
use groth16_gpu::witness::Witness;
use libtest_mimic::{Failed, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome = Result<(), Failed>;

/// How long a submission may take here.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Buffers of a dispatch at most, most of which have fewer.
const BINDINGS: usize = 8;

/// A key on a device, a witness, and the proof of it with r = 3, s = 5.
struct Job {
    gpu: Arc<GpuDevice>,
    prover: Prover,
    key: ProvingKey,
    witness: Witness,
    expected: Proof,
}

impl Job {
    fn new(d: &TestDevice, timeout: Option<Duration>) -> Result<Self, Failed> {
        let (r1cs, witness) = random_chain::<Bn254>(60, 2, 50);
        let key = setup_from_seed(&r1cs, QapReduction::Circom, 1)?;
        let mut options = common::options(d.gpu.tier());
        // Writing a pattern first would take most of the time.
        options.poison = false;
        options.timeout = timeout.unwrap_or(options.timeout);
        let gpu = GpuDevice::open(d.gpu.info(), &options)?;
        let prover = Prover::new(Device::Gpu(gpu.clone()));
        prover.preload(&key)?;
        let expected = prove(&Prover::new(Device::Cpu), &key, &witness, Fallback::Never)?;
        let job = Self {
            gpu,
            prover,
            key,
            witness,
            expected,
        };
        ensure!(
            job.prove(Fallback::Never)? == job.expected,
            "without a fault"
        );
        Ok(job)
    }

    fn prove(&self, fallback: Fallback) -> groth16_gpu::Result<Proof> {
        prove(&self.prover, &self.key, &self.witness, fallback)
    }

    /// A proof by the CPU in place of the device.
    fn falls_back(&self, what: &str) -> Outcome {
        let mut options = ProveOptions::default();
        options.fallback = Fallback::Cpu;
        let (proof, report) = self.prover.prove(&self.key, &self.witness, &options)?;
        ensure!(report.backend == "cpu", "{what}: {}", report.backend);
        ensure!(report.fallback.is_some(), "{what}: no reason given");
        ensure!(
            verify(&self.key.verifying_key()?, &proof)?,
            "{what}: does not verify"
        );
        Ok(())
    }
}

fn prove(
    prover: &Prover,
    key: &ProvingKey,
    witness: &Witness,
    fallback: Fallback,
) -> groth16_gpu::Result<Proof> {
    let mut options = ProveOptions::default();
    options.fallback = fallback;
    let scalar = |n: u8| {
        let mut bytes = [0; 32];
        bytes[0] = n;
        bytes
    };
    let made = prover.prove_with_blinding(key, witness, &options, &scalar(3), &scalar(5));
    made.map(|(proof, _)| proof)
}

/// After every dispatch of a proof in turn, one word of one of its buffers is wrong; after the first
/// dispatch of each kernel, of each of its buffers. The proof is right all the same, as where that
/// word was read already, or there is none. Each kernel is among those after which it is noticed.
fn wrong_words(d: &TestDevice) -> Outcome {
    let job = Job::new(d, None)?;
    let (mut noticed, mut harmless) = (BTreeMap::new(), 0);
    let mut kernels = BTreeSet::new();
    for dispatch in 0.. {
        let (mut met, mut new) = (false, true);
        for binding in 0..BINDINGS {
            let binding = if new { binding } else { dispatch as usize };
            job.gpu.inject_fault(Fault::WrongWord { dispatch, binding });
            let proved = job.prove(Fallback::Never);
            let Some(kernel) = job.gpu.wronged_kernel() else {
                break;
            };
            new &= met || kernels.insert(kernel);
            met = true;
            match proved {
                Ok(proof) => {
                    ensure!(proof == job.expected, "{dispatch}, {kernel}: another proof");
                    harmless += 1;
                }
                Err(e) if e.class() == "device_fault" => {
                    *noticed.entry(kernel).or_insert(0) += 1;
                    // The word may have been the key's, which therefore had to leave the device.
                    ensure!(
                        job.prover.resident_keys().is_empty(),
                        "the key is still there"
                    );
                    job.prover.preload(&job.key)?;
                }
                Err(e) => return Err(format!("{dispatch}, {kernel}: {}, {e}", e.class()).into()),
            }
            if !new {
                break;
            }
        }
        if !met {
            break;
        }
    }
    eprintln!("{}: noticed {noticed:?}, harmless {harmless}", d.label);
    let unnoticed: Vec<_> = kernels
        .iter()
        .filter(|k| !noticed.contains_key(*k))
        .collect();
    ensure!(unnoticed.is_empty(), "never noticed: {unnoticed:?}");
    ensure!(kernels.len() > 10, "only {kernels:?}");
    // And the device still works.
    ensure!(job.prove(Fallback::Never)? == job.expected, "afterwards");
    Ok(())
}

/// Each submission of a proof is lost in turn.
fn lost_submissions(d: &TestDevice) -> Outcome {
    let job = Job::new(d, None)?;
    let mut lost = 0;
    loop {
        // What is lost is not the key's, which a fault drops.
        job.prover.preload(&job.key)?;
        job.gpu.inject_fault(Fault::LoseSubmission(lost));
        match job.prove(Fallback::Never) {
            // There are no so many.
            Ok(proof) => {
                ensure!(proof == job.expected, "another proof");
                break;
            }
            Err(e) => ensure!(e.class() == "device_fault", "{lost}: {e}"),
        }
        job.prover.preload(&job.key)?;
        job.gpu.inject_fault(Fault::LoseSubmission(lost));
        job.falls_back("a lost submission")?;
        ensure!(job.prove(Fallback::Never)? == job.expected, "after {lost}");
        lost += 1;
    }
    ensure!(lost >= 3, "only {lost} submissions");
    Ok(())
}

/// The device is lost before any submission of a proof: typed errors from then on, or the CPU; a
/// device opened anew proves.
fn lost_devices(d: &TestDevice) -> Outcome {
    for number in 0..3 {
        let job = Job::new(d, None)?;
        job.gpu.inject_fault(Fault::LoseDevice(number));
        for _ in 0..2 {
            match job.prove(Fallback::Never) {
                Err(e) if e.class() == "device_fault" => {}
                other => return Err(format!("{number}: {other:?}").into()),
            }
        }
        job.falls_back("a lost device")?;
    }
    Ok(())
}

/// A submission never ends, and no watchdog ends it: a time-out, and soon the device counts as lost,
/// since its memory will not come back. Nothing waits for ever.
fn hung_submissions(d: &TestDevice) -> Outcome {
    for number in 0..2 {
        let job = Job::new(d, Some(TIMEOUT))?;
        job.gpu.inject_fault(Fault::HangSubmission(number));
        let start = Instant::now();
        match job.prove(Fallback::Never) {
            Err(Error::Timeout { .. }) => {}
            other => return Err(format!("{number}: {other:?}").into()),
        }
        let waited = start.elapsed();
        ensure!(waited < 20 * TIMEOUT, "{number}: {waited:?}");
        // Until the device counts as lost, its memory is not free, and proofs have what is left.
        std::thread::sleep(TIMEOUT);
        match job.prove(Fallback::Never) {
            Err(e) if e.class() == "device_fault" => {}
            other => return Err(format!("{number}, the next one: {other:?}").into()),
        }
        job.falls_back("a device that hung")?;
    }
    Ok(())
}

/// On adapters that are fast enough for proofs by the dozen, in their best tier.
pub fn trials(all: &[TestDevice]) -> Vec<Trial> {
    type OnDevice = fn(&TestDevice) -> Outcome;
    let fast = |d: &&TestDevice| !d.is_slow() && d.gpu.tier() == d.gpu.info().tiers[0];
    let devices: Vec<TestDevice> = all.iter().filter(fast).cloned().collect();
    let missing = match all.iter().any(|d| d.is("lavapipe")) {
        true => None,
        false => Some("lavapipe/missing"),
    };
    let tests: [(&str, OnDevice); 4] = [
        ("wrong_words", wrong_words),
        ("lost_submissions", lost_submissions),
        ("lost_devices", lost_devices),
        ("hung_submissions", hung_submissions),
    ];
    let mut trials = Vec::new();
    for (name, test) in tests {
        for d in &devices {
            let (id, d) = (format!("{}/faults/{name}", d.label), d.clone());
            trials.push(common::trial(id, move || test(&d)));
        }
        trials.extend(missing.map(|label| common::ignored(format!("{label}/faults/{name}"))));
    }
    trials
}
