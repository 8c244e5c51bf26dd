//! Keys: made for development, and read from other programs' files.

use super::*;

/// A one-party key proves and verifies, is marked, and is not made without being asked for.
#[test]
fn setup_needs_insecure_and_marks_the_key() {
    for name in ["bn254/nopublic", "bls12381/chain14"] {
        let dir = bundled().join(name);
        let place = Place::new();
        let key = place.folder.path().join("made.zkey");
        let setup = |more: &[&str]| {
            let mut tool = tool();
            tool.arg("setup").args([&dir.join("circuit.r1cs"), &key]);
            tool.args(more).output().expect("runs")
        };
        assert_eq!(setup(&[]).status.code(), Some(2));
        assert!(place.is_empty());
        let output = setup(&["--insecure", "--device", "cpu", "--host-limit", "1KiB"]);
        assert_eq!(output.status.code(), Some(5));
        assert!(place.is_empty());
        let output = setup(&["--insecure"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stderr).contains("INSECURE"));
        // Its own key may be made again; another's, or a witness, is not replaced.
        assert_eq!(setup(&["--insecure"]).status.code(), Some(0));
        for file in ["circuit.zkey", "witness.wtns"] {
            let taken = place.folder.path().join(file);
            fs::copy(dir.join(file), &taken).unwrap();
            let mut tool = tool();
            tool.args(["setup", "--insecure"]);
            let output = tool.args([&dir.join("circuit.r1cs"), &taken]).output();
            assert_eq!(output.expect("runs").status.code(), Some(2), "{file}");
            assert_eq!(fs::read(&taken).unwrap(), fs::read(dir.join(file)).unwrap());
            fs::remove_file(taken).unwrap();
        }
        let output = place.prove(
            &key,
            &dir.join("witness.wtns"),
            &["--check-key", "subgroup"],
        );
        assert_eq!(output.status.code(), Some(0), "{name}");
        let output = tool()
            .arg("verify")
            .args([&place.public, &place.proof])
            .args([Path::new("--key"), &key])
            .output()
            .expect("runs");
        assert_eq!(output.status.code(), Some(0), "{name}");
        let output = tool()
            .arg("inspect")
            .arg(&key)
            .arg("--json")
            .output()
            .expect("runs");
        assert_eq!(json_of(&output)["insecure"], true);
    }
}

/// The bundled example is written, and the commands that it names prove and verify it.
#[test]
fn example_proves_and_verifies() {
    for curve in ["bn254", "bls12_381"] {
        let place = Place::new();
        let dir = place.folder.path().join("made here");
        let example = |more: &[&str]| {
            let mut tool = tool();
            tool.arg("example").arg(&dir).args(["--curve", curve]);
            tool.args(more).output().expect("runs")
        };
        let output = example(&[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("INSECURE"));
        let text = String::from_utf8(output.stdout).expect("text");
        let commands: Vec<&str> = text.lines().filter(|l| l.starts_with("  ")).collect();
        assert_eq!(commands.len(), 2, "{text}");
        for command in commands {
            let output = std::process::Command::new("sh")
                .args(["-c", &format!("{command} --json")])
                .output()
                .expect("a shell");
            assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
        }
        assert!(dir.join("proof.json").is_file() && dir.join("public.json").is_file());

        // Again in the same folder, and in none where it would replace something else.
        let json = json_of(&example(&["--json"]));
        assert_eq!(
            (&json["curve"], &json["insecure"]),
            (&curve.into(), &true.into())
        );
        assert_eq!(json["constraints"], 9986);
        fs::copy(chain14().join("circuit.r1cs"), dir.join("circuit.r1cs")).expect("copied");
        let key = fs::read(dir.join("circuit.zkey")).expect("a key");
        let output = example(&["--json"]);
        assert_eq!(unlike_failure(&output, "usage", &["circuit.r1cs"]), None);
        assert_eq!(fs::read(dir.join("circuit.zkey")).expect("a key"), key);
    }
    let output = run(["example", "--curve", "bls12", "--json"]);
    assert_eq!(unlike_failure(&output, "usage", &["bn254"]), None);
}

/// Keys without a magic number, for the circuit given by --r1cs.
#[test]
fn keys_of_arkworks_and_bellman() {
    let Some(root) = crate::corpus::shared() else {
        eprintln!("no ../shared/fixtures beside the checkout: not tested");
        return;
    };
    let (ark, bellman) = (
        root.join("ark/bn254_poseidon2"),
        root.join("bellman/mimc322"),
    );
    let keys = [
        (
            &ark,
            "ark_pk_compressed.bin",
            "witness.wtns",
            "circuit.r1cs",
        ),
        (
            &ark,
            "ark_pk_uncompressed.bin",
            "witness.wtns",
            "circuit.r1cs",
        ),
        (&bellman, "mimc322.params", "mimc322.wtns", "mimc322.r1cs"),
    ];
    for (dir, key, witness, circuit) in keys {
        let place = Place::new();
        let circuit = dir.join(circuit);
        let circuit = ["--r1cs", circuit.to_str().expect("a name")];
        let output = place.prove(&dir.join(key), &dir.join(witness), &circuit);
        assert_eq!(output.status.code(), Some(0), "{key}: {output:?}");
        let output = tool()
            .arg("verify")
            .args([&place.public, &place.proof])
            .arg("--key")
            .arg(dir.join(key))
            .args(circuit)
            .output()
            .expect("runs");
        assert_eq!(output.status.code(), Some(0), "{key}: {output:?}");
        let place = Place::new();
        let output = place.prove(&dir.join(key), &dir.join(witness), &[]);
        assert_eq!(unlike_failure(&output, "bad_magic", &["--r1cs"]), None);
    }
    let circuit = bellman.join("mimc322.r1cs");
    for case in cases("bellman_params") {
        let place = Place::new();
        let circuit = ["--r1cs", circuit.to_str().expect("a name")];
        let output = place.prove(&case.file(), &bellman.join("mimc322.wtns"), &circuit);
        let class = case.text("error_class");
        assert_eq!(
            unlike_failure(&output, class, &[case.text("file")]),
            None,
            "{}",
            case.name()
        );
        assert!(place.is_empty());
    }
}

/// Without section 3 a key proves, but cannot be verified against.
#[test]
fn key_without_ic_needs_no_verify() {
    let key = bundled().join("malformed/bn254/zkey_missing_sec3.zkey");
    let place = Place::new();
    let output = place.prove(&key, &chain14().join("witness.wtns"), &["--no-verify"]);
    assert_eq!(output.status.code(), Some(0));
    let verified = place.verify(&chain14().join("verification_key.json"));
    assert_eq!(verified.status.code(), Some(0));
}

/// A circuit that is named beside a key that does not need it is that key's all the same.
#[test]
fn a_circuit_of_another_key_is_refused() {
    let dir = bundled().join("bn254/mul2");
    let prove = |circuit: &str| {
        let place = Place::new();
        let r1cs = bundled().join(circuit).join("circuit.r1cs");
        let more = ["--r1cs", r1cs.to_str().expect("UTF-8")];
        let output = place.prove(&dir.join("circuit.zkey"), &dir.join("witness.wtns"), &more);
        (
            output.status.code(),
            json_of(&output)["error"]["class"].clone(),
        )
    };
    assert_eq!(prove("bn254/mul2").0, Some(0));
    let (code, class) = prove("bn254/allpublic");
    assert_eq!((code, class.as_str()), (Some(4), Some("count_mismatch")));
    let (code, class) = prove("bls12381/mul2");
    assert_eq!((code, class.as_str()), (Some(4), Some("curve_mismatch")));
}

/// An example that can not be completed leaves nothing: here its last file is a folder.
#[test]
fn a_failing_example_leaves_nothing() {
    let place = Place::new();
    let dir = place.folder.path().join("example");
    let vkey = dir.join("verification_key.json");
    fs::create_dir_all(&vkey).unwrap();
    let mut tool = tool();
    let output = tool.args(["example", "--log2", "3"]).arg(&dir).output();
    assert_ne!(output.expect("runs").status.code(), Some(0));
    let left: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(left, [vkey]);
}
