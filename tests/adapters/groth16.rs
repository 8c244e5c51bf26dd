//! The fixture suite: every circuit of the corpus proves on every backend. With r and s fixed the
//! proof is the known answer, made by ark-groth16 or bellman, in every coordinate; a normal one
//! verifies under the fixture's own verification key, except on slow adapters, which are spared it.

use crate::circuits::number;
use crate::common::{self, TestDevice, ensure};
use crate::corpus::{self, Case};
use ark_serialize::CanonicalDeserialize;
use groth16_gpu::curve::GpuCurve;
use groth16_gpu::device::Device;
use groth16_gpu::formats::json::{read_proof, read_public, read_verifying_key};
use groth16_gpu::formats::r1cs::R1cs;
use groth16_gpu::proof::Proof;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::proving_key::ProvingKey;
use groth16_gpu::verify::verify;
use groth16_gpu::verifying_key::VerifyingKey;
use groth16_gpu::with_curve;
use groth16_gpu::witness::Witness;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What a fixture has.
struct Fixture {
    key: ProvingKey,
    witness: Witness,
    /// Proof with r = 3 and s = 5.
    known_answer: Proof,
    /// From a file of its own, not from the key.
    vk: VerifyingKey,
}

impl Fixture {
    fn load(case: &Case) -> Result<Self, Failed> {
        let file = |name: &str| case.folder().join(name);
        if file("circuit.zkey").is_file() {
            Self::snarkjs(&file)
        } else if file("ark_pk_compressed.bin").is_file() {
            Self::arkworks(&file)
        } else if file("mimc322.params").is_file() {
            Self::bellman(&file)
        } else {
            Err("a folder of no known kind".into())
        }
    }

    fn snarkjs(file: &dyn Fn(&str) -> PathBuf) -> Result<Self, Failed> {
        let key = ProvingKey::from_zkey(file("circuit.zkey"))?;
        let mut known_answer = read_proof(&file("proof_ark_r3s5.json"), Some(key.curve))?;
        known_answer.public_inputs = read_public(&file("public.json"), key.curve)?;
        Ok(Self {
            witness: Witness::from_wtns(file("witness.wtns"))?,
            vk: read_verifying_key(&file("verification_key.json"))?,
            key,
            known_answer,
        })
    }

    fn arkworks(file: &dyn Fn(&str) -> PathBuf) -> Result<Self, Failed> {
        let r1cs = R1cs::from_file(file("circuit.r1cs"))?;
        let key = ProvingKey::from_ark_file(file("ark_pk_compressed.bin"), &r1cs)?;
        let witness = Witness::from_wtns(file("witness.wtns"))?;
        let bytes = fs::read(file("ark_vk_compressed.bin"))?;
        let vk = with_curve!(key.curve, C => {
            type ArkKey = ark_groth16::VerifyingKey<<C as GpuCurve>::Pairing>;
            VerifyingKey::from_ark::<C>(&ArkKey::deserialize_compressed(&*bytes)?)
        });
        Ok(Self {
            known_answer: compressed_proof(
                &file("ark_proof_r3s5_compressed.bin"),
                &r1cs,
                &witness,
            )?,
            key,
            witness,
            vk,
        })
    }

    fn bellman(file: &dyn Fn(&str) -> PathBuf) -> Result<Self, Failed> {
        let r1cs = R1cs::from_file(file("mimc322.r1cs"))?;
        let key = ProvingKey::from_bellman(file("mimc322.params"), &r1cs)?;
        let witness = Witness::from_wtns(file("mimc322.wtns"))?;
        // Parameters begin with the verification key.
        let vk = fs::read(file("mimc322.vk"))?;
        let params = fs::read(file("mimc322.params"))?;
        ensure!(params.starts_with(&vk), "key and verification key differ");
        Ok(Self {
            known_answer: compressed_proof(&file("mimc322.r3s5.proof"), &r1cs, &witness)?,
            vk: key.verifying_key()?,
            key,
            witness,
        })
    }

    fn prove_on(&self, backend: &Backend) -> Result<(), Failed> {
        let prover = &backend.prover;
        let options = ProveOptions::default();
        let (r, s) = (number(3), number(5));
        let made = prover.prove_with_blinding(&self.key, &self.witness, &options, &r, &s)?;
        let (proof, report) = made;
        ensure!(
            report.backend == prover.device().backend(),
            "computed on {}",
            report.backend
        );
        let known = &self.known_answer;
        ensure!(proof.a == known.a, "A is not the known answer");
        ensure!(proof.b == known.b, "B is not the known answer");
        ensure!(proof.c == known.c, "C is not the known answer");
        ensure!(proof == *known, "public inputs");
        ensure!(report.self_verified, "not verified by itself");
        // What is left is of the host alone: the sums are the same.
        if backend.device.as_ref().is_some_and(TestDevice::is_slow) {
            return Ok(());
        }
        let (proof, report) = prover.prove(&self.key, &self.witness, &options)?;
        ensure!(report.self_verified, "not verified by itself");
        ensure!(proof.a != known.a, "r is not fresh");
        ensure!(
            verify(&self.vk, &proof)?,
            "does not verify under the fixture's verification key"
        );
        Ok(())
    }
}

/// A proof as arkworks and bellman write it; for BLS12-381 the forms are the same.
fn compressed_proof(path: &Path, r1cs: &R1cs, witness: &Witness) -> Result<Proof, Failed> {
    let bytes = fs::read(path)?;
    let (values, _) = witness.values.as_chunks();
    let mut proof = with_curve!(r1cs.curve, C => {
        type ArkProof = ark_groth16::Proof<<C as GpuCurve>::Pairing>;
        Proof::from_ark::<C>(&ArkProof::deserialize_compressed(&*bytes)?, &[])
    });
    proof.public_inputs = values[1..=r1cs.n_public()].to_vec();
    Ok(proof)
}

/// A backend's name in test ids with its prover, which all its tests share.
struct Backend {
    label: String,
    prover: Prover,
    device: Option<TestDevice>,
}

fn backends(devices: &[TestDevice]) -> Vec<Arc<Backend>> {
    let gpus = devices.iter().map(|d| Backend {
        label: d.label.clone(),
        prover: Prover::new(Device::Gpu(d.gpu.clone())),
        device: Some(d.clone()),
    });
    let cpu = Backend {
        label: "cpu".to_owned(),
        prover: Prover::new(Device::Cpu),
        device: None,
    };
    std::iter::once(cpu).chain(gpus).map(Arc::new).collect()
}

pub fn trials(devices: &[TestDevice]) -> Vec<Trial> {
    let backends = backends(devices);
    let mut trials = Vec::new();
    for case in corpus::cases("circuit") {
        assert!(case.expects("accept"), "{}", case.name());
        // `groth16/bn254/mul2`, `groth16/real/semaphore1`, …
        let name = format!("groth16/{}", case.text("dir"));
        let fixture = Arc::new((case, OnceLock::new()));
        for backend in &backends {
            let id = format!("{}/{name}", backend.label);
            let (fixture, backend) = (fixture.clone(), backend.clone());
            trials.push(common::trial(id, move || {
                let (case, loaded) = &*fixture;
                let loaded: &Result<Fixture, String> =
                    loaded.get_or_init(|| Fixture::load(case).map_err(|e| message(&e)));
                if let Some(device) = &backend.device {
                    device.prepare();
                }
                loaded.as_ref()?.prove_on(&backend)
            }));
        }
        for label in common::missing(devices) {
            trials.push(common::ignored(format!("{label}/{name}")));
        }
    }
    trials
}

fn message(e: &Failed) -> String {
    e.message().unwrap_or("without a message").to_owned()
}
