//! Keys of ark-groth16, bellman and bellperson: proofs made with them are those of their own provers.

use crate::corpus::{bundled, cases};
use ark_ec::pairing::Pairing;
use ark_ec::{CurveGroup, VariableBaseMSM};
use ark_ff::{FftField, Field, PrimeField, Zero};
use ark_poly::{EvaluationDomain, GeneralEvaluationDomain};
use ark_serialize::CanonicalDeserialize;
use groth16_gpu::curve::{Bls12381, CurveId, GpuCurve};
use groth16_gpu::error::{Error, InputClass, Result};
use groth16_gpu::formats::{self, r1cs, wtns};
use groth16_gpu::proving_key::{KeyCheck, Matrix, ProvingKey, g1_from_raw, g2_from_raw};
use groth16_gpu::with_curve;
use groth16_gpu::witness::Witness;
use std::fs;

fn class_of<T: std::fmt::Debug>(result: Result<T>) -> InputClass {
    match result {
        Err(Error::Input(e)) => e.class,
        other => panic!("expected an input error, got {other:?}"),
    }
}

/// Keys of the libsnark reduction are not bundled.
fn shared_or_note(what: &str) -> Option<std::path::PathBuf> {
    let root = crate::corpus::shared();
    if root.is_none() {
        eprintln!("no ../shared/fixtures beside the checkout: {what} not tested");
    }
    root
}

/// Proves naively on the CPU with the given r and s: every query, both matrices and the order of
/// the wires must be right for the result to be what the key's own prover gave.
fn prove_libsnark<C: GpuCurve>(
    key: &ProvingKey,
    witness: &Witness,
    r: u64,
    s: u64,
) -> ark_groth16::Proof<C::Pairing> {
    let w: Vec<C::Fr> = (0..witness.len())
        .map(|i| C::Fr::from_le_bytes_mod_order(witness.value(i)))
        .collect();
    let domain = GeneralEvaluationDomain::<C::Fr>::new(key.domain_size).expect("a domain");
    let r_inverse = C::Fr::from(2u64).pow([512]).inverse().expect("not zero");
    let product = |m: &Matrix| {
        let mut out = vec![C::Fr::zero(); key.domain_size];
        for (row, out) in out.iter_mut().enumerate().take(m.rows()) {
            for (wire, coefficient) in m.row(row).map(|i| m.entry(i)) {
                let value = C::Fr::from_le_bytes_mod_order(coefficient) * r_inverse;
                *out += value * w[wire as usize];
            }
        }
        out
    };
    let (a, b) = (product(&key.a), product(&key.b));
    let c: Vec<_> = a.iter().zip(&b).map(|(a, b)| *a * b).collect();
    let coset = domain.get_coset(C::Fr::GENERATOR).expect("a coset");
    let on_coset = |v: &[C::Fr]| coset.fft(&domain.ifft(v));
    let (a, b, c) = (on_coset(&a), on_coset(&b), on_coset(&c));
    let z_inverse = domain
        .evaluate_vanishing_polynomial(C::Fr::GENERATOR)
        .inverse()
        .expect("not zero");
    let quotient: Vec<_> = (0..a.len())
        .map(|i| (a[i] * b[i] - c[i]) * z_inverse)
        .collect();
    let h = coset.ifft(&quotient);

    let one_g1 = |b: &[u8]| g1_from_raw::<C>(b).expect("canonical");
    let one_g2 = |b: &[u8]| g2_from_raw::<C>(b).expect("canonical");
    let g1s = |b: &[u8]| b.chunks(C::ID.g1_bytes()).map(one_g1).collect::<Vec<_>>();
    let g2s = |b: &[u8]| b.chunks(C::ID.g2_bytes()).map(one_g2).collect::<Vec<_>>();
    let msm = |b: &[u8], s: &[C::Fr]| {
        let bases = g1s(b);
        <C::Pairing as Pairing>::G1::msm_unchecked(&bases, &s[..bases.len()])
    };
    let (r, s) = (C::Fr::from(r), C::Fr::from(s));
    let delta = one_g1(&key.delta_g1);
    let a = msm(&key.a_query, &w) + one_g1(&key.alpha_g1) + delta * r;
    let b1 = msm(&key.b_g1_query, &w) + one_g1(&key.beta_g1) + delta * s;
    let b2 = <C::Pairing as Pairing>::G2::msm_unchecked(&g2s(&key.b_g2_query), &w)
        + one_g2(&key.beta_g2)
        + one_g2(&key.delta_g2) * s;
    let c = msm(&key.l_query, &w[key.n_public + 1..]) + msm(&key.h_query, &h) + a * s + b1 * r
        - delta * (r * s);
    ark_groth16::Proof {
        a: a.into_affine(),
        b: b2.into_affine(),
        c: c.into_affine(),
    }
}

/// p31: arkworks keys, compressed and not, prove what ark-groth16 proves.
#[test]
fn p31_arkworks_keys() {
    let Some(root) = shared_or_note("arkworks keys") else {
        return;
    };
    for curve in CurveId::ALL {
        let name = match curve {
            CurveId::Bls12_381 => "bls12381_poseidon2",
            CurveId::Bn254 => "bn254_poseidon2",
        };
        let dir = root.join("ark").join(name);
        let circuit = r1cs::read(&dir.join("circuit.r1cs")).expect("a circuit");
        let witness = wtns::read(&dir.join("witness.wtns")).expect("a witness");
        with_curve!(curve, C => {
            let read = |file: &str| fs::read(dir.join(file)).expect("a file");
            let golden = ark_groth16::Proof::<<C as GpuCurve>::Pairing>::deserialize_compressed(
                &read("ark_proof_r3s5_compressed.bin")[..]).expect("a proof");
            let native = ark_groth16::ProvingKey::<<C as GpuCurve>::Pairing>::deserialize_compressed(
                &read("ark_pk_compressed.bin")[..]).expect("a key");
            let converted = ProvingKey::from_ark::<C>(&native, &circuit).expect("a key");
            for file in ["ark_pk_compressed.bin", "ark_pk_uncompressed.bin"] {
                let path = dir.join(file);
                let key = formats::read_proving_key(&path, Some(&circuit), KeyCheck::Subgroup)
                    .expect("a key");
                assert_eq!(*key.h_query, *converted.h_query);
                assert_eq!(*key.b_g2_query, *converted.b_g2_query);
                assert_eq!(prove_libsnark::<C>(&key, &witness, 3, 5), golden, "{name} {file}");
                // p30: a missing byte, a byte too many, and a count beyond the file.
                let bytes = read(file);
                let folder = tempfile::tempdir().expect("a folder");
                let patched = folder.path().join(file);
                let class = |bytes: &[u8]| {
                    fs::write(&patched, bytes).expect("written");
                    class_of(ProvingKey::from_ark_file(&patched, &circuit))
                };
                assert_eq!(class(&bytes[..bytes.len() - 1]), InputClass::Truncated);
                assert_eq!(class(&[&bytes[..], &[0]].concat()), InputClass::BadSection);
                assert_eq!(class(&[]), InputClass::Truncated);
            }
        });
        let other = r1cs::read(&bundled().join("bn254/chain14/circuit.r1cs")).expect("a circuit");
        if curve == CurveId::Bn254 {
            let mixed = ProvingKey::from_ark_file(dir.join("ark_pk_compressed.bin"), &other);
            assert_eq!(class_of(mixed), InputClass::CountMismatch);
        }
    }
}

/// p31: bellman parameters prove what bellman proves.
#[test]
fn p31_bellman_parameters() {
    let Some(root) = shared_or_note("bellman parameters") else {
        return;
    };
    let dir = root.join("bellman/mimc322");
    let circuit = r1cs::read(&dir.join("mimc322.r1cs")).expect("a circuit");
    let witness = wtns::read(&dir.join("mimc322.wtns")).expect("a witness");
    let path = dir.join("mimc322.params");
    let key = formats::read_proving_key(&path, Some(&circuit), KeyCheck::Subgroup).expect("a key");
    for (r, s) in [(0, 0), (3, 5)] {
        let bytes = fs::read(dir.join(format!("mimc322.r{r}s{s}.proof"))).expect("a file");
        let golden = ark_groth16::Proof::deserialize_compressed(&bytes[..]).expect("a proof");
        assert_eq!(
            prove_libsnark::<Bls12381>(&key, &witness, r, s),
            golden,
            "r = {r}, s = {s}"
        );
    }
    for case in cases("bellman_params") {
        let class = class_of(ProvingKey::from_bellman(case.file(), &circuit));
        assert_eq!(class.name(), case.text("error_class"), "{}", case.name());
    }
}
