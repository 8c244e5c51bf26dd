//! The `selftest` command, and what it says about compile times.

use crate::common::{self, ensure};
use groth16_gpu::device::DeviceInfo;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// A software adapter's first dispatch of any kernel takes less: 15 s of one processor.
const COMPILE_CEILING_MS: u64 = 15_000;

/// Runs the command with a cache of its own, so that everything is compiled. Where the driver's is
/// elsewhere (`tests/run`), it is empty when this runs, and what is compiled here serves the others.
fn selftest(args: &[&str], cache: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_groth16-gpu"));
    command
        .arg("selftest")
        .args(args)
        .env("XDG_CACHE_HOME", cache);
    command
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

/// Every kernel passes, the report is complete, and no kernel takes long to compile.
fn passes_and_compiles_in_time(device: &str) -> Result<(), Failed> {
    let cache = tempfile::tempdir()?;
    let file = cache.path().join("report.json");
    let report = file.display().to_string();
    let args = ["--device", device, "--json", "--report", &report];
    let output = selftest(&args, cache.path()).output()?;
    ensure!(
        code(&output) == 0,
        "code {}: {}{}",
        code(&output),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let written: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    ensure!(report == written, "--report and --json differ");
    ensure!(report["passed"] == true, "not passed");
    ensure!(report["version"].is_string(), "no version");
    let adapter = &report["adapters"][0];
    ensure!(adapter["device"]["driver"].is_string(), "no driver");
    let tiers = adapter["tiers"].as_array().ok_or("no tiers")?;
    ensure!(!tiers.is_empty(), "no tier");
    let mut times = Vec::new();
    for tier in tiers {
        let cases = tier["cases"].as_array().ok_or("no cases")?;
        let n = groth16_gpu::selftest::cases().len();
        ensure!(cases.len() == n, "{} cases of {n}", cases.len());
        for case in cases {
            let complete = case["name"].is_string()
                && case["kernels"].is_array()
                && case["passed"] == true
                && case["first_ms"].is_f64()
                && case["second_ms"].is_f64();
            ensure!(complete, "{case}");
        }
        for kernel in tier["compiled"].as_array().ok_or("no compile times")? {
            let ms = kernel["processor_ms"].as_f64().or(kernel["ms"].as_f64());
            let ms = ms.ok_or("no time")?;
            times.push((ms, format!("{} {}", kernel["name"], tier["tier"])));
        }
    }
    let n = tiers.len() * 2 * groth16_gpu::kernels::Kernel::ALL.len();
    ensure!(times.len() == n, "{} kernels of {n}", times.len());
    times.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (ms, kernel) in &times[..10] {
        eprintln!("{ms:8.0} ms {kernel}");
    }
    let (ms, kernel) = &times[0];
    ensure!((*ms as u64) < COMPILE_CEILING_MS, "{kernel} takes {ms} ms");
    Ok(())
}

/// Exit code 3 and no report.
fn nothing_to_test() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let report = file.display().to_string();
    for (device, drivers) in [("cpu", true), ("software", false)] {
        let args = ["--device", device, "--json", "--report", &report];
        let mut command = selftest(&args, folder.path());
        if !drivers {
            common::without_drivers(&mut command);
        }
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(code(&output) == 3, "{device}: {}: {text}", code(&output));
        ensure!(text.contains("no_device"), "{device}: {text}");
        ensure!(!file.exists(), "{device}: a report was written");
    }
    Ok(())
}

pub fn trials(adapters: &[(String, DeviceInfo)]) -> Vec<Trial> {
    let name = "selftest/passes_and_compiles_in_time";
    let lavapipe = adapters.iter().find(|(name, _)| name == "lavapipe");
    vec![
        match lavapipe {
            Some((_, info)) => {
                let device = info.index.to_string();
                common::trial(format!("lavapipe/{name}"), move || {
                    passes_and_compiles_in_time(&device)
                })
            }
            None => common::ignored(format!("lavapipe/{name}")),
        },
        common::trial("selftest/nothing_to_test".to_owned(), nothing_to_test),
    ]
}
