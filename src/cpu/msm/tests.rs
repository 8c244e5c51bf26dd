use super::*;
use crate::curve::{Bls12381, Bn254, G1Affine, G2Affine};
use crate::proving_key::{g1_to_raw, g2_to_raw};
use ark_ec::{CurveGroup, PrimeGroup, ScalarMul, VariableBaseMSM};
use ark_ff::{BigInteger, One, UniformRand};
use ark_std::rand::Rng;
use ark_std::test_rng;

fn scalar_bytes<F: PrimeField>(scalars: &[F]) -> Vec<u8> {
    scalars
        .iter()
        .flat_map(|x| x.into_bigint().to_bytes_le())
        .collect()
}

/// `n` points, every `infinities`-th one at infinity, some of them equal or opposite.
fn points<P: SWCurveConfig>(n: usize, infinities: usize, rng: &mut impl Rng) -> Vec<Affine<P>> {
    let scalars: Vec<_> = (0..n).map(|_| P::ScalarField::rand(rng)).collect();
    let mut points = Projective::<P>::generator().batch_mul(&scalars);
    for i in 1..n {
        match rng.gen_range(0..16) {
            0 => points[i] = points[i - 1],
            1 => points[i] = -points[i - 1],
            _ if infinities > 0 && i % infinities == 0 => points[i] = Affine::identity(),
            _ => {}
        }
    }
    points
}

/// Scalars as in a witness: zeros, ones, small ones of either sign, the largest, uniform ones.
fn witness_like<F: PrimeField>(n: usize, rng: &mut impl Rng) -> Vec<F> {
    (0..n)
        .map(|_| match rng.gen_range(0..10) {
            0 | 1 => F::zero(),
            2 | 3 => F::one(),
            4 => -F::one(),
            5 => F::from(rng.gen_range(0..1u64 << 40)),
            6 => -F::from(rng.gen_range(0..1u64 << 40)),
            7 => F::from(2u64).inverse().expect("odd characteristic"),
            _ => F::rand(rng),
        })
        .collect()
}

fn check<C: GpuCurve>(n: usize, infinities: usize, scalars: &[C::Fr], rng: &mut impl Rng) {
    let g1: Vec<G1Affine<C>> = points(n, infinities, rng);
    let g2: Vec<G2Affine<C>> = points(n, infinities, rng);
    let (mut raw1, mut raw2) = (Vec::new(), Vec::new());
    g1.iter().for_each(|p| g1_to_raw::<C>(p, &mut raw1));
    g2.iter().for_each(|p| g2_to_raw::<C>(p, &mut raw2));
    let bytes = scalar_bytes(scalars);
    let expected = G1::<C>::msm(&g1, scalars).expect("same lengths");
    assert_eq!(msm_g1::<C>(&raw1, &bytes).unwrap(), expected, "n = {n}");
    assert_eq!(msm_g1_field::<C>(&raw1, scalars).unwrap(), expected);
    let expected = G2::<C>::msm(&g2, scalars).expect("same lengths");
    assert_eq!(msm_g2::<C>(&raw2, &bytes).unwrap(), expected, "n = {n}");
}

fn lengths<C: GpuCurve>() {
    let mut rng = test_rng();
    // p09; p20: the sum over nothing is the identity.
    for n in [
        0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 237, 255, 256, 257, 511, 512, 513, 1023, 1025,
    ] {
        let scalars = witness_like(n, &mut rng);
        check::<C>(n, [0, 1, 2, 100][n % 4], &scalars, &mut rng);
    }
}

#[test]
fn p09_any_length() {
    lengths::<Bls12381>();
    lengths::<Bn254>();
}

/// p68, p08: all scalars equal, all ones, all zero, one bucket only; wide windows.
#[test]
fn p68_skewed_scalars() {
    let mut rng = test_rng();
    let n = 6000;
    let x = ark_bn254::Fr::rand(&mut rng);
    for scalars in [
        vec![x; n],
        vec![ark_bn254::Fr::one(); n],
        vec![-ark_bn254::Fr::one(); n],
        vec![ark_bn254::Fr::zero(); n],
        witness_like(n, &mut rng),
        (0..n).map(|_| UniformRand::rand(&mut rng)).collect(),
    ] {
        check::<Bn254>(n, 7, &scalars, &mut rng);
    }
}

#[test]
fn digits_recompose() {
    type F = ark_bls12_381::Fr;
    let mut rng = test_rng();
    for n in [1usize, 10, 100, 1000, 10_000, 1 << 20] {
        let windows = Windows::choose(n, F::MODULUS_BIT_SIZE - 1);
        assert!(windows.count * windows.width >= F::MODULUS_BIT_SIZE);
        let largest = (-F::one()) / F::from(2u64);
        for x in [F::one(), F::from(2u64), largest, -F::rand(&mut rng)] {
            let mut k = limbs_of(&x);
            if let Some(c) = subtract(&modulus_limbs::<F>(), &k)
                && subtract(&c, &k).is_none()
            {
                k = c;
            }
            let biased = windows.bias(&k);
            let mut sum = F::zero();
            for window in (0..windows.count).rev() {
                let digit = windows.digit(&biased, window);
                assert!(digit.unsigned_abs() <= 1 << (windows.width - 1));
                sum *= F::from(1u64 << windows.width);
                sum += F::from(digit);
            }
            assert!(sum == x || sum == -x);
        }
    }
}

/// p13, p14: lengths that differ and scalars beyond the modulus are refused.
#[test]
fn p13_lengths_and_scalars_are_checked() {
    let mut raw = Vec::new();
    g1_to_raw::<Bn254>(&G1Affine::<Bn254>::generator(), &mut raw);
    let class = |r: Result<G1<Bn254>>| r.unwrap_err().class();
    assert_eq!(class(msm_g1::<Bn254>(&raw, &[0; 64])), "count_mismatch");
    assert_eq!(class(msm_g1::<Bn254>(&raw, &[0; 31])), "count_mismatch");
    assert_eq!(class(msm_g1::<Bn254>(&raw, &[])), "count_mismatch");
    let modulus = ark_bn254::Fr::MODULUS.to_bytes_le();
    assert_eq!(class(msm_g1::<Bn254>(&raw, &modulus)), "bad_scalar");
    assert_eq!(class(msm_g1::<Bn254>(&raw, &[255; 32])), "bad_scalar");
    assert_eq!(
        class(msm_g1::<Bn254>(&[255; 64], &[2; 32])),
        "invalid_point"
    );
    let one = scalar_bytes(&[ark_bn254::Fr::one()]);
    assert_eq!(
        msm_g1::<Bn254>(&raw, &one).unwrap().into_affine(),
        G1Affine::<Bn254>::generator()
    );
}
