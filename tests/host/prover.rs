//! The prover on the CPU path: against ark-groth16, over keys of our own setup, and its options.

use crate::circuits::{canonical, chain, number, with_value, witness_of};
use crate::corpus;
use ark_ff::{BigInteger, PrimeField, UniformRand};
use ark_groth16::Groth16;
use ark_groth16::r1cs_to_qap::LibsnarkReduction;
use ark_relations::gr1cs::{
    ConstraintSynthesizer, ConstraintSystem, ConstraintSystemRef, LinearCombination,
    SynthesisError, Variable,
};
use ark_std::rand::{Rng, SeedableRng, rngs::StdRng};
use groth16_gpu::control::CancelToken;
use groth16_gpu::curve::{Bls12381, Bn254, CurveId, GpuCurve};
use groth16_gpu::device::Device;
use groth16_gpu::example::merkle_membership;
use groth16_gpu::formats::r1cs::{R1cs, R1csMatrix};
use groth16_gpu::proof::Proof;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::proving_key::{ProvingKey, QapReduction};
use groth16_gpu::report::ProofReport;
use groth16_gpu::setup::{setup_insecure, setup_insecure_as};
use groth16_gpu::verify::verify;
use groth16_gpu::with_curve;
use groth16_gpu::witness::Witness;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn prove(key: &ProvingKey, witness: &Witness) -> groth16_gpu::Result<(Proof, ProofReport)> {
    Prover::new(Device::Cpu).prove(key, witness, &ProveOptions::default())
}

/// With r = 3 and s = 5, as the corpus has it.
fn prove_r3s5(key: &ProvingKey, witness: &Witness) -> Proof {
    Prover::new(Device::Cpu)
        .prove_with_blinding(
            key,
            witness,
            &ProveOptions::default(),
            &number(3),
            &number(5),
        )
        .expect("a proof")
        .0
}

fn matrix<F: PrimeField>(rows: &[Vec<(F, usize)>]) -> R1csMatrix {
    let mut out = R1csMatrix::new();
    for row in rows {
        for (x, wire) in row {
            out.push(*wire as u32, canonical(x));
        }
        out.end_row();
    }
    out
}

/// A random satisfiable system: every constraint multiplies two random combinations of earlier
/// variables into a new one.
#[derive(Clone)]
struct RandomCircuit<F> {
    inputs: Vec<F>,
    n_constraints: usize,
    seed: u64,
}

impl<F: PrimeField> ConstraintSynthesizer<F> for RandomCircuit<F> {
    fn generate_constraints(self, cs: ConstraintSystemRef<F>) -> Result<(), SynthesisError> {
        let rng = &mut StdRng::seed_from_u64(self.seed);
        let mut wires = vec![(Variable::One, F::one())];
        for x in &self.inputs {
            wires.push((cs.new_input_variable(|| Ok(*x))?, *x));
        }
        let secret = F::rand(rng);
        wires.push((cs.new_witness_variable(|| Ok(secret))?, secret));
        for _ in 0..self.n_constraints {
            let combination = |rng: &mut StdRng| {
                let mut lc = LinearCombination::<F>::zero();
                let mut value = F::zero();
                for _ in 0..rng.gen_range(1..4) {
                    let (variable, x) = wires[rng.gen_range(0..wires.len())];
                    let c = if rng.gen_bool(0.5) {
                        F::one()
                    } else {
                        F::rand(rng)
                    };
                    lc += (c, variable);
                    value += c * x;
                }
                (lc, value)
            };
            let ((a, x), (b, y)) = (combination(rng), combination(rng));
            let product = x * y;
            let wire = cs.new_witness_variable(|| Ok(product))?;
            wires.push((wire, product));
            cs.enforce_r1cs_constraint(|| a, || b, || LinearCombination::from(wire))?;
        }
        Ok(())
    }
}

/// Proofs over keys of ark-groth16's own setup equal ark-groth16's at the same r and s.
fn against_ark_groth16<C: GpuCurve>() {
    let rng = &mut StdRng::seed_from_u64(7);
    // The domain is filled exactly at 13 constraints + 3 inputs.
    for (n_inputs, n_constraints) in [(0, 1), (1, 1), (2, 13), (2, 14), (5, 100), (0, 700)] {
        let circuit = RandomCircuit::<C::Fr> {
            inputs: (0..n_inputs).map(|_| C::Fr::rand(rng)).collect(),
            n_constraints,
            seed: n_constraints as u64,
        };
        type Ark<C> = Groth16<<C as GpuCurve>::Pairing, LibsnarkReduction>;
        let pk = Ark::<C>::generate_random_parameters_with_reduction(circuit.clone(), rng)
            .expect("parameters");
        let cs = ConstraintSystem::<C::Fr>::new_ref();
        circuit.clone().generate_constraints(cs.clone()).unwrap();
        cs.finalize();
        let rows = &cs.to_matrices().unwrap()["R1CS"];
        let r1cs = R1cs {
            curve: C::ID,
            source: None,
            n_wires: cs.num_variables(),
            n_pub_out: 0,
            n_pub_in: n_inputs,
            n_prv_in: cs.num_witness_variables(),
            n_constraints: rows[0].len(),
            a: matrix(&rows[0]),
            b: matrix(&rows[1]),
            c: matrix(&rows[2]),
        };
        let key = ProvingKey::from_ark::<C>(&pk, &r1cs).unwrap();
        let assignment = [
            cs.instance_assignment().unwrap(),
            cs.witness_assignment().unwrap(),
        ]
        .concat();
        let proof = prove_r3s5(&key, &witness_of::<C>(&assignment));
        let (r, s) = (C::Fr::from(3u64), C::Fr::from(5u64));
        let expected = Ark::<C>::create_proof_with_reduction(circuit, &pk, r, s).unwrap();
        let expected = Proof::from_ark::<C>(&expected, &assignment[1..=n_inputs]);
        assert_eq!(
            proof, expected,
            "{n_inputs} inputs, {n_constraints} constraints"
        );
    }
}

#[test]
fn ark_groth16_coordinate_by_coordinate() {
    against_ark_groth16::<Bls12381>();
    against_ark_groth16::<Bn254>();
}

fn prove_after_setup(r1cs: &R1cs, witness: &Witness) {
    assert_eq!(r1cs.first_unsatisfied(witness).unwrap(), None);
    for reduction in [QapReduction::Circom, QapReduction::Libsnark] {
        let key = setup_insecure_as(r1cs, reduction).unwrap();
        let (proof, report) = prove(&key, witness).unwrap();
        assert!(report.self_verified);
        let mut other = proof.clone();
        if let Some(x) = other.public_inputs.last_mut() {
            x[0] ^= 1;
            assert!(!verify(&key.verifying_key().unwrap(), &other).unwrap());
        }
    }
}

/// p20: no constraint, one, no public wire, none private; p21: domains filled exactly and not.
fn odd_circuits<C: GpuCurve>() {
    for (n_constraints, n_public, n_private, domain) in [
        (0, 0, 0, 2),
        (0, 1, 0, 2),
        (0, 4, 0, 8),
        (0, 0, 3, 2),
        (1, 0, 1, 2),
        (1, 1, 1, 4),
        (1, 9, 0, 16),
        (14, 1, 2, 16),
        (15, 0, 1, 16),
        (15, 1, 2, 32),
        (16, 1, 2, 32),
        (255, 0, 1, 256),
        (256, 0, 1, 512),
    ] {
        let (r1cs, witness) = chain::<C>(n_constraints, n_public, n_private);
        let key = setup_insecure(&r1cs).unwrap();
        assert_eq!(key.domain_size, domain, "{n_constraints} + {n_public}");
        prove_after_setup(&r1cs, &witness);
    }
}

#[test]
fn p20_p21_setup_and_prove_odd_circuits() {
    odd_circuits::<Bls12381>();
    odd_circuits::<Bn254>();
}

/// Keys of our setup prove the corpus' circuits, with the sizes that snarkjs' keys have, also
/// after a round through snarkjs' file format.
#[test]
fn setup_proves_the_corpus_and_survives_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for case in corpus::cases("circuit") {
        let r1cs = case.folder().join("circuit.r1cs");
        if !r1cs.is_file() {
            continue;
        }
        let r1cs = R1cs::from_file(r1cs).unwrap();
        let witness = Witness::from_wtns(case.folder().join("witness.wtns")).unwrap();
        let key = setup_insecure(&r1cs).unwrap();
        let path = folder.path().join("key.zkey");
        groth16_gpu::formats::zkey::write(&key, &path, true).unwrap();
        let read = ProvingKey::from_zkey(&path).unwrap();
        assert_eq!(prove_r3s5(&read, &witness), prove_r3s5(&key, &witness));
        if let Ok(zkey) = ProvingKey::from_zkey(case.folder().join("circuit.zkey")) {
            assert_eq!(key.domain_size, zkey.domain_size, "{}", case.name());
            assert_eq!(key.n_public, zkey.n_public);
        }
    }
}

#[test]
fn the_example_proves() {
    for curve in CurveId::ALL {
        let (r1cs, witness) = with_curve!(curve, C => merkle_membership::<C>(6, 45));
        prove_after_setup(&r1cs, &witness);
    }
}

/// p13, p32, p14, p15: what does not belong together or does not hold is refused.
#[test]
fn p13_p14_p15_p32_wrong_witnesses_are_refused() {
    let (r1cs, witness) = chain::<Bn254>(9, 1, 2);
    let key = setup_insecure(&r1cs).unwrap();
    let class = |witness: &Witness| prove(&key, witness).unwrap_err();
    for length in [witness.len() - 1, witness.len() + 1] {
        let mut values = witness.values.to_vec();
        values.resize(32 * length, 0);
        let error = class(&Witness {
            curve: witness.curve,
            values: values.into(),
        });
        assert_eq!((error.class(), error.exit_code()), ("count_mismatch", 4));
        let text = error.to_string();
        assert!(text.contains(&length.to_string()) && text.contains(&key.n_vars.to_string()));
    }
    let other = Witness {
        curve: CurveId::Bls12_381,
        values: witness.values.clone(),
    };
    assert_eq!(class(&other).class(), "curve_mismatch");

    let mut modulus = number(0);
    modulus.copy_from_slice(&ark_bn254::Fr::MODULUS.to_bytes_le());
    let error = class(&with_value(&witness, 3, modulus));
    assert_eq!(error.class(), "bad_scalar");

    for wire in 0..witness.len() {
        let error = class(&with_value(&witness, wire, number(77)));
        assert_eq!((error.class(), error.exit_code()), ("unsatisfied", 1));
        assert!(error.to_string().contains("witness"));
    }
}

#[test]
fn progress_cancellation_and_report() {
    let (r1cs, witness) = chain::<Bn254>(30, 1, 2);
    let key = setup_insecure(&r1cs).unwrap();
    let prover = Prover::new(Device::Cpu);

    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let mut options = ProveOptions::default();
    options.progress = Some(Arc::new(move |name: &str, done| {
        seen.lock().unwrap().push((name.to_owned(), done));
    }));
    let (_, report) = prover.prove(&key, &witness, &options).unwrap();
    let steps = steps.lock().unwrap();
    assert!(steps.is_sorted_by(|a, b| a.1 < b.1) && steps.last().unwrap().1 == 1.0);

    let sum: f64 = report.phases.iter().map(|p| p.wall_ms).sum();
    assert!((sum - report.wall_ms).abs() < 1e-6);
    assert!(report.phases.iter().all(|p| p.backend == "cpu"));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["backend"], "cpu");
    assert_eq!(json["domain_size"], 32);

    let token = CancelToken::new();
    let mut options = ProveOptions::default();
    options.cancel = Some(token.clone());
    token.cancel();
    let error = prover.prove(&key, &witness, &options).unwrap_err();
    assert_eq!(error.class(), "cancelled");

    let mut options = ProveOptions::default();
    options.deadline = Some(Instant::now());
    let error = prover.prove(&key, &witness, &options).unwrap_err();
    assert_eq!(error.class(), "timeout");
    options.deadline = Some(Instant::now() + Duration::from_secs(600));
    prover.prove(&key, &witness, &options).unwrap();

    let mut options = ProveOptions::default();
    options.self_verify = false;
    let wrong = with_value(&witness, 4, number(1));
    let (proof, report) = prover.prove(&key, &wrong, &options).unwrap();
    assert!(!report.self_verified);
    assert!(!verify(&key.verifying_key().unwrap(), &proof).unwrap());
}

/// A key without IC points proves when it need not verify.
#[test]
fn keys_without_ic_points() {
    let (r1cs, witness) = chain::<Bn254>(3, 1, 1);
    let mut key = setup_insecure(&r1cs).unwrap();
    let vk = key.verifying_key().unwrap();
    key.ic = None;
    assert_eq!(
        prove(&key, &witness).unwrap_err().class(),
        "missing_section"
    );
    let mut options = ProveOptions::default();
    options.self_verify = false;
    let proof = Prover::new(Device::Cpu)
        .prove(&key, &witness, &options)
        .unwrap()
        .0;
    assert!(verify(&vk, &proof).unwrap());
}
