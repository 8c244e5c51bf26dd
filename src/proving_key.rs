//! The proving key: the queries of Groth16 ([Groth 2016](https://eprint.iacr.org/2016/260), §3.2)
//! as raw points, and the rows of the constraint matrices A and B.
//!
//! Points are kept in the form in which snarkjs and arkworks store them and in which the kernels
//! read them: affine, little-endian, Montgomery with R = 2^(32·words), infinity as all zeros.
//! A `.zkey` is therefore used where it lies in the mapped file.

use crate::bytes::Bytes;
use crate::curve::{CurveId, G1Affine, G2Affine, GpuCurve};
use crate::domain::RootConvention;
use crate::error::{Error, InputClass, InputError, Result};
pub use crate::matrix::Matrix;
use crate::verifying_key::VerifyingKey;
use crate::with_curve;
use crate::witness::Witness;
use ark_ec::AffineRepr;
use ark_ec::models::short_weierstrass::{Affine, SWCurveConfig};
use ark_ff::{Field, Zero};
use rayon::prelude::*;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// How the quotient's scalars relate to the h query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QapReduction {
    /// snarkjs: scalars are a·b − c on the coset of the odd 2n-th roots, h query in Lagrange form.
    Circom,
    /// arkworks, bellman: scalars are the coefficients of (a·b − c)/z, h query in monomial form.
    Libsnark,
}

/// A proving key of either curve, from whatever source.
#[derive(Clone, Debug)]
pub struct ProvingKey {
    pub curve: CurveId,
    pub reduction: QapReduction,
    pub roots: RootConvention,
    /// Where it was read from, for messages.
    pub source: Option<PathBuf>,
    /// Wires, the constant 1 included.
    pub n_vars: usize,
    /// Public wires, the constant 1 not included.
    pub n_public: usize,
    /// Size of the evaluation domain, a power of two.
    pub domain_size: usize,
    /// Rows of A and B (`rows() <= domain_size`), the public-input rows of the reduction included.
    pub a: Arc<Matrix>,
    pub b: Arc<Matrix>,
    pub alpha_g1: Bytes,
    pub beta_g1: Bytes,
    pub beta_g2: Bytes,
    pub gamma_g2: Bytes,
    pub delta_g1: Bytes,
    pub delta_g2: Bytes,
    /// Verifying key's `n_public + 1` points; `None` if the file lacks them.
    pub ic: Option<Bytes>,
    /// `n_vars` G1 points.
    pub a_query: Bytes,
    /// `n_vars` G1 points.
    pub b_g1_query: Bytes,
    /// `n_vars` G2 points.
    pub b_g2_query: Bytes,
    /// `n_vars - n_public - 1` G1 points, for the private wires.
    pub l_query: Bytes,
    /// `domain_size` (circom) or `domain_size - 1` (libsnark) G1 points.
    pub h_query: Bytes,
}

/// What the header of a key tells, before its contents are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyShape {
    /// Where it was read from, for messages.
    pub source: Option<PathBuf>,
    pub curve: CurveId,
    pub reduction: QapReduction,
    /// Wires, the constant 1 included.
    pub n_vars: usize,
    /// Public wires, the constant 1 not included.
    pub n_public: usize,
    /// Size of the evaluation domain, a power of two.
    pub domain_size: usize,
}

impl KeyShape {
    /// Scalars of the h query.
    pub fn h_len(&self) -> usize {
        match self.reduction {
            QapReduction::Circom => self.domain_size,
            QapReduction::Libsnark => self.domain_size - 1,
        }
    }

    /// Checks that a witness is of this key's curve and has a value for each of its wires.
    ///
    /// # Errors
    /// `curve_mismatch`, `count_mismatch`; the messages name both sides.
    pub fn check_witness(&self, witness: &Witness) -> Result<()> {
        let key = match &self.source {
            Some(path) => format!("the key {}", path.display()),
            None => "the key".to_owned(),
        };
        if witness.curve != self.curve {
            let message = format!(
                "the witness is over {}, but {key} is over {}",
                witness.curve, self.curve
            );
            return Err(InputError::new(InputClass::CurveMismatch, message).into());
        }
        if witness.len() != self.n_vars {
            let message = format!(
                "the witness has {} wires, but {key} is for {}",
                witness.len(),
                self.n_vars
            );
            return Err(InputError::new(InputClass::CountMismatch, message).into());
        }
        Ok(())
    }
}

/// How far the points of a key are checked before it is used.
///
/// A key from an untrusted source with points off the curve or outside the subgroup can leak the
/// witness; see [invalid curve attacks](https://eprint.iacr.org/2003/010).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyCheck {
    /// Only alpha, beta, gamma and delta, as under [`KeyCheck::OnCurve`].
    None,
    /// Coordinates below q and the curve equation.
    #[default]
    OnCurve,
    /// Also membership in the subgroup of order r.
    Subgroup,
}

impl KeyCheck {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OnCurve => "on-curve",
            Self::Subgroup => "subgroup",
        }
    }
}

impl FromStr for KeyCheck {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "none" => Ok(Self::None),
            "on-curve" => Ok(Self::OnCurve),
            "subgroup" => Ok(Self::Subgroup),
            _ => Err(Error::Usage(format!(
                "unknown key check `{s}`; known: none, on-curve, subgroup"
            ))),
        }
    }
}

/// What is wrong with a point at rest, if anything.
fn defect<F: Field, P: SWCurveConfig<BaseField = F>>(
    point: Option<Affine<P>>,
    level: KeyCheck,
) -> Option<&'static str> {
    let Some(point) = point else {
        return Some("a coordinate is not below the field's modulus");
    };
    if !point.is_on_curve() {
        return Some("not on the curve");
    }
    if level == KeyCheck::Subgroup && !point.is_in_correct_subgroup_assuming_on_curve() {
        return Some("on the curve, but outside the subgroup of order r");
    }
    None
}

/// One run of points of a key, for checks.
struct Part<'a> {
    name: &'static str,
    /// Id in a `.zkey`.
    section: u32,
    bytes: &'a Bytes,
    g2: bool,
}

impl ProvingKey {
    fn header_parts(&self) -> [Part<'_>; 6] {
        let part = |name, bytes, g2| Part {
            name,
            section: 2,
            bytes,
            g2,
        };
        [
            part("alpha (G1)", &self.alpha_g1, false),
            part("beta (G1)", &self.beta_g1, false),
            part("beta (G2)", &self.beta_g2, true),
            part("gamma (G2)", &self.gamma_g2, true),
            part("delta (G1)", &self.delta_g1, false),
            part("delta (G2)", &self.delta_g2, true),
        ]
    }

    fn query_parts(&self) -> Vec<Part<'_>> {
        let part = |name, section, bytes, g2| Part {
            name,
            section,
            bytes,
            g2,
        };
        let mut parts = vec![
            part("A query", 5, &self.a_query, false),
            part("B query (G1)", 6, &self.b_g1_query, false),
            part("B query (G2)", 7, &self.b_g2_query, true),
            part("L query", 8, &self.l_query, false),
            part("H query", 9, &self.h_query, false),
        ];
        if let Some(ic) = &self.ic {
            parts.insert(0, part("IC", 3, ic, false));
        }
        parts
    }

    /// Checks the key's points. Infinity is legal in the queries (a wire that a matrix does not
    /// mention has it there), but not as alpha, beta, gamma or delta.
    ///
    /// # Errors
    /// `invalid_point`, naming the query and the index of the first bad point.
    pub fn check(&self, level: KeyCheck) -> Result<()> {
        with_curve!(self.curve, C => self.check_points::<C>(level))
    }

    fn check_points<C: GpuCurve>(&self, level: KeyCheck) -> Result<()> {
        for part in self.header_parts() {
            if part.bytes.iter().all(|b| *b == 0) {
                return Err(self.point_error(&part, None, "the point at infinity"));
            }
            self.check_part::<C>(&part, level, false)?;
        }
        if level != KeyCheck::None {
            for part in self.query_parts() {
                self.check_part::<C>(&part, level, true)?;
            }
        }
        Ok(())
    }

    fn check_part<C: GpuCurve>(&self, part: &Part<'_>, level: KeyCheck, many: bool) -> Result<()> {
        let size = if part.g2 {
            C::ID.g2_bytes()
        } else {
            C::ID.g1_bytes()
        };
        let found = part
            .bytes
            .par_chunks_exact(size)
            .enumerate()
            .with_min_len(256)
            .find_map_first(|(i, bytes)| {
                let what = if part.g2 {
                    defect(g2_from_raw::<C>(bytes), level)
                } else {
                    defect(g1_from_raw::<C>(bytes), level)
                };
                what.map(|what| (i, what))
            });
        match found {
            None => Ok(()),
            Some((i, what)) => Err(self.point_error(part, many.then_some((i, size)), what)),
        }
    }

    fn point_error(&self, part: &Part<'_>, element: Option<(usize, usize)>, what: &str) -> Error {
        let mut e = InputError::new(InputClass::InvalidPoint, format!("{}: {what}", part.name));
        if let Some(source) = &self.source {
            e = e.file(source);
            if self.reduction == QapReduction::Circom {
                e = e.section(part.section);
            }
        }
        let (index, size) = element.unwrap_or_default();
        if element.is_some() {
            e = e.element(index as u64);
        }
        if let Some(start) = part.bytes.file_offset() {
            e = e.offset(start + (index * size) as u64);
        }
        e.into()
    }

    /// What its header tells.
    pub fn shape(&self) -> KeyShape {
        KeyShape {
            source: self.source.clone(),
            curve: self.curve,
            reduction: self.reduction,
            n_vars: self.n_vars,
            n_public: self.n_public,
            domain_size: self.domain_size,
        }
    }

    /// As [`KeyShape::check_witness`].
    ///
    /// # Errors
    /// As there.
    pub fn check_witness(&self, witness: &Witness) -> Result<()> {
        self.shape().check_witness(witness)
    }

    /// The verifying key that belongs to this key.
    ///
    /// # Errors
    /// `missing_section` if the key's file has no IC points.
    pub fn verifying_key(&self) -> Result<VerifyingKey> {
        let Some(ic) = &self.ic else {
            let mut e = InputError::new(
                InputClass::MissingSection,
                "the key has no IC points (section 3), which verification needs",
            )
            .section(3);
            e.file.clone_from(&self.source);
            return Err(e.into());
        };
        Ok(VerifyingKey {
            curve: self.curve,
            alpha_g1: self.alpha_g1.to_vec(),
            beta_g2: self.beta_g2.to_vec(),
            gamma_g2: self.gamma_g2.to_vec(),
            delta_g2: self.delta_g2.to_vec(),
            ic: ic.to_vec(),
        })
    }
}

fn push_limbs(limbs: &[u64], out: &mut Vec<u8>) {
    for limb in limbs {
        out.extend_from_slice(&limb.to_le_bytes());
    }
}

/// Decodes an affine G1 point at rest; `None` if a coordinate is not below the modulus.
/// Does not check the curve equation.
pub fn g1_from_raw<C: GpuCurve>(bytes: &[u8]) -> Option<G1Affine<C>> {
    let n = C::ID.fq_bytes();
    let x = C::fq_from_montgomery(&bytes[..n])?;
    let y = C::fq_from_montgomery(&bytes[n..2 * n])?;
    if x.is_zero() && y.is_zero() {
        return Some(G1Affine::<C>::identity());
    }
    Some(G1Affine::<C>::new_unchecked(x, y))
}

/// Decodes an affine G2 point at rest, like [`g1_from_raw`].
pub fn g2_from_raw<C: GpuCurve>(bytes: &[u8]) -> Option<G2Affine<C>> {
    let n = C::ID.fq_bytes();
    let mut c = [C::Fq::zero(); 4];
    for (c, chunk) in c.iter_mut().zip(bytes.chunks_exact(n)) {
        *c = C::fq_from_montgomery(chunk)?;
    }
    let (x, y) = (C::fq2_from_parts(c[0], c[1]), C::fq2_from_parts(c[2], c[3]));
    if x.is_zero() && y.is_zero() {
        return Some(G2Affine::<C>::identity());
    }
    Some(G2Affine::<C>::new_unchecked(x, y))
}

/// Appends the form at rest of a G1 point.
pub fn g1_to_raw<C: GpuCurve>(p: &G1Affine<C>, out: &mut Vec<u8>) {
    if p.is_zero() {
        out.resize(out.len() + C::ID.g1_bytes(), 0);
    } else {
        push_limbs(C::fq_montgomery(&p.x), out);
        push_limbs(C::fq_montgomery(&p.y), out);
    }
}

/// Appends the form at rest of a G2 point.
pub fn g2_to_raw<C: GpuCurve>(p: &G2Affine<C>, out: &mut Vec<u8>) {
    if p.is_zero() {
        out.resize(out.len() + C::ID.g2_bytes(), 0);
    } else {
        for c in [&p.x, &p.y].iter().flat_map(|c| C::fq2_parts(c)) {
            push_limbs(C::fq_montgomery(&c), out);
        }
    }
}
