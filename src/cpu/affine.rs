//! Affine point additions that share one field inversion.
//!
//! With the inversion shared over a batch (Montgomery's trick), an affine addition costs about
//! 5 multiplications and 1 squaring, against 8 and 2 of a mixed addition in XYZZ coordinates
//! (<https://www.hyperelliptic.org/EFD/g1p/auto-shortw-xyzz.html>).

use ark_ec::AffineRepr;
use ark_ec::models::short_weierstrass::{Affine, Projective, SWCurveConfig};
use ark_ff::{AdditiveGroup, Field, Zero};

/// What the addition of two points needs to have inverted.
///
/// 1 where the sum needs no inversion: a summand is infinity, or the sum is. Complete: equal
/// points (doubling), opposite points and infinities in any combination are right.
#[inline(always)]
fn denominator<P: SWCurveConfig>(p: &Affine<P>, q: &Affine<P>) -> P::BaseField {
    if p.is_zero() || q.is_zero() {
        return P::BaseField::ONE;
    }
    let dx = q.x - p.x;
    if !dx.is_zero() {
        dx
    } else if p.y == q.y && !p.y.is_zero() {
        p.y.double()
    } else {
        P::BaseField::ONE
    }
}

/// p + q, given the inverse of their [`denominator`].
#[inline(always)]
fn add_with_inverse<P: SWCurveConfig>(
    p: &Affine<P>,
    q: &Affine<P>,
    inverse: &P::BaseField,
) -> Affine<P> {
    if p.is_zero() {
        return *q;
    }
    if q.is_zero() {
        return *p;
    }
    let slope = if p.x != q.x {
        (q.y - p.y) * inverse
    } else if p.y == q.y && !p.y.is_zero() {
        let xx = p.x.square();
        (xx.double() + xx + P::COEFF_A) * inverse
    } else {
        return Affine::identity();
    };
    let x = slope.square() - p.x - q.x;
    let y = slope * (p.x - x) - p.y;
    Affine::new_unchecked(x, y)
}

/// Scratch space of [`add_pairs`], to be reused from batch to batch.
pub(crate) struct Scratch<F> {
    denominators: Vec<F>,
    prefixes: Vec<F>,
}

impl<F> Default for Scratch<F> {
    fn default() -> Self {
        Self {
            denominators: Vec::new(),
            prefixes: Vec::new(),
        }
    }
}

/// Adds `n` pairs of points with one inversion: `pair(i)` are the summands of the i-th sum, which
/// is given to `store(i, sum)`. All pairs are read before the first sum is stored.
#[inline(always)]
pub(crate) fn add_pairs<P: SWCurveConfig, S>(
    n: usize,
    scratch: &mut Scratch<P::BaseField>,
    state: &mut S,
    pair: impl Fn(&S, usize) -> (Affine<P>, Affine<P>),
    mut store: impl FnMut(&mut S, usize, Affine<P>),
) {
    if n == 0 {
        return;
    }
    let Scratch {
        denominators,
        prefixes,
    } = scratch;
    denominators.clear();
    prefixes.clear();
    let mut product = P::BaseField::ONE;
    for i in 0..n {
        let (p, q) = pair(state, i);
        let d = denominator(&p, &q);
        prefixes.push(product);
        denominators.push(d);
        product *= d;
    }
    // Every factor is non-zero, so the product is.
    let mut inverse = product
        .inverse()
        .expect("a product of non-zero denominators");
    for i in (0..n).rev() {
        let inverse_i = prefixes[i] * inverse;
        inverse *= denominators[i];
        let (p, q) = pair(state, i);
        let sum = add_with_inverse(&p, &q, &inverse_i);
        store(state, i, sum);
    }
}

/// Below this many pairs an inversion is not worth sharing.
const MIN_SHARED: usize = 64;
/// Pairs that share one inversion; more gains nothing, and the scratch leaves the cache.
const MAX_SHARED: usize = 1024;

/// The sum of all points, pairwise; `points` is used up as scratch space.
pub(crate) fn sum_in_place<P: SWCurveConfig>(mut points: &mut [Affine<P>]) -> Projective<P> {
    let mut odd_ones = Projective::<P>::zero();
    let mut scratch = Scratch::default();
    while points.len() >= 2 * MIN_SHARED {
        if points.len() % 2 == 1 {
            odd_ones += points[points.len() - 1];
        }
        let half = points.len() / 2;
        for start in (0..half).step_by(MAX_SHARED) {
            let n = MAX_SHARED.min(half - start);
            // Pairs lie half the length apart, so that no sum overwrites an unread summand.
            add_pairs(
                n,
                &mut scratch,
                &mut points,
                |p, i| (p[start + i], p[half + start + i]),
                |p, i, sum| p[start + i] = sum,
            );
        }
        points = &mut points[..half];
    }
    points.iter().fold(odd_ones, |sum, p| sum + p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ark_ec::CurveGroup;
    use ark_ff::UniformRand;
    use ark_std::test_rng;

    fn complete<P: SWCurveConfig>() {
        let rng = &mut test_rng();
        let p = Projective::<P>::rand(rng).into_affine();
        let q = Projective::<P>::rand(rng).into_affine();
        let o = Affine::<P>::identity();
        // p08: every case in one batch.
        let pairs = [
            (p, q),
            (p, p),
            (p, -p),
            (p, o),
            (o, p),
            (o, o),
            (q, -q),
            (q, q),
        ];
        let mut sums = vec![p; pairs.len()];
        add_pairs(
            pairs.len(),
            &mut Scratch::default(),
            &mut sums,
            |_, i| pairs[i],
            |s, i, sum| s[i] = sum,
        );
        for ((a, b), sum) in pairs.iter().zip(&sums) {
            assert_eq!((*a + b).into_affine(), *sum);
        }
        for n in [0, 1, 2, 127, 128, 129, 255, 257, 1000] {
            let mut points: Vec<_> = (0..n)
                .map(|i| [p, q, o, -p, p][i % 5])
                .chain((0..n).map(|_| Projective::<P>::rand(rng).into_affine()))
                .collect();
            let expected: Projective<P> = points.iter().sum();
            assert_eq!(sum_in_place(&mut points), expected);
        }
    }

    #[test]
    fn p08_batched_additions_are_complete() {
        complete::<ark_bls12_381::g1::Config>();
        complete::<ark_bls12_381::g2::Config>();
        complete::<ark_bn254::g1::Config>();
        complete::<ark_bn254::g2::Config>();
    }
}
