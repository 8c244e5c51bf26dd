//! Groth16 proofs over BLS12-381 and BN254 on any GPU.

pub mod bytes;
pub mod curve;
pub mod device;
pub mod domain;
pub mod error;
pub mod gpu_proof;
pub mod kernels;
pub mod msm;
pub mod ntt;
pub mod proof;
pub mod proving_key;
pub mod row_product;
pub mod scan;
pub mod witness;

#[cfg(test)]
#[allow(dead_code)]
mod shader_compose;

pub use error::{Error, Result};
