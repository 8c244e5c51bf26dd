//! What keys of the libsnark reduction share, arkworks' and bellman's: runs of points in a file,
//! and the matrices, which these files lack and which come from the circuit.

use super::r1cs::{R1cs, R1csMatrix};
use crate::curve::{CurveId, GpuCurve};
use crate::domain::RootConvention;
use crate::error::{InputClass, InputError, Result};
use crate::proving_key::{KeyShape, Matrix, ProvingKey, QapReduction, g1_to_raw, g2_to_raw};
use crate::with_curve;
use ark_ec::models::short_weierstrass::{Affine, SWCurveConfig};
use ark_ff::FftField;
use ark_serialize::{CanonicalDeserialize, Compress, Validate};
use rayon::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// The field of a key that a run of points belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    AlphaG1,
    BetaG1,
    BetaG2,
    GammaG2,
    DeltaG1,
    DeltaG2,
    Ic,
    A,
    BG1,
    BG2,
    L,
    H,
}

impl Field {
    fn name(self) -> &'static str {
        match self {
            Self::AlphaG1 => "alpha (G1)",
            Self::BetaG1 => "beta (G1)",
            Self::BetaG2 => "beta (G2)",
            Self::GammaG2 => "gamma (G2)",
            Self::DeltaG1 => "delta (G1)",
            Self::DeltaG2 => "delta (G2)",
            Self::Ic => "IC",
            Self::A => "A query",
            Self::BG1 => "B query (G1)",
            Self::BG2 => "B query (G2)",
            Self::L => "L query",
            Self::H => "H query",
        }
    }
    fn is_g2(self) -> bool {
        matches!(
            self,
            Self::BetaG2 | Self::GammaG2 | Self::DeltaG2 | Self::BG2
        )
    }
    /// Whether a count goes before the points.
    fn is_counted(self) -> bool {
        matches!(
            self,
            Self::Ic | Self::A | Self::BG1 | Self::BG2 | Self::L | Self::H
        )
    }
}

/// How a file encodes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    /// In the order of the file.
    pub fields: &'static [Field],
    pub compressed: bool,
    /// Counts are u32 big-endian (bellman), else u64 little-endian (arkworks).
    pub short_counts: bool,
}

/// Where a field's points lie in a file.
#[derive(Clone, Copy, Debug)]
struct Run {
    field: Field,
    offset: usize,
    count: usize,
}

/// A file whose lengths have been checked, not yet its points.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    encoding: Encoding,
    curve: CurveId,
    runs: Vec<Run>,
}

impl Encoding {
    fn point_bytes(self, field: Field, curve: CurveId) -> usize {
        let plain = if field.is_g2() {
            curve.g2_bytes()
        } else {
            curve.g1_bytes()
        };
        if self.compressed { plain / 2 } else { plain }
    }

    /// Finds the runs of points; `bytes` must end with the last.
    ///
    /// # Errors
    /// `truncated`, or `bad_section` for bytes left over.
    pub fn layout(self, bytes: &[u8], path: &Path, curve: CurveId) -> Result<Layout, InputError> {
        let err = |class, at: usize, message| {
            InputError::new(class, message).file(path).offset(at as u64)
        };
        let mut at = 0;
        let mut runs = Vec::with_capacity(self.fields.len());
        for &field in self.fields {
            let rest = &bytes[at..];
            let width = match (field.is_counted(), self.short_counts) {
                (false, _) => 0,
                (true, true) => 4,
                (true, false) => 8,
            };
            if rest.len() < width {
                let message = format!("the file ends before the count of {}", field.name());
                return Err(err(InputClass::Truncated, at, message));
            }
            let count = match width {
                0 => 1,
                4 => u64::from(u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]])),
                _ => super::le_u64(rest),
            };
            let size = self.point_bytes(field, curve);
            let left = (rest.len() - width) / size;
            if count > left as u64 {
                let message = format!(
                    "{}: {count} points of {size} bytes, but only {} more bytes",
                    field.name(),
                    rest.len() - width
                );
                return Err(err(InputClass::Truncated, at, message));
            }
            let count = count as usize;
            runs.push(Run {
                field,
                offset: at + width,
                count,
            });
            at += width + count * size;
        }
        if at < bytes.len() {
            let message = format!("{} bytes after the last point", bytes.len() - at);
            return Err(err(InputClass::BadSection, at, message));
        }
        Ok(Layout {
            encoding: self,
            curve,
            runs,
        })
    }
}

impl Layout {
    /// Decodes a field's points into the form at rest, checking that they lie on the curve.
    ///
    /// # Errors
    /// `invalid_point`, naming the field and the point.
    pub fn decode(&self, bytes: &[u8], path: &Path, field: Field) -> Result<Vec<u8>> {
        let Some(run) = self.runs.iter().find(|run| run.field == field) else {
            return Ok(Vec::new());
        };
        with_curve!(self.curve, C => if field.is_g2() {
            self.decode_run(bytes, path, run, C::ID.g2_bytes(), g2_to_raw::<C>)
        } else {
            self.decode_run(bytes, path, run, C::ID.g1_bytes(), g1_to_raw::<C>)
        })
    }

    fn decode_run<P: SWCurveConfig>(
        &self,
        bytes: &[u8],
        path: &Path,
        run: &Run,
        raw_size: usize,
        to_raw: fn(&Affine<P>, &mut Vec<u8>),
    ) -> Result<Vec<u8>> {
        let size = self.encoding.point_bytes(run.field, self.curve);
        let encoded = &bytes[run.offset..run.offset + run.count * size];
        let compress = if self.encoding.compressed {
            Compress::Yes
        } else {
            Compress::No
        };
        let mut raw = vec![0; run.count * raw_size];
        let bad = raw
            .par_chunks_exact_mut(raw_size)
            .zip(encoded.par_chunks_exact(size))
            .enumerate()
            .with_min_len(64)
            .find_map_first(|(i, (out, encoded))| {
                let point = Affine::<P>::deserialize_with_mode(encoded, compress, Validate::No);
                match point {
                    Ok(point) if point.is_on_curve() => {
                        let mut bytes = Vec::with_capacity(raw_size);
                        to_raw(&point, &mut bytes);
                        out.copy_from_slice(&bytes);
                        None
                    }
                    Ok(_) => Some((i, "not on the curve".to_owned())),
                    Err(e) => Some((i, format!("not a point: {e}"))),
                }
            });
        match bad {
            None => Ok(raw),
            Some((i, what)) => {
                let message = format!("{}: {what}", run.field.name());
                Err(InputError::new(InputClass::InvalidPoint, message)
                    .file(path)
                    .element(i as u64)
                    .offset((run.offset + i * size) as u64)
                    .into())
            }
        }
    }
}

/// A key's points in the form at rest.
pub(crate) struct Points {
    pub alpha_g1: Vec<u8>,
    pub beta_g1: Vec<u8>,
    pub beta_g2: Vec<u8>,
    pub gamma_g2: Vec<u8>,
    pub delta_g1: Vec<u8>,
    pub delta_g2: Vec<u8>,
    pub ic: Vec<u8>,
    pub a: Vec<u8>,
    pub b_g1: Vec<u8>,
    pub b_g2: Vec<u8>,
    pub l: Vec<u8>,
    pub h: Vec<u8>,
}

/// Of several encodings, the one in which all lengths agree; else the error of the one that went
/// furthest, which is most likely meant.
pub(crate) fn best_layout(
    encodings: &[Encoding],
    bytes: &[u8],
    path: &Path,
    r1cs: &R1cs,
) -> Result<(Encoding, Layout)> {
    let mut furthest: Option<InputError> = None;
    for encoding in encodings {
        match encoding.layout(bytes, path, r1cs.curve) {
            Ok(layout) => return Ok((*encoding, layout)),
            Err(e) if furthest.as_ref().is_none_or(|f| f.offset < e.offset) => furthest = Some(e),
            Err(_) => {}
        }
    }
    Err(furthest
        .unwrap_or_else(|| InputError::new(InputClass::BadMagic, "of no known encoding").file(path))
        .into())
}

/// Decodes all points of a file whose lengths agree.
pub(crate) fn decode_points(bytes: &[u8], layout: &Layout, path: &Path) -> Result<Points> {
    let field = |field| layout.decode(bytes, path, field);
    Ok(Points {
        alpha_g1: field(Field::AlphaG1)?,
        beta_g1: field(Field::BetaG1)?,
        beta_g2: field(Field::BetaG2)?,
        gamma_g2: field(Field::GammaG2)?,
        delta_g1: field(Field::DeltaG1)?,
        delta_g2: field(Field::DeltaG2)?,
        ic: field(Field::Ic)?,
        a: field(Field::A)?,
        b_g1: field(Field::BG1)?,
        b_g2: field(Field::BG2)?,
        l: field(Field::L)?,
        h: field(Field::H)?,
    })
}

/// The key of points and circuit, once their numbers are found to agree.
///
/// # Errors
/// `count_mismatch`, naming the query and both numbers; `bad_section` if the circuit is too large
/// for the field's domains.
pub(crate) fn assemble(points: Points, r1cs: &R1cs, source: Option<&Path>) -> Result<ProvingKey> {
    let curve = r1cs.curve;
    let domain_size = domain_size(r1cs).map_err(|e| match source {
        Some(path) => e.in_file(path),
        None => e,
    })?;
    let (g1, g2) = (curve.g1_bytes(), curve.g2_bytes());
    let private = r1cs.n_wires - r1cs.n_public() - 1;
    let counts = [
        (Field::Ic, points.ic.len() / g1, r1cs.n_public() + 1),
        (Field::A, points.a.len() / g1, r1cs.n_wires),
        (Field::BG1, points.b_g1.len() / g1, r1cs.n_wires),
        (Field::BG2, points.b_g2.len() / g2, r1cs.n_wires),
        (Field::L, points.l.len() / g1, private),
        (Field::H, points.h.len() / g1, domain_size - 1),
    ];
    for (field, found, expected) in counts {
        if found != expected {
            return Err(count_error(field, found, expected, source).into());
        }
    }
    let [a, b] = with_curve!(curve, C => matrices::<C>(r1cs));
    Ok(ProvingKey {
        curve,
        reduction: QapReduction::Libsnark,
        roots: RootConvention::Arkworks,
        source: source.map(Path::to_owned),
        n_vars: r1cs.n_wires,
        n_public: r1cs.n_public(),
        domain_size,
        a: Arc::new(a),
        b: Arc::new(b),
        alpha_g1: points.alpha_g1.into(),
        beta_g1: points.beta_g1.into(),
        beta_g2: points.beta_g2.into(),
        gamma_g2: points.gamma_g2.into(),
        delta_g1: points.delta_g1.into(),
        delta_g2: points.delta_g2.into(),
        ic: Some(points.ic.into()),
        a_query: points.a.into(),
        b_g1_query: points.b_g1.into(),
        b_g2_query: points.b_g2.into(),
        l_query: points.l.into(),
        h_query: points.h.into(),
    })
}

/// The shape of the key of a circuit.
///
/// # Errors
/// `bad_section` if the circuit is too large for the field's domains.
pub(crate) fn shape(r1cs: &R1cs, source: &Path) -> Result<KeyShape> {
    Ok(KeyShape {
        source: Some(source.to_owned()),
        curve: r1cs.curve,
        reduction: QapReduction::Libsnark,
        n_vars: r1cs.n_wires,
        n_public: r1cs.n_public(),
        domain_size: domain_size(r1cs).map_err(|e| e.in_file(source))?,
    })
}

pub(crate) fn count_error(
    field: Field,
    found: usize,
    expected: usize,
    source: Option<&Path>,
) -> InputError {
    let message = format!(
        "{}: the key has {found} points, the circuit needs {expected}; do they belong together?",
        field.name()
    );
    let e = InputError::new(InputClass::CountMismatch, message);
    match source {
        Some(path) => e.file(path),
        None => e,
    }
}

/// Smallest power of two that holds the constraints and one row a public wire, 1 included.
fn domain_size(r1cs: &R1cs) -> Result<usize> {
    let size = (r1cs.n_constraints + r1cs.n_public() + 1).next_power_of_two();
    let largest = with_curve!(r1cs.curve, C => <C as GpuCurve>::Fr::TWO_ADICITY);
    if size.trailing_zeros() > largest {
        let message = format!("{} has no domain of {size} rows", r1cs.curve);
        return Err(InputError::new(InputClass::BadSection, message).into());
    }
    Ok(size)
}

/// A and B with the reduction's rows for the public wires, wire · 0 = 0, after the constraints.
fn matrices<C: GpuCurve>(r1cs: &R1cs) -> [Matrix; 2] {
    [
        r1cs.a.to_extended_key_matrix::<C>(r1cs.n_public() + 1),
        r1cs.b.to_key_matrix::<C>(),
    ]
}

/// Which wires a matrix mentions.
pub(crate) fn mentioned(matrix: &R1csMatrix, n_wires: usize) -> Vec<bool> {
    let mut mentioned = vec![false; n_wires];
    let zero: Vec<bool> = matrix
        .coefficients()
        .iter()
        .map(|c| *c == [0; 32])
        .collect();
    for (wire, value) in matrix.columns.iter().zip(&matrix.values) {
        if !zero[*value as usize] {
            mentioned[*wire as usize] = true;
        }
    }
    mentioned
}
