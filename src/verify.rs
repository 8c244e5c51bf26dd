//! Groth16 verification ([Groth 2016](https://eprint.iacr.org/2016/260), §3.2) on the CPU:
//! e(A, B) = e(α, β) · e(Σ xᵢ·ICᵢ, γ) · e(C, δ).

use crate::curve::GpuCurve;
use crate::error::{InputClass, InputError, Result};
use crate::proof::Proof;
use crate::verifying_key::VerifyingKey;
use crate::with_curve;
use ark_ec::pairing::Pairing;
use ark_ec::{AffineRepr, CurveGroup, VariableBaseMSM};
use ark_ff::{PrimeField, Zero};

/// Whether `proof` is valid for its public inputs under `vk`.
///
/// Everything is checked: all points lie in their subgroups, and the public inputs are canonical,
/// so that x + r does not pass for x.
///
/// # Errors
/// `curve_mismatch`, `count_mismatch` (public inputs against the key), `bad_scalar` with the index
/// of the public input, `invalid_point`. An error means that the arguments are malformed; a
/// well-formed proof that does not hold gives `Ok(false)`.
pub fn verify(vk: &VerifyingKey, proof: &Proof) -> Result<bool> {
    if vk.curve != proof.curve {
        let message = format!(
            "the proof is over {}, but the verifying key is over {}",
            proof.curve, vk.curve
        );
        return Err(InputError::new(InputClass::CurveMismatch, message).into());
    }
    with_curve!(vk.curve, C => verify_over::<C>(vk, proof))
}

fn verify_over<C: GpuCurve>(vk: &VerifyingKey, proof: &Proof) -> Result<bool> {
    let key = vk.to_ark::<C>()?;
    if proof.public_inputs.len() + 1 != key.gamma_abc_g1.len() {
        let message = format!(
            "{} public inputs given, but the verifying key has {}",
            proof.public_inputs.len(),
            key.gamma_abc_g1.len() - 1
        );
        return Err(InputError::new(InputClass::CountMismatch, message).into());
    }
    check_public_inputs(proof)?;
    let points = proof.to_ark::<C>()?;
    let inputs: Vec<_> = proof
        .public_inputs
        .iter()
        .map(|x| C::Fr::from_le_bytes_mod_order(x).into_bigint())
        .collect();
    let ic = &key.gamma_abc_g1;
    let sum = <C::Pairing as Pairing>::G1::msm_bigint(&ic[1..], &inputs) + ic[0];
    let product = C::Pairing::multi_pairing(
        [
            (-points.a.into_group()).into_affine(),
            key.alpha_g1,
            sum.into_affine(),
            points.c,
        ],
        [points.b, key.beta_g2, key.gamma_g2, key.delta_g2],
    );
    Ok(product.is_zero())
}

/// Checks that every public input is below r.
///
/// # Errors
/// `bad_scalar` with the index.
pub fn check_public_inputs(proof: &Proof) -> Result<()> {
    let bad = |x: &[u8; 32]| !proof.curve.is_canonical_scalar(x);
    match proof.public_inputs.iter().position(bad) {
        None => Ok(()),
        Some(i) => Err(InputError::new(
            InputClass::BadScalar,
            "the public input is not below the scalar field's modulus",
        )
        .element(i as u64)
        .into()),
    }
}
