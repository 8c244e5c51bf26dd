//! `.wtns` version 2, as circom's calculators and snarkjs write it.
//!
//! Container: [`super::binfile`]. Numbers are little-endian.
//!
//! | section | content |
//! |---|---|
//! | 1 | `u32` n8 = 32, r (n8 bytes), `u32` number of wires |
//! | 2 | wires × n8 bytes, canonical; wire 0 is 1 |

use super::FileKind;
use super::binfile::BinFile;
use super::output::NewFile;
use crate::curve::CurveId;
use crate::error::{Error, InputClass, Result};
use crate::witness::Witness;
use rayon::prelude::*;
use std::path::Path;

const VERSION: u32 = 2;

/// Reads a witness; the values stay in the mapped file.
///
/// # Errors
/// Those of [`BinFile::open`]; `missing_section`, `bad_section` for lengths that do not agree,
/// `unsupported_curve`, `bad_scalar` with the wire of the first value not below r, and
/// [`Error::Unsatisfied`] if wire 0 is not 1.
pub fn read(path: &Path) -> Result<Witness> {
    let file = BinFile::open(path, FileKind::Wtns, VERSION)?;
    let header = file.require(1, "header")?;
    let mut at = header.cursor();
    let n8 = at.u32("the size of a field element")?;
    if header.bytes.len() as u64 != 8 + u64::from(n8) {
        let message = format!(
            "field elements of {n8} bytes need a header of {} bytes, not {}",
            8 + u64::from(n8),
            header.bytes.len()
        );
        return Err(header.error(InputClass::BadSection, 0, message).into());
    }
    let prime = at.take(n8 as usize, "the prime")?;
    let curve = CurveId::from_fr_modulus(prime).ok_or_else(|| {
        let message = "the prime is the scalar field's of neither BN254 nor BLS12-381";
        header.error(InputClass::UnsupportedCurve, 4, message)
    })?;
    let wires = at.u32("the number of wires")?;
    if let Some(values) = file.section(2) {
        values.expect_elements("values of the wires", wires.into(), 32)?;
    }
    file.finish()?;
    let values = file.require(2, "values")?;
    if wires == 0 {
        let message = "a witness has at least wire 0, the constant 1";
        return Err(header
            .error(InputClass::BadSection, 4 + n8 as usize, message)
            .into());
    }
    let bad = values
        .bytes
        .par_chunks_exact(32)
        .with_min_len(4096)
        .position_first(|v| !curve.is_canonical_scalar(v));
    if let Some(i) = bad {
        let message = "the wire's value is not below the scalar field's modulus";
        let e = values.error(InputClass::BadScalar, 32 * i, message);
        return Err(e.element(i as u64).into());
    }
    if values.bytes[0] != 1 || values.bytes[1..32].iter().any(|b| *b != 0) {
        let message = format!("{}: wire 0 is not 1", path.display());
        return Err(Error::Unsatisfied(message));
    }
    Ok(Witness {
        curve,
        values: values.bytes.clone(),
    })
}

/// Writes a witness.
///
/// # Errors
/// [`Error::Io`].
pub fn write(witness: &Witness, path: &Path) -> Result<()> {
    let mut out = NewFile::create(path)?;
    let mut head = Vec::with_capacity(76);
    head.extend_from_slice(b"wtns");
    for word in [VERSION, 2, 1] {
        head.extend_from_slice(&word.to_le_bytes());
    }
    head.extend_from_slice(&40u64.to_le_bytes());
    head.extend_from_slice(&32u32.to_le_bytes());
    head.extend_from_slice(&witness.curve.fr_modulus_bytes());
    // A key has fewer than 2^32 wires.
    head.extend_from_slice(&(witness.len() as u32).to_le_bytes());
    head.extend_from_slice(&2u32.to_le_bytes());
    head.extend_from_slice(&(witness.values.len() as u64).to_le_bytes());
    out.write(&head)?;
    out.write(&witness.values)?;
    out.commit()
}

impl Witness {
    /// Reads a `.wtns` file; see [`read`].
    pub fn from_wtns(path: impl AsRef<Path>) -> Result<Self> {
        read(path.as_ref())
    }
}
