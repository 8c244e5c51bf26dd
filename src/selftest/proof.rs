//! A small proof from witness to points.

use super::{Prepared, Size, check, ensure};
use crate::curve::GpuCurve;
use crate::device::Device;
use crate::formats::r1cs::{R1cs, R1csMatrix};
use crate::prover::{ProveOptions, Prover};
use crate::proving_key::QapReduction;
use crate::setup::setup_from_seed;
use crate::witness::Witness;
use ark_ff::{BigInteger, One, PrimeField};

fn canonical<F: PrimeField>(x: &F) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&x.into_bigint().to_bytes_le());
    bytes
}

/// A chain x ← x·(x + 1) + i, its end and one wire in no constraint being public.
///
/// That wire has the point at infinity in every query (p07). Values start at 0 and 1, as most of a
/// real witness's are, and soon fill the field.
fn chain<C: GpuCurve>(n_constraints: usize) -> (R1cs, Witness) {
    let one = canonical(&C::Fr::one());
    // Wires: 1, the end, the unused input, the start, then one a step.
    let mut values = vec![C::Fr::one(), C::Fr::one(), C::Fr::from(9u64), C::Fr::one()];
    let [mut a, mut b, mut c] = [(); 3].map(|()| R1csMatrix::new());
    let mut x = 3u32;
    for i in 0..n_constraints {
        let start = values[x as usize];
        let value = start * (start + C::Fr::one()) + C::Fr::from(i as u64);
        let y = if i + 1 == n_constraints {
            values[1] = value;
            1
        } else {
            values.push(value);
            values.len() as u32 - 1
        };
        a.push(x, one);
        b.push(x, one);
        b.push(0, one);
        c.push(y, one);
        c.push(0, canonical(&-C::Fr::from(i as u64)));
        for matrix in [&mut a, &mut b, &mut c] {
            matrix.end_row();
        }
        x = y;
    }
    let r1cs = R1cs {
        curve: C::ID,
        source: None,
        n_wires: values.len(),
        n_pub_out: 1,
        n_pub_in: 1,
        n_prv_in: 1,
        n_constraints,
        a,
        b,
        c,
    };
    let bytes: Vec<u8> = values.iter().flat_map(canonical).collect();
    let witness = Witness {
        curve: C::ID,
        values: bytes.into(),
    };
    (r1cs, witness)
}

/// The same proof, r and s fixed, from the device and from the CPU, which verifies it.
fn prove<C: GpuCurve>(size: Size, reduction: QapReduction) -> Prepared {
    let (r1cs, witness) = chain::<C>(size.pick(20, 1500));
    let key = setup_from_seed(&r1cs, reduction, 8).map_err(|e| e.to_string())?;
    let prove = move |device: Device, self_verify: bool| {
        let options = ProveOptions {
            self_verify,
            ..ProveOptions::default()
        };
        let blinding = [[3; 32], [5; 32]];
        let [r, s] = &blinding;
        let made = Prover::new(device).prove_with_blinding(&key, &witness, &options, r, s);
        made.map(|(proof, _)| proof)
    };
    let expected = prove(Device::Cpu, true).map_err(|e| e.to_string())?;
    check(move |gpu| {
        let got = prove(Device::Gpu(gpu.clone()), false)?;
        for (name, got, expected) in [
            ("A", &got.a, &expected.a),
            ("B", &got.b, &expected.b),
            ("C", &got.c, &expected.c),
        ] {
            ensure!(got == expected, "point {name} of the proof is wrong");
        }
        Ok(())
    })
}

pub(super) fn circom<C: GpuCurve>(size: Size) -> Prepared {
    prove::<C>(size, QapReduction::Circom)
}

pub(super) fn libsnark<C: GpuCurve>(size: Size) -> Prepared {
    prove::<C>(size, QapReduction::Libsnark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{Bls12381, Bn254};

    #[test]
    fn the_chain_is_satisfied() {
        for n in [1, 2, 20] {
            let (r1cs, witness) = chain::<Bn254>(n);
            assert_eq!(r1cs.first_unsatisfied(&witness).unwrap(), None);
            let (r1cs, witness) = chain::<Bls12381>(n);
            assert_eq!(r1cs.first_unsatisfied(&witness).unwrap(), None);
        }
    }
}
