//! From the constraint rows to the scalars of the h query, on the host, for both reductions.
//!
//! With a = A·w, b = B·w and c = C·w as values on the n-th roots of unity, a·b − c vanishes there
//! exactly when the witness satisfies the constraints, so z = xⁿ − 1 divides it
//! ([Groth 2016](https://eprint.iacr.org/2016/260), §2.3 and §3.2). Keys carry no matrix C: where
//! the witness is right, c is the pointwise product of a and b. That also holds in the extra rows
//! that a reduction adds for the public wires, whose b and c are 0.

use crate::cpu::ntt::Ntt;
use crate::curve::GpuCurve;
use crate::domain::Domain;
use crate::error::{Error, InputClass, InputError, Result};
use crate::matrix::{Entry, Matrix, unpack};
use crate::proving_key::QapReduction;
use crate::witness::Witness;
use ark_ff::{Field, Zero};
use rayon::prelude::*;
use zeroize::Zeroize;

/// Rows that one task multiplies, at least.
const MIN_ROWS: usize = 256;

/// Matrix times witness, padded with zeros to `domain_size` elements.
///
/// # Errors
/// `bad_coefficient` for an entry that is not below the modulus, names no wire of the witness, or
/// lies outside the rows; `bad_scalar` for a witness value that is not below the modulus.
pub fn row_products<C: GpuCurve>(
    matrix: &Matrix,
    witness: &Witness,
    domain_size: usize,
) -> Result<Vec<C::Fr>> {
    let rows = matrix.rows();
    if rows > domain_size {
        return Err(bad_coefficient(format!(
            "{rows} rows in a domain of {domain_size}"
        )));
    }
    let coefficients: Vec<C::Fr> = matrix
        .dictionary()
        .par_iter()
        .enumerate()
        .map(|(i, bytes)| {
            C::fr_from_montgomery(bytes).ok_or_else(|| {
                bad_coefficient(format!("coefficient {i} is not below the field's modulus"))
            })
        })
        .collect::<Result<_>>()?;
    let mut products = vec![C::Fr::zero(); domain_size];
    products[..rows]
        .par_iter_mut()
        .zip(matrix.starts().par_windows(2))
        .with_min_len(MIN_ROWS)
        .try_for_each(|(product, ends)| {
            let range = u32::from_le_bytes(ends[0]) as usize..u32::from_le_bytes(ends[1]) as usize;
            let Some(entries) = matrix.packed().get(range.clone()) else {
                return Err(bad_coefficient("rows are out of order".into()));
            };
            for (at, entry) in range.zip(entries) {
                *product += entry_product::<C>(witness, &coefficients, entry).map_err(
                    |(class, message)| {
                        Error::from(InputError::new(class, message).element(at as u64))
                    },
                )?;
            }
            Ok(())
        })?;
    Ok(products)
}

/// Coefficient times wire.
///
/// The coefficient is v·R² and the wire's value w is canonical. Taken as Montgomery limbs they are
/// v·R and w/R, so that their product is v·w.
#[inline(always)]
fn entry_product<C: GpuCurve>(
    witness: &Witness,
    coefficients: &[C::Fr],
    entry: &Entry,
) -> Result<C::Fr, (InputClass, &'static str)> {
    let (wire, number) = unpack(entry);
    if wire as usize >= witness.len() {
        return Err((InputClass::BadCoefficient, "coefficient of no such wire"));
    }
    let Some(coefficient) = coefficients.get(number as usize) else {
        return Err((InputClass::BadCoefficient, "no such coefficient"));
    };
    let value = C::fr_from_montgomery(witness.value(wire as usize)).ok_or((
        InputClass::BadScalar,
        "witness value is not below the field's modulus",
    ))?;
    Ok(*coefficient * value)
}

fn bad_coefficient(message: String) -> Error {
    InputError::new(InputClass::BadCoefficient, message).into()
}

/// The scalars of the h query from the row products a and b, which are used up.
///
/// * [`QapReduction::Circom`]: the n values of a·b − c on the odd coset, in order;
/// * [`QapReduction::Libsnark`]: the lowest n − 1 coefficients of (a·b − c)/z.
///
/// # Errors
/// `bad_section` if the domain is the field's largest: it has no odd coset.
pub fn quotient_scalars<F: ark_ff::PrimeField>(
    reduction: QapReduction,
    domain: Domain<F>,
    mut a: Vec<F>,
    mut b: Vec<F>,
) -> Result<Vec<F>> {
    let shift = match reduction {
        QapReduction::Circom => domain.odd_coset_shift().ok_or_else(|| {
            InputError::new(
                InputClass::BadSection,
                format!(
                    "a domain of 2^{} has no odd coset in this curve's scalar field",
                    domain.log2
                ),
            )
        })?,
        QapReduction::Libsnark => F::GENERATOR,
    };
    let ntt = Ntt::new(domain);
    let mut c = product(&a, &b);
    let scale = ntt.reversed_coset_scale(shift);
    for values in [&mut a, &mut b, &mut c] {
        ntt.inverse_to_reversed_unscaled(values);
        values.par_iter_mut().zip(&scale).for_each(|(x, s)| *x *= s);
        ntt.forward_from_reversed(values);
    }
    a.par_iter_mut()
        .zip(&b)
        .zip(&c)
        .for_each(|((a, b), c)| *a = *a * b - c);
    b.zeroize();
    c.zeroize();
    if reduction == QapReduction::Libsnark {
        // z is constant on a coset.
        let z = shift.pow([domain.size() as u64]) - F::one();
        let z_inverse = z.inverse().expect("z vanishes on no coset but the domain");
        ntt.coset_inverse(&mut a, shift);
        a.par_iter_mut().for_each(|x| *x *= z_inverse);
        // The degree of (a·b − c)/z is at most n − 2.
        a.truncate(domain.size() - 1);
    }
    Ok(a)
}

fn product<F: Field>(a: &[F], b: &[F]) -> Vec<F> {
    a.par_iter().zip(b).map(|(a, b)| *a * b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RootConvention;

    /// p21: the field's largest domain has no odd coset, so the circom reduction ends below it.
    #[test]
    fn p21_the_largest_domain_has_no_odd_coset() {
        let largest = Domain::<ark_bn254::Fr>::new(28, RootConvention::Snarkjs).unwrap();
        let error = quotient_scalars(QapReduction::Circom, largest, vec![], vec![]).unwrap_err();
        assert_eq!(error.class(), "bad_section");
    }
}
