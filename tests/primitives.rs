//! NTT and MSM plans against arkworks, on every adapter and tier.

mod common;

use ark_ec::{AffineRepr, CurveGroup, PrimeGroup, VariableBaseMSM};
use ark_ff::{BigInteger, FftField, Field, One, PrimeField, UniformRand};
use ark_poly::{EvaluationDomain, Radix2EvaluationDomain};
use common::TestDevice;
use groth16_gpu::bytes::Bytes;
use groth16_gpu::curve::{Bls12381, Bn254, G1, G1Affine, G2, G2Affine, GpuCurve};
use groth16_gpu::device::RunOptions;
use groth16_gpu::device::recording::Recording;
use groth16_gpu::domain::{Domain, RootConvention};
use groth16_gpu::msm::{self, Geometry, Group};
use groth16_gpu::ntt::{Finish, Order, PowerTable, TransformTables, record_transform};
use groth16_gpu::proving_key::{g1_to_raw, g2_to_raw};
use libtest_mimic::Failed;
use rand::{SeedableRng, rngs::StdRng};

fn pack<C: GpuCurve>(v: &[C::Fr]) -> Vec<u8> {
    v.iter()
        .flat_map(C::fr_montgomery)
        .flat_map(|l| l.to_le_bytes())
        .collect()
}

fn unpack<C: GpuCurve>(bytes: &[u8]) -> Result<Vec<C::Fr>, Failed> {
    bytes
        .chunks_exact(32)
        .map(|b| C::fr_from_montgomery(b).ok_or_else(|| "not canonical".into()))
        .collect()
}

/// Coefficients to values and back, on the subgroup and on a coset, in both root conventions.
fn ntt<C: GpuCurve>(d: &TestDevice) -> Result<(), Failed> {
    let mut rng = StdRng::seed_from_u64(4);
    let logs: &[u32] = if d.slow {
        &[1, 2, 5, 9, 10]
    } else {
        &[1, 2, 3, 7, 8, 9, 10, 11, 14, 16, 17]
    };
    for &log_n in logs {
        for roots in [RootConvention::Snarkjs, RootConvention::Arkworks] {
            let n = 1usize << log_n;
            let domain = Domain::<C::Fr>::new(log_n, roots).unwrap();
            let reference = Radix2EvaluationDomain {
                group_gen: domain.generator,
                group_gen_inv: domain.generator.inverse().unwrap(),
                ..Radix2EvaluationDomain::<C::Fr>::new(n).unwrap()
            };
            let coefficients: Vec<C::Fr> = (0..n).map(|_| C::Fr::rand(&mut rng)).collect();
            let values = reference.fft(&coefficients);
            let shift = C::Fr::GENERATOR;
            let mut power = C::Fr::one();
            let shifted: Vec<C::Fr> = coefficients
                .iter()
                .map(|c| {
                    let s = *c * power;
                    power *= shift;
                    s
                })
                .collect();
            let coset_values = reference.fft(&shifted);

            let size = 32 * n as u64;
            let mut rec = Recording::new();
            let inverse = TransformTables::new::<C>(log_n, roots, true).unwrap();
            let forward = TransformTables::new::<C>(log_n, roots, false).unwrap();
            let inverse = inverse.upload(&mut rec);
            let forward = forward.upload(&mut rec);
            let n_inv = C::Fr::from(n as u64).inverse().unwrap();
            let scale = PowerTable::new::<C>(C::Fr::one(), n_inv, log_n).upload(&mut rec);
            let coset = PowerTable::new::<C>(shift, n_inv, log_n).upload(&mut rec);
            // values → coefficients, natural order, out of place.
            let [x, y, z] = ["x", "y", "z"].map(|l| {
                let id = rec.transient(l, size);
                rec.whole(id)
            });
            rec.upload(x, Bytes::from(pack::<C>(&values)));
            rec.upload(z, Bytes::from(pack::<C>(&values)));
            let natural = Finish {
                powers: Some(scale),
                natural: true,
            };
            record_transform::<C>(&mut rec, &inverse, Order::NaturalToReversed, x, y, natural);
            let got_coefficients = rec.download(y);
            // values → coset values, in place.
            let finish = Finish {
                powers: Some(coset),
                natural: false,
            };
            record_transform::<C>(&mut rec, &inverse, Order::NaturalToReversed, z, z, finish);
            record_transform::<C>(
                &mut rec,
                &forward,
                Order::ReversedToNatural,
                z,
                z,
                Finish::default(),
            );
            let got_coset = rec.download(z);
            let out = d.gpu.run(&rec, &RunOptions::default())?;
            ensure!(
                unpack::<C>(&out.downloads[got_coefficients.0 as usize])? == coefficients,
                "coefficients, 2^{log_n}, {roots:?}"
            );
            ensure!(
                unpack::<C>(&out.downloads[got_coset.0 as usize])? == coset_values,
                "coset values, 2^{log_n}, {roots:?}"
            );
        }
    }
    Ok(())
}

/// What the scalars of a test look like.
#[derive(Clone, Copy, Debug)]
enum Scalars {
    Uniform,
    Zeros,
    Ones,
    Equal,
    MinusOne,
    Boolean,
}

fn scalars<F: PrimeField>(kind: Scalars, n: usize, rng: &mut StdRng) -> Vec<F> {
    let fixed = F::rand(rng);
    (0..n)
        .map(|i| match kind {
            Scalars::Uniform => F::rand(rng),
            Scalars::Zeros => F::zero(),
            Scalars::Ones => F::one(),
            Scalars::Equal => fixed,
            Scalars::MinusOne => -F::one(),
            Scalars::Boolean => F::from((i * 7 % 3 == 1) as u64),
        })
        .collect()
}

/// A few distinct points, then repeats with signs and infinities: cheap to make, and full of the
/// special cases of the addition.
fn points<P: PrimeGroup + CurveGroup>(n: usize, rng: &mut StdRng) -> Vec<P::Affine> {
    let distinct: Vec<P> = (0..n.min(64))
        .map(|_| P::generator() * P::ScalarField::rand(rng))
        .collect();
    let affine = P::normalize_batch(&distinct);
    (0..n)
        .map(|i| match (i / 64) % 4 {
            3 if i % 5 == 0 => P::Affine::zero(),
            1 => (-affine[i % 64].into_group()).into_affine(),
            _ => affine[i % 64],
        })
        .collect()
}

fn canonical<F: PrimeField>(v: &[F]) -> Vec<u8> {
    v.iter()
        .flat_map(|x| x.into_bigint().to_bytes_le())
        .collect()
}

fn msm_on_device<C: GpuCurve>(
    d: &TestDevice,
    group: Group,
    scalars: &[C::Fr],
    bases: Vec<u8>,
    window: Option<u32>,
) -> Result<(Vec<u8>, Geometry), Failed> {
    let n = scalars.len();
    let bits = msm::scalar_bits::<C>();
    let geometry = match window {
        Some(c) => Geometry::with_window(n, bits, c, d.gpu.limits().plan().max_binding),
        None => Geometry::new(
            n,
            n,
            bits,
            group.point_bytes(C::ID),
            d.gpu.limits().max_binding,
        ),
    }
    .ok_or("no geometry")?;
    let mut rec = Recording::new();
    let s = rec.secret("scalars", 32 * n as u64);
    let s = rec.whole(s);
    rec.upload(s, Bytes::from(canonical(scalars)));
    let b = rec.transient("bases", bases.len() as u64);
    let b = rec.whole(b);
    rec.upload(b, Bytes::from(bases));
    let sorted = msm::record_sort(&mut rec, C::ID, s, geometry);
    let sums = msm::record_sums(&mut rec, C::ID, group, &sorted, b);
    let mut out = d.gpu.run(&rec, &RunOptions::default())?;
    Ok((
        std::mem::take(&mut out.downloads[sums.download.0 as usize]),
        geometry,
    ))
}

fn check_g1<C: GpuCurve>(
    d: &TestDevice,
    n: usize,
    kind: Scalars,
    window: Option<u32>,
) -> Result<(), Failed> {
    let mut rng = StdRng::seed_from_u64(n as u64);
    let s = scalars::<C::Fr>(kind, n, &mut rng);
    let bases: Vec<G1Affine<C>> = points::<G1<C>>(n, &mut rng);
    let mut raw = Vec::new();
    bases.iter().for_each(|p| g1_to_raw::<C>(p, &mut raw));
    let (bytes, geometry) = msm_on_device::<C>(d, Group::G1, &s, raw, window)?;
    let got = msm::finish_g1::<C>(&bytes, &geometry)?;
    ensure!(
        got == G1::<C>::msm(&bases, &s).unwrap(),
        "G1, n = {n}, {kind:?}, window {window:?}"
    );
    Ok(())
}

fn check_g2<C: GpuCurve>(d: &TestDevice, n: usize, kind: Scalars) -> Result<(), Failed> {
    let mut rng = StdRng::seed_from_u64(n as u64);
    let s = scalars::<C::Fr>(kind, n, &mut rng);
    let bases: Vec<G2Affine<C>> = points::<G2<C>>(n, &mut rng);
    let mut raw = Vec::new();
    bases.iter().for_each(|p| g2_to_raw::<C>(p, &mut raw));
    let (bytes, geometry) = msm_on_device::<C>(d, Group::G2, &s, raw, None)?;
    let got = msm::finish_g2::<C>(&bytes, &geometry)?;
    ensure!(
        got == G2::<C>::msm(&bases, &s).unwrap(),
        "G2, n = {n}, {kind:?}"
    );
    Ok(())
}

/// p09: every size; p07, p08: infinities, equal and opposite points among the bases.
fn msm_sizes<C: GpuCurve>(d: &TestDevice) -> Result<(), Failed> {
    let sizes: &[usize] = if d.slow {
        &[1, 2, 3, 33, 65]
    } else {
        &[
            1, 2, 3, 31, 32, 33, 63, 64, 65, 237, 255, 256, 257, 511, 512, 513, 1023, 1025,
        ]
    };
    for &n in sizes {
        check_g1::<C>(d, n, Scalars::Uniform, None)?;
    }
    let sizes: &[usize] = if d.slow {
        &[1, 33]
    } else {
        &[1, 2, 31, 64, 257, 1025]
    };
    for &n in sizes {
        check_g2::<C>(d, n, Scalars::Uniform)?;
    }
    Ok(())
}

/// p68 and p08: the sum is right whatever the scalars are.
fn msm_skewed<C: GpuCurve>(d: &TestDevice) -> Result<(), Failed> {
    let n = if d.slow { 70 } else { 3000 };
    for kind in [
        Scalars::Zeros,
        Scalars::Ones,
        Scalars::Equal,
        Scalars::MinusOne,
        Scalars::Boolean,
    ] {
        check_g1::<C>(d, n, kind, None)?;
        if !d.slow {
            check_g2::<C>(d, n / 10, kind)?;
        }
    }
    Ok(())
}

/// Every window size gives the same sum.
fn msm_windows<C: GpuCurve>(d: &TestDevice) -> Result<(), Failed> {
    let (n, windows) = if d.slow { (20, 2..=5) } else { (300, 2..=13) };
    for c in windows {
        check_g1::<C>(d, n, Scalars::Uniform, Some(c))?;
    }
    Ok(())
}

fn msm_large<C: GpuCurve>(d: &TestDevice) -> Result<(), Failed> {
    if d.slow {
        return check_g1::<C>(d, 513, Scalars::Uniform, None);
    }
    check_g1::<C>(d, 131_071, Scalars::Uniform, None)
}

fn main() {
    let mut cases: Vec<common::Case> = Vec::new();
    macro_rules! both_curves {
        ($($f:ident),*) => {$(
            cases.push((format!("{}/bls12_381", stringify!($f)), $f::<Bls12381>));
            cases.push((format!("{}/bn254", stringify!($f)), $f::<Bn254>));
        )*};
    }
    both_curves!(ntt, msm_sizes, msm_skewed, msm_windows, msm_large);
    common::run(cases);
}
