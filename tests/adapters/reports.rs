//! What `--report` says of a command's time, as a clock beside it sees it.

use crate::common::{self, ensure};
use crate::corpus::bundled;
use groth16_gpu::device::DeviceInfo;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// On the CPU, and on adapters that do not take minutes to compile.
pub fn trials(adapters: &[(String, DeviceInfo)]) -> Vec<Trial> {
    let fast = adapters.iter().filter(|a| a.0 != "swiftshader");
    let named = fast.map(|(name, info)| (name.clone(), format!("name:{}", info.name)));
    let cpu = ("cpu".to_owned(), "cpu".to_owned());
    let trial = |(name, device): (String, String)| {
        let id = format!("{name}/reports/phases_add_up");
        common::trial(id, move || phases_add_up(&device))
    };
    named.chain([cpu]).map(trial).collect()
}

/// Runs the tool; returns its time in milliseconds.
fn timed(cache: &Path, args: &[&str]) -> Result<f64, Failed> {
    let start = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_groth16-gpu"))
        .env("XDG_CACHE_HOME", cache)
        .args(args)
        .output()?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    ensure!(output.status.success(), "{args:?}: {output:?}");
    Ok(took)
}

fn read(path: &Path) -> Result<Value, Failed> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

/// The wall time of a report, once its phases are found to add up to it.
fn wall(report: &Value) -> Result<f64, Failed> {
    let wall = report["wall_ms"].as_f64().ok_or("no wall time")?;
    let phases = report["phases"].as_array().ok_or("no phases")?;
    let mut sum = 0.0;
    for phase in phases {
        let ms = phase["wall_ms"].as_f64().ok_or("no time")?;
        // The last phase of a device gets what the others leave: they must not exceed the whole.
        let fits = ms >= -0.03 * wall;
        ensure!(fits, "{} of {wall} ms: {phase}", phase["name"]);
        sum += ms;
    }
    let adds_up = (sum - wall).abs() <= 0.03 * wall;
    ensure!(adds_up, "{sum} ms of {wall}");
    Ok(wall)
}

fn phases_add_up(device: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let dir = bundled().join("bn254/chain14");
    let [key, witness] = ["circuit.zkey", "witness.wtns"].map(|n| dir.join(n));
    let [key, witness] = [key, witness].map(|p| p.display().to_string());
    let cache = folder.path().join("cache");
    // The process alone.
    let bare = timed(&cache, &["--version"])?;
    let report = at("report.json");
    let (proof, public) = (at("proof.json"), at("public.json"));
    // With empty caches, and with what that left.
    for state in ["cold", "warm"] {
        let args = [
            "prove", &key, &witness, &proof, &public, "--device", device, "--report", &report,
        ];
        let outside = timed(&cache, &args)?;
        let report = read(Path::new(&report))?;
        let inside = wall(&report)?;
        let fits = inside <= outside;
        ensure!(fits, "{state}: {inside} ms in {outside}");
        // Writing the proof, and the driver's end; other tests run meanwhile.
        let unseen = outside - bare - inside;
        let seen = unseen < 500.0 + 0.1 * outside;
        ensure!(seen, "{state}: {inside} of {outside} ms");
        let names: Vec<&str> = report["phases"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|p| p["name"].as_str())
            .collect();
        let first = [
            "read_witness",
            "read_key",
            "check_key",
            "find_device",
            "cut_key",
            "open_device",
            "compile_ahead",
        ];
        ensure!(names.starts_with(&first), "{names:?}");
        let on_device = report["backend"] != "cpu";
        ensure!(names.contains(&"key_to_device") == on_device, "{names:?}");
        let startup = &report["startup"];
        let compiled = startup["kernels"].as_u64().ok_or("no kernels")?;
        ensure!((compiled > 10) == on_device, "{startup}");
    }
    let witnesses = folder.path().join("witnesses");
    fs::create_dir(&witnesses)?;
    for name in ["one", "two", "three"] {
        fs::copy(&witness, witnesses.join(format!("{name}.wtns")))?;
    }
    let (batch, out, reports) = (at("witnesses"), at("out"), at("reports"));
    let args = [
        "prove", &key, "--batch", &batch, "--out", &out, "--device", device, "--report", &reports,
    ];
    let outside = timed(&cache, &args)?;
    for name in ["one", "two", "three"] {
        let report = read(&Path::new(&reports).join(format!("{name}.report.json")))?;
        let fits = wall(&report)? <= outside;
        ensure!(fits, "{name}: {report}");
    }
    Ok(())
}
