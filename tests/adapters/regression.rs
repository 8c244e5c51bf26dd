//! Faults that other provers have met, named after their rows in the project's list of pitfalls,
//! on every backend. Rows about one part alone (formats, arena, queue, command line, kernels) have
//! their tests beside the tests of that part.

mod broken_kernels;

use crate::cases::prepared;
use crate::circuits::{chain, number, random_chain, with_value};
use crate::common::{self, TestDevice, ensure};
use crate::corpus;
use groth16_gpu::curve::{Bn254, CurveId, G1, G1Affine, GpuCurve};
use groth16_gpu::device::recording::Recording;
use groth16_gpu::device::{Device, DeviceOptions, Fault, GpuDevice, RunOptions};
use groth16_gpu::gpu_proof::chunk_size;
use groth16_gpu::msm::{self, Geometry, Group};
use groth16_gpu::proof::Proof;
use groth16_gpu::prover::{Fallback, ProveOptions, Prover, ProverOptions};
use groth16_gpu::proving_key::{ProvingKey, QapReduction, g1_to_raw};
use groth16_gpu::report::ProofReport;
use groth16_gpu::selftest::Size;
use groth16_gpu::setup::setup_from_seed;
use groth16_gpu::verify::verify;
use groth16_gpu::with_curve;
use groth16_gpu::witness::Witness;
use groth16_gpu::{Error, Result};
use libtest_mimic::{Failed, Trial};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Outcome = Result<(), Failed>;

const REDUCTIONS: [QapReduction; 2] = [QapReduction::Circom, QapReduction::Libsnark];

fn prove(device: &Device, key: &ProvingKey, witness: &Witness) -> Result<(Proof, ProofReport)> {
    Prover::new(device.clone()).prove(key, witness, &ProveOptions::default())
}

/// A proof with fixed r and s, verified by the prover itself.
fn prove_fixed(prover: &Prover, key: &ProvingKey, witness: &Witness) -> Result<Proof> {
    let options = ProveOptions::default();
    let made = prover.prove_with_blinding(key, witness, &options, &number(3), &number(5));
    made.map(|(proof, _)| proof)
}

fn cpu_proof(key: &ProvingKey, witness: &Witness) -> Result<Proof> {
    prove_fixed(&Prover::new(Device::Cpu), key, witness)
}

/// A key and a witness of about `n` wires.
fn circuit(curve: CurveId, n: usize, reduction: QapReduction) -> Result<(ProvingKey, Witness)> {
    let (r1cs, witness) = with_curve!(curve, C => random_chain::<C>(n / 2, 2, n / 2 - 3));
    Ok((setup_from_seed(&r1cs, reduction, 1)?, witness))
}

fn expect_class<T>(result: Result<T>, class: &str) -> Result<String, Failed> {
    match result {
        Ok(_) => Err(format!("went well; expected {class}").into()),
        Err(e) if e.class() == class => Ok(e.to_string()),
        Err(e) => Err(format!("{}: {e}; expected {class}", e.class()).into()),
    }
}

/// A snarkjs key and an arkworks key of one circuit both prove, and neither under the reduction of
/// the other.
fn p01_reductions(device: &Device) -> Outcome {
    for curve in CurveId::ALL {
        for reduction in REDUCTIONS {
            let (mut key, witness) = circuit(curve, 40, reduction)?;
            prove(device, &key, &witness)?;
            let g1 = curve.g1_bytes();
            // The libsnark reduction has one h point less.
            (key.reduction, key.h_query) = match reduction {
                QapReduction::Circom => {
                    let short = key.h_query.slice(0..key.h_query.len() - g1);
                    (QapReduction::Libsnark, short)
                }
                QapReduction::Libsnark => {
                    let mut long = key.h_query.to_vec();
                    long.resize(long.len() + g1, 0);
                    (QapReduction::Circom, long.into())
                }
            };
            expect_class(prove(device, &key, &witness), "unsatisfied")?;
        }
    }
    Ok(())
}

fn p05_fifty_runs_are_identical(device: &Device) -> Outcome {
    for curve in CurveId::ALL {
        let (key, witness) = circuit(curve, 100, QapReduction::Circom)?;
        let prover = Prover::new(device.clone());
        let expected = cpu_proof(&key, &witness)?;
        for i in 0..50 {
            let proof = prove_fixed(&prover, &key, &witness)?;
            ensure!(proof == expected, "{curve}, run {i}");
        }
    }
    Ok(())
}

fn p12_two_proofs_differ(device: &Device) -> Outcome {
    let (key, witness) = circuit(CurveId::Bn254, 20, QapReduction::Circom)?;
    let (p, q) = (
        prove(device, &key, &witness)?.0,
        prove(device, &key, &witness)?.0,
    );
    ensure!(p.a != q.a && p.b != q.b && p.c != q.c, "the same points");
    Ok(())
}

fn p15_flipped_witness(device: &Device) -> Outcome {
    for curve in CurveId::ALL {
        let (key, witness) = circuit(curve, 20, QapReduction::Circom)?;
        let prover = Prover::new(device.clone());
        for wire in [0, 1, 3, witness.len() - 1] {
            let wrong = with_value(&witness, wire, number(77));
            let made = prover.prove(&key, &wrong, &ProveOptions::default());
            let message = expect_class(made, "unsatisfied")?;
            ensure!(message.contains("witness"), "{message}");
        }
    }
    Ok(())
}

/// The command leaves nothing behind for a witness with one value changed, or no driver (p10).
fn p10_p15_nothing_is_written(selector: &str) -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let fixture = corpus::bundled().join("bn254/chain14");
    let mut witness = std::fs::read(fixture.join("witness.wtns"))?;
    // The lowest byte of the last value.
    let low = witness.len() - 32;
    witness[low] ^= 1;
    std::fs::write(at("wrong.wtns"), witness)?;
    std::fs::create_dir(at("out"))?;
    let run = |witness: &Path, drivers: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groth16-gpu"));
        command
            .arg("prove")
            .args([&fixture.join("circuit.zkey"), witness])
            .args([at("out/proof.json"), at("out/public.json")])
            .args(["--json", "--device", selector]);
        if !drivers {
            common::without_drivers(&mut command);
        }
        let output = command.output().expect("the tool runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = run(&at("wrong.wtns"), true);
    ensure!(code == Some(1) && text.contains("unsatisfied"), "{text}");
    if selector != "cpu" && cfg!(target_os = "linux") {
        let (code, text) = run(&fixture.join("witness.wtns"), false);
        ensure!(code == Some(3) && text.contains("no_device"), "{text}");
    }
    let left = std::fs::read_dir(at("out"))?.count();
    ensure!(left == 0, "{left} files were left");
    Ok(())
}

/// p20, p21: no constraint, one, no public wire, none private; domains filled exactly and not.
fn p20_p21_odd_circuits(device: &Device) -> Outcome {
    let prover = Prover::new(device.clone());
    for (constraints, public, private) in [
        (0, 0, 0),
        (0, 1, 0),
        (0, 4, 0),
        (0, 0, 3),
        (1, 0, 1),
        (1, 1, 1),
        (1, 9, 0),
        (14, 1, 2),
        (15, 0, 1),
        (15, 1, 2),
        (16, 1, 2),
        (255, 0, 1),
        (256, 0, 1),
    ] {
        for reduction in REDUCTIONS {
            let curve = CurveId::ALL[constraints % 2];
            let (r1cs, witness) = with_curve!(curve, C => chain::<C>(constraints, public, private));
            let key = setup_from_seed(&r1cs, reduction, 2)?;
            let what = format!("{constraints} + {public} + {private}, {reduction:?}");
            let proof = prove_fixed(&prover, &key, &witness).map_err(|e| format!("{what}: {e}"))?;
            ensure!(proof == cpu_proof(&key, &witness)?, "{what}");
        }
    }
    Ok(())
}

/// 20 proofs from 8 threads at once, over two keys, all verify.
fn p65_concurrent_proofs(device: &Device) -> Outcome {
    let prover = Prover::new(device.clone());
    let jobs = [
        circuit(CurveId::Bn254, 60, QapReduction::Circom)?,
        circuit(CurveId::Bls12_381, 100, QapReduction::Libsnark)?,
    ];
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= 20 {
                        return;
                    }
                    let (key, witness) = &jobs[i % 2];
                    let verified = || -> Result<bool> {
                        let made = prover.prove(key, witness, &ProveOptions::default())?;
                        verify(&key.verifying_key()?, &made.0)
                    };
                    match verified() {
                        Ok(true) => {}
                        other => failures.lock().unwrap().push(format!("{i}: {other:?}")),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

/// A device of its own for a test, since faults and limits would meet others'.
fn open(d: &TestDevice, change: impl FnOnce(&mut DeviceOptions)) -> Result<Arc<GpuDevice>> {
    let mut options = common::options(d.gpu.tier());
    change(&mut options);
    GpuDevice::open(d.gpu.info(), &options)
}

/// Queries that are cut into chunks: one less, as many and one more than a chunk has, and several.
fn p03_chunks(d: &TestDevice) -> Outcome {
    for (curve, bindings) in [(CurveId::Bn254, 1 << 18), (CurveId::Bls12_381, 3 << 17)] {
        let gpu = open(d, |o| o.max_binding = Some(bindings))?;
        let prover = Prover::new(Device::Gpu(gpu.clone()));
        let chunk = |n| with_curve!(curve, C => chunk_size::<C>(n, bindings));
        let (mut fits, mut too_many) = (1024, 1 << 16);
        ensure!(chunk(fits)? == fits, "{curve}: no chunk fits");
        while fits + 1 < too_many {
            let middle = (fits + too_many) / 2;
            if chunk(middle)? == middle {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        for (n, chunks) in [(fits - 1, 1), (fits, 1), (fits + 1, 2), (3 * fits + 5, 4)] {
            let n_chunks = n.div_ceil(chunk(n)?);
            ensure!(n_chunks >= chunks, "{n} wires: {n_chunks} chunks");
            // Just as many wires, and a smaller domain.
            let constraints = n / 3;
            let (r1cs, witness) =
                with_curve!(curve, C => random_chain::<C>(constraints, 1, n - 2 - constraints));
            ensure!(witness.len() == n, "{} wires", witness.len());
            let key = setup_from_seed(&r1cs, QapReduction::Circom, 3)?;
            let proof = prove_fixed(&prover, &key, &witness)?;
            let right = proof == cpu_proof(&key, &witness)?;
            ensure!(right, "{curve}, {n} wires in chunks of {}", chunk(n)?);
        }
    }
    Ok(())
}

/// Vectors that exceed a binding: a domain in four parts, a witness in three.
fn p41_vectors_in_parts(d: &TestDevice) -> Outcome {
    let cases = [
        (CurveId::Bn254, 1 << 18, QapReduction::Libsnark),
        (CurveId::Bls12_381, 3 << 17, QapReduction::Circom),
    ];
    for (curve, bindings, reduction) in cases {
        let gpu = open(d, |o| o.max_binding = Some(bindings))?;
        let part = bindings as usize / 32;
        let (constraints, wires) = (20_000, 2 * part + part / 2);
        let (r1cs, witness) =
            with_curve!(curve, C => random_chain::<C>(constraints, 1, wires - 2 - constraints));
        let key = setup_from_seed(&r1cs, reduction, 4)?;
        ensure!(key.domain_size == 1 << 15 && key.n_vars == wires, "{curve}");
        let prover = Prover::new(Device::Gpu(gpu));
        let proof = prove_fixed(&prover, &key, &witness)?;
        ensure!(proof == cpu_proof(&key, &witness)?, "{curve}");
    }
    Ok(())
}

/// Less and less memory: the right proof or a typed error, never anything else.
fn p11_budgets(d: &TestDevice) -> Outcome {
    let (key, witness) = circuit(CurveId::Bn254, 4000, QapReduction::Circom)?;
    let expected = cpu_proof(&key, &witness)?;
    let mut outcomes = Vec::new();
    // From 32 MiB on nothing changes any more.
    for mib in [1024, 32, 16, 12, 8, 6, 4, 3, 2, 1] {
        let gpu = open(d, |o| o.vram_limit = Some(mib << 20))?;
        match prove_fixed(&Prover::new(Device::Gpu(gpu.clone())), &key, &witness) {
            Ok(proof) => {
                ensure!(proof == expected, "{mib} MiB: a wrong proof");
                outcomes.push(true);
            }
            Err(Error::OutOfMemory {
                needed, available, ..
            }) => {
                ensure!(needed > available, "{needed} bytes of {available}");
                outcomes.push(false);
            }
            Err(other) => return Err(format!("{mib} MiB: {other}").into()),
        }
        let peak = gpu.memory().peak_in_use;
        ensure!(peak <= mib << 20, "{mib} MiB: {peak} bytes used");
    }
    ensure!(outcomes[0], "1 GiB is not enough");
    ensure!(!outcomes[outcomes.len() - 1], "1 MiB is enough");
    Ok(())
}

/// Checks of bounds and loops change no result.
fn p52_checked_shaders(d: &TestDevice) -> Outcome {
    let gpu = open(d, |o| o.checked_shaders = true)?;
    let cases = prepared(Size::Small);
    for (index, case) in cases.cases().enumerate() {
        cases
            .run(index, &gpu)
            .map_err(|e| format!("{}: {e}", case.id()))?;
    }
    Ok(())
}

/// Short submissions give the same proof.
fn p55_short_submissions(d: &TestDevice) -> Outcome {
    let (key, witness) = circuit(CurveId::Bn254, 600, QapReduction::Libsnark)?;
    let gpu = open(d, |o| o.submission = Duration::from_millis(1))?;
    let proof = prove_fixed(&Prover::new(Device::Gpu(gpu)), &key, &witness)?;
    ensure!(proof == cpu_proof(&key, &witness)?, "another proof");
    Ok(())
}

/// p16, p61: a lost submission, of the key's upload or of a proof, is an error, or a proof by the
/// CPU that says so.
fn p61_fallback(d: &TestDevice) -> Outcome {
    let gpu = open(d, |_| {})?;
    let (key, witness) = circuit(CurveId::Bn254, 40, QapReduction::Circom)?;
    for uploaded in [false, true] {
        let prover = Prover::new(Device::Gpu(gpu.clone()));
        if uploaded {
            prover.load_key(key.clone())?;
        }
        let mut options = ProveOptions::default();
        gpu.inject_fault(Fault::LoseSubmission(0));
        let never = prover.prove(&key, &witness, &options);
        expect_class(never.map(|_| ()), "device_fault")?;

        gpu.inject_fault(Fault::LoseSubmission(0));
        options.fallback = Fallback::Cpu;
        let (_, report) = prover.prove(&key, &witness, &options)?;
        let reason = report.fallback.clone().unwrap_or_default();
        ensure!(reason.contains("lost"), "the reason: `{reason}`");
        ensure!(report.backend == "cpu", "backend {}", report.backend);
        let by_device = report.phases.iter().filter(|p| p.backend != "cpu");
        let by_device: Vec<_> = by_device.map(|p| p.name.as_str()).collect();
        // The upload succeeded once it was given another chance.
        let all_fine = by_device.contains(&"failed_device");
        ensure!(all_fine, "phases of the device: {by_device:?}");

        // The next one is the device's again.
        let (_, report) = prover.prove(&key, &witness, &options)?;
        ensure!(report.fallback.is_none(), "{:?}", report.fallback);
        ensure!(report.backend == "wgpu", "backend {}", report.backend);
    }
    Ok(())
}

/// After a panic inside a call, the next one proves.
fn p64_after_a_panic(d: &TestDevice) -> Outcome {
    let gpu = open(d, |_| {})?;
    let (key, witness) = circuit(CurveId::Bn254, 40, QapReduction::Circom)?;
    let prover = Prover::new(Device::Gpu(gpu.clone()));
    // In the key's upload, then in a proof.
    for _ in 0..2 {
        gpu.inject_fault(Fault::Panic(0));
        let panicked = std::thread::scope(|scope| {
            let prove = || prover.prove(&key, &witness, &ProveOptions::default());
            scope.spawn(prove).join().is_err()
        });
        ensure!(panicked, "no panic");
        prover.prove(&key, &witness, &ProveOptions::default())?;
    }
    Ok(())
}

/// Proofs go to the device that has the least to do, and to no device that is lost.
fn several_devices(d: &TestDevice) -> Outcome {
    let options = common::options(d.gpu.tier());
    let open = || GpuDevice::open(d.gpu.info(), &options);
    let gpus = [open()?, open()?];
    let devices = gpus.iter().cloned().map(Device::Gpu).collect();
    let prover = Prover::with_options(devices, ProverOptions::default());
    let (key, witness) = circuit(CurveId::Bn254, 64, QapReduction::Circom)?;
    prover.preload(&key)?;
    ensure!(prover.resident_keys().len() == 2, "not on both");
    let witnesses = vec![witness.clone(); 6];
    let before: Vec<u64> = gpus.iter().map(|g| g.memory().peak_in_use).collect();
    prover.prove_many(&key, &witnesses, &ProveOptions::default())?;
    for (gpu, before) in gpus.iter().zip(before) {
        let memory = gpu.memory();
        ensure!(memory.peak_in_use > before, "one had nothing to do");
        ensure!(memory.held == 0, "{memory:?}");
    }
    gpus[0].lose_device();
    prover.prove_many(&key, &witnesses, &ProveOptions::default())?;
    ensure!(prover.evict(&key), "it was resident");
    ensure!(!prover.evict(&key), "it was evicted");
    ensure!(prover.resident_keys().is_empty(), "still resident");
    ensure!(gpus[1].memory().resident == 0, "{:?}", gpus[1].memory());
    prover.prove(&key, &witness, &ProveOptions::default())?;
    gpus[1].lose_device();
    let result = prover.prove(&key, &witness, &ProveOptions::default());
    expect_class(result, "device_fault")?;
    Ok(())
}

/// Time of one sum, the best of several.
fn time_msm<C: GpuCurve>(d: &TestDevice, scalars: &[u8], bases: &[u8]) -> Result<Duration> {
    let n = scalars.len() / 32;
    let dense = scalars
        .chunks_exact(32)
        .filter(|v| v[0] > 1 || v[1..].iter().any(|b| *b != 0))
        .count();
    let (bits, point) = (msm::scalar_bits::<C>(), Group::G1.point_bytes(C::ID));
    let geometry = Geometry::new(n, dense, bits, point, d.gpu.limits().max_binding);
    let geometry = geometry.expect("fits a binding");
    let mut rec = Recording::new();
    let [s, b] = [scalars, bases].map(|bytes| {
        let id = rec.transient("input", bytes.len() as u64);
        let whole = rec.whole(id);
        rec.upload(whole, bytes.to_vec().into());
        whole
    });
    let sorted = msm::record_sort(&mut rec, C::ID, s, geometry);
    msm::record_sums(
        &mut rec,
        C::ID,
        Group::G1,
        &[(sorted, msm::Bases::AtRest(b))],
    );
    let mut best = Duration::MAX;
    // The first run compiles.
    for _ in 0..6 {
        let start = Instant::now();
        d.gpu.run(&rec, &RunOptions::default())?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Scalars of whatever distribution take no longer than twice as long as as many uniform ones.
fn p68_skewed_scalars(d: &TestDevice) -> Outcome {
    type C = Bn254;
    const N: usize = 1 << 13;
    let (_, witness) = random_chain::<C>(0, 0, 2 * N);
    let uniform = &witness.values[32..32 * (N + 1)];
    let g = <G1<C> as ark_ec::PrimeGroup>::generator();
    let points: Vec<G1<C>> = (1..=2 * N as u64)
        .map(|i| g * <C as GpuCurve>::Fr::from(i * i))
        .collect();
    let points: Vec<G1Affine<C>> = ark_ec::CurveGroup::normalize_batch(&points);
    let mut bases = Vec::new();
    points.iter().for_each(|p| g1_to_raw::<C>(p, &mut bases));
    let half = &bases[..bases.len() / 2];
    let reference = time_msm::<C>(d, uniform, half)?;
    let boolean: Vec<u8> = (0..2 * N).flat_map(|i| number((i % 2) as u8)).collect();
    for (name, scalars, bases) in [
        ("all ones", number(1).repeat(N), half),
        ("all equal", uniform[..32].repeat(N), half),
        ("one huge bucket", number(7).repeat(N), half),
        ("half zeros, half ones", boolean, &bases[..]),
    ] {
        let time = time_msm::<C>(d, &scalars, bases)?;
        eprintln!("{}: {name}: {time:?}, uniform {reference:?}", d.label);
        // The slack is for what other tests do meanwhile.
        let limit = 2 * reference + Duration::from_millis(50);
        ensure!(time <= limit, "{name}: {time:?}, uniform {reference:?}");
    }
    Ok(())
}

type OnBackend = fn(&Device) -> Outcome;
type OnDevice = fn(&TestDevice) -> Outcome;

pub fn trials(all: &[TestDevice]) -> Vec<Trial> {
    // Those that are fast enough for proofs by the dozen: all but SwiftShader, on which each
    // takes seconds. It has the self-test's cases and the fixture suite.
    let fast = |d: &&TestDevice| !d.is("swiftshader");
    let devices: Vec<TestDevice> = all.iter().filter(fast).cloned().collect();
    let missing = common::missing(all);
    let missing = missing.iter().filter(|m| !m.starts_with("swiftshader"));
    let missing: Vec<&String> = missing.collect();

    let mut trials = Vec::new();
    let backends: [(&str, OnBackend); 6] = [
        ("p01_reductions", p01_reductions),
        ("p05_fifty_runs_are_identical", p05_fifty_runs_are_identical),
        ("p12_two_proofs_differ", p12_two_proofs_differ),
        ("p15_flipped_witness", p15_flipped_witness),
        ("p20_p21_odd_circuits", p20_p21_odd_circuits),
        ("p65_concurrent_proofs", p65_concurrent_proofs),
    ];
    for (name, test) in backends {
        trials.push(common::trial(format!("cpu/regression/{name}"), move || {
            test(&Device::Cpu)
        }));
        for d in &devices {
            let (id, device) = (
                format!("{}/regression/{name}", d.label),
                Device::Gpu(d.gpu.clone()),
            );
            trials.push(common::trial(id, move || test(&device)));
        }
        for label in &missing {
            trials.push(common::ignored(format!("{label}/regression/{name}")));
        }
    }
    let device_tests: [(&str, OnDevice); 12] = [
        ("p03_chunks", p03_chunks),
        ("p11_budgets", p11_budgets),
        ("p41_vectors_in_parts", p41_vectors_in_parts),
        ("p52_checked_shaders", p52_checked_shaders),
        ("p55_short_submissions", p55_short_submissions),
        ("p61_fallback", p61_fallback),
        ("p64_after_a_panic", p64_after_a_panic),
        (
            "p53_stages_are_complete",
            broken_kernels::p53_stages_are_complete,
        ),
        (
            "p53_the_report_names_the_kernel",
            broken_kernels::p53_the_report_names_the_kernel,
        ),
        ("p53_first_use", broken_kernels::p53_first_use),
        ("p68_skewed_scalars", p68_skewed_scalars),
        ("several_devices", several_devices),
    ];
    for (name, test) in device_tests {
        for d in &devices {
            // Times of unoptimised code say nothing.
            let skip = cfg!(debug_assertions) && name.starts_with("p68");
            let id = format!("regression/{name}");
            trials.push(common::trial_on(d, &id, test).with_ignored_flag(skip));
        }
        for label in &missing {
            trials.push(common::ignored(format!("{label}/regression/{name}")));
        }
    }
    for stage in &broken_kernels::STAGES {
        let name = format!("regression/p53_broken_{}", stage.name);
        for d in &devices {
            trials.push(common::trial_on(d, &name, move |d| {
                broken_kernels::p53_broken_stage(d, stage)
            }));
        }
        for label in &missing {
            trials.push(common::ignored(format!("{label}/{name}")));
        }
    }
    let name = "p10_p15_nothing_is_written";
    let mut selectors = vec!["cpu".to_owned()];
    selectors.extend(
        devices
            .iter()
            .filter(|d| d.gpu.tier() == d.gpu.info().tiers[0])
            .map(|d| d.gpu.info().index.to_string()),
    );
    for selector in selectors {
        let id = format!("device_{selector}/regression/{name}");
        trials.push(common::trial(id, move || {
            p10_p15_nothing_is_written(&selector)
        }));
    }
    trials
}
