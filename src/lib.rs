//! Groth16 proofs over BLS12-381 and BN254 on any GPU.
//!
//! ```
//! use groth16_gpu::{Device, DeviceSelector, ProveOptions, Prover, ProvingKey, Witness};
//! use groth16_gpu::{formats::json, verify::verify};
//!
//! # fn main() -> groth16_gpu::Result<()> {
//! # std::env::set_current_dir("tests/fixtures/bn254/chain14").expect("the bundled circuit");
//! let device = Device::open(&DeviceSelector::Auto)?; // or Device::list()
//! let prover = Prover::new(device);
//! let key = prover.load_key(ProvingKey::from_zkey("circuit.zkey")?)?;
//! let witness = Witness::from_wtns("witness.wtns")?;
//!
//! let (proof, report) = prover.prove(&key, &witness, &ProveOptions::default())?;
//! assert!(verify(&key.verifying_key()?, &proof)?); // `prove` has done so already
//! println!("{} ms on {}", report.wall_ms, report.device);
//! println!("{}", json::proof_to_json(&proof)?);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Prover`] may be shared between threads. Keys of arkworks, bellman and bellperson load with
//! [`ProvingKey::from_ark`], [`ProvingKey::from_ark_file`] and [`ProvingKey::from_bellman`], which
//! take the circuit too, since such keys do not hold its matrices. [`proof::Proof`] converts to and
//! from `ark_groth16::Proof`. The primitives are public on their own: [`ntt`] and [`msm`] as plans
//! for a device, [`cpu`] natively.

mod adapter_file;
mod batch;
pub mod bytes;
mod checked_keys;
pub mod control;
pub mod cpu;
pub mod curve;
pub mod device;
pub mod domain;
pub mod error;
pub mod example;
pub mod first_use;
pub mod formats;
pub mod gpu_proof;
pub mod host;
pub mod kernels;
pub mod key_layout;
mod key_tables;
mod lane;
pub mod matrix;
pub mod msm;
pub mod ntt;
pub mod parts;
pub mod proof;
pub mod proof_kernels;
pub mod proof_plan;
pub mod prover;
pub mod proving_key;
pub mod qap;
mod quotient;
pub mod report;
pub mod row_product;
pub mod scan;
pub mod selftest;
pub mod setup;
pub mod synthetic;
pub mod trace;
pub mod tuning;
pub mod verify;
pub mod verifying_key;
pub mod witness;

#[cfg(test)]
#[allow(dead_code)]
mod shader_compose;

pub use device::{Device, DeviceOptions, DeviceSelector};
pub use error::{Error, Result};
pub use proof::Proof;
pub use prover::{ProveOptions, Prover, ProverOptions};
pub use proving_key::ProvingKey;
pub use report::ProofReport;
pub use trace::Trace;
pub use verifying_key::VerifyingKey;
pub use witness::Witness;
