//! Kernels without points: field operations, products, the quotient, scans.

use super::{
    CaseError, Prepared, Size, at_rest, check, ensure, expect_scalars, rng, run_recording, upload,
};
use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::GpuDevice;
use crate::device::recording::{BufferSlice, Dispatch, Recording};
use crate::kernels::Kernel;
use crate::ntt::push_scalar;
use crate::scan::record_scan;
use ark_ff::{BigInteger, PrimeField, UniformRand, Zero};
use rand::Rng;
use rand::rngs::StdRng;

/// Lengths with no hidden precondition (p09): around the sizes of warps and workgroups.
const LENGTHS: [usize; 10] = [1, 2, 3, 31, 32, 33, 63, 64, 65, 257];

fn push_integer<F: PrimeField>(x: F::BigInt, out: &mut Vec<u8>) {
    for limb in x.as_ref() {
        out.extend_from_slice(&limb.to_le_bytes());
    }
}

/// Integers at the edges of the modulus and of limbs, then random ones, all below 2p.
fn operands<F: PrimeField>(n: usize, rng: &mut StdRng) -> Vec<F::BigInt> {
    let p = F::MODULUS;
    let one = F::BigInt::from(1u64);
    let mut below = p;
    below.sub_with_borrow(&one);
    let mut above = p;
    above.add_with_carry(&one);
    let mut last = p;
    last.mul2();
    last.sub_with_borrow(&one);
    let mut edges = vec![F::BigInt::from(0u64), one, p, below, above, last];
    // Limbs of 13, 29, 30, 32 and 64 bits.
    for bits in [13, 29, 30, 32, 58, 60, 64, 90, 128, 192, 240, 253] {
        let mut x = one;
        x <<= bits;
        edges.push(x);
        x.sub_with_borrow(&one);
        edges.push(x);
    }
    // Every other limb all ones, of both tiers' sizes and of words.
    for bits in [13, 29, 30, 32] {
        let mut x = F::BigInt::from(0u64);
        for limb in (0..p.num_bits() - bits).step_by(2 * bits as usize) {
            let mut ones = F::BigInt::from((1u64 << bits) - 1);
            ones <<= limb;
            x.add_with_carry(&ones);
        }
        edges.push(x);
    }
    let random = std::iter::repeat_with(|| F::rand(rng).into_bigint());
    edges.into_iter().chain(random).take(n).collect()
}

/// The operations of the kernel, by number.
const OPERATIONS: [(u32, &str); 4] = [(0, "+"), (1, "−"), (3, "·"), (4, "==")];

/// p06: every operation on values at and above the modulus.
fn operations<C: GpuCurve, F: PrimeField>(kernel: Kernel, size: Size) -> Prepared {
    let bytes = 8 * F::BigInt::NUM_LIMBS;
    let base = operands::<F>(size.pick(40, 64), &mut rng(1));
    let (lhs, rhs): (Vec<_>, Vec<_>) = base
        .iter()
        .flat_map(|a| base.iter().map(move |b| (*a, *b)))
        .unzip();
    let n = lhs.len();
    let pack = |v: &[F::BigInt]| {
        let mut out = Vec::new();
        v.iter().for_each(|x| push_integer::<F>(*x, &mut out));
        Bytes::from(out)
    };
    // As residues of the plain integers.
    let value = |x: &F::BigInt| F::from_le_bytes_mod_order(&x.to_bytes_le());
    let radix = F::from(2u64).pow([8 * bytes as u64]);
    let radix_inv = radix.inverse().ok_or("the radix is a multiple of p")?;
    let expected = OPERATIONS.map(|(op, _)| {
        let result = |(a, b): (&F::BigInt, &F::BigInt)| {
            let (x, y) = (value(a), value(b));
            let result = match op {
                0 => x + y,
                1 => x - y,
                // The second factor of a product must be canonical.
                3 if *b >= F::MODULUS => return None,
                3 => x * y * radix_inv,
                _ => F::from(u64::from(x == y)),
            };
            let mut expected = Vec::new();
            push_integer::<F>(result.into_bigint(), &mut expected);
            Some(expected)
        };
        lhs.iter().zip(&rhs).map(result).collect::<Vec<_>>()
    });
    let packed = [pack(&lhs), pack(&rhs)];
    check(move |gpu| {
        let mut rec = Recording::new();
        let [a, b] = [("lhs", &packed[0]), ("rhs", &packed[1])]
            .map(|(label, bytes)| upload(&mut rec, label, bytes));
        let downloads = OPERATIONS.map(|(op, _)| {
            let out = rec.transient("result", (n * bytes) as u64);
            let bindings = [a, b, out].map(|id| rec.whole(id)).to_vec();
            rec.dispatch(Dispatch {
                kernel,
                curve: C::ID,
                bindings,
                params: vec![n as u32, op],
                groups: (n as u32).div_ceil(64),
                work_per_group: 64,
            });
            let whole = rec.whole(out);
            rec.download(whole)
        });
        let output = run_recording(gpu, &rec)?;
        for (((_, sign), expected), id) in OPERATIONS.iter().zip(&expected).zip(downloads) {
            let got = output.downloads[id.0 as usize].chunks_exact(bytes);
            for (i, (got, expected)) in got.zip(expected).enumerate() {
                let right = expected.as_ref().is_none_or(|e| e == got);
                ensure!(right, "{} {sign} {}", lhs[i], rhs[i]);
            }
        }
        Ok(())
    })
}

pub(super) fn operations_fq<C: GpuCurve>(size: Size) -> Prepared {
    operations::<C, C::Fq>(Kernel::FieldOpsFq, size)
}

pub(super) fn operations_fr<C: GpuCurve>(size: Size) -> Prepared {
    operations::<C, C::Fr>(Kernel::FieldOpsFr, size)
}

/// Scalars whose forms at rest are edges, then random ones.
fn scalars<C: GpuCurve>(n: usize, rng: &mut StdRng) -> Vec<C::Fr> {
    operands::<C::Fr>(n, rng)
        .into_iter()
        .map(|x| {
            let mut bytes = Vec::new();
            push_integer::<C::Fr>(x, &mut bytes);
            // Edges above the modulus are no form at rest.
            C::fr_from_montgomery(&bytes).unwrap_or_else(|| C::Fr::rand(rng))
        })
        .collect()
}

/// A kernel over vectors of scalars, the last binding being its result, in a phase of this name.
fn record_pointwise<C: GpuCurve>(
    kernel: Kernel,
    inputs: &[Bytes],
    n: usize,
    phase: &'static str,
) -> (Recording, BufferSlice) {
    let mut rec = Recording::new();
    let mut bindings = Vec::new();
    for input in inputs {
        let id = upload(&mut rec, "input", input);
        bindings.push(rec.whole(id));
    }
    let result = rec.transient("result", 32 * n as u64);
    let result = rec.whole(result);
    bindings.push(result);
    rec.phase(phase);
    rec.dispatch(Dispatch {
        kernel,
        curve: C::ID,
        bindings,
        params: vec![n as u32],
        groups: (n as u32).div_ceil(64),
        work_per_group: 128,
    });
    (rec, result)
}

/// Products of scalars with themselves.
pub(super) fn pointwise_commands<C: GpuCurve>(phase: &'static str, scalars: &Bytes) -> Recording {
    let inputs = [scalars.clone(), scalars.clone()];
    record_pointwise::<C>(Kernel::PointwiseMul, &inputs, scalars.len() / 32, phase).0
}

pub(super) fn pointwise<C: GpuCurve>(
    gpu: &GpuDevice,
    kernel: Kernel,
    inputs: &[Bytes],
    n: usize,
) -> Result<Vec<u8>, CaseError> {
    let (mut rec, result) = record_pointwise::<C>(kernel, inputs, n, "kernel");
    rec.download(result);
    let mut output = run_recording(gpu, &rec)?;
    Ok(output.downloads.swap_remove(0))
}

/// A kernel's inputs and result, for vectors of each length.
type Vectors<C> = (usize, Vec<Bytes>, Vec<<C as GpuCurve>::Fr>);

fn check_vectors<C: GpuCurve>(
    kernel: Kernel,
    what: &'static str,
    vectors: Vec<Vectors<C>>,
) -> Prepared {
    check(move |gpu| {
        vectors.iter().try_for_each(|(n, inputs, expected)| {
            let got = pointwise::<C>(gpu, kernel, inputs, *n)?;
            expect_scalars::<C>(&got, expected, what)
        })
    })
}

pub(super) fn pointwise_mul<C: GpuCurve>(_: Size) -> Prepared {
    let rng = &mut rng(5);
    let vectors = LENGTHS.map(|n| {
        let (a, mut b) = (scalars::<C>(n, rng), scalars::<C>(n, rng));
        b.reverse();
        let expected = a.iter().zip(&b).map(|(a, b)| *a * b).collect();
        (n, [&a, &b].map(|v| at_rest::<C>(v)).to_vec(), expected)
    });
    check_vectors::<C>(Kernel::PointwiseMul, "a·b", vectors.to_vec())
}

pub(super) fn quotient<C: GpuCurve>(_: Size) -> Prepared {
    let rng = &mut rng(6);
    let vectors = LENGTHS.map(|n| {
        let (a, mut b) = (scalars::<C>(n, rng), scalars::<C>(n, rng));
        b.reverse();
        // Every other c is the product: the numerator is 0 where the witness is right.
        let c: Vec<_> = a.iter().zip(&b).map(|(a, b)| *a * b).collect();
        let c: Vec<_> = c
            .into_iter()
            .enumerate()
            .map(|(i, c)| if i % 2 == 0 { C::Fr::rand(rng) } else { c })
            .collect();
        let factor = C::Fr::rand(rng);
        let mut factor_bytes = Vec::new();
        push_scalar::<C>(&factor, &mut factor_bytes);
        let mut inputs = [&a, &b, &c].map(|v| at_rest::<C>(v)).to_vec();
        inputs.push(factor_bytes.into());
        let expected: Vec<_> = (0..n).map(|i| (a[i] * b[i] - c[i]) * factor).collect();
        debug_assert!(expected.iter().skip(1).step_by(2).all(Zero::is_zero));
        (n, inputs, expected)
    });
    check_vectors::<C>(Kernel::Quotient, "(a·b − c)·factor", vectors.to_vec())
}

/// Prefix sums of lengths around those of blocks (p09).
pub(super) fn scan<C: GpuCurve>(size: Size) -> Prepared {
    let small: &[u32] = &[1, 31, 1023, 1024, 1025, 5000];
    let large: &[u32] = &[1, 2, 3, 31, 33, 1023, 1024, 1025, 65537, 1_100_000];
    let lengths = size.pick(small, large);
    check(move |gpu| {
        let rng = &mut rng(3);
        for &n in lengths {
            let counts: Vec<u32> = (0..n).map(|_| rng.gen_range(0..9)).collect();
            let mut rec = Recording::new();
            let bytes: Vec<u8> = counts.iter().flat_map(|c| c.to_le_bytes()).collect();
            let id = upload(&mut rec, "counts", &bytes.into());
            record_scan(&mut rec, C::ID, id, n);
            let whole = rec.whole(id);
            rec.download(whole);
            let output = run_recording(gpu, &rec)?;
            let mut sum = 0u32;
            for (i, bytes) in output.downloads[0].chunks_exact(4).enumerate() {
                let got = u32::from_le_bytes(bytes.try_into().expect("chunks of 4"));
                ensure!(got == sum, "n = {n}, element {i}: {got}, not {sum}");
                sum += counts[i];
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_below_twice_the_modulus() {
        let mut limit = ark_bn254::Fr::MODULUS;
        limit.mul2();
        let all = operands::<ark_bn254::Fr>(60, &mut rng(0));
        assert_eq!(all.len(), 60);
        assert!(all.iter().all(|x| *x < limit));
        assert!(all.contains(&ark_bn254::Fr::MODULUS));
        assert!(all[0].is_zero());
    }
}
