//! A circuit of our own, to try the prover with: anonymous membership in a group.
//!
//! A group publishes the root of a Merkle tree of commitments. A member proves, without saying
//! which, that a commitment to a secret of theirs is among the leaves, and shows a nullifier that
//! is the same whenever they act twice in the same scope (one vote an election, say), but tells
//! nothing across scopes.
//!
//! | wire | | value |
//! |---|---|---|
//! | 0 | constant | 1 |
//! | 1 | public output | root |
//! | 2 | public output | nullifier = H(secret, scope) |
//! | 3 | public input | scope |
//! | 4 | private | secret; the leaf is H(secret, 0) |
//! | 5 ... | private | siblings from the leaf up, then the bits of the leaf's index, then the rest |
//!
//! H(k, m) = E_k(m) + k + m (Miyaguchi–Preneel), where E is the MiMC permutation x ↦ (x + k + cᵢ)⁵
//! over 110 rounds ([Albrecht et al. 2016](https://eprint.iacr.org/2016/492), §2.1 and §5): 5 has
//! no common divisor with r − 1 on either curve, and 110 = ⌈255/log₂ 5⌉. The constants cᵢ are
//! SHA-256 of a label, so that nothing up a sleeve decides them. A hash takes 331 constraints, and
//! the whole 333·depth + 662: 9,986 at the default depth of 28.

use crate::curve::GpuCurve;
use crate::formats::r1cs::{R1cs, R1csMatrix};
use crate::witness::Witness;
use ark_ff::{BigInteger, PrimeField};
use sha2::{Digest, Sha256};

/// Depth of the tree of the bundled circuit: about 10,000 constraints.
pub const DEFAULT_DEPTH: u32 = 28;

/// Rounds of the permutation.
const ROUNDS: usize = 110;
const OUTPUTS: usize = 2;
const INPUTS: usize = 1;

/// What a member knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership<F> {
    pub secret: F,
    pub scope: F,
    /// Position of the member's leaf; bit i says whether the path's node at height i is the right
    /// child.
    pub leaf_index: u64,
    /// Siblings of the nodes on the path, from the leaf up; as many as the tree is deep.
    pub siblings: Vec<F>,
}

impl<F: PrimeField> Membership<F> {
    /// A made-up member of a made-up group: all values are hashes of labels.
    pub fn sample(depth: u32, leaf_index: u64) -> Self {
        let value = |what: &str, i| field_from_label(&format!("sample {what}"), i);
        Self {
            secret: value("secret", 0),
            scope: value("scope", 0),
            leaf_index,
            siblings: (0..u64::from(depth)).map(|i| value("sibling", i)).collect(),
        }
    }

    /// Whether the path's node at this height is a right child.
    fn is_right(&self, height: usize) -> bool {
        let shifted = self.leaf_index.checked_shr(height as u32);
        shifted.is_some_and(|index| index & 1 == 1)
    }

    /// Root of the tree.
    pub fn root(&self) -> F {
        let constants = round_constants();
        let leaf = hash(&constants, self.secret, F::zero());
        self.siblings
            .iter()
            .enumerate()
            .fold(leaf, |node, (height, sibling)| {
                let (left, right) = if self.is_right(height) {
                    (*sibling, node)
                } else {
                    (node, *sibling)
                };
                hash(&constants, left, right)
            })
    }

    /// What the member shows in this scope.
    pub fn nullifier(&self) -> F {
        hash(&round_constants(), self.secret, self.scope)
    }
}

/// SHA-256 of a label and a number, twice, as 64 bytes modulo r.
fn field_from_label<F: PrimeField>(label: &str, i: u64) -> F {
    let digest = |half: u8| {
        let mut sha = Sha256::new();
        sha.update(b"groth16-gpu example: ");
        sha.update(label.as_bytes());
        sha.update(i.to_le_bytes());
        sha.update([half]);
        sha.finalize()
    };
    F::from_le_bytes_mod_order(&[digest(0), digest(1)].concat())
}

fn round_constants<F: PrimeField>() -> Vec<F> {
    (0..ROUNDS as u64)
        .map(|i| field_from_label("MiMC constant", i))
        .collect()
}

/// H(k, m), outside the circuit.
fn hash<F: PrimeField>(constants: &[F], k: F, m: F) -> F {
    let permuted = constants.iter().fold(m, |x, c| {
        let t = x + k + c;
        t.square().square() * t
    });
    permuted + k + k + m
}

/// A linear combination: (wire, coefficient).
type Combination<F> = Vec<(u32, F)>;

/// Constraints and the values of all wires, made side by side.
struct Builder<F> {
    values: Vec<F>,
    a: R1csMatrix,
    b: R1csMatrix,
    c: R1csMatrix,
}

impl<F: PrimeField> Builder<F> {
    fn new() -> Self {
        Self {
            values: vec![F::one()],
            a: R1csMatrix::new(),
            b: R1csMatrix::new(),
            c: R1csMatrix::new(),
        }
    }
    fn wire(&mut self, value: F) -> u32 {
        self.values.push(value);
        self.values.len() as u32 - 1
    }
    fn value(&self, combination: &[(u32, F)]) -> F {
        combination
            .iter()
            .map(|(wire, c)| self.values[*wire as usize] * c)
            .sum()
    }
    /// a·b = c.
    fn constrain(&mut self, a: &[(u32, F)], b: &[(u32, F)], c: &[(u32, F)]) {
        for (matrix, row) in [(&mut self.a, a), (&mut self.b, b), (&mut self.c, c)] {
            for (wire, coefficient) in row {
                matrix.push(*wire, canonical(coefficient));
            }
            matrix.end_row();
        }
    }
    /// A new wire that is a·b.
    fn product(&mut self, a: &[(u32, F)], b: &[(u32, F)]) -> u32 {
        let wire = self.wire(self.value(a) * self.value(b));
        self.constrain(a, b, &[(wire, F::one())]);
        wire
    }
    /// H(k, m) as a combination; 330 constraints.
    fn hash(&mut self, constants: &[F], k: &[(u32, F)], m: &[(u32, F)]) -> Combination<F> {
        let mut x = m.to_vec();
        for c in constants {
            let t = sum(&[&x, k, &[(0, *c)]]);
            let t2 = self.product(&t, &t);
            let t2 = [(t2, F::one())];
            let t4 = self.product(&t2, &t2);
            let t5 = self.product(&[(t4, F::one())], &t);
            x = vec![(t5, F::one())];
        }
        sum(&[&x, k, k, m])
    }
}

fn sum<F: PrimeField>(parts: &[&[(u32, F)]]) -> Combination<F> {
    let mut out = Combination::<F>::new();
    for (wire, c) in parts.iter().flat_map(|part| part.iter()) {
        match out.iter_mut().find(|(w, _)| w == wire) {
            Some((_, sum)) => *sum += c,
            None => out.push((*wire, *c)),
        }
    }
    out.retain(|(_, c)| !c.is_zero());
    out
}

fn canonical<F: PrimeField>(x: &F) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&x.into_bigint().to_bytes_le());
    bytes
}

/// The circuit of a membership, and the witness of it. The circuit depends on the depth alone.
pub fn membership_circuit<C: GpuCurve>(member: &Membership<C::Fr>) -> (R1cs, Witness) {
    let one = <C::Fr as ark_ff::Field>::ONE;
    let mut circuit = Builder::<C::Fr>::new();
    let constants = round_constants::<C::Fr>();
    let root = circuit.wire(member.root());
    let nullifier = circuit.wire(member.nullifier());
    let scope = circuit.wire(member.scope);
    let secret = circuit.wire(member.secret);
    let siblings: Vec<u32> = member.siblings.iter().map(|x| circuit.wire(*x)).collect();
    let bits: Vec<u32> = (0..siblings.len())
        .map(|height| circuit.wire(C::Fr::from(member.is_right(height))))
        .collect();
    let always = [(0, one)];

    let shown = circuit.hash(&constants, &[(secret, one)], &[(scope, one)]);
    circuit.constrain(&shown, &always, &[(nullifier, one)]);

    let leaf = circuit.hash(&constants, &[(secret, one)], &[]);
    let mut node = circuit.product(&leaf, &always);
    for (height, (sibling, bit)) in siblings.iter().zip(&bits).enumerate() {
        let bit = [(*bit, one)];
        circuit.constrain(&bit, &sum(&[&bit, &[(0, -one)]]), &[]);
        // left = node + bit·(sibling − node), and right is what remains of both.
        let left_child = if member.is_right(height) {
            *sibling
        } else {
            node
        };
        let left_value = circuit.values[left_child as usize];
        let left = circuit.wire(left_value);
        circuit.constrain(
            &bit,
            &[(*sibling, one), (node, -one)],
            &[(left, one), (node, -one)],
        );
        let right = [(node, one), (*sibling, one), (left, -one)];
        let parent = circuit.hash(&constants, &[(left, one)], &right);
        if height + 1 < siblings.len() {
            node = circuit.product(&parent, &always);
        } else {
            circuit.constrain(&parent, &always, &[(root, one)]);
        }
    }
    if siblings.is_empty() {
        circuit.constrain(&[(node, one)], &always, &[(root, one)]);
    }

    let witness: Vec<u8> = circuit.values.iter().flat_map(canonical).collect();
    let r1cs = R1cs {
        curve: C::ID,
        source: None,
        n_wires: circuit.values.len(),
        n_pub_out: OUTPUTS,
        n_pub_in: INPUTS,
        n_prv_in: 1 + 2 * siblings.len(),
        n_constraints: circuit.a.rows(),
        a: circuit.a,
        b: circuit.b,
        c: circuit.c,
    };
    let witness = Witness {
        curve: C::ID,
        values: witness.into(),
    };
    (r1cs, witness)
}

/// The circuit for a tree of the given depth, and the witness of a made-up member at `leaf_index`.
pub fn merkle_membership<C: GpuCurve>(depth: u32, leaf_index: u64) -> (R1cs, Witness) {
    membership_circuit::<C>(&Membership::sample(depth, leaf_index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{Bls12381, Bn254};

    fn with_value(witness: &Witness, wire: usize, value: [u8; 32]) -> Witness {
        let mut values = witness.values.to_vec();
        values[32 * wire..32 * (wire + 1)].copy_from_slice(&value);
        Witness {
            curve: witness.curve,
            values: values.into(),
        }
    }

    fn membership<C: GpuCurve>() {
        let depth = 5;
        for leaf_index in [0, 1, 21, 31] {
            let (circuit, witness) = merkle_membership::<C>(depth as u32, leaf_index);
            assert_eq!(circuit.n_constraints, 333 * depth + 662);
            assert_eq!(circuit.first_unsatisfied(&witness).unwrap(), None);
            let one = canonical(&C::Fr::from(1u64));
            // Another sibling, another side, another secret, another root or nullifier: all fail.
            for wire in [1, 2, 3, 4, 5, 5 + depth - 1] {
                let other = with_value(&witness, wire, one);
                assert!(circuit.first_unsatisfied(&other).unwrap().is_some());
            }
            for height in 0..depth {
                let flipped = canonical(&C::Fr::from(1 ^ (leaf_index >> height & 1)));
                let other = with_value(&witness, 5 + depth + height, flipped);
                assert!(circuit.first_unsatisfied(&other).unwrap().is_some());
            }
        }
        let (default, _) = merkle_membership::<C>(DEFAULT_DEPTH, 0);
        assert_eq!(default.n_constraints, 9986);
        assert_eq!(default, merkle_membership::<C>(DEFAULT_DEPTH, 12345).0);
    }

    #[test]
    fn members_and_no_others_satisfy_the_circuit() {
        membership::<Bls12381>();
        membership::<Bn254>();
    }

    /// x ↦ x⁵ is a permutation.
    #[test]
    fn five_is_prime_to_the_group_orders() {
        fn check<F: PrimeField>() {
            let residue = F::MODULUS
                .to_bytes_le()
                .iter()
                .rev()
                .fold(0u32, |r, b| (256 * r + u32::from(*b)) % 5);
            assert_ne!(residue, 1);
        }
        check::<ark_bls12_381::Fr>();
        check::<ark_bn254::Fr>();
    }
}
