//! The verifying key, over either curve.

use crate::curve::{CurveId, GpuCurve};
use crate::error::{InputClass, InputError, Result};
use crate::proving_key::{g1_from_raw, g1_to_raw, g2_from_raw, g2_to_raw};
use crate::with_curve;
use ark_ec::AffineRepr;
use ark_groth16::VerifyingKey as ArkVerifyingKey;

/// Verifying key: affine points in the form at rest of [`crate::proving_key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyingKey {
    pub curve: CurveId,
    pub alpha_g1: Vec<u8>,
    pub beta_g2: Vec<u8>,
    pub gamma_g2: Vec<u8>,
    pub delta_g2: Vec<u8>,
    /// `n_public + 1` G1 points, the first for the constant 1.
    pub ic: Vec<u8>,
}

fn invalid(name: &str, element: Option<usize>, what: &str) -> crate::Error {
    let e = InputError::new(InputClass::InvalidPoint, format!("{name}: {what}"));
    match element {
        Some(i) => e.element(i as u64).into(),
        None => e.into(),
    }
}

/// Decodes and fully checks a G1 point; infinity is legal.
pub(crate) fn checked_g1<C: GpuCurve>(
    bytes: &[u8],
    name: &str,
    element: Option<usize>,
) -> Result<crate::curve::G1Affine<C>> {
    if bytes.len() != C::ID.g1_bytes() {
        return Err(invalid(name, element, "of a wrong length"));
    }
    let p = g1_from_raw::<C>(bytes)
        .ok_or_else(|| invalid(name, element, "a coordinate is not below q"))?;
    if !p.is_on_curve() {
        return Err(invalid(name, element, "not on the curve"));
    }
    if !p.is_in_correct_subgroup_assuming_on_curve() {
        return Err(invalid(name, element, "outside the subgroup of order r"));
    }
    Ok(p)
}

/// As [`checked_g1`], in G2.
pub(crate) fn checked_g2<C: GpuCurve>(
    bytes: &[u8],
    name: &str,
) -> Result<crate::curve::G2Affine<C>> {
    if bytes.len() != C::ID.g2_bytes() {
        return Err(invalid(name, None, "of a wrong length"));
    }
    let p = g2_from_raw::<C>(bytes)
        .ok_or_else(|| invalid(name, None, "a coordinate is not below q"))?;
    if !p.is_on_curve() {
        return Err(invalid(name, None, "not on the curve"));
    }
    if !p.is_in_correct_subgroup_assuming_on_curve() {
        return Err(invalid(name, None, "outside the subgroup of order r"));
    }
    Ok(p)
}

impl VerifyingKey {
    /// Number of public inputs, the constant 1 not included.
    pub fn n_public(&self) -> usize {
        (self.ic.len() / self.curve.g1_bytes()).saturating_sub(1)
    }

    /// Checks every point: coordinates below q, on the curve, in the subgroup, and alpha, beta,
    /// gamma and delta not infinite.
    ///
    /// # Errors
    /// `invalid_point`, `count_mismatch` if there is no IC point.
    pub fn check(&self) -> Result<()> {
        with_curve!(self.curve, C => self.to_ark::<C>().map(|_| ()))
    }

    /// Converts to arkworks, with all checks of [`Self::check`].
    ///
    /// # Errors
    /// As [`Self::check`]; `curve_mismatch` if `C` is not this key's curve.
    pub fn to_ark<C: GpuCurve>(&self) -> Result<ArkVerifyingKey<C::Pairing>> {
        expect_curve::<C>(self.curve)?;
        if self.ic.is_empty() || !self.ic.len().is_multiple_of(C::ID.g1_bytes()) {
            let message = "a verifying key has at least one IC point";
            return Err(InputError::new(InputClass::CountMismatch, message).into());
        }
        let key = ArkVerifyingKey::<C::Pairing> {
            alpha_g1: checked_g1::<C>(&self.alpha_g1, "alpha", None)?,
            beta_g2: checked_g2::<C>(&self.beta_g2, "beta")?,
            gamma_g2: checked_g2::<C>(&self.gamma_g2, "gamma")?,
            delta_g2: checked_g2::<C>(&self.delta_g2, "delta")?,
            gamma_abc_g1: self
                .ic
                .chunks_exact(C::ID.g1_bytes())
                .enumerate()
                .map(|(i, bytes)| checked_g1::<C>(bytes, "IC", Some(i)))
                .collect::<Result<_>>()?,
        };
        let infinite = [
            ("alpha", key.alpha_g1.is_zero()),
            ("beta", key.beta_g2.is_zero()),
            ("gamma", key.gamma_g2.is_zero()),
            ("delta", key.delta_g2.is_zero()),
        ];
        match infinite.iter().find(|(_, infinite)| *infinite) {
            Some((name, _)) => Err(invalid(name, None, "the point at infinity")),
            None => Ok(key),
        }
    }

    /// Converts from arkworks. The points are taken as they are.
    pub fn from_ark<C: GpuCurve>(key: &ArkVerifyingKey<C::Pairing>) -> Self {
        let g1 = |p| {
            let mut out = Vec::new();
            g1_to_raw::<C>(p, &mut out);
            out
        };
        let g2 = |p| {
            let mut out = Vec::new();
            g2_to_raw::<C>(p, &mut out);
            out
        };
        let mut ic = Vec::new();
        for p in &key.gamma_abc_g1 {
            g1_to_raw::<C>(p, &mut ic);
        }
        Self {
            curve: C::ID,
            alpha_g1: g1(&key.alpha_g1),
            beta_g2: g2(&key.beta_g2),
            gamma_g2: g2(&key.gamma_g2),
            delta_g2: g2(&key.delta_g2),
            ic,
        }
    }
}

/// `curve_mismatch` unless `C` is `curve`.
pub(crate) fn expect_curve<C: GpuCurve>(curve: CurveId) -> Result<()> {
    if curve == C::ID {
        return Ok(());
    }
    let message = format!("the data is over {curve}, but {} was asked for", C::ID);
    Err(InputError::new(InputClass::CurveMismatch, message).into())
}
