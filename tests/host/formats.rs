//! Readers and writers against the corpus of fixtures.

use crate::corpus::{Case, bundled, cases};
use groth16_gpu::curve::{Bls12381, Bn254, CurveId};
use groth16_gpu::error::{Error, InputClass, Result};
use groth16_gpu::formats::{json, r1cs, wtns, zkey};
use groth16_gpu::proof::Proof;
use groth16_gpu::proving_key::{KeyCheck, Matrix, ProvingKey};
use groth16_gpu::verify::verify;
use groth16_gpu::with_curve;
use groth16_gpu::witness::Witness;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Runs `read` over all cases of a kind and reports every one that does not do as expected.
fn run_cases(kind: &str, read: impl Fn(&Case) -> Result<()>) {
    let cases = cases(kind);
    let mut wrong = Vec::new();
    for case in &cases {
        let got = match read(case) {
            Ok(()) => "none".to_owned(),
            Err(e) => {
                let message = e.to_string();
                if !message.contains(case.text("file")) && !names_both_sides(&e) {
                    wrong.push(format!(
                        "{}: does not name the file: {message}",
                        case.name()
                    ));
                }
                e.class().to_owned()
            }
        };
        let want = case.text("error_class");
        let right = match case.text("expect") {
            "reject" => got == want,
            "reject_or_accept" => got == want || got == "none",
            _ => got == "none",
        };
        if !right {
            wrong.push(format!("{}: got {got}, expected {want}", case.name()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    eprintln!("{} cases of {kind}", cases.len());
}

/// A witness and a key that do not belong together: the message is about both.
fn names_both_sides(e: &Error) -> bool {
    matches!(e.class(), "curve_mismatch" | "count_mismatch")
}

#[test]
fn zkey_cases() {
    run_cases("zkey", |case| {
        let level = if case.needs_subgroup_check() {
            KeyCheck::Subgroup
        } else {
            KeyCheck::OnCurve
        };
        let key = ProvingKey::from_zkey_checked(case.file(), level)?;
        // What is accepted is the base's key, however its sections are arranged.
        let base = ProvingKey::from_zkey(case.base().join("circuit.zkey"))?;
        assert_eq!(*key.h_query, *base.h_query);
        assert_eq!(*key.a.entries, *base.a.entries);
        assert_eq!(*key.a.coefficients, *base.a.coefficients);
        Ok(())
    });
}

#[test]
fn wtns_cases() {
    let cases_of_prover = ["wtns_unsat_private.wtns", "wtns_unsat_public.wtns"];
    run_cases("wtns", |case| {
        let witness = wtns::read(&case.file())?;
        ProvingKey::from_zkey(case.base().join("circuit.zkey"))?.check_witness(&witness)?;
        let circuit = r1cs::read(&case.base().join("circuit.r1cs"))?;
        let unsatisfied = circuit.first_unsatisfied(&witness)?;
        assert_eq!(
            unsatisfied.is_some(),
            cases_of_prover.contains(&case.text("file"))
        );
        match unsatisfied {
            None => Ok(()),
            Some(i) => Err(Error::Unsatisfied(format!("{}: {i}", case.text("file")))),
        }
    });
}

#[test]
fn r1cs_cases() {
    run_cases("r1cs", |case| {
        let read = r1cs::read(&case.file())?;
        let base = r1cs::read(&case.base().join("circuit.r1cs"))?;
        assert_eq!((&read.a, &read.b, &read.c), (&base.a, &base.b, &base.c));
        Ok(())
    });
}

#[test]
fn verify_cases() {
    let mut count = 0;
    for case in cases("verify") {
        let run = || -> Result<bool> {
            let vkey = match case.text("vkey") {
                "base" => case.base().join("verification_key.json"),
                file => case.folder().join(file),
            };
            let vkey = json::read_verifying_key(&vkey)?;
            let mut proof = json::read_proof(&case.file(), Some(vkey.curve))?;
            let public = case.folder().join(case.text("public"));
            proof.public_inputs = json::read_public(&public, vkey.curve)?;
            verify(&vkey, &proof)
        };
        let got = match run() {
            Ok(true) => "valid",
            Ok(false) => "invalid",
            Err(e) => &format!("reject {}", e.class()),
        };
        let reject = format!("reject {}", case.text("error_class"));
        let right = match case.text("expect") {
            "reject" => got == reject,
            "reject_or_valid" => got == reject || got == "valid",
            other => got == other,
        };
        assert!(
            right,
            "{}: got {got}, expected {} {reject}",
            case.name(),
            case.text("expect")
        );
        count += 1;
    }
    eprintln!("{count} cases of verify");
}

fn as_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// p31: snarkjs' own files come out of ours byte for byte, and its proofs verify.
#[test]
fn p31_golden_snarkjs_json() {
    for case in cases("circuit") {
        let folder = case.folder();
        if !folder.join("verification_key.json").exists() {
            continue;
        }
        let key = ProvingKey::from_zkey_checked(folder.join("circuit.zkey"), KeyCheck::Subgroup)
            .expect("a key");
        let vkey = key.verifying_key().expect("a verifying key");
        let exported = json::verifying_key_to_json(&vkey).expect("JSON");
        let golden = as_json(&folder.join("verification_key.json"));
        let exported_value: Value = serde_json::from_str(&exported).expect("JSON");
        assert_eq!(exported_value, golden, "{}", case.name());
        let read = json::read_verifying_key(&folder.join("verification_key.json"));
        assert_eq!(read.expect("a verifying key"), vkey, "{}", case.name());
        let public = json::read_public(&folder.join("public.json"), vkey.curve).expect("inputs");
        assert_eq!(
            serde_json::from_str::<Value>(&json::public_to_json(&public).expect("JSON"))
                .expect("JSON"),
            as_json(&folder.join("public.json"))
        );
        for name in ["proof.json", "proof_ark_r3s5.json"] {
            let path = folder.join(name);
            if !path.exists() {
                continue;
            }
            let mut proof = json::read_proof(&path, Some(vkey.curve)).expect("a proof");
            let written = json::proof_to_json(&proof).expect("JSON");
            if name == "proof.json" && case.text("origin") == "ours" {
                assert_eq!(
                    written,
                    fs::read_to_string(&path).expect("text"),
                    "{}",
                    case.name()
                );
            }
            proof.public_inputs.clone_from(&public);
            assert!(
                verify(&vkey, &proof).expect("well-formed"),
                "{} {name}",
                case.name()
            );
            p31_ark_round_trip(&proof);
        }
        if case.text("origin") == "ours" {
            let golden = fs::read_to_string(folder.join("verification_key.json")).expect("text");
            assert_eq!(exported, golden, "{}", case.name());
        }
    }
}

fn p31_ark_round_trip(proof: &Proof) {
    with_curve!(proof.curve, C => {
        let ark = proof.to_ark::<C>().expect("points");
        assert_eq!(Proof::from_ark::<C>(&ark, &[]).b, proof.b);
    });
}

/// p31: what we write, we read, and the coefficients survive.
#[test]
fn p31_round_trips() {
    let folder = tempfile::tempdir().expect("a folder");
    for case in cases("circuit") {
        let dir = case.folder();
        if !dir.join("circuit.r1cs").exists() || !dir.join("circuit.zkey").exists() {
            continue;
        }
        let circuit = r1cs::read(&dir.join("circuit.r1cs")).expect("a circuit");
        let witness = wtns::read(&dir.join("witness.wtns")).expect("a witness");
        let key = ProvingKey::from_zkey(dir.join("circuit.zkey")).expect("a key");
        assert_eq!(circuit.first_unsatisfied(&witness).expect("fits"), None);
        key.check_witness(&witness).expect("fits");

        let path = folder.path().join("x.r1cs");
        r1cs::write(&circuit, &path).expect("written");
        let again = r1cs::read(&path).expect("a circuit");
        assert_eq!(
            (&again.a, &again.b, &again.c),
            (&circuit.a, &circuit.b, &circuit.c)
        );
        let path = folder.path().join("x.wtns");
        wtns::write(&witness, &path).expect("written");
        assert_eq!(
            *wtns::read(&path).expect("a witness").values,
            *witness.values
        );
        let path = folder.path().join("x.zkey");
        zkey::write(&key, &path, true).expect("written");
        assert!(
            groth16_gpu::formats::KeyFile::open(&path, None)
                .expect("a key")
                .is_insecure()
        );
        let again = ProvingKey::from_zkey(&path).expect("a key");
        assert_eq!(*again.b.row_starts, *key.b.row_starts);
        assert_eq!(*again.a.entries, *key.a.entries);
        assert_eq!(*again.a.coefficients, *key.a.coefficients);
        assert_eq!(*again.b_g2_query, *key.b_g2_query);
        assert_eq!(
            again.verifying_key().expect("vk"),
            key.verifying_key().expect("vk")
        );

        // The key's coefficients are those of the circuit, times R².
        for (matrix, of_key) in [(&circuit.a, &key.a), (&circuit.b, &key.b)] {
            let expected = with_curve!(circuit.curve, C => matrix.to_key_matrix::<C>());
            for row in 0..matrix.rows().min(of_key.rows()) {
                let entries = |m: &Matrix| {
                    let entries = m.row(row).map(|i| m.entry(i));
                    let mut e: Vec<_> = entries.map(|(wire, c)| (wire, *c)).collect();
                    e.sort_unstable();
                    e
                };
                assert_eq!(
                    entries(&expected),
                    entries(of_key),
                    "{} row {row}",
                    case.name()
                );
            }
        }
    }
}

fn chain14(curve: CurveId) -> std::path::PathBuf {
    let name = match curve {
        CurveId::Bls12_381 => "bls12381",
        CurveId::Bn254 => "bn254",
    };
    bundled().join(name).join("chain14")
}

fn class_of<T: std::fmt::Debug>(result: Result<T>) -> InputClass {
    match result {
        Err(Error::Input(e)) => e.class,
        other => panic!("expected an input error, got {other:?}"),
    }
}

/// p13: a witness of another length is an error that names both lengths.
#[test]
fn p13_witness_length_names_both() {
    let key = ProvingKey::from_zkey(chain14(CurveId::Bn254).join("circuit.zkey")).expect("a key");
    let witness = wtns::read(&chain14(CurveId::Bn254).join("witness.wtns")).expect("a witness");
    for n in [key.n_vars - 1, key.n_vars + 1] {
        let mut values = witness.values.to_vec();
        values.resize(32 * n, 0);
        let wrong = Witness {
            curve: witness.curve,
            values: values.into(),
        };
        let e = key.check_witness(&wrong).expect_err("another length");
        let message = e.to_string();
        assert_eq!(e.class(), "count_mismatch");
        assert!(message.contains(&n.to_string()) && message.contains(&key.n_vars.to_string()));
    }
}

/// p14: r and r + 1 are not reduced, neither in a witness nor as a public input.
#[test]
fn p14_values_from_r_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for curve in CurveId::ALL {
        let dir = chain14(curve);
        let vkey = json::read_verifying_key(&dir.join("verification_key.json")).expect("a key");
        let mut proof = json::read_proof(&dir.join("proof.json"), None).expect("a proof");
        let bytes = fs::read(dir.join("witness.wtns")).expect("a file");
        for plus in [0, 1] {
            let mut value = curve.fr_modulus_bytes();
            value[0] += plus;
            let mut patched = bytes.clone();
            let at = patched.len() - 32;
            patched[at..].copy_from_slice(&value);
            let path = folder.path().join("patched.wtns");
            fs::write(&path, patched).expect("written");
            let Err(Error::Input(e)) = wtns::read(&path) else {
                panic!("accepted r + {plus}");
            };
            assert_eq!((e.class, e.element), (InputClass::BadScalar, Some(16)));
            proof.public_inputs = vec![value];
            assert_eq!(class_of(verify(&vkey, &proof)), InputClass::BadScalar);
        }
    }
}

/// p20: keys with empty sections are read.
#[test]
fn p20_empty_sections() {
    for curve in ["bls12381", "bn254"] {
        let read = |name: &str| {
            ProvingKey::from_zkey(bundled().join(curve).join(name).join("circuit.zkey"))
                .expect("a key")
        };
        assert!(read("allpublic").l_query.len() < read("chain14").l_query.len());
        assert_eq!(read("nopublic").n_public, 0);
        let zero = read("zeroprivate");
        assert_eq!(
            zero.l_query.len(),
            (zero.n_vars - zero.n_public - 1) * zero.curve.g1_bytes()
        );
    }
}

/// p21: only domains whose coset exists.
#[test]
fn p21_domain_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = fs::read(chain14(CurveId::Bn254).join("circuit.zkey")).expect("a file");
    let at = bytes
        .windows(4)
        .position(|w| w == 16u32.to_le_bytes())
        .expect("the domain size");
    for wrong in [0u32, 1, 8, 15, 17, 32, 1 << 28, 1 << 31, u32::MAX] {
        let mut patched = bytes.clone();
        patched[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
        let path = folder.path().join("patched.zkey");
        fs::write(&path, patched).expect("written");
        assert_eq!(
            class_of(zkey::read(&path)),
            InputClass::BadSection,
            "{wrong}"
        );
    }
}

/// Starts of the sections of a container, and its end.
fn borders(bytes: &[u8]) -> Vec<usize> {
    let count = u32::from_le_bytes(bytes[8..12].try_into().expect("four"));
    let mut at = 12;
    let mut borders = vec![at];
    for _ in 0..count {
        let length = u64::from_le_bytes(bytes[at + 4..at + 12].try_into().expect("eight"));
        borders.push(at + 12);
        at += 12 + length as usize;
        borders.push(at);
    }
    borders
}

/// p30: cut at every section border and one byte round it.
#[test]
fn p30_cut_at_every_border() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = chain14(CurveId::Bls12_381);
    for name in ["circuit.zkey", "witness.wtns", "circuit.r1cs"] {
        let bytes = fs::read(dir.join(name)).expect("a file");
        for border in borders(&bytes) {
            for cut in [border - 1, border, border + 1] {
                if cut >= bytes.len() {
                    continue;
                }
                let path = folder.path().join(name);
                fs::write(&path, &bytes[..cut]).expect("written");
                let class = match name {
                    "circuit.zkey" => class_of(zkey::read(&path)),
                    "witness.wtns" => class_of(wtns::read(&path)),
                    _ => class_of(r1cs::read(&path)),
                };
                assert_eq!(class, InputClass::Truncated, "{name} cut at {cut}");
            }
        }
    }
}

/// p30: unknown section ids 0 and 2^32 - 1 are skipped; every single-byte change of the section
/// table and the headers gives a value or a typed error, never a panic.
#[test]
fn p30_ids_and_damaged_headers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("patched.zkey");
    let bytes = fs::read(chain14(CurveId::Bn254).join("circuit.zkey")).expect("a file");
    for id in [0u32, u32::MAX] {
        let mut extended = bytes.clone();
        extended[8] += 1;
        extended.extend_from_slice(&id.to_le_bytes());
        extended.extend_from_slice(&3u64.to_le_bytes());
        extended.extend_from_slice(b"abc");
        fs::write(&path, &extended).expect("written");
        zkey::read(&path).expect("unknown sections are skipped");
    }
    for at in borders(&bytes)
        .into_iter()
        .flat_map(|b| b.saturating_sub(2)..b + 14)
    {
        for value in [0u8, 1, 0x7f, 0x80, 0xff] {
            let mut patched = bytes.clone();
            if at < patched.len() {
                patched[at] = value;
            }
            fs::write(&path, &patched).expect("written");
            let _ = ProvingKey::from_zkey(&path);
        }
    }
}

/// p32: a key and a witness over different curves: the message names both.
#[test]
fn p32_curve_mismatch_names_both() {
    let key = ProvingKey::from_zkey(chain14(CurveId::Bn254).join("circuit.zkey")).expect("a key");
    let witness = wtns::read(&chain14(CurveId::Bls12_381).join("witness.wtns")).expect("a witness");
    let e = key.check_witness(&witness).expect_err("another curve");
    assert_eq!(e.class(), "curve_mismatch");
    let message = e.to_string();
    assert!(
        message.contains("bn254") && message.contains("bls12_381"),
        "{message}"
    );
}

/// p33: the depth of checks decides; the error names section, element and byte.
#[test]
fn p33_key_check_levels() {
    for curve in ["bls12381", "bn254"] {
        let dir = bundled().join("malformed").join(curve);
        let off = dir.join("zkey_sec9_not_on_curve.zkey");
        ProvingKey::from_zkey_checked(&off, KeyCheck::None).expect("not looked at");
        let Err(Error::Input(e)) = ProvingKey::from_zkey(&off) else {
            panic!("accepted a point off the curve");
        };
        assert_eq!((e.section, e.element), (Some(9), Some(3)));
        assert!(e.offset.is_some());
        let outside = dir.join("zkey_sec7_outside_subgroup.zkey");
        ProvingKey::from_zkey(&outside).expect("on the curve");
        let deep = ProvingKey::from_zkey_checked(&outside, KeyCheck::Subgroup);
        assert_eq!(class_of(deep), InputClass::InvalidPoint);
        let infinite = dir.join("zkey_delta1_infinity.zkey");
        let shallow = ProvingKey::from_zkey_checked(&infinite, KeyCheck::None);
        assert_eq!(class_of(shallow), InputClass::InvalidPoint);
    }
}

/// Conversions refuse the other curve.
#[test]
fn proof_conversion_checks_the_curve() {
    let proof =
        json::read_proof(&chain14(CurveId::Bn254).join("proof.json"), None).expect("a proof");
    assert!(proof.to_ark::<Bn254>().is_ok());
    assert_eq!(
        class_of(proof.to_ark::<Bls12381>()),
        InputClass::CurveMismatch
    );
}
