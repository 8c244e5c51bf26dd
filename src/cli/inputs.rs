//! What the primitives' benches compute with.

use ark_ec::{AffineRepr, CurveGroup};
use ark_ff::PrimeField;
use groth16_gpu::{Error, Result};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rayon::prelude::*;
use std::str::FromStr;

/// What the scalars of a multi-scalar multiplication look like.
#[derive(Clone, Copy, Debug)]
pub enum Scalars {
    Uniform,
    Zeros,
    Ones,
    Equal,
    MinusOne,
    Boolean,
    Witness,
}

impl FromStr for Scalars {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "uniform" => Self::Uniform,
            "zeros" => Self::Zeros,
            "ones" => Self::Ones,
            "equal" => Self::Equal,
            "minus-one" => Self::MinusOne,
            "boolean" => Self::Boolean,
            "witness" => Self::Witness,
            other => return Err(Error::Usage(format!("no scalars `{other}`"))),
        })
    }
}

/// n distinct points a + b·i, i < n, times the generator.
pub fn progression<P: CurveGroup>(
    n: usize,
    a: P::ScalarField,
    b: P::ScalarField,
) -> Vec<P::Affine> {
    const PART: usize = 1 << 12;
    let g = P::generator();
    let step = (g * b).into_affine();
    (0..n.div_ceil(PART))
        .into_par_iter()
        .flat_map_iter(|part| {
            let first = part * PART;
            let mut p = g * (a + b * P::ScalarField::from(first as u64));
            let points: Vec<P> = (first..n.min(first + PART))
                .map(|_| {
                    let q = p;
                    p += step;
                    q
                })
                .collect();
            P::normalize_batch(&points)
        })
        .collect()
}

/// n scalars of a kind; the same ones each time.
pub fn make_scalars<F: PrimeField>(kind: Scalars, n: usize) -> Vec<F> {
    let equal = F::rand(&mut StdRng::seed_from_u64(11));
    const PART: usize = 1 << 12;
    (0..n.div_ceil(PART))
        .into_par_iter()
        .flat_map_iter(|part| {
            let mut rng = StdRng::seed_from_u64(part as u64);
            let first = part * PART;
            (first..n.min(first + PART))
                .map(|_| match kind {
                    Scalars::Uniform => F::rand(&mut rng),
                    Scalars::Zeros => F::zero(),
                    Scalars::Ones => F::one(),
                    Scalars::Equal => equal,
                    Scalars::MinusOne => -F::one(),
                    Scalars::Boolean => F::from(rng.r#gen::<bool>()),
                    Scalars::Witness if rng.gen_bool(0.9) => F::from(rng.r#gen::<bool>()),
                    Scalars::Witness => F::rand(&mut rng),
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Points as a device reads them.
pub fn raw_points<P: AffineRepr>(points: &[P], push: impl Fn(&P, &mut Vec<u8>) + Sync) -> Vec<u8> {
    points
        .par_chunks(1 << 12)
        .flat_map_iter(|part| {
            let mut out = Vec::new();
            part.iter().for_each(|p| push(p, &mut out));
            out
        })
        .collect()
}
