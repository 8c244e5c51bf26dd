//! Proofs side by side on one device: one arena of memory and one queue turn for all of them.
//! Whatever the limit, the number of threads and what fails meanwhile, proofs come out right or as
//! a typed error, and everything goes back.

mod circuits;
mod common;
#[path = "concurrency/failures.rs"]
mod failures;
#[path = "concurrency/priorities.rs"]
mod priorities;

use circuits::{chain_from, number};
use common::{TestDevice, ensure};
use groth16_gpu::curve::{Bn254, CurveId, GpuCurve};
use groth16_gpu::device::arena::ArenaConfig;
use groth16_gpu::device::{ArenaReport, Device, DeviceInfo, DeviceOptions, GpuDevice};
use groth16_gpu::key_layout::KeyLayout;
use groth16_gpu::proof::Proof;
use groth16_gpu::proof_plan::Planner;
use groth16_gpu::prover::{ProveOptions, Prover, ProverOptions};
use groth16_gpu::proving_key::{ProvingKey, QapReduction};
use groth16_gpu::report::ProofReport;
use groth16_gpu::setup::setup_from_seed;
use groth16_gpu::trace::{Span, Trace};
use groth16_gpu::verify::verify;
use groth16_gpu::with_curve;
use groth16_gpu::witness::Witness;
use groth16_gpu::{Error, Result};
use libtest_mimic::Failed;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

type Outcome = Result<(), Failed>;

/// Bytes of a page of parameters.
const PAGE: u64 = 139_264;

/// The limit that leaves `budget` bytes, a multiple of 256, beside staging buffers and pages.
fn limit_for(budget: u64) -> Result<u64, Failed> {
    let left = |limit| {
        ArenaConfig::new(String::new(), limit, (1, 1), PAGE)
            .limits
            .budget
    };
    let mut limits = (budget..).step_by(32 << 10);
    let limit = limits.find(|&limit| left(limit) >= budget).unwrap_or(0);
    let limit = limit - (left(limit) - budget);
    ensure!(left(limit) == budget, "no limit leaves {budget} bytes");
    Ok(limit)
}

/// A key, witnesses of it (the partitions of one large proof), and what the CPU makes of them with
/// fixed r and s.
struct Job {
    key: ProvingKey,
    witnesses: Vec<Witness>,
    expected: Vec<Proof>,
}

/// `constraints` + 3 rows fill the domain up to a power of two.
fn job(curve: CurveId, constraints: usize, partitions: u64) -> Result<Job> {
    let circuits: Vec<_> = (0..partitions)
        .map(|seed| with_curve!(curve, C => random_circuit::<C>(constraints, seed)))
        .collect();
    let key = setup_from_seed(&circuits[0].0, QapReduction::Circom, 1)?;
    let witnesses: Vec<Witness> = circuits.into_iter().map(|c| c.1).collect();
    let cpu = Prover::new(Device::Cpu);
    let expected = witnesses.iter().map(|w| prove_fixed(&cpu, &key, w));
    let expected = expected
        .map(|made| made.map(|m| m.0))
        .collect::<Result<_>>()?;
    Ok(Job {
        key,
        witnesses,
        expected,
    })
}

fn random_circuit<C: GpuCurve>(
    constraints: usize,
    seed: u64,
) -> (groth16_gpu::formats::r1cs::R1cs, Witness) {
    use ark_ff::UniformRand;
    let rng = &mut StdRng::seed_from_u64(seed);
    let start: Vec<_> = (0..5).map(|_| C::Fr::rand(rng)).collect();
    chain_from::<C>(constraints, 2, &start)
}

/// With self-verification, and with a deadline: what hangs is an error.
fn options() -> ProveOptions {
    let mut options = ProveOptions::default();
    options.deadline = Some(Instant::now() + Duration::from_secs(120));
    options
}

fn prove_fixed(
    prover: &Prover,
    key: &ProvingKey,
    witness: &Witness,
) -> Result<(Proof, ProofReport)> {
    prover.prove_with_blinding(key, witness, &options(), &number(3), &number(5))
}

/// A device of its own for a test, since faults and limits would meet others'.
fn open(d: &TestDevice, vram_limit: Option<u64>) -> Result<Arc<GpuDevice>> {
    let options = DeviceOptions {
        vram_limit,
        ..common::options(d.gpu.tier())
    };
    GpuDevice::open(d.gpu.info(), &options)
}

fn prover_on(gpu: &Arc<GpuDevice>) -> Prover {
    Prover::new(Device::Gpu(gpu.clone()))
}

/// Nobody holds memory of the device or waits for some; only keys are there.
fn nothing_held(gpu: &GpuDevice) -> Result<ArenaReport, Failed> {
    let m = gpu.memory();
    let empty = m.held == 0 && m.waiting == 0 && m.in_use == m.resident;
    ensure!(empty && m.peak_total <= m.budget, "{m:?}");
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(panics.is_empty(), "swallowed: {}", panics.join("; "));
    Ok(m)
}

fn no_host_memory_held(prover: &Prover) -> Outcome {
    let host = prover.host_memory();
    ensure!(host.in_use == 0 && host.waiting == 0, "{host:?}");
    Ok(())
}

/// Runs `work` on so many threads, which get their numbers; the first failure of any.
fn on_threads(count: usize, work: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || work(i))).collect();
        threads.into_iter().try_for_each(|t| match t.join() {
            Ok(outcome) => outcome,
            Err(_) => Err("a thread panicked".into()),
        })
    })
}

fn wait_until(what: &str, condition: impl Fn() -> bool) -> Outcome {
    let start = Instant::now();
    while !condition() {
        ensure!(
            start.elapsed() < Duration::from_secs(60),
            "waited for {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Several workers, each with several partitions of one key, in every limit from none down to the
/// smallest; below that an error before anything is taken.
fn limits(d: &TestDevice) -> Outcome {
    let job = &job(CurveId::Bn254, 500, 2)?;
    let mut seen = BTreeSet::new();
    let mut check = |limit: Option<u64>, counts: &[usize]| -> Result<bool, Failed> {
        let gpu = open(d, limit)?;
        let prover = prover_on(&gpu);
        let start = Instant::now();
        match prove_fixed(&prover, &job.key, &job.witnesses[0]) {
            Err(Error::OutOfMemory {
                needed, available, ..
            }) => {
                ensure!(needed > available, "{needed} bytes of {available}");
                ensure!(start.elapsed().as_millis() < 2000, "not at once");
                ensure!(nothing_held(&gpu)?.peak_allocated == 0, "took some");
                return Ok(false);
            }
            result => ensure!(result?.0 == job.expected[0], "{limit:?}: a wrong proof"),
        }
        for &workers in counts {
            let (plans, resident) = (Mutex::new(&mut seen), AtomicU64::new(0));
            on_threads(workers, |_| {
                for (witness, expected) in job.witnesses.iter().zip(&job.expected) {
                    let (proof, report) = prove_fixed(&prover, &job.key, witness)?;
                    ensure!(proof == *expected, "a wrong proof");
                    let by_device = report.self_verified && report.backend == "wgpu";
                    ensure!(by_device, "{report:?}");
                    let plan = report.memory.ok_or("no memory plan")?;
                    resident.store(plan.resident_bytes, Ordering::Relaxed);
                    let variant = (plan.plan, plan.max_buffer_bytes);
                    plans.lock().unwrap().insert(variant);
                }
                Ok(())
            })
            .map_err(|e| format!("{limit:?}, {workers} workers: {e:?}"))?;
            let m = nothing_held(&gpu)?;
            let within = limit.is_none_or(|limit| m.peak_total <= limit);
            let only_key = m.resident == resident.into_inner();
            ensure!(within && only_key, "{limit:?}: {m:?}");
        }
        Ok(true)
    };
    check(None, &[1, 2, 3, 8])?;
    let mut fits = 64 << 20;
    while check(Some(fits / 2), &[])? {
        fits /= 2;
    }
    let mut too_small = fits / 2;
    while fits - too_small > 32 << 10 {
        let middle = (fits + too_small) / 2;
        match check(Some(middle), &[])? {
            true => fits = middle,
            false => too_small = middle,
        }
    }
    eprintln!("{}: the smallest limit is {fits}", d.label);
    let fits_at = fits;
    check(Some(fits), &[1, 2, 3, 8])?;
    ensure!(!check(Some(too_small), &[8])?, "{too_small} is enough");
    // Exactly as much as a variant takes, too: then that one with the token's 256 bytes, or at least
    // the next one.
    let layout = KeyLayout::new::<Bn254>(&job.key, &d.gpu.limits().plan(), "device")?;
    let planner = Planner::new(&layout, d.gpu.limits().plan(), None);
    let variants = planner.list::<Bn254>()?;
    for (i, v) in variants.iter().enumerate() {
        let last = i + 1 == variants.len();
        let more = if last || i % 2 == 0 { 256 } else { 0 };
        let limit = limit_for(v.bytes().next_multiple_of(256) + more)?;
        let fits = check(Some(limit), &[[3, 2, 8][i % 3]])?;
        ensure!(fits, "{limit} are not enough for {}", v.name);
        ensure!(
            limit + (64 << 10) > fits_at,
            "{limit} fit, less than {fits_at}"
        );
    }
    ensure!(seen.len() >= 3, "variants: {seen:?}");
    eprintln!("{}: {seen:?}", d.label);
    Ok(())
}

/// 20 proofs each of 8 threads over two keys that do not fit the device together.
fn two_keys_eight_threads(d: &TestDevice) -> Outcome {
    let jobs = [
        job(CurveId::Bn254, 250, 2)?,
        job(CurveId::Bls12_381, 125, 2)?,
    ];
    // What each takes where there is plenty: of the key, and for a proof.
    let mut takes = Vec::new();
    for job in &jobs {
        let (_, report) = prove_fixed(&prover_on(&open(d, None)?), &job.key, &job.witnesses[0])?;
        let memory = report.memory.ok_or("no memory plan")?;
        takes.push((memory.resident_bytes, memory.reserved_bytes));
    }
    // Either key with a proof, but not beside the other key.
    let budget = takes.iter().map(|t| t.0 + t.1).max().unwrap_or(0);
    let gpu = open(d, Some(limit_for(budget.next_multiple_of(256))?))?;
    eprintln!("{}: {takes:?}, {:?}", d.label, gpu.limits().memory_budget);
    let prover = prover_on(&gpu);
    on_threads(8, |thread| {
        for i in 0..20 {
            let job = &jobs[(thread + i) % 2];
            let (proof, _) = prover.prove(&job.key, &job.witnesses[i / 2 % 2], &options())?;
            ensure!(
                verify(&job.key.verifying_key()?, &proof)?,
                "does not verify"
            );
        }
        Ok(())
    })?;
    let m = nothing_held(&gpu)?;
    eprintln!("{}: {} evictions", d.label, m.evictions);
    ensure!(m.evictions > 0, "no key made room for the other: {m:?}");
    no_host_memory_held(&prover)
}

/// Resident memory of this process, where the system tells.
fn resident_set() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Memory is the same after 20 proofs and after 300.
fn three_hundred_proofs(d: &TestDevice) -> Outcome {
    let job = job(CurveId::Bn254, 60, 1)?;
    let gpu = open(d, Some(16 << 20))?;
    let prover = prover_on(&gpu);
    let go = |count| {
        (0..count).try_for_each(|_| -> Outcome {
            let (proof, _) = prove_fixed(&prover, &job.key, &job.witnesses[0])?;
            ensure!(proof == job.expected[0], "a wrong proof");
            Ok(())
        })
    };
    go(20)?;
    let (arena, host) = (nothing_held(&gpu)?, resident_set());
    go(280)?;
    let after = nothing_held(&gpu)?;
    // How many pages of parameters are in flight at a time depends on what else the machine does.
    let pages = after.staging.saturating_sub(arena.staging) / PAGE;
    let same = ArenaReport {
        staging: after.staging,
        peak_total: after.peak_total,
        ..arena
    };
    ensure!(
        pages <= 3 && after == same,
        "{same:?} and {pages} pages less became {after:?}"
    );
    if let (Some(before), Some(after)) = (host, resident_set()) {
        let grown = after.saturating_sub(before);
        eprintln!("{}: {} KiB more", d.label, grown >> 10);
        ensure!(grown < 8 << 20, "{before} bytes became {after}");
    }
    no_host_memory_held(&prover)
}

/// The part of `span` in which none of `others` (sorted by start) goes on, in milliseconds.
fn uncovered(span: &Span, others: &[&Span]) -> f64 {
    let (mut idle, mut at) = (0.0, span.start_us);
    for other in others {
        idle += (other.start_us.min(span.end_us) - at).max(0.0);
        at = at.max(other.end_us);
    }
    (idle + (span.end_us - at).max(0.0)) / 1e3
}

/// In its turn a worker does nothing but feed the device: it has planned and staged before, and
/// waits, computes the host's part and verifies afterwards, while another has the turn.
fn turn_covers_device_work_only(d: &TestDevice) -> Outcome {
    const OUTSIDE: [&str; 10] = [
        "host_wait",
        "check",
        "plan",
        "reserve wait",
        "key to device",
        "stage",
        "device wait",
        "tail",
        "finish",
        "self_verify",
    ];
    const WORKERS: usize = 3;
    let job = job(CurveId::Bn254, 1000, 2)?;
    let gpu = open(d, None)?;
    let prover = prover_on(&gpu);
    // The key's own way to the device takes turns, too.
    prover.preload(&job.key)?;
    let trace = Trace::new();
    let mut options = options();
    options.trace = Some(trace.clone());
    on_threads(WORKERS, |_| {
        for witness in job.witnesses.iter().cycle().take(4) {
            prover.prove(&job.key, witness, &options)?;
        }
        Ok(())
    })?;
    let spans = trace.spans();
    let device: Vec<&Span> = spans.iter().filter(|s| s.is_device).collect();
    let turns: Vec<&Span> = spans.iter().filter(|s| s.name == "turn").collect();
    let workers: BTreeSet<&str> = turns.iter().map(|s| s.track.as_str()).collect();
    ensure!(turns.len() == 4 * WORKERS, "{} turns", turns.len());
    ensure!(workers.len() == WORKERS, "turns of {workers:?}");
    // Clocks are read between two statements: a microsecond is nothing.
    let meet = |a: &Span, b: &Span| a.start_us + 1.0 < b.end_us && b.start_us + 1.0 < a.end_us;
    for pair in turns.windows(2) {
        ensure!(!meet(pair[0], pair[1]), "two turns at a time: {pair:?}");
    }
    for name in OUTSIDE {
        let mut these = spans.iter().filter(|s| s.name == name).peekable();
        ensure!(these.peek().is_some(), "no span is named `{name}`");
        for span in these {
            let turn = turns
                .iter()
                .find(|t| t.track == span.track && meet(t, span));
            ensure!(turn.is_none(), "{span:?} in the turn {turn:?}");
        }
    }
    let mut all = (0.0, 0.0);
    for turn in &turns {
        let (idle, ms) = (
            uncovered(turn, &device),
            (turn.end_us - turn.start_us) / 1e3,
        );
        all = (all.0 + idle, all.1 + ms);
        let enough = idle < 0.3 * ms + 30.0;
        ensure!(
            enough,
            "the device idles for {idle:.1} ms of a turn of {ms:.1} ms"
        );
    }
    eprintln!(
        "{}: idle for {:.1} of {:.1} ms with a turn",
        d.label, all.0, all.1
    );
    Ok(())
}

/// The other adapter that proves in reasonable time, or the same one twice.
fn two_devices(d: &TestDevice) -> Outcome {
    let job = job(CurveId::Bn254, 120, 3)?;
    let other = Device::list().into_iter().find(|info: &DeviceInfo| {
        info != d.gpu.info() && !common::short_name(info).starts_with("swiftshader")
    });
    let gpus = [
        open(d, None)?,
        match other {
            Some(info) => GpuDevice::open(&info, &common::options(info.tiers[0]))?,
            None => open(d, None)?,
        },
    ];
    let devices = gpus.iter().cloned().map(Device::Gpu).collect();
    let prover = Prover::with_options(devices, ProverOptions::default());
    prover.preload(&job.key)?;
    let before = gpus.each_ref().map(|gpu| gpu.memory().peak_in_use);
    let next = AtomicUsize::new(0);
    on_threads(4, |_| {
        while let i @ 0..12 = next.fetch_add(1, Ordering::Relaxed) {
            let (proof, report) = prove_fixed(&prover, &job.key, &job.witnesses[i % 3])?;
            ensure!(proof == job.expected[i % 3], "a wrong proof");
            ensure!(
                report.self_verified && report.backend == "wgpu",
                "{report:?}"
            );
        }
        Ok(())
    })?;
    for (gpu, before) in gpus.iter().zip(before) {
        // A proof takes memory beside the key.
        ensure!(nothing_held(gpu)?.peak_in_use > before, "one did nothing");
    }
    no_host_memory_held(&prover)
}

/// Panics of any thread that no test asked for.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A test that looks at the whole process runs alone.
static ALONE: RwLock<()> = RwLock::new(());

/// A case: its name, whether it runs alone, and what it does with a device.
type Case = (&'static str, bool, fn(&TestDevice) -> Outcome);

fn main() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref() != Some(&"injected") {
            hook(panic);
            let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            panics.push(panic.to_string());
        }
    }));
    let cases: [Case; 9] = [
        ("limits", false, limits),
        ("two_keys_eight_threads", false, two_keys_eight_threads),
        ("three_hundred_proofs", true, three_hundred_proofs),
        (
            "turn_covers_device_work_only",
            true,
            turn_covers_device_work_only,
        ),
        (
            "a_panic_leaves_the_next_proof_working",
            false,
            failures::a_panic_leaves_the_next_proof_working,
        ),
        (
            "out_of_memory_at_any_allocation",
            false,
            failures::out_of_memory_at_any_allocation,
        ),
        (
            "cancelled_and_late_jobs_give_everything_back",
            false,
            failures::cancelled_and_late_jobs_give_everything_back,
        ),
        ("priorities", false, priorities::priorities),
        ("two_devices", false, two_devices),
    ];
    // On every adapter but SwiftShader, which takes minutes to compile, in its best tier.
    let all = common::devices();
    let best = |d: &&TestDevice| !d.is("swiftshader") && d.gpu.tier() == d.gpu.info().tiers[0];
    let devices: Vec<&TestDevice> = all.iter().filter(best).collect();
    let mut trials = Vec::new();
    for (name, alone, case) in cases {
        for &d in &devices {
            let (id, d) = (format!("{}/{name}", d.label), d.clone());
            trials.push(common::trial(id, move || {
                let (_shared, _alone);
                match alone {
                    true => _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner),
                    false => _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner),
                }
                case(&d)
            }));
        }
        for label in common::missing(&all)
            .iter()
            .filter(|m| *m == "lavapipe/u64")
        {
            trials.push(common::ignored(format!("{label}/{name}")));
        }
    }
    common::run(trials)
}
