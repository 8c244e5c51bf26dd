//! The command line as scripts use it: exit codes, JSON errors, and no partial output.

mod batches;
mod keys;

use crate::corpus::{Case, bundled, cases};
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_groth16-gpu"))
}

fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    tool().args(args).output().expect("the tool runs")
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!(
            "{e}: stdout {:?}, stderr {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// A folder with places for a proof and its public inputs.
struct Place {
    folder: tempfile::TempDir,
    proof: PathBuf,
    public: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (proof, public) = (
            folder.path().join("proof.json"),
            folder.path().join("public.json"),
        );
        Self {
            folder,
            proof,
            public,
        }
    }
    fn is_empty(&self) -> bool {
        fs::read_dir(self.folder.path())
            .expect("a folder")
            .next()
            .is_none()
    }
    fn prove(&self, key: &Path, witness: &Path, more: &[&str]) -> Output {
        tool()
            .arg("prove")
            .args([key, witness, &self.proof, &self.public])
            .args(["--device", "cpu", "--json"])
            .args(more)
            .output()
            .expect("the tool runs")
    }
    fn verify(&self, vkey: &Path) -> Output {
        tool()
            .arg("verify")
            .args([vkey, &self.public, &self.proof])
            .arg("--json")
            .output()
            .expect("the tool runs")
    }
}

fn chain14() -> PathBuf {
    bundled().join("bn254/chain14")
}

/// The exit code of an error class, from the table of the interface.
fn code_of(class: &str) -> i32 {
    match class {
        "unsatisfied" => 1,
        "usage" => 2,
        "no_device" => 3,
        "out_of_memory" | "device_fault" | "timeout" => 5,
        _ => 4,
    }
}

/// `None` if the output is the failure that the case expects.
fn unlike_failure(output: &Output, class: &str, files: &[&str]) -> Option<String> {
    let json: Value = match serde_json::from_slice(&output.stdout) {
        Ok(json) => json,
        Err(e) => return Some(format!("stdout is no JSON ({e}); {:?}", output.status)),
    };
    let error = &json["error"];
    let message = error["message"].as_str().unwrap_or_default();
    if error["class"] != class {
        return Some(format!("{json}, expected {class}"));
    }
    if output.status.code() != Some(code_of(class)) {
        return Some(format!("{:?} for {class}", output.status));
    }
    if !files.iter().any(|file| message.contains(file)) {
        return Some(format!("does not name {files:?}: {message}"));
    }
    if String::from_utf8_lossy(&output.stderr).contains("panicked") {
        return Some("panicked".to_owned());
    }
    None
}

fn assert_all_right(kind: &str, count: usize, wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    eprintln!("{count} cases of {kind}");
}

/// Proves with a malformed key or witness; a case that is to be accepted must prove and verify.
fn prove_cases(kind: &str, run: impl Fn(&Case, &Place) -> Output) {
    let cases = cases(kind);
    let mut wrong = Vec::new();
    for case in &cases {
        let place = Place::new();
        let output = run(case, &place);
        let class = case.text("error_class");
        let defect = if case.text("expect").starts_with("reject") {
            unlike_failure(&output, class, &[case.text("file")])
                .or_else(|| (!place.is_empty()).then(|| "left files behind".to_owned()))
        } else if output.status.code() != Some(0) {
            Some(format!(
                "{:?}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            ))
        } else {
            let verified = place.verify(&case.base().join("verification_key.json"));
            (verified.status.code() != Some(0)).then(|| "does not verify".to_owned())
        };
        wrong.extend(defect.map(|d| format!("{}: {d}", case.name())));
    }
    assert_all_right(kind, cases.len(), &wrong);
}

#[test]
fn zkey_cases() {
    prove_cases("zkey", |case, place| {
        let level = if case.needs_subgroup_check() {
            "subgroup"
        } else {
            "on-curve"
        };
        let witness = case.base().join("witness.wtns");
        place.prove(&case.file(), &witness, &["--check-key", level])
    });
}

#[test]
fn wtns_cases() {
    prove_cases("wtns", |case, place| {
        place.prove(&case.base().join("circuit.zkey"), &case.file(), &[])
    });
}

#[test]
fn r1cs_cases() {
    let cases = cases("r1cs");
    let mut wrong = Vec::new();
    for case in &cases {
        let output = tool()
            .arg("inspect")
            .arg(case.file())
            .arg("--json")
            .output()
            .expect("runs");
        let defect = if case.expects("reject") {
            let class = case.text("error_class");
            unlike_failure(&output, class, &[case.text("file")])
        } else {
            (output.status.code() != Some(0)).then(|| format!("{:?}", output.status))
        };
        wrong.extend(defect.map(|d| format!("{}: {d}", case.name())));
        if case.expects("reject") {
            let place = Place::new();
            let key = place.folder.path().join("made.zkey");
            let output = tool()
                .args(["setup", "--insecure", "--json"])
                .args([&case.file(), &key])
                .output()
                .expect("runs");
            let defect = unlike_failure(&output, case.text("error_class"), &[case.text("file")])
                .or_else(|| (!place.is_empty()).then(|| "left files behind".to_owned()));
            wrong.extend(defect.map(|d| format!("setup, {}: {d}", case.name())));
        }
    }
    assert_all_right("r1cs", cases.len(), &wrong);
}

#[test]
fn verify_cases() {
    let cases = cases("verify");
    let mut wrong = Vec::new();
    for case in &cases {
        let vkey = match case.text("vkey") {
            "base" => case.base().join("verification_key.json"),
            file => case.folder().join(file),
        };
        let output = tool()
            .arg("verify")
            .args([vkey, case.folder().join(case.text("public")), case.file()])
            .arg("--json")
            .output()
            .expect("runs");
        let code = output.status.code();
        let names = ["file", "public", "vkey"].map(|field| case.text(field));
        let defect = match case.text("expect") {
            "valid" => (code != Some(0)).then(|| format!("{code:?} for a valid proof")),
            "invalid" => (code != Some(1) || json_of(&output)["valid"] != false)
                .then(|| format!("{code:?} for an invalid proof")),
            "reject_or_valid" if code == Some(0) => None,
            _ => unlike_failure(&output, case.text("error_class"), &names),
        };
        wrong.extend(defect.map(|d| format!("{}: {d}", case.name())));
    }
    assert_all_right("verify", cases.len(), &wrong);
}

/// Every well-formed circuit is proved, and its proof verified with the exported key.
#[test]
fn circuits_prove_and_verify() {
    let cases = cases("circuit");
    for case in &cases {
        let dir = case.folder();
        if !dir.join("circuit.zkey").exists() {
            continue;
        }
        let place = Place::new();
        let report = place.folder.path().join("report.json");
        let output = place.prove(
            &dir.join("circuit.zkey"),
            &dir.join("witness.wtns"),
            &["--report", report.to_str().expect("a name")],
        );
        assert_eq!(output.status.code(), Some(0), "{}: {output:?}", case.name());
        assert!(json_of(&output)["report"].is_object());
        assert!(
            fs::read_to_string(&report)
                .expect("a report")
                .starts_with('{')
        );
        let vkey = place.folder.path().join("vkey.json");
        let output = tool()
            .arg("export-vkey")
            .args([&dir.join("circuit.zkey"), &vkey])
            .output();
        assert_eq!(output.expect("runs").status.code(), Some(0));
        assert_eq!(
            place.verify(&vkey).status.code(),
            Some(0),
            "{}",
            case.name()
        );
        let public = |path: &Path| -> Value {
            serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
        };
        assert_eq!(public(&place.public), public(&dir.join("public.json")));
    }
}

#[test]
fn swapped_arguments_are_named() {
    let place = Place::new();
    let dir = chain14();
    let output = place.prove(&dir.join("witness.wtns"), &dir.join("circuit.zkey"), &[]);
    assert_eq!(
        unlike_failure(&output, "bad_magic", &["prove KEY WITNESS"]),
        None
    );
    assert!(place.is_empty());
    let (vkey, proof) = (dir.join("verification_key.json"), dir.join("proof.json"));
    let output = tool()
        .args(["verify", "--json"])
        .args([&proof, &vkey, &vkey])
        .output();
    let output = output.expect("runs");
    assert_eq!(
        unlike_failure(&output, "bad_json", &["this is a proof"]),
        None
    );
    let output = tool()
        .args(["verify", "--json"])
        .args([&vkey, &proof, &proof])
        .output();
    let output = output.expect("runs");
    assert_eq!(
        unlike_failure(&output, "bad_json", &["this is a proof"]),
        None
    );
}

/// Outputs never replace inputs, and what was there survives a failure.
#[test]
fn outputs_are_all_or_nothing() {
    let dir = chain14();
    let place = Place::new();
    fs::write(&place.proof, "before").expect("written");
    let bad = bundled().join("malformed/bn254/wtns_unsat_public.wtns");
    let output = place.prove(&dir.join("circuit.zkey"), &bad, &[]);
    assert_eq!(
        unlike_failure(&output, "unsatisfied", &["wtns_unsat_public.wtns"]),
        None
    );
    assert_eq!(fs::read_to_string(&place.proof).expect("a file"), "before");
    assert!(!place.public.exists());
    assert_eq!(
        fs::read_dir(place.folder.path()).expect("a folder").count(),
        1
    );

    let copy = place.folder.path().join("copy.zkey");
    fs::copy(dir.join("circuit.zkey"), &copy).expect("copied");
    let output = tool()
        .args(["prove", "--json"])
        .args([&copy, &dir.join("witness.wtns"), &copy])
        .output()
        .expect("runs");
    assert_eq!(unlike_failure(&output, "usage", &["copy.zkey"]), None);
    assert_eq!(
        fs::read(&copy).expect("a file"),
        fs::read(dir.join("circuit.zkey")).expect("a file")
    );

    let nowhere = place.folder.path().join("none/proof.json");
    let output = tool()
        .args(["prove", "--json"])
        .args([&copy, &dir.join("witness.wtns"), &nowhere])
        .output()
        .expect("runs");
    assert_eq!(unlike_failure(&output, "io", &["none/proof.json"]), None);
}

#[test]
fn wrong_usage_exits_with_2() {
    let dir = chain14();
    let (key, witness) = (dir.join("circuit.zkey"), dir.join("witness.wtns"));
    let (key, witness) = (
        key.to_str().expect("a name"),
        witness.to_str().expect("a name"),
    );
    let lines: &[&[&str]] = &[
        &[],
        &["no-such-command"],
        &["prove"],
        &["prove", key],
        &["prove", key, witness, "--no-such-option"],
        &["prove", key, witness, "--device", "no-such-kind:1"],
        &["prove", key, witness, "--vram-limit", "much"],
        &["prove", key, witness, "--fallback", "gpu"],
        &["prove", key, witness, "--word-tier", "u128"],
        &["prove", key, witness, "--check-key", "deeply"],
        &["prove", key, witness, "same.json", "same.json"],
        &["prove", key, witness, "t.svg", "p.json", "--trace", "t"],
        &["bench", "throughput", "--workers", "1,,2"],
        &["bench", "throughput", "--workers", "0"],
        &["bench", "throughput", "--partitions", "0"],
        &["bench", "throughput", "--density", "1.5"],
        &["bench", "prove", "--profile", "sapling"],
        &["bench", "prove", "--profile", "porep", "--density", "0.5"],
        &["bench", "throughput", "--vram-limit", "2GiB,much"],
        &["bench", "msm", "--vram-limit", "2GiB,none"],
        &["setup", "a.r1cs", "b.zkey"],
        &[
            "setup",
            "a.r1cs",
            "b.zkey",
            "--insecure",
            "--device",
            "0",
            "--device",
            "cpu",
        ],
        &["verify", "--key", key, "a", "b", "c"],
        &["verify", "a", "b"],
    ];
    for line in lines {
        let output = run(line.iter().chain(&["--json"]));
        assert_eq!(output.status.code(), Some(2), "{line:?}: {output:?}");
        assert_eq!(json_of(&output)["error"]["class"], "usage", "{line:?}");
        let output = run(*line);
        assert_eq!(output.status.code(), Some(2), "{line:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{line:?}"
        );
    }
    for line in [["--help"], ["--version"], ["help"]] {
        assert_eq!(run(line).status.code(), Some(0));
    }
}

#[test]
fn missing_files_are_io_errors() {
    for line in [
        vec!["prove", "none.zkey", "none.wtns"],
        vec!["verify", "none.json", "none.json", "none.json"],
        vec!["inspect", "none.zkey"],
        vec!["export-vkey", "none.zkey", "/none/vkey.json"],
    ] {
        let output = run(line.iter().chain(&["--json"]));
        assert_eq!(unlike_failure(&output, "io", &["none"]), None, "{line:?}");
    }
}

#[test]
fn inspect_names_curve_and_sizes() {
    for curve in ["bls12381", "bn254"] {
        let dir = bundled().join(curve).join("chain14");
        let kinds = [
            ("circuit.zkey", "zkey", "wires"),
            ("witness.wtns", "wtns", "wires"),
            ("circuit.r1cs", "r1cs", "constraints"),
            ("verification_key.json", "verification key", "public"),
            ("proof.json", "proof", "curve"),
            ("public.json", "public inputs", "public"),
        ];
        for (file, kind, field) in kinds {
            let path = dir.join(file);
            let output = tool()
                .arg("inspect")
                .arg(&path)
                .arg("--json")
                .output()
                .expect("runs");
            let json = json_of(&output);
            assert_eq!(json["kind"], kind, "{json}");
            assert!(!json[field].is_null(), "{json}");
            let output = tool().arg("inspect").arg(&path).output().expect("runs");
            assert!(String::from_utf8_lossy(&output.stdout).contains(kind));
        }
    }
}

/// A reader that goes away is no reason to panic.
#[test]
fn closed_stdout_does_not_panic() {
    let zkey = chain14().join("circuit.zkey");
    let zkey = zkey.to_str().expect("a name");
    for line in [
        vec!["completions", "bash"],
        vec!["inspect", zkey],
        vec!["--help"],
    ] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_groth16-gpu"))
            .args(&line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{line:?}: {stderr}");
        assert_eq!(output.status.code(), Some(0), "{line:?}: {stderr}");
    }
}

/// `--quiet` keeps stderr empty on success; results go to stdout, notes to stderr.
#[test]
fn quiet_is_quiet() {
    let dir = chain14();
    let place = Place::new();
    let output = place.prove(
        &dir.join("circuit.zkey"),
        &dir.join("witness.wtns"),
        &["--quiet"],
    );
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = tool()
        .args(["verify", "--quiet"])
        .args([
            &dir.join("verification_key.json"),
            &place.public,
            &place.proof,
        ])
        .output()
        .expect("runs");
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
}

/// Without a device there are no transforms to measure, and no run is no measurement.
#[test]
fn bench_needs_a_device_and_a_run() {
    let output = run(["bench", "ntt", "--log2", "4", "--device", "cpu", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let output = run([
        "bench", "msm", "--log2", "4", "--device", "cpu", "--reps", "0",
    ]);
    assert_eq!(output.status.code(), Some(2));
}
