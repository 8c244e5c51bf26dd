//! Multi-scalar multiplication over points at rest, by Pippenger's bucket method
//! ([Bernstein, Doumen, Lange, Oosterwijk 2012](https://eprint.iacr.org/2012/549), §4).
//!
//! What makes it fast for proving keys and witnesses:
//! * scalars 0 cost nothing, scalars 1 and −1 one addition; a scalar above r/2 is taken as minus
//!   its complement, so small negative values have as few digits as small positive ones;
//! * digits are signed, which halves the buckets;
//! * buckets are affine and their additions share inversions (`super::affine`).
//!
//! blst's Pippenger with its assembly for BLS12-381 is no clear winner against this (2^14 and 2^16
//! points in G1: 0.96 and 0.89 of our CPU time, in G2: 0.85 and 1.03; `benches/RESULTS.md`), and it
//! has threads of its own besides rayon's. So one implementation serves both curves.
//!
//! Nothing is assumed about the points beyond the curve equation: infinities, equal points and
//! opposite points are legal.

use super::affine::{Scratch, add_pairs, sum_in_place};
use crate::curve::{G1, G2, GpuCurve};
use crate::error::{Error, InputClass, InputError, Result};
use crate::proving_key::{g1_from_raw, g2_from_raw};
use ark_ec::AffineRepr;
use ark_ec::models::short_weierstrass::{Affine, Bucket, Projective, SWCurveConfig};
use ark_ff::{AdditiveGroup, PrimeField, Zero};
use rayon::prelude::*;

/// Points decoded at a time, at most: bounds the host memory of one MSM to about 140 MB in G1
/// and 240 MB in G2, and costs a few percent against one pass.
const CHUNK: usize = 1 << 20;
/// Points that a thread gets to work on, at least.
const MIN_PART: usize = 1 << 12;
/// Window from which on buckets are affine: below, batches are too small to share an inversion.
const MIN_AFFINE_WINDOW: u32 = 9;

/// Cost of a field inversion in multiplications: measured 160 for BLS12-381 (6.3 µs and 39 ns).
const INVERSION: usize = 160;

/// Additions that share an inversion: some more conflicts (see [`AffineBuckets`]) against fewer
/// inversions.
fn batch_size(n_buckets: usize) -> usize {
    (n_buckets / 8).clamp(16, 1024)
}

/// A scalar's canonical limbs, least significant first.
type Limbs = [u64; 4];

/// Σ scalars\[i\]·bases\[i\] in G1.
///
/// `bases` are affine points at rest ([`crate::proving_key`]), `scalars` canonical little-endian
/// numbers of 32 bytes. The sum over nothing is the identity.
///
/// # Errors
/// `count_mismatch` if the lengths differ, `invalid_point` and `bad_scalar` with the element's
/// index for coordinates and scalars that are not below their modulus.
pub fn msm_g1<C: GpuCurve>(bases: &[u8], scalars: &[u8]) -> Result<G1<C>> {
    let scalars = canonical_scalars(scalars)?;
    msm_g1_by::<C>(bases, scalars.len(), |i| limbs_from_bytes(&scalars[i]))
}

/// Σ scalars\[i\]·bases\[i\] in G2, like [`msm_g1`].
pub fn msm_g2<C: GpuCurve>(bases: &[u8], scalars: &[u8]) -> Result<G2<C>> {
    let scalars = canonical_scalars(scalars)?;
    msm_g2_by::<C>(bases, scalars.len(), |i| limbs_from_bytes(&scalars[i]))
}

/// As [`msm_g1`], over field elements.
pub fn msm_g1_field<C: GpuCurve>(bases: &[u8], scalars: &[C::Fr]) -> Result<G1<C>> {
    msm_g1_by::<C>(bases, scalars.len(), |i| limbs_of(&scalars[i]))
}

fn msm_g1_by<C: GpuCurve>(
    bases: &[u8],
    n: usize,
    scalar: impl Fn(usize) -> Limbs + Sync,
) -> Result<G1<C>> {
    let size = C::ID.g1_bytes();
    msm_raw(bases, size, n, scalar, g1_from_raw::<C>)
}

fn msm_g2_by<C: GpuCurve>(
    bases: &[u8],
    n: usize,
    scalar: impl Fn(usize) -> Limbs + Sync,
) -> Result<G2<C>> {
    let size = C::ID.g2_bytes();
    msm_raw(bases, size, n, scalar, g2_from_raw::<C>)
}

fn canonical_scalars(bytes: &[u8]) -> Result<&[[u8; 32]]> {
    let (scalars, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(mismatch(format!(
            "{} bytes of scalars are not a multiple of 32",
            bytes.len()
        )));
    }
    Ok(scalars)
}

fn limbs_from_bytes(bytes: &[u8; 32]) -> Limbs {
    let mut limbs = [0; 4];
    for (limb, chunk) in limbs.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *limb = u64::from_le_bytes(*chunk);
    }
    limbs
}

/// Canonical limbs of a field element of at most 256 bits.
pub(crate) fn limbs_of<F: PrimeField>(x: &F) -> Limbs {
    let mut limbs = [0; 4];
    limbs.copy_from_slice(x.into_bigint().as_ref());
    limbs
}

/// Bytes of the decoded points and scalars of a sum over `n` points of type `P`.
pub(super) fn terms_bytes<P>(n: usize) -> u64 {
    (n.min(CHUNK) * (size_of::<P>() + size_of::<Limbs>())) as u64
}

/// Bytes of the buckets of sums over up to `n` points of type `P`: those of one window a thread.
pub(super) fn bucket_bytes<P: AffineRepr>(n: usize) -> u64 {
    let bits = P::ScalarField::MODULUS_BIT_SIZE - 1;
    let buckets = 1usize << (Windows::choose(n.min(CHUNK), bits).width - 1);
    // A bucket, its last batch, and its conflicts: four coordinates, of which a point has two.
    let each = size_of::<P>() + 4 + 2 * size_of::<P>();
    (rayon::current_num_threads() * buckets * each) as u64
}

fn mismatch(message: String) -> Error {
    InputError::new(InputClass::CountMismatch, message).into()
}

fn msm_raw<P: SWCurveConfig>(
    bases: &[u8],
    point_size: usize,
    n: usize,
    scalar: impl Fn(usize) -> Limbs + Sync,
    decode: impl Fn(&[u8]) -> Option<Affine<P>> + Sync,
) -> Result<Projective<P>> {
    if bases.len() != n * point_size {
        return Err(mismatch(format!(
            "{n} scalars for {} bytes of points, {point_size} bytes each",
            bases.len()
        )));
    }
    let mut sum = Projective::<P>::zero();
    for start in (0..n).step_by(CHUNK) {
        let end = n.min(start + CHUNK);
        let part = (end - start)
            .div_ceil(rayon::current_num_threads())
            .max(MIN_PART);
        let parts = (start..end)
            .into_par_iter()
            .step_by(part)
            .map(|start| {
                let range = start..end.min(start + part);
                let bases = &bases[range.start * point_size..range.end * point_size];
                Terms::collect(range, bases, point_size, &scalar, &decode)
            })
            .collect::<Result<Vec<_>>>()?;
        sum += sum_of_terms(parts);
    }
    Ok(sum)
}

/// The terms of a sum that are left to compute, sorted by how.
struct Terms<P: SWCurveConfig> {
    /// Points with scalar 1.
    ones: Vec<Affine<P>>,
    /// Other points ...
    points: Vec<Affine<P>>,
    /// ... and their scalars, in 2 ..= r/2, later biased by [`Windows::bias`].
    scalars: Vec<Limbs>,
}

impl<P: SWCurveConfig> Terms<P> {
    fn collect(
        range: std::ops::Range<usize>,
        bases: &[u8],
        point_size: usize,
        scalar: &impl Fn(usize) -> Limbs,
        decode: &impl Fn(&[u8]) -> Option<Affine<P>>,
    ) -> Result<Self> {
        let modulus = modulus_limbs::<P::ScalarField>();
        let mut terms = Self {
            ones: Vec::new(),
            points: Vec::new(),
            scalars: Vec::new(),
        };
        for (i, base) in range.zip(bases.chunks_exact(point_size)) {
            let mut k = scalar(i);
            if k == [0; 4] {
                continue;
            }
            let Some(complement) = subtract(&modulus, &k) else {
                let message = "scalar is not below the field's modulus";
                return Err(InputError::new(InputClass::BadScalar, message)
                    .element(i as u64)
                    .into());
            };
            let Some(mut point) = decode(base) else {
                let message = "coordinate is not below the field's modulus";
                return Err(InputError::new(InputClass::InvalidPoint, message)
                    .element(i as u64)
                    .into());
            };
            if point.is_zero() {
                continue;
            }
            if subtract(&complement, &k).is_none() {
                k = complement;
                point = -point;
            }
            if k == [1, 0, 0, 0] {
                terms.ones.push(point);
            } else {
                terms.points.push(point);
                terms.scalars.push(k);
            }
        }
        Ok(terms)
    }
}

fn modulus_limbs<F: PrimeField>() -> Limbs {
    let mut limbs = [0; 4];
    limbs.copy_from_slice(F::MODULUS.as_ref());
    limbs
}

/// a − b; `None` if that is not positive.
#[inline(always)]
fn subtract(a: &Limbs, b: &Limbs) -> Option<Limbs> {
    let mut out = [0; 4];
    let mut borrow = false;
    for i in 0..4 {
        let (d, b1) = a[i].overflowing_sub(b[i]);
        let (d, b2) = d.overflowing_sub(borrow as u64);
        out[i] = d;
        borrow = b1 | b2;
    }
    (!borrow && out != [0; 4]).then_some(out)
}

/// The window geometry of one sum.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Bits a digit.
    width: u32,
    /// Number of digits.
    count: u32,
}

impl Windows {
    /// The cheapest width for `n` scalars of `bits` bits, counted in field multiplications.
    fn choose(n: usize, bits: u32) -> Self {
        (2..=16)
            .map(|width| Self {
                width,
                // The top digit carries no sign, so one bit more must fit.
                count: (bits + 1).div_ceil(width),
            })
            .min_by_key(|w| {
                let n_buckets = 1 << (w.width - 1);
                let add = if w.width >= MIN_AFFINE_WINDOW {
                    6 + INVERSION / batch_size(n_buckets)
                } else {
                    10
                };
                w.count as usize * (n * add + 24 * n_buckets)
            })
            .expect("widths to choose from")
    }

    /// Adds 2^(width − 1) at every digit but the top one: the signed digits of k are then the
    /// digits of the result less 2^(width − 1), without carries from digit to digit.
    fn bias(&self, k: &Limbs) -> Limbs {
        let mut offset = [0u64; 4];
        for digit in 0..self.count - 1 {
            let bit = digit * self.width + self.width - 1;
            offset[bit as usize / 64] |= 1 << (bit % 64);
        }
        let mut out = [0; 4];
        let mut carry = false;
        for i in 0..4 {
            let (s, c1) = k[i].overflowing_add(offset[i]);
            let (s, c2) = s.overflowing_add(carry as u64);
            out[i] = s;
            carry = c1 | c2;
        }
        debug_assert!(!carry, "biased scalar above 2^256");
        out
    }

    /// The digit in −2^(width−1) ..= 2^(width−1) of a biased scalar.
    #[inline(always)]
    fn digit(&self, biased: &Limbs, window: u32) -> i32 {
        let bit = window * self.width;
        let (limb, shift) = (bit as usize / 64, bit % 64);
        let mut bits = biased[limb] >> shift;
        if shift + self.width > 64 && limb < 3 {
            bits |= biased[limb + 1] << (64 - shift);
        }
        let digit = (bits & ((1 << self.width) - 1)) as i32;
        if window + 1 == self.count {
            digit
        } else {
            digit - (1 << (self.width - 1))
        }
    }
}

fn sum_of_terms<P: SWCurveConfig>(mut parts: Vec<Terms<P>>) -> Projective<P> {
    let mut ones: Vec<_> = parts
        .iter_mut()
        .map(|part| std::mem::take(&mut part.ones))
        .collect();
    let (ones, products) = rayon::join(
        || {
            ones.par_iter_mut()
                .map(|points| sum_in_place(points))
                .sum::<Projective<P>>()
        },
        || sum_of_products(parts),
    );
    ones + products
}

/// Σ scalar·point, without the ones.
fn sum_of_products<P: SWCurveConfig>(mut parts: Vec<Terms<P>>) -> Projective<P> {
    // Folded scalars have one bit less than the modulus.
    let bits = P::ScalarField::MODULUS_BIT_SIZE - 1;
    let n = parts.iter().map(|p| p.points.len()).sum::<usize>();
    if n == 0 {
        return Projective::zero();
    }
    // As few groups of parts as keep the threads busy: each has its own buckets to reduce.
    let tasks = 2 * rayon::current_num_threads();
    let groups = tasks
        .div_ceil(Windows::choose(n, bits).count as usize)
        .min(parts.len());
    let per_group = parts.len().div_ceil(groups);
    let windows = Windows::choose(n.div_ceil(groups), bits);
    parts
        .par_iter_mut()
        .for_each(|part| part.scalars.iter_mut().for_each(|k| *k = windows.bias(k)));

    let window_sums: Vec<Projective<P>> = (0..windows.count)
        .into_par_iter()
        .map(|window| {
            parts
                .par_chunks(per_group)
                .map(|group| window_sum(group, windows, window))
                .sum()
        })
        .collect();
    let mut sum = Projective::<P>::zero();
    for window_sum in window_sums.iter().rev() {
        for _ in 0..windows.width {
            sum.double_in_place();
        }
        sum += window_sum;
    }
    sum
}

/// Calls `term(bucket, ±point)` for every non-zero digit of a window.
#[inline(always)]
fn for_each_term<P: SWCurveConfig>(
    parts: &[Terms<P>],
    windows: Windows,
    window: u32,
    mut term: impl FnMut(usize, Affine<P>),
) {
    for part in parts {
        for (point, k) in part.points.iter().zip(&part.scalars) {
            let digit = windows.digit(k, window);
            if digit != 0 {
                let bucket = digit.unsigned_abs() as usize - 1;
                term(bucket, if digit < 0 { -*point } else { *point });
            }
        }
    }
}

/// Σ digit·point of one window.
fn window_sum<P: SWCurveConfig>(
    parts: &[Terms<P>],
    windows: Windows,
    window: u32,
) -> Projective<P> {
    let n_buckets = 1usize << (windows.width - 1);
    // Σ i·bucket[i] is the sum of the running sums from the last bucket down.
    let mut running = Bucket::<P>::ZERO;
    let mut sum = Bucket::<P>::ZERO;
    if windows.width < MIN_AFFINE_WINDOW {
        let mut buckets = vec![Bucket::<P>::ZERO; n_buckets];
        for_each_term(parts, windows, window, |bucket, point| {
            buckets[bucket] += point;
        });
        for bucket in buckets.iter().rev() {
            running += bucket;
            sum += &running;
        }
    } else {
        let mut buckets = AffineBuckets::new(n_buckets);
        for_each_term(parts, windows, window, |bucket, point| {
            buckets.add(bucket, point);
        });
        buckets.flush();
        for (i, bucket) in buckets.buckets.iter().enumerate().rev() {
            running += bucket;
            if let Some(conflicts) = buckets.conflicts.get(i) {
                running += conflicts;
            }
            sum += &running;
        }
    }
    sum.into()
}

/// Affine buckets whose additions are gathered into batches.
struct AffineBuckets<P: SWCurveConfig> {
    buckets: Vec<Affine<P>>,
    /// Number of the last batch that a bucket is in.
    last_batch: Vec<u32>,
    batch: u32,
    pending: Vec<(u32, Affine<P>)>,
    max_pending: usize,
    /// Where a point goes whose bucket has an addition pending already. Rare with uniform digits;
    /// with skewed ones (all scalars equal) this takes over, and costs what XYZZ buckets cost.
    conflicts: Vec<Bucket<P>>,
    scratch: Scratch<P::BaseField>,
}

impl<P: SWCurveConfig> AffineBuckets<P> {
    fn new(n: usize) -> Self {
        let max_pending = batch_size(n);
        Self {
            buckets: vec![Affine::identity(); n],
            last_batch: vec![0; n],
            batch: 1,
            pending: Vec::with_capacity(max_pending),
            max_pending,
            conflicts: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    #[inline(always)]
    fn add(&mut self, bucket: usize, point: Affine<P>) {
        if self.last_batch[bucket] == self.batch {
            if self.conflicts.is_empty() {
                self.conflicts = vec![Bucket::ZERO; self.buckets.len()];
            }
            self.conflicts[bucket] += point;
        } else if self.buckets[bucket].is_zero() {
            self.buckets[bucket] = point;
        } else {
            self.last_batch[bucket] = self.batch;
            self.pending.push((bucket as u32, point));
            if self.pending.len() == self.max_pending {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let pending = &self.pending;
        add_pairs(
            pending.len(),
            &mut self.scratch,
            &mut self.buckets,
            |buckets, i| (buckets[pending[i].0 as usize], pending[i].1),
            |buckets, i, sum| buckets[pending[i].0 as usize] = sum,
        );
        self.pending.clear();
        self.batch += 1;
    }
}

#[cfg(test)]
mod tests;
