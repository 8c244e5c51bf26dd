//! Measuring a device and using what was measured, on lavapipe: the command line with `--retune`,
//! and the library's probe with broken kernels. What follows from measurements, and what is read
//! from files, has tests beside it.

use crate::common::{self, doing_nothing, ensure};
use groth16_gpu::curve::{Bn254, CurveId};
use groth16_gpu::device::{CacheFolder, Device, DeviceInfo, DeviceOptions, GpuDevice};
use groth16_gpu::kernels::{Kernel, KernelSource, WordTier};
use groth16_gpu::msm::Group;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::setup::setup_insecure;
use groth16_gpu::synthetic::circuit;
use groth16_gpu::tuning::{Measurement, TuningRecord, TuningSource, probe};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{LazyLock, Mutex};

type Outcome = Result<(), Failed>;

/// Runs `bench msm` with a cache folder of its own. Returns its lines, and what it says on stderr.
fn bench_msm(
    device: &DeviceInfo,
    cache: &Path,
    more: &[&str],
) -> Result<(Vec<Value>, String), Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_groth16-gpu"));
    let device = device.index.to_string();
    command
        .args([
            "bench", "msm", "--curve", "bn254", "--log2", "12", "--reps", "1",
        ])
        .args(["--word-tier", "u64", "--json", "--device", &device])
        .args(more)
        .env("XDG_CACHE_HOME", cache);
    let output = command.output()?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(String::from_utf8);
    let (stdout, stderr) = (stdout?, stderr?);
    ensure!(output.status.success(), "{more:?}: {stdout}{stderr}");
    let lines = stdout.lines().map(serde_json::from_str);
    Ok((lines.collect::<Result<_, _>>()?, stderr))
}

/// Measures once; the runs after it go as the file says, unless options say otherwise, and as by
/// default once the file is damaged.
fn retune(device: &DeviceInfo) -> Outcome {
    let cache = tempfile::tempdir()?;
    let run = |more: &[&str]| bench_msm(device, cache.path(), more);
    let (lines, _) = run(&["--retune"])?;
    let [tuning, line] = lines.as_slice() else {
        return Err(format!("{} lines", lines.len()).into());
    };
    ensure!(
        tuning["bench"] == "tuning" && line["bench"] == "msm",
        "{tuning} {line}"
    );
    let measured = tuning["measured"].as_array().ok_or("nothing measured")?;
    ensure!(measured.len() >= 6, "{tuning}");
    for m in measured {
        ensure!(
            m["ms"].is_f64() && m["curve"] == "bn254" && m["tier"] == "u64",
            "{m}"
        );
    }
    ensure!(tuning["chosen"]["word_tier"] == "u64", "{tuning}");
    ensure!(tuning["chosen"]["msm"][0]["curve"] == "bn254", "{tuning}");

    // As if runs without pairs had been faster, and longer digits too.
    let file = tuning["file"].as_str().ok_or("no file")?;
    let record = fs::read(file)?;
    let mut edited: Value = serde_json::from_slice(&record)?;
    let list = edited["measurements"].as_array_mut().ok_or("no list")?;
    list.retain(|m| m["window_shift"] == 0);
    let mut longer = list[0].clone();
    longer["window_shift"] = json!(1);
    longer["pairs"] = json!(false);
    longer["ms"] = json!(1.0);
    for m in list.iter_mut() {
        m["ms"] = json!(if m["pairs"] == true { 900.0 } else { 9.0 });
    }
    list.push(longer);
    fs::write(file, serde_json::to_vec(&edited)?)?;
    let (lines, stderr) = run(&[])?;
    ensure!(lines.len() == 1 && stderr.is_empty(), "{lines:?} {stderr}");
    let tuned = &lines[0];
    ensure!(tuned["pair_levels"] == 0, "{tuned}");

    let (lines, stderr) = run(&["--window", "6", "--pairs", "2"])?;
    ensure!(stderr.is_empty(), "{stderr}");
    ensure!(
        lines[0]["window"] == 6 && lines[0]["pair_levels"] == 2,
        "{}",
        lines[0]
    );

    fs::write(file, &record[..record.len() / 2])?;
    let (lines, stderr) = run(&[])?;
    ensure!(stderr.contains("damaged"), "{stderr}");
    let plain = &lines[0];
    ensure!(plain["pair_levels"].as_u64() > Some(0), "{plain}");
    let bits = |line: &Value| line["window"].as_u64().unwrap_or(0);
    ensure!(bits(tuned) == bits(plain) + 1, "{tuned} {plain}");
    Ok(())
}

/// The kernel that does nothing.
static BREAK: Mutex<Option<Kernel>> = Mutex::new(None);

fn broken(kernel: Kernel, curve: CurveId, tier: WordTier) -> &'static KernelSource {
    static MADE: LazyLock<Mutex<Vec<&'static KernelSource>>> = LazyLock::new(Mutex::default);
    let source = kernel.source(curve, tier);
    if *BREAK.lock().unwrap() != Some(kernel) {
        return source;
    }
    let mut made = MADE.lock().unwrap();
    if let Some(found) = made.iter().find(|m| m.label == source.label) {
        return found;
    }
    let wgsl = doing_nothing(source.wgsl).leak();
    made.push(Box::leak(Box::new(KernelSource { wgsl, ..*source })));
    made[made.len() - 1]
}

/// p53: a way that gives wrong sums is reported and not chosen, even where it is the default; if no
/// way gives right ones, nothing is remembered.
fn wrong_results(device: &DeviceInfo) -> Outcome {
    let cache = tempfile::tempdir()?;
    let options = DeviceOptions {
        word_tier: Some(WordTier::U64),
        cache: CacheFolder::At(cache.path().to_owned()),
        kernels: broken,
        // What was never written is not taken for points at infinity.
        poison: true,
        ..DeviceOptions::default()
    };
    *BREAK.lock().unwrap() = Some(Kernel::MsmDigits);
    let all_wrong = probe(device, &options, CurveId::Bn254, &mut |_| {});
    let class = all_wrong.err().map(|e| e.class());
    ensure!(class == Some("device_fault"), "{class:?}");
    let written = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("tuning");
    let count = fs::read_dir(cache.path())?
        .flatten()
        .filter(written)
        .count();
    ensure!(count == 0, "written");

    *BREAK.lock().unwrap() = Some(Kernel::MsmPairSumsG1);
    let mut told = 0;
    let made = probe(device, &options, CurveId::Bn254, &mut |_| told += 1)?;
    ensure!(told == made.measured.len(), "{told} calls");
    for m in &made.measured {
        let right = !(m.group == Group::G1 && m.pairs);
        ensure!(m.outcome.is_ok() == right, "{m:?}");
    }
    ensure!(made.file.is_some(), "not written");
    *BREAK.lock().unwrap() = None;
    let gpu = GpuDevice::open(device, &options)?;
    let msm = gpu.limits().msm.of(CurveId::Bn254);
    ensure!(!msm.pairs_g1, "chosen all the same");
    Ok(())
}

/// Proofs are the same whatever was measured: here with pairs in one group alone, and with digits
/// of other sizes.
fn tuned_proofs(device: &DeviceInfo) -> Outcome {
    let (circuit, witness) = circuit::<Bn254>(1000, 0.2, 1);
    let key = setup_insecure(&circuit)?;
    let blinding = [3u8; 32];
    let prove = |device: Device| {
        let options = ProveOptions::default();
        let made =
            Prover::new(device).prove_with_blinding(&key, &witness, &options, &blinding, &blinding);
        made.map(|(proof, _)| proof)
    };
    let expected = prove(Device::Cpu)?;
    for (pairs_in, window_shift) in [(Group::G1, -1), (Group::G2, 1)] {
        let mut record = TuningRecord::new(device);
        let mut add = |group, pairs, window_shift, ms| {
            record.measurements.push(Measurement {
                curve: CurveId::Bn254,
                tier: WordTier::U64,
                group,
                log2: 12,
                pairs,
                window_shift,
                window_bits: 0,
                outcome: Ok(ms),
            });
        };
        for group in [Group::G1, Group::G2] {
            let fast = group == pairs_in;
            add(group, fast, 0, 1.0);
            add(group, !fast, 0, 2.0);
        }
        add(Group::G1, pairs_in == Group::G1, window_shift, 0.5);
        let options = DeviceOptions {
            tuning: TuningSource::Records(vec![record]),
            ..common::options(WordTier::U64)
        };
        let gpu = GpuDevice::open(device, &options)?;
        let msm = gpu.limits().msm.of(CurveId::Bn254);
        let pairs = (msm.pairs_g1, msm.pairs_g2);
        ensure!(
            pairs == (pairs_in == Group::G1, pairs_in == Group::G2),
            "{msm:?}"
        );
        ensure!(msm.window_shift == window_shift, "{msm:?}");
        ensure!(
            prove(Device::Gpu(gpu))? == expected,
            "{msm:?}: another proof"
        );
    }
    Ok(())
}

pub fn trials(adapters: &[(String, DeviceInfo)]) -> Vec<Trial> {
    let lavapipe = adapters.iter().find(|(name, _)| name == "lavapipe");
    let trial = |name: &str, test: fn(&DeviceInfo) -> Outcome| {
        let id = format!("lavapipe/u64/tuning/{name}");
        match lavapipe {
            Some((_, info)) => {
                let info = info.clone();
                common::trial(id, move || test(&info))
            }
            None => common::ignored(id),
        }
    };
    vec![
        trial("retune", retune),
        trial("p53_wrong_results", wrong_results),
        trial("tuned_proofs", tuned_proofs),
    ]
}
