//! Evaluation domains: the subgroup of order n = 2^k of the scalar field, in two root conventions.

use ark_ff::{BigInteger, FftField, PrimeField};

/// Which primitive 2^s-th root generates the domains.
///
/// snarkjs takes 5^t, arkworks and bellman take g^t for the field's generator g (7 for BLS12-381,
/// 5 for BN254), where r − 1 = t·2^s, t odd. For BLS12-381 the two agree only up to 4th roots, so
/// a key proves only under the convention that it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RootConvention {
    Snarkjs,
    Arkworks,
}

impl RootConvention {
    /// The non-residue whose t-th power is the root of order 2^s.
    pub fn non_residue<F: FftField>(self) -> F {
        match self {
            Self::Snarkjs => F::from(5u64),
            Self::Arkworks => F::GENERATOR,
        }
    }
}

/// The powers of a primitive n-th root of unity, n = 2^log2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain<F: FftField> {
    pub log2: u32,
    pub roots: RootConvention,
    /// Primitive n-th root of unity.
    pub generator: F,
}

impl<F: PrimeField> Domain<F> {
    /// `None` if the field has no root of order 2^log2.
    pub fn new(log2: u32, roots: RootConvention) -> Option<Self> {
        (log2 <= F::TWO_ADICITY).then(|| Self {
            log2,
            roots,
            generator: primitive_root::<F>(log2, roots),
        })
    }
    /// Number of elements.
    pub fn size(&self) -> usize {
        1 << self.log2
    }
    /// A primitive 2n-th root whose square is [`Self::generator`]: the shift of the odd coset.
    /// `None` at the field's largest domain.
    pub fn odd_coset_shift(&self) -> Option<F> {
        Self::new(self.log2 + 1, self.roots).map(|d| d.generator)
    }
}

fn primitive_root<F: PrimeField>(log2: u32, roots: RootConvention) -> F {
    let mut t = F::MODULUS;
    t.sub_with_borrow(&F::BigInt::from(1u64));
    for _ in 0..F::TWO_ADICITY {
        t.div2();
    }
    let mut root = roots.non_residue::<F>().pow(t.as_ref());
    for _ in log2..F::TWO_ADICITY {
        root.square_in_place();
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use ark_ff::{Field, One};

    /// p02: arkworks' root is g^t; snarkjs' differs for BLS12-381 above order 4.
    #[test]
    fn p02_root_conventions() {
        type Bls = ark_bls12_381::Fr;
        type Bn = ark_bn254::Fr;
        for k in 0..=28 {
            let ark = Domain::<Bls>::new(k, RootConvention::Arkworks).unwrap();
            let snark = Domain::<Bls>::new(k, RootConvention::Snarkjs).unwrap();
            assert_eq!(ark.generator, Bls::get_root_of_unity(1 << k).unwrap());
            assert_eq!(snark.generator.pow([1u64 << k]), Bls::one());
            assert_eq!(ark.generator == snark.generator, k <= 2, "k = {k}");
            let bn = Domain::<Bn>::new(k, RootConvention::Snarkjs).unwrap();
            assert_eq!(bn.generator, Bn::get_root_of_unity(1 << k).unwrap());
        }
        assert!(Domain::<Bn>::new(29, RootConvention::Snarkjs).is_none());
        assert!(Domain::<Bls>::new(33, RootConvention::Arkworks).is_none());
    }
}
