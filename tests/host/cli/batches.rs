//! Batches, limits, traces and throughput.

use super::{Place, chain14, code_of, run, tool, unlike_failure};
use crate::corpus::bundled;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

/// What is not finished in time is an error, and leaves nothing behind.
#[test]
fn timeout() {
    let dir = chain14();
    let place = Place::new();
    let (key, witness) = (dir.join("circuit.zkey"), dir.join("witness.wtns"));
    let output = place.prove(&key, &witness, &["--timeout", "0.000001"]);
    assert_eq!(unlike_failure(&output, "timeout", &["deadline"]), None);
    assert!(place.is_empty());
    let output = place.prove(&key, &witness, &["--timeout", "600"]);
    assert_eq!(output.status.code(), Some(0));
    let output = place.prove(&key, &witness, &["--timeout", "soon"]);
    assert_eq!(unlike_failure(&output, "usage", &["soon"]), None);
}

/// The lines of a batch under `--json`.
fn lines_of(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {text}"));
    text.lines().map(line).collect()
}

fn batch(source: &Path, out: &Path, more: &[&str]) -> Output {
    tool()
        .args([Path::new("prove"), &chain14().join("circuit.zkey")])
        .args([Path::new("--batch"), source, Path::new("--out"), out])
        .args(["--device", "cpu", "--json"])
        .args(more)
        .output()
        .expect("the tool runs")
}

/// A folder of witnesses is proved in the natural order of names; one that fails does not stop the
/// others, and its exit code is the command's.
#[test]
fn batch_of_a_folder() {
    let dir = chain14();
    let place = Place::new();
    let root = place.folder.path();
    let (source, out) = (root.join("in"), root.join("made/out"));
    fs::create_dir(&source).expect("made");
    for name in ["w10", "w2", "w1", "w03"] {
        let copy = source.join(format!("{name}.wtns"));
        fs::copy(dir.join("witness.wtns"), copy).expect("copied");
    }
    fs::write(source.join("notes.txt"), "no witness").expect("written");
    let reports = root.join("reports");
    let more = ["--report", reports.to_str().expect("a name")];
    let output = batch(&source, &out, &more);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let order = ["w1", "w2", "w03", "w10"];
    let lines = lines_of(&output);
    assert_eq!(lines.len(), order.len());
    for (line, name) in lines.iter().zip(order) {
        let witness = source.join(format!("{name}.wtns"));
        assert_eq!(line["witness"], witness.to_str().expect("a name"));
        assert_eq!(line["verified"], true);
        let [proof, public, report] = [
            out.join(format!("{name}.proof.json")),
            out.join(format!("{name}.public.json")),
            reports.join(format!("{name}.report.json")),
        ];
        assert!(report.is_file());
        let vkey = dir.join("verification_key.json");
        let verified = run([Path::new("verify"), &vkey, &public, &proof]);
        assert_eq!(verified.status.code(), Some(0), "{name}");
    }
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 8);

    let bad = bundled().join("malformed/bn254/wtns_unsat_public.wtns");
    fs::copy(bad, source.join("w2.wtns")).expect("copied");
    fs::write(source.join("w03.wtns"), "no witness").expect("written");
    let out = root.join("second");
    let output = batch(&source, &out, &[]);
    let lines = lines_of(&output);
    assert_eq!(lines.len(), 4);
    for (line, class) in lines.iter().zip(["", "unsatisfied", "bad_magic", ""]) {
        assert_eq!(line["error"]["class"].as_str().unwrap_or_default(), class);
        let witness = line["witness"].as_str().expect("a name");
        let message = line["error"]["message"].as_str().unwrap_or(witness);
        assert!(message.contains(witness), "{line}");
    }
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("2 of 4 failed") && !stderr.contains("panicked"));
    assert!(!out.join("w2.proof.json").exists() && !out.join("w03.public.json").exists());
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 4);
}

/// A list names files relative to itself, from stdin relative to the working folder.
#[test]
fn batch_of_a_list() {
    let dir = chain14();
    let place = Place::new();
    let root = place.folder.path();
    fs::create_dir(root.join("sub")).expect("made");
    for name in ["b.wtns", "sub/a.wtns"] {
        fs::copy(dir.join("witness.wtns"), root.join(name)).expect("copied");
    }
    let list = root.join("list.txt");
    fs::write(&list, "b.wtns\n\nsub/a.wtns\r\nnone.wtns\n").expect("written");
    let out = root.join("out");
    let output = batch(&list, &out, &[]);
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(code_of("io")));
    assert_eq!(lines[2]["error"]["class"], "io");
    for (line, name) in lines.iter().zip(["b", "a"]) {
        let proof = out.join(format!("{name}.proof.json"));
        assert_eq!(line["proof"], proof.to_str().expect("a name"));
        assert!(proof.is_file());
    }
    let output = tool()
        .args([Path::new("prove"), &dir.join("circuit.zkey")])
        .args(["--batch", "-", "--device", "cpu", "--json"])
        .current_dir(root)
        .write_stdin("sub/a.wtns\n")
        .output()
        .expect("the tool runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(lines_of(&output)[0]["proof"], "a.proof.json");
    assert!(root.join("a.proof.json").is_file() && root.join("a.public.json").is_file());
}

/// What is wrong with a batch as a whole is found before any work.
#[test]
fn batch_usage() {
    let place = Place::new();
    let root = place.folder.path();
    let out = root.join("out");
    let list = root.join("list.txt");
    fs::write(&list, "x/a.wtns\ny/a.wtns\n").expect("written");
    let output = batch(&list, &out, &[]);
    assert_eq!(unlike_failure(&output, "usage", &["a.proof.json"]), None);
    assert!(!out.exists());
    fs::write(&list, "\n").expect("written");
    let output = batch(&list, &out, &[]);
    assert_eq!(unlike_failure(&output, "usage", &["list.txt"]), None);
    fs::remove_file(&list).expect("removed");
    let output = batch(root, &out, &[]);
    assert_eq!(unlike_failure(&output, "usage", &["no .wtns"]), None);
    let output = batch(&root.join("none"), &out, &[]);
    assert_eq!(unlike_failure(&output, "io", &["none"]), None);
    let output = batch(&chain14(), &out, &["--host-limit", "1KiB"]);
    assert_eq!(unlike_failure(&output, "out_of_memory", &["host"]), None);
    let key = chain14().join("circuit.zkey");
    let key = key.to_str().expect("a name");
    for line in [
        &["prove", key, "witness.wtns", "--batch", "x"][..],
        &["prove", key, "witness.wtns", "--out", "x"],
        &["prove", key, "--out", "x"],
        &["inspect", key, "--device", "cpu", "--device", "0"],
    ] {
        let output = run(line.iter().chain(&["--json"]));
        assert_eq!(unlike_failure(&output, "usage", &[""]), None, "{line:?}");
    }
}

/// p40: a host budget that the key does not fit is an error before any work.
#[test]
fn p40_host_limit() {
    let dir = chain14();
    let place = Place::new();
    let limit = ["--host-limit", "1KiB"];
    let output = place.prove(&dir.join("circuit.zkey"), &dir.join("witness.wtns"), &limit);
    assert_eq!(unlike_failure(&output, "out_of_memory", &["host"]), None);
    assert!(place.is_empty());
}

/// A trace as written: the names of its spans by track.
fn spans_of(path: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).expect("a trace");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let named = |e: &Value| {
        let of = |x: &&Value| x["name"] == "thread_name" && x["tid"] == e["tid"];
        let track = events.iter().find(of).expect("a track");
        track["args"]["name"].as_str().expect("a name").to_owned()
    };
    let spans = events.iter().filter(|e| e["ph"] == "X");
    spans
        .map(|e| (named(e), e["name"].as_str().expect("a name").to_owned()))
        .collect()
}

#[test]
fn trace_of_a_proof() {
    let dir = chain14();
    let (key, witness) = (dir.join("circuit.zkey"), dir.join("witness.wtns"));
    let place = Place::new();
    let trace = place.folder.path().join("trace.json");
    let picture = place.folder.path().join("trace.json.svg");
    let option = ["--trace", trace.to_str().expect("a name")];
    let output = place.prove(&key, &witness, &option);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // What another thread does meanwhile is on its own track, and nobody waits for it here.
    let waits = ["find_device", "cut_key", "open_device", "compile_ahead"];
    let main = |s: &(String, String)| s.0 != "devices" && !waits.contains(&s.1.as_str());
    let spans = spans_of(&trace).into_iter().map(|s| (s.0, s.1));
    let names: Vec<_> = spans.filter(main).map(|s| s.1).collect();
    let phases = [
        "read_witness",
        "read_key",
        "check_key",
        "host_wait",
        "check",
        "row_products",
        "quotient",
        "msm",
        "finish",
        "self_verify",
    ];
    assert_eq!(names, phases);
    let svg = fs::read_to_string(&picture).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));

    // Where it can not be written, nothing is.
    let place = Place::new();
    let option = ["--trace", "/no-such-folder/trace.json"];
    let output = place.prove(&key, &witness, &option);
    assert_eq!(unlike_failure(&output, "io", &["no-such-folder"]), None);
    assert!(place.is_empty());
}

#[test]
fn throughput() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.json");
    let output = tool()
        .args(["bench", "throughput", "--device", "cpu", "--log2", "8"])
        .args(["--workers", "2,1", "--partitions", "2", "--json", "--trace"])
        .arg(&trace)
        .output()
        .expect("the tool runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2);
    for (line, workers) in lines.iter().zip([2, 1]) {
        assert_eq!(line["bench"], "throughput");
        for (field, value) in [
            ("workers", workers),
            ("partitions", 2),
            ("log2", 8),
            ("vram_limit", 0),
            ("oom", 0),
            ("failed", 0),
        ] {
            assert_eq!(line[field], value, "{field}");
        }
        for field in ["device_busy", "turn_wait_ms", "peak_vram", "tier"] {
            assert!(line[field].is_null(), "{field} of the CPU");
        }
        let number = |field: &str| line[field].as_f64().expect("a number");
        let ratio = number("s_per_proof") / number("s_per_partition");
        assert!((ratio - 2.0).abs() < 1e-6);
        // A worker's partitions follow each other.
        let partitions = 2.0 * number("s_per_partition") * f64::from(workers);
        assert!(number("median_partition_ms") / 1e3 < partitions);
    }
    let proofs = |track: &str| {
        let check = |s: &&(String, String)| s.0 == track && s.1 == "check";
        spans_of(&trace).iter().filter(check).count()
    };
    assert_eq!(["main", "worker 1", "worker 2"].map(proofs), [1, 4, 2]);
    assert!(folder.path().join("trace.json.svg").exists());
}
