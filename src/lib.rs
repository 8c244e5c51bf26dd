//! Groth16 proofs over BLS12-381 and BN254 on any GPU.

pub mod bytes;
pub mod control;
pub mod cpu;
pub mod curve;
pub mod device;
pub mod domain;
pub mod error;
pub mod example;
pub mod formats;
pub mod gpu_proof;
pub mod kernels;
pub mod msm;
pub mod ntt;
pub mod proof;
pub mod prover;
pub mod proving_key;
pub mod qap;
pub mod report;
pub mod row_product;
pub mod scan;
pub mod selftest;
pub mod setup;
pub mod verify;
pub mod verifying_key;
pub mod witness;

#[cfg(test)]
#[allow(dead_code)]
mod shader_compose;

pub use error::{Error, Result};
