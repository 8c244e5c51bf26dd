//! Circuits of any size, shaped like real ones: for benches where no circuit can be downloaded.

use crate::curve::GpuCurve;
use crate::formats::r1cs::{R1cs, R1csMatrix};
use crate::witness::Witness;
use ark_ff::{BigInteger, One, PrimeField, UniformRand, Zero};
use rand::{Rng, SeedableRng, rngs::StdRng};

fn push<F: PrimeField>(m: &mut R1csMatrix, entries: &[(usize, F)]) {
    for (wire, value) in entries {
        m.columns.push(*wire as u32);
        let mut bytes = [0; 32];
        let le = value.into_bigint().to_bytes_le();
        bytes[..le.len()].copy_from_slice(&le);
        m.values.push(bytes);
    }
    m.row_starts.push(m.columns.len() as u32);
}

/// A satisfiable circuit of `constraints` rows with one public input, and its witness.
///
/// A share `bits` (0 to 1) of the rows are b·(b − 1) = 0 over random bits, as range checks and
/// hashes over bits have them; the others multiply sums of two earlier wires, with wide values.
pub fn circuit<C: GpuCurve>(constraints: usize, bits: f64, seed: u64) -> (R1cs, Witness) {
    let mut rng = StdRng::seed_from_u64(seed);
    let one = C::Fr::one();
    // Wire 0 is the constant, wire 1 the public input; each row adds a wire.
    let mut wires = vec![one, C::Fr::rand(&mut rng)];
    let (mut a, mut b, mut c) = (R1csMatrix::new(), R1csMatrix::new(), R1csMatrix::new());
    let mut wide = 1usize;
    for _ in 0..constraints {
        let new = wires.len();
        if rng.gen_bool(bits) {
            let bit = rng.gen_bool(0.5);
            push(&mut a, &[(new, one)]);
            push(&mut b, &[(0, -one), (new, one)]);
            push::<C::Fr>(&mut c, &[]);
            wires.push(if bit { one } else { C::Fr::zero() });
        } else {
            // The last wide wire keeps values wide; the other is any earlier one.
            let other = rng.gen_range(0..new);
            let k = C::Fr::from(rng.r#gen::<u64>());
            push(&mut a, &[(wide, one), (other, k)]);
            push(&mut b, &[(0, one), (wide, one)]);
            push(&mut c, &[(new, one)]);
            wires.push((wires[wide] + k * wires[other]) * (one + wires[wide]));
            wide = new;
        }
    }
    let mut values = Vec::with_capacity(32 * wires.len());
    for w in &wires {
        values.extend_from_slice(&w.into_bigint().to_bytes_le());
    }
    let circuit = R1cs {
        curve: C::ID,
        source: None,
        n_wires: wires.len(),
        n_pub_out: 0,
        n_pub_in: 1,
        n_prv_in: 0,
        n_constraints: constraints,
        a,
        b,
        c,
    };
    let witness = Witness {
        curve: C::ID,
        values: values.into(),
    };
    (circuit, witness)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{Bls12381, Bn254};

    #[test]
    fn satisfied() {
        for bits in [0.0, 0.5, 1.0] {
            let (r1cs, witness) = circuit::<Bn254>(300, bits, 7);
            assert_eq!(r1cs.first_unsatisfied(&witness).unwrap(), None);
            let (r1cs, witness) = circuit::<Bls12381>(300, bits, 7);
            assert_eq!(r1cs.first_unsatisfied(&witness).unwrap(), None);
        }
    }
}
