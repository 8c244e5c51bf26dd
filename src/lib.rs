//! Groth16 proofs over BLS12-381 and BN254 on any GPU.

pub mod bytes;
pub mod control;
pub mod cpu;
pub mod curve;
pub mod device;
pub mod domain;
pub mod error;
pub mod formats;
pub mod kernels;
pub mod proof;
pub mod prover;
pub mod proving_key;
pub mod qap;
pub mod report;
pub mod setup;
pub mod verify;
pub mod verifying_key;
pub mod witness;

pub use error::{Error, Result};
