//! Many multiples of one point, by a table of its window multiples
//! ([Brickell, Gordon, McCurley, Wilson 1992](https://doi.org/10.1007/3-540-47555-9_18)).

use super::affine::{Scratch, add_pairs};
use super::msm::limbs_of;
use ark_ec::CurveGroup;
use ark_ec::models::short_weierstrass::{Affine, Projective, SWCurveConfig};
use ark_ff::{AdditiveGroup, PrimeField};
use rayon::prelude::*;
use zeroize::Zeroizing;

/// Multiples whose additions share inversions.
const BATCH: usize = 1024;

/// The multiples digit·2^(width·i)·base for every digit and window i.
pub(crate) struct FixedBase<P: SWCurveConfig> {
    width: u32,
    windows: Vec<Vec<Affine<P>>>,
}

impl<P: SWCurveConfig> FixedBase<P> {
    /// A table of a size that suits about `n` multiples.
    pub(crate) fn new(base: Projective<P>, n: usize) -> Self {
        let bits = P::ScalarField::MODULUS_BIT_SIZE;
        let width = (2..=14)
            .min_by_key(|width| bits.div_ceil(*width) as usize * (n + (2 << width)))
            .expect("widths to choose from");
        let mut window_base = base;
        let bases: Vec<_> = (0..bits.div_ceil(width))
            .map(|_| {
                let base = window_base;
                for _ in 0..width {
                    window_base.double_in_place();
                }
                base
            })
            .collect();
        let windows = bases
            .into_par_iter()
            .map(|base| {
                let mut multiple = Projective::<P>::ZERO;
                let multiples: Vec<_> = (0..1 << width)
                    .map(|_| {
                        let this = multiple;
                        multiple += base;
                        this
                    })
                    .collect();
                Projective::normalize_batch(&multiples)
            })
            .collect();
        Self { width, windows }
    }

    /// scalar·base for every scalar, written by `push` as `size` bytes each.
    pub(crate) fn multiples(
        &self,
        scalars: &[P::ScalarField],
        size: usize,
        push: impl Fn(&Affine<P>, &mut Vec<u8>) + Sync,
    ) -> Vec<u8> {
        let mut out = vec![0; scalars.len() * size];
        out.par_chunks_mut(BATCH * size)
            .zip(scalars.par_chunks(BATCH))
            .for_each(|(out, scalars)| {
                let mut bytes = Vec::with_capacity(out.len());
                let points = self.batch(scalars);
                points.iter().for_each(|point| push(point, &mut bytes));
                out.copy_from_slice(&bytes);
            });
        out
    }

    fn batch(&self, scalars: &[P::ScalarField]) -> Vec<Affine<P>> {
        let mut out = vec![Affine::identity(); scalars.len()];
        let mut points = out.as_mut_slice();
        let mut scratch = Scratch::default();
        // Secret in a setup.
        let limbs: Zeroizing<Vec<_>> = Zeroizing::new(scalars.iter().map(limbs_of).collect());
        for (i, window) in self.windows.iter().enumerate() {
            let digit = |k: &[u64; 4]| {
                let bit = i * self.width as usize;
                let (limb, shift) = (bit / 64, bit % 64);
                let mut bits = k[limb] >> shift;
                if shift > 0 && limb < 3 {
                    bits |= k[limb + 1] << (64 - shift);
                }
                bits as usize & ((1 << self.width) - 1)
            };
            add_pairs(
                limbs.len(),
                &mut scratch,
                &mut points,
                |out, j| (out[j], window[digit(&limbs[j])]),
                |out, j, sum| out[j] = sum,
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ark_ec::PrimeGroup;
    use ark_ff::{One, UniformRand, Zero};
    use ark_std::test_rng;

    fn against_double_and_add<P: SWCurveConfig>() {
        let rng = &mut test_rng();
        let base = Projective::<P>::generator();
        for n in [1, 40, 3000] {
            let mut scalars = vec![P::ScalarField::zero(), P::ScalarField::one()];
            scalars.push(-P::ScalarField::one());
            scalars.extend((0..20).map(|_| P::ScalarField::rand(rng)));
            let expected: Vec<_> = scalars.iter().map(|k| (base * k).into_affine()).collect();
            let table = FixedBase::new(base, n);
            assert_eq!(table.batch(&scalars), expected);
            // In the order of the scalars.
            let push = |point: &Affine<P>, out: &mut Vec<u8>| {
                let place = expected.iter().position(|p| p == point);
                out.push(place.expect("one of them") as u8);
            };
            let places = (0..scalars.len() as u8).collect::<Vec<_>>();
            assert_eq!(table.multiples(&scalars, 1, push), places);
        }
    }

    #[test]
    fn multiples_of_the_generators() {
        against_double_and_add::<ark_bls12_381::g1::Config>();
        against_double_and_add::<ark_bls12_381::g2::Config>();
        against_double_and_add::<ark_bn254::g1::Config>();
        against_double_and_add::<ark_bn254::g2::Config>();
    }
}
