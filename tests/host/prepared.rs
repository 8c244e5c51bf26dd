//! Prepared keys: the same proofs as from the originals, of every format, and the command.

use crate::circuits::number;
use crate::corpus::{Case, bundled, cases};
use assert_cmd::Command;
use groth16_gpu::device::{CacheFolder, Device};
use groth16_gpu::formats::{KeyFile, json, prepared, r1cs};
use groth16_gpu::proving_key::KeyCheck;
use groth16_gpu::{ProveOptions, Prover, ProvingKey, Witness};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Key, circuit and witness of a circuit of the corpus.
fn files(case: &Case) -> [PathBuf; 3] {
    let names = [
        ["circuit.zkey", "circuit.r1cs", "witness.wtns"],
        ["ark_pk_compressed.bin", "circuit.r1cs", "witness.wtns"],
        ["mimc322.params", "mimc322.r1cs", "mimc322.wtns"],
    ];
    let paths = names.map(|names| names.map(|n| case.folder().join(n)));
    let there = paths.into_iter().find(|p| p[0].is_file());
    there.unwrap_or_else(|| panic!("{} is of no known kind", case.name()))
}

#[test]
fn proofs_are_the_same_in_every_coordinate() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    let cache = CacheFolder::At(folder.path().join("cache"));
    let prover = Prover::new(Device::Cpu);
    let cases = cases("circuit");
    for case in &cases {
        let [key, circuit, witness] = files(case);
        // Keys of snarkjs do without.
        let circuit = circuit
            .is_file()
            .then(|| r1cs::read(&circuit).expect("a circuit"));
        let witness = Witness::from_wtns(witness).expect("a witness");
        let read = |path: &Path| -> ProvingKey {
            let file = KeyFile::open(path, circuit.as_ref()).expect("a key");
            file.read(KeyCheck::OnCurve).expect("a key")
        };
        let prove = |key: &ProvingKey| {
            let (options, r, s) = (ProveOptions::default(), number(3), number(5));
            let proved = prover.prove_with_blinding(key, &witness, &options, &r, &s);
            json::proof_to_json(&proved.expect("a proof").0).expect("JSON")
        };
        let original = read(&key);
        let level = KeyCheck::OnCurve;
        prepared::prepare(&original, level, false, &path, &cache).expect("written");
        let found = read(&path);
        assert_eq!(found.shape().reduction, original.reduction);
        assert_eq!(prove(&found), prove(&original), "{}", case.name());
        let vkey = |k: &ProvingKey| json::verifying_key_to_json(&k.verifying_key().expect("one"));
        assert_eq!(vkey(&found).expect("JSON"), vkey(&original).expect("JSON"));
    }
    eprintln!("{} circuits", cases.len());
}

/// Runs the tool with a cache folder of its own.
fn run(cache: &Path, args: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_groth16-gpu"))
        .env("XDG_CACHE_HOME", cache)
        .args(args)
        .arg("--json")
        .output()
        .expect("the tool runs");
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), json)
}

#[test]
fn the_command_and_those_that_take_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let run = |args: &[&str]| run(&folder.path().join("cache"), args);
    for curve in ["bn254", "bls12381"] {
        let dir = bundled().join(curve).join("chain14");
        let of = |name: &str| dir.join(name).display().to_string();
        let (zkey, witness, vkey) = (
            at("circuit.zkey"),
            of("witness.wtns"),
            of("verification_key.json"),
        );
        fs::copy(of("circuit.zkey"), &zkey).expect("copied");
        let (proof, public, key) = (at("proof.json"), at("public.json"), at("circuit.prepared"));

        // Its name, unless another is given, is the key's; an older one is replaced.
        for level in ["none", "subgroup"] {
            let (code, json) = run(&["prepare", &zkey, "--check-key", level]);
            assert_eq!(
                (code, json["checked"].as_str()),
                (Some(0), Some(level)),
                "{json}"
            );
            assert_eq!(json["key"], key);
        }
        let prove = |key: &str| run(&["prove", key, &witness, &proof, &public, "--device", "cpu"]);
        let (code, json) = prove(&key);
        assert_eq!(
            (code, json["verified"].as_bool()),
            (Some(0), Some(true)),
            "{json}"
        );
        for args in [
            ["verify", &vkey, &public, &proof].as_slice(),
            &["verify", "--key", &key, &public, &proof],
        ] {
            assert_eq!(run(args).1["valid"], true, "{args:?}");
        }
        let (code, json) = run(&["verify", &key, &public, &proof]);
        assert_eq!(
            (code, json["error"]["class"].as_str()),
            (Some(2), Some("usage"))
        );
        let (_, json) = run(&["inspect", &key, "--device", "cpu"]);
        assert_eq!(json["kind"], "prepared key");
        assert_eq!(
            (&json["checked"], &json["reduction"]),
            (&"subgroup".into(), &"circom".into())
        );
        assert_eq!(run(&["export-vkey", &key, &at("vkey.json")]).0, Some(0));
        let read = |path: &str| -> Value {
            serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
        };
        assert_eq!(read(&at("vkey.json")), read(&vkey));
        // From a prepared key, to a name of its own, the same file.
        let (code, _) = run(&[
            "prepare",
            &key,
            "-o",
            &at("again"),
            "--check-key",
            "subgroup",
        ]);
        assert_eq!(code, Some(0));
        let bytes = fs::read(&key).expect("a key");
        assert_eq!(fs::read(at("again")).expect("a key"), bytes);

        // No output replaces a key.
        let (code, json) = run(&["prove", &zkey, &witness, &key, &public, "--device", "cpu"]);
        assert_eq!(
            (code, json["error"]["class"].as_str()),
            (Some(2), Some("usage")),
            "{json}"
        );
        let (code, json) = run(&["prepare", &key, "-o", &zkey]);
        assert_eq!(
            (code, json["error"]["class"].as_str()),
            (Some(2), Some("usage")),
            "{json}"
        );

        // Damage is named, and leaves no proof.
        fs::remove_file(&proof).expect("removed");
        let mut damaged = bytes.clone();
        *damaged.last_mut().expect("bytes") ^= 1;
        fs::write(&key, &damaged).expect("written");
        let (code, json) = prove(&key);
        let error = &json["error"];
        assert_eq!(
            (code, error["class"].as_str()),
            (Some(4), Some("bad_section")),
            "{json}"
        );
        assert_eq!(
            (&error["file"], &error["section"]),
            (&key.as_str().into(), &7.into())
        );
        fs::write(&key, &bytes[..bytes.len() - 1]).expect("written");
        assert_eq!(prove(&key).1["error"]["class"], "truncated");
        assert!(!Path::new(&proof).exists());
    }
}
