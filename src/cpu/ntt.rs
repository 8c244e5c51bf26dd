//! Number-theoretic transforms over a [`Domain`], in parallel.
//!
//! The inverse transform decimates in frequency (natural → bit-reversed order), the forward one in
//! time (bit-reversed → natural), so that an inverse transform followed by a forward one, as the
//! quotient needs it, moves no element ([Cooley, Tukey 1965](https://doi.org/10.1090/S0025-5718-1965-0178586-1);
//! [Gentleman, Sande 1966](https://doi.org/10.1145/1464291.1464352)). [`Ntt::forward`] and
//! [`Ntt::inverse`] add the permutation, for callers that want natural order on both sides.

use crate::domain::Domain;
use ark_ff::PrimeField;
use rayon::prelude::*;

/// Butterflies that one task does, at least.
const MIN_TASK: usize = 1 << 10;

/// The transforms of one domain, with their twiddle factors: 32·n bytes.
pub struct Ntt<F: PrimeField> {
    domain: Domain<F>,
    /// `twiddles[h + j]` = w^j for the primitive 2h-th root w, for h = 1, 2, 4 .. n/2 and j < h;
    /// the factors of each stage lie side by side.
    twiddles: Vec<F>,
    size_inverse: F,
}

impl<F: PrimeField> Ntt<F> {
    /// Prepares the transforms of length `domain.size()`.
    pub fn new(domain: Domain<F>) -> Self {
        let n = domain.size();
        let mut twiddles = vec![F::one(); n];
        if n > 1 {
            powers(domain.generator, &mut twiddles[n / 2..]);
            // The root of each smaller stage is the square of the root before.
            let mut h = n / 4;
            while h >= 1 {
                let (small, large) = twiddles.split_at_mut(2 * h);
                for (t, s) in small[h..].iter_mut().zip(large.iter().step_by(2)) {
                    *t = *s;
                }
                h /= 2;
            }
        }
        Self {
            domain,
            twiddles,
            size_inverse: F::from(n as u64)
                .inverse()
                .expect("a power of two is a unit of an odd field"),
        }
    }

    pub fn domain(&self) -> &Domain<F> {
        &self.domain
    }

    /// Coefficients to values: `values[i]` becomes Σ `values[j]`·w^(ij).
    ///
    /// # Panics
    /// If `values` has not the length of the domain; so do all transforms.
    pub fn forward(&self, values: &mut [F]) {
        bit_reverse(values);
        self.forward_from_reversed(values);
    }

    /// Values to coefficients, the inverse of [`Self::forward`].
    pub fn inverse(&self, values: &mut [F]) {
        self.inverse_to_reversed_unscaled(values);
        bit_reverse(values);
        let scale = self.size_inverse;
        values.par_iter_mut().for_each(|x| *x *= scale);
    }

    /// Coefficients to values on the coset `shift`·⟨w⟩.
    pub fn coset_forward(&self, values: &mut [F], shift: F) {
        scale_by_powers(values, F::one(), shift);
        self.forward(values);
    }

    /// Values on the coset `shift`·⟨w⟩ to coefficients.
    ///
    /// # Panics
    /// If `shift` is zero.
    pub fn coset_inverse(&self, values: &mut [F], shift: F) {
        self.inverse_to_reversed_unscaled(values);
        bit_reverse(values);
        let inverse = shift.inverse().expect("a coset shift is not zero");
        scale_by_powers(values, self.size_inverse, inverse);
    }

    /// What coefficient i in bit-reversed order is multiplied by on the way from
    /// [`Self::inverse_to_reversed_unscaled`] to a forward transform on the coset of `shift`:
    /// shift^i/n.
    pub(crate) fn reversed_coset_scale(&self, shift: F) -> Vec<F> {
        let n = self.domain.size();
        let mut scale = vec![self.size_inverse; n];
        // Bit k of the position is bit log2(n) − 1 − k of the exponent.
        let mut half = 1;
        while half < n {
            let factor = shift.pow([(n / (2 * half)) as u64]);
            let (done, next) = scale.split_at_mut(half);
            next[..half]
                .par_iter_mut()
                .zip(&*done)
                .with_min_len(MIN_TASK)
                .for_each(|(x, y)| *x = *y * factor);
            half *= 2;
        }
        scale
    }

    /// Coefficients in bit-reversed order to values in natural order.
    pub(crate) fn forward_from_reversed(&self, values: &mut [F]) {
        assert_eq!(values.len(), self.domain.size(), "length of an NTT");
        self.decimate_in_time(values);
    }

    /// Values in natural order to coefficients times n in bit-reversed order.
    pub(crate) fn inverse_to_reversed_unscaled(&self, values: &mut [F]) {
        assert_eq!(values.len(), self.domain.size(), "length of an NTT");
        self.decimate_in_frequency(values);
    }

    fn decimate_in_time(&self, values: &mut [F]) {
        let h = values.len() / 2;
        if h == 0 {
            return;
        }
        let (lo, hi) = values.split_at_mut(h);
        let twiddles = &self.twiddles[h..2 * h];
        let butterfly = |((x, y), w): ((&mut F, &mut F), &F)| {
            *y *= w;
            let difference = *x - *y;
            *x += *y;
            *y = difference;
        };
        if h < MIN_TASK {
            self.decimate_in_time(lo);
            self.decimate_in_time(hi);
            lo.iter_mut().zip(hi).zip(twiddles).for_each(butterfly);
        } else {
            rayon::join(|| self.decimate_in_time(lo), || self.decimate_in_time(hi));
            lo.par_iter_mut()
                .zip(hi)
                .zip(twiddles)
                .with_min_len(MIN_TASK)
                .for_each(butterfly);
        }
    }

    fn decimate_in_frequency(&self, values: &mut [F]) {
        let h = values.len() / 2;
        if h == 0 {
            return;
        }
        let (lo, hi) = values.split_at_mut(h);
        // w^(−j) = −w^(h − j), so the forward factors serve, read backwards.
        let (lo0, hi0) = (lo[0], hi[0]);
        lo[0] = lo0 + hi0;
        hi[0] = lo0 - hi0;
        let twiddles = &self.twiddles[h + 1..2 * h];
        let butterfly = |((x, y), w): ((&mut F, &mut F), &F)| {
            let difference = *y - *x;
            *x += *y;
            *y = difference * w;
        };
        if h < MIN_TASK {
            lo[1..]
                .iter_mut()
                .zip(&mut hi[1..])
                .zip(twiddles.iter().rev())
                .for_each(butterfly);
            self.decimate_in_frequency(lo);
            self.decimate_in_frequency(hi);
        } else {
            lo[1..]
                .par_iter_mut()
                .zip(&mut hi[1..])
                .zip(twiddles.par_iter().rev())
                .with_min_len(MIN_TASK)
                .for_each(butterfly);
            rayon::join(
                || self.decimate_in_frequency(lo),
                || self.decimate_in_frequency(hi),
            );
        }
    }
}

/// `out[i]` = base^i.
fn powers<F: PrimeField>(base: F, out: &mut [F]) {
    out.par_chunks_mut(MIN_TASK)
        .enumerate()
        .for_each(|(chunk, out)| {
            let mut power = base.pow([(chunk * MIN_TASK) as u64]);
            for x in out {
                *x = power;
                power *= base;
            }
        });
}

/// Multiplies element i by factor·base^i.
fn scale_by_powers<F: PrimeField>(values: &mut [F], factor: F, base: F) {
    values
        .par_chunks_mut(MIN_TASK)
        .enumerate()
        .for_each(|(chunk, values)| {
            let mut power = factor * base.pow([(chunk * MIN_TASK) as u64]);
            for x in values {
                *x *= power;
                power *= base;
            }
        });
}

/// Exchanges every element with the one whose index has the bits of its own in reverse.
///
/// # Panics
/// If the length is not a power of two.
pub fn bit_reverse<T>(values: &mut [T]) {
    assert!(values.len().is_power_of_two(), "length of an NTT");
    let log2 = values.len().trailing_zeros();
    if log2 == 0 {
        return;
    }
    for i in 0..values.len() {
        let j = i.reverse_bits() >> (usize::BITS - log2);
        if i < j {
            values.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RootConvention;
    use ark_ff::UniformRand;
    use ark_poly::{EvaluationDomain, Radix2EvaluationDomain};
    use ark_std::test_rng;

    /// Horner at every point.
    fn naive<F: PrimeField>(coefficients: &[F], shift: F, generator: F) -> Vec<F> {
        let mut x = shift;
        (0..coefficients.len())
            .map(|_| {
                let value = coefficients
                    .iter()
                    .rev()
                    .fold(F::zero(), |sum, c| sum * x + c);
                x *= generator;
                value
            })
            .collect()
    }

    fn against_definition<F: PrimeField>() {
        let rng = &mut test_rng();
        for roots in [RootConvention::Snarkjs, RootConvention::Arkworks] {
            for log2 in 0..=9 {
                let domain = Domain::<F>::new(log2, roots).unwrap();
                let ntt = Ntt::new(domain);
                let coefficients: Vec<F> = (0..domain.size()).map(|_| F::rand(rng)).collect();
                let shift = F::rand(rng);

                let mut values = coefficients.clone();
                ntt.forward(&mut values);
                assert_eq!(values, naive(&coefficients, F::one(), domain.generator));
                ntt.inverse(&mut values);
                assert_eq!(values, coefficients);

                ntt.coset_forward(&mut values, shift);
                let on_coset = naive(&coefficients, shift, domain.generator);
                assert_eq!(values, on_coset);
                ntt.coset_inverse(&mut values, shift);
                assert_eq!(values, coefficients);

                // The way of the quotient: no permutation between the two transforms.
                ntt.forward(&mut values);
                ntt.inverse_to_reversed_unscaled(&mut values);
                let scale = ntt.reversed_coset_scale(shift);
                values.iter_mut().zip(&scale).for_each(|(x, s)| *x *= s);
                ntt.forward_from_reversed(&mut values);
                assert_eq!(values, on_coset);
            }
        }
    }

    #[test]
    fn transforms_match_their_definition() {
        against_definition::<ark_bls12_381::Fr>();
        against_definition::<ark_bn254::Fr>();
    }

    /// Large enough for the parallel stages; ark-poly is the oracle in its own root convention.
    #[test]
    fn large_transforms_match_ark_poly() {
        type F = ark_bls12_381::Fr;
        let rng = &mut test_rng();
        for log2 in [11, 14] {
            let ntt = Ntt::new(Domain::<F>::new(log2, RootConvention::Arkworks).unwrap());
            let ark = Radix2EvaluationDomain::<F>::new(1 << log2).unwrap();
            let coefficients: Vec<F> = (0..1 << log2).map(|_| F::rand(rng)).collect();
            let mut values = coefficients.clone();
            ntt.forward(&mut values);
            assert_eq!(values, ark.fft(&coefficients));
            ntt.inverse(&mut values);
            assert_eq!(values, coefficients);
            let shift = F::rand(rng);
            ntt.coset_forward(&mut values, shift);
            assert_eq!(values, ark.get_coset(shift).unwrap().fft(&coefficients));
            ntt.coset_inverse(&mut values, shift);
            assert_eq!(values, coefficients);
        }
    }
}
