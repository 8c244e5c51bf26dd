//! Small circuits made in code, shared by the integration tests.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use ark_ff::{BigInteger, One, PrimeField, UniformRand};
use groth16_gpu::curve::GpuCurve;
use groth16_gpu::formats::r1cs::{R1cs, R1csMatrix};
use groth16_gpu::witness::Witness;
use rand::SeedableRng;
use rand::rngs::StdRng;

pub fn number(n: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = n;
    bytes
}

pub fn witness_of<C: GpuCurve>(values: &[C::Fr]) -> Witness {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|x| x.into_bigint().to_bytes_le())
        .collect();
    Witness {
        curve: C::ID,
        values: bytes.into(),
    }
}

pub fn with_value(witness: &Witness, wire: usize, value: [u8; 32]) -> Witness {
    let mut values = witness.values.to_vec();
    values[32 * wire..32 * (wire + 1)].copy_from_slice(&value);
    Witness {
        curve: witness.curve,
        values: values.into(),
    }
}

pub fn canonical<F: PrimeField>(x: &F) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&x.into_bigint().to_bytes_le());
    bytes
}

/// Steps x·(x + 1) + i over `n_public` public and some private wires, which are 3.
pub fn chain<C: GpuCurve>(
    n_constraints: usize,
    n_public: usize,
    n_private: usize,
) -> (R1cs, Witness) {
    let start = vec![C::Fr::from(3u64); n_public + n_private];
    chain_from::<C>(n_constraints, n_public, &start)
}

/// As [`chain`], over random values: every digit of the scalars counts.
pub fn random_chain<C: GpuCurve>(
    n_constraints: usize,
    n_public: usize,
    n_private: usize,
) -> (R1cs, Witness) {
    let rng = &mut StdRng::seed_from_u64(n_constraints as u64);
    let start: Vec<_> = (0..n_public + n_private)
        .map(|_| C::Fr::rand(rng))
        .collect();
    chain_from::<C>(n_constraints, n_public, &start)
}

/// As [`chain`], from these values.
pub fn chain_from<C: GpuCurve>(
    n_constraints: usize,
    n_public: usize,
    start: &[C::Fr],
) -> (R1cs, Witness) {
    let one = canonical(&C::Fr::one());
    let n_wires = 1 + start.len();
    let mut values = [&[C::Fr::one()], start].concat();
    let [mut a, mut b, mut c] = [(); 3].map(|()| R1csMatrix::new());
    for i in 0..n_constraints {
        // x·(x + 1) = y − i, x taking turns among the start values.
        let x = n_wires - 1 - i % n_wires.max(2).saturating_sub(1);
        let y = values.len() as u32;
        let value = values[x] * (values[x] + C::Fr::one()) + C::Fr::from(i as u64);
        values.push(value);
        a.push(x as u32, one);
        b.push(x as u32, one);
        b.push(0, one);
        c.push(y, one);
        c.push(0, canonical(&-C::Fr::from(i as u64)));
        a.end_row();
        b.end_row();
        c.end_row();
    }
    let r1cs = R1cs {
        curve: C::ID,
        source: None,
        n_wires: values.len(),
        n_pub_out: 0,
        n_pub_in: n_public,
        n_prv_in: start.len() - n_public,
        n_constraints,
        a,
        b,
        c,
    };
    (r1cs, witness_of::<C>(&values))
}
