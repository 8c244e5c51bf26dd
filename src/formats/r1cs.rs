//! `.r1cs` version 1, as circom writes it
//! ([specification](https://github.com/iden3/r1csfile/blob/master/doc/r1cs_bin_format.md)).
//!
//! Container: [`super::binfile`]. Numbers are little-endian.
//!
//! | section | content |
//! |---|---|
//! | 1 | `u32` n8 = 32, r (n8 bytes), `u32` wires, `u32` public outputs, `u32` public inputs, `u32` private inputs, `u64` labels, `u32` constraints |
//! | 2 | per constraint the combinations A, B, C: `u32` terms, then per term `u32` wire, value (n8 bytes, canonical) |
//! | 3 | label of each wire; not needed here |
//! | 4, 5 | custom gates and their uses: only PLONK proves these |

use super::FileKind;
use super::binfile::{BinFile, Cursor, Section};
use super::output::NewFile;
use crate::curve::{CurveId, GpuCurve};
use crate::error::{InputClass, InputError, Result};
use crate::proving_key::Matrix;
use crate::with_curve;
use crate::witness::Witness;
use ark_ff::{PrimeField, Zero};
use rayon::prelude::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
/// Bytes of a term: wire and value.
const TERM: usize = 4 + 32;

/// A sparse matrix over the scalar field in compressed rows. Circuits of any size have few distinct
/// coefficients, so entries hold indices of these.
#[derive(Clone, Debug, Default)]
pub struct R1csMatrix {
    /// Start of each row in `columns` and `values`; `rows + 1` entries.
    pub row_starts: Vec<u32>,
    /// Wire of each entry.
    pub columns: Vec<u32>,
    /// Which of the coefficients each entry has.
    pub values: Vec<u32>,
    /// Canonical, little-endian.
    coefficients: Vec<[u8; 32]>,
    /// Where each coefficient is.
    known: HashMap<[u8; 32], u32>,
}

impl PartialEq for R1csMatrix {
    /// The same rows; coefficients may be listed in another order.
    fn eq(&self, other: &Self) -> bool {
        self.rows() == other.rows()
            && (0..self.rows())
                .into_par_iter()
                .all(|i| self.row(i).eq(other.row(i)))
    }
}

impl Eq for R1csMatrix {}

/// A rank-1 constraint system: (A·w) ∘ (B·w) = C·w.
///
/// Wires are 1, public outputs, public inputs, private inputs, then the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct R1cs {
    pub curve: CurveId,
    /// Where it was read from, for messages.
    pub source: Option<PathBuf>,
    /// Wires, the constant 1 included.
    pub n_wires: usize,
    pub n_pub_out: usize,
    pub n_pub_in: usize,
    pub n_prv_in: usize,
    pub n_constraints: usize,
    pub a: R1csMatrix,
    pub b: R1csMatrix,
    pub c: R1csMatrix,
}

impl R1csMatrix {
    /// A matrix without rows.
    pub fn new() -> Self {
        Self {
            row_starts: vec![0],
            ..Self::default()
        }
    }
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.row_starts.len().saturating_sub(1)
    }
    /// The (wire, canonical value) pairs of row `i`.
    pub fn row(&self, i: usize) -> impl Iterator<Item = (u32, &[u8; 32])> {
        self.row_entries(i)
            .map(|(wire, value)| (wire, &self.coefficients[value as usize]))
    }
    /// The (wire, index of the coefficient) pairs of row `i`.
    pub(crate) fn row_entries(&self, i: usize) -> impl Iterator<Item = (u32, u32)> {
        let range = self.row_starts[i] as usize..self.row_starts[i + 1] as usize;
        self.columns[range.clone()]
            .iter()
            .copied()
            .zip(self.values[range].iter().copied())
    }
    /// The distinct values, canonical and little-endian.
    pub fn coefficients(&self) -> &[[u8; 32]] {
        &self.coefficients
    }
    /// The index of a coefficient, which is added if it is new.
    pub fn coefficient(&mut self, value: [u8; 32]) -> u32 {
        *self.known.entry(value).or_insert_with(|| {
            self.coefficients.push(value);
            self.coefficients.len() as u32 - 1
        })
    }
    /// Appends an entry to the row that [`Self::end_row`] will end.
    pub fn push(&mut self, wire: u32, value: [u8; 32]) {
        let value = self.coefficient(value);
        self.columns.push(wire);
        self.values.push(value);
    }
    /// Ends the current row.
    pub fn end_row(&mut self) {
        self.row_starts.push(self.columns.len() as u32);
    }
    /// The same matrix as [`ProvingKey`](crate::ProvingKey) keeps it, with coefficients v·R².
    pub fn to_key_matrix<C: GpuCurve>(&self) -> Matrix {
        self.to_extended_key_matrix::<C>(0)
    }
    /// As [`Self::to_key_matrix`], followed by rows 1·wire for the first `wires` wires: the rows
    /// that reductions add to A for the constant and the public wires.
    pub fn to_extended_key_matrix<C: GpuCurve>(&self, wires: usize) -> Matrix {
        const ONE: [u8; 32] = {
            let mut one = [0; 32];
            one[0] = 1;
            one
        };
        let entries = self.columns.len();
        let mut row_starts = self.row_starts.clone();
        if row_starts.is_empty() && wires > 0 {
            row_starts.push(0);
        }
        row_starts.extend((1..=wires).map(|i| (entries + i) as u32));
        let entry = |i: usize| match i.checked_sub(entries) {
            None => (self.columns[i], &self.coefficients[self.values[i] as usize]),
            Some(wire) => (wire as u32, &ONE),
        };
        Matrix::from_entries(&row_starts, entry, to_r_squared::<C>)
    }
}

/// v·R² for a canonical v: the Montgomery form of the Montgomery form.
pub fn to_r_squared<C: GpuCurve>(value: &[u8; 32]) -> [u8; 32] {
    let once = C::Fr::from_le_bytes_mod_order(value);
    let mut big = <C::Fr as PrimeField>::BigInt::default();
    big.as_mut().copy_from_slice(C::fr_montgomery(&once));
    // Montgomery limbs are below the modulus, so this is always Some.
    let twice = C::Fr::from_bigint(big).unwrap_or_else(C::Fr::zero);
    let mut out = [0; 32];
    for (chunk, limb) in out.chunks_exact_mut(8).zip(C::fr_montgomery(&twice)) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
    out
}

impl R1cs {
    /// Reads a `.r1cs` file; see [`read`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        read(path.as_ref())
    }
    /// Public wires, the constant 1 not included.
    pub fn n_public(&self) -> usize {
        self.n_pub_out + self.n_pub_in
    }
    /// Index of the first constraint that the witness does not satisfy.
    ///
    /// # Errors
    /// `curve_mismatch`, `count_mismatch`.
    pub fn first_unsatisfied(&self, witness: &Witness) -> Result<Option<usize>> {
        if witness.curve != self.curve {
            let message = format!(
                "the witness is over {}, but the circuit is over {}",
                witness.curve, self.curve
            );
            return Err(InputError::new(InputClass::CurveMismatch, message).into());
        }
        if witness.len() != self.n_wires {
            let message = format!(
                "the witness has {} wires, but the circuit has {}",
                witness.len(),
                self.n_wires
            );
            return Err(InputError::new(InputClass::CountMismatch, message).into());
        }
        Ok(with_curve!(self.curve, C => self.first_unsatisfied_over::<C>(witness)))
    }

    fn first_unsatisfied_over<C: GpuCurve>(&self, witness: &Witness) -> Option<usize> {
        let dot = |matrix: &R1csMatrix, i| {
            matrix
                .row(i)
                .map(|(wire, value)| {
                    C::Fr::from_le_bytes_mod_order(value)
                        * C::Fr::from_le_bytes_mod_order(witness.value(wire as usize))
                })
                .sum::<C::Fr>()
        };
        (0..self.n_constraints)
            .into_par_iter()
            .position_first(|i| dot(&self.a, i) * dot(&self.b, i) != dot(&self.c, i))
    }
}

/// Reads a constraint system.
///
/// # Errors
/// Those of [`BinFile::open`]; `unsupported_curve`, `missing_section`, `bad_section`,
/// `bad_constraint` for a combination that does not fit the section or names a wire that does not
/// exist, `bad_scalar` for a value not below r.
pub fn read(path: &Path) -> Result<R1cs> {
    let file = BinFile::open(path, FileKind::R1cs, VERSION)?;
    let mut r1cs = read_header(path, &file)?;
    if let Some(section) = file.section(2) {
        let (count, least) = (r1cs.n_constraints as u64, 12 * r1cs.n_constraints as u64);
        if !section.bytes.len().is_multiple_of(4) || (section.bytes.len() as u64) < least {
            let message = format!(
                "{count} constraints need at least {least} bytes, the section has {}",
                section.bytes.len()
            );
            return Err(section.error(InputClass::BadSection, 0, message).into());
        }
    }
    file.finish()?;
    if let Some(section) = file.section(5) {
        let uses = section.cursor().u32("the number of uses of custom gates")?;
        if uses > 0 {
            let message = format!("{uses} custom gates, which Groth16 does not prove");
            return Err(section.error(InputClass::BadConstraint, 0, message).into());
        }
    }
    read_constraints(file.require(2, "constraints")?, &mut r1cs)?;
    Ok(r1cs)
}

fn read_header(path: &Path, file: &BinFile) -> Result<R1cs> {
    let section = file.require(1, "header")?;
    let mut at = section.cursor();
    let n8 = at.u32("the size of a field element")?;
    if section.bytes.len() as u64 != 32 + u64::from(n8) {
        let message = format!(
            "field elements of {n8} bytes need a header of {} bytes, not {}",
            32 + u64::from(n8),
            section.bytes.len()
        );
        return Err(section.error(InputClass::BadSection, 0, message).into());
    }
    let prime = at.take(n8 as usize, "the prime")?;
    let curve = CurveId::from_fr_modulus(prime).ok_or_else(|| {
        let message = "the prime is the scalar field's of neither BN254 nor BLS12-381";
        section.error(InputClass::UnsupportedCurve, 4, message)
    })?;
    let mut number = |what| at.u32(what).map(|n| n as usize);
    let n_wires = number("the number of wires")?;
    let n_pub_out = number("the number of public outputs")?;
    let n_pub_in = number("the number of public inputs")?;
    let n_prv_in = number("the number of private inputs")?;
    at.u64("the number of labels")?;
    let n_constraints = at.u32("the number of constraints")? as usize;
    let listed = 1 + n_pub_out as u64 + n_pub_in as u64 + n_prv_in as u64;
    if listed > n_wires as u64 {
        let message =
            format!("{listed} wires for the constant, outputs and inputs, but {n_wires} in all");
        let e = section.error(InputClass::BadSection, 4 + n8 as usize, message);
        return Err(e.into());
    }
    Ok(R1cs {
        curve,
        source: Some(path.to_owned()),
        n_wires,
        n_pub_out,
        n_pub_in,
        n_prv_in,
        n_constraints,
        a: R1csMatrix::new(),
        b: R1csMatrix::new(),
        c: R1csMatrix::new(),
    })
}

fn read_constraints(section: &Section, r1cs: &mut R1cs) -> Result<()> {
    // Row starts are 32 bits wide.
    if section.bytes.len() as u64 / TERM as u64 > u64::from(u32::MAX) {
        let message = "more than 2^32 - 1 terms";
        return Err(section.error(InputClass::BadSection, 0, message).into());
    }
    let mut at = section.cursor();
    for constraint in 0..r1cs.n_constraints {
        for matrix in [&mut r1cs.a, &mut r1cs.b, &mut r1cs.c] {
            read_combination(
                section,
                &mut at,
                constraint,
                r1cs.n_wires,
                r1cs.curve,
                matrix,
            )?;
        }
    }
    if at.remaining() != 0 {
        let message = format!("{} bytes after the last constraint", at.remaining());
        return Err(section
            .error(InputClass::BadSection, at.position(), message)
            .into());
    }
    Ok(())
}

fn read_combination(
    section: &Section,
    at: &mut Cursor<'_>,
    constraint: usize,
    n_wires: usize,
    curve: CurveId,
    matrix: &mut R1csMatrix,
) -> Result<()> {
    let err = |class, at, message: String| {
        Err(section
            .error(class, at, message)
            .element(constraint as u64)
            .into())
    };
    let start = at.position();
    if at.remaining() < 4 {
        let message = "the section ends inside the constraint".to_owned();
        return err(InputClass::BadConstraint, start, message);
    }
    let terms = at.u32("the number of terms")?;
    if u64::from(terms) * TERM as u64 > at.remaining() as u64 {
        let message = format!(
            "{terms} terms of {TERM} bytes, but the section has {} more bytes",
            at.remaining()
        );
        return err(InputClass::BadConstraint, start, message);
    }
    for _ in 0..terms {
        let here = at.position();
        let wire = at.u32("a wire")?;
        let mut value = [0; 32];
        value.copy_from_slice(at.take(32, "a value")?);
        if wire as usize >= n_wires {
            let message = format!("wire {wire} of {n_wires}");
            return err(InputClass::BadConstraint, here, message);
        }
        if !curve.is_canonical_scalar(&value) {
            let message = "a value is not below the scalar field's modulus".to_owned();
            return err(InputClass::BadScalar, here + 4, message);
        }
        matrix.push(wire, value);
    }
    matrix.end_row();
    Ok(())
}

/// Writes a constraint system; wire labels are the identity.
///
/// # Errors
/// [`crate::Error::Io`].
pub fn write(r1cs: &R1cs, path: &Path) -> Result<()> {
    let mut header = Vec::with_capacity(64);
    header.extend_from_slice(&32u32.to_le_bytes());
    header.extend_from_slice(&r1cs.curve.fr_modulus_bytes());
    for n in [r1cs.n_wires, r1cs.n_pub_out, r1cs.n_pub_in, r1cs.n_prv_in] {
        header.extend_from_slice(&(n as u32).to_le_bytes());
    }
    header.extend_from_slice(&(r1cs.n_wires as u64).to_le_bytes());
    header.extend_from_slice(&(r1cs.n_constraints as u32).to_le_bytes());
    let matrices = [&r1cs.a, &r1cs.b, &r1cs.c];
    let terms: usize = matrices.iter().map(|m| m.columns.len()).sum();
    let mut body = Vec::with_capacity(12 * r1cs.n_constraints + terms * TERM);
    for i in 0..r1cs.n_constraints {
        for matrix in matrices {
            let length = matrix.row_starts[i + 1] - matrix.row_starts[i];
            body.extend_from_slice(&length.to_le_bytes());
            for (wire, value) in matrix.row(i) {
                body.extend_from_slice(&wire.to_le_bytes());
                body.extend_from_slice(value);
            }
        }
    }
    let labels: Vec<u8> = (0..r1cs.n_wires as u64)
        .flat_map(u64::to_le_bytes)
        .collect();
    let mut out = NewFile::create(path)?;
    out.write(b"r1cs")?;
    out.write(&VERSION.to_le_bytes())?;
    out.write(&3u32.to_le_bytes())?;
    for (id, section) in [(1u32, &header), (2, &body), (3, &labels)] {
        out.write(&id.to_le_bytes())?;
        out.write(&(section.len() as u64).to_le_bytes())?;
        out.write(section)?;
    }
    out.commit()
}
