//! A key as this prover uses it, of whatever kind it was: points at rest, matrices in compressed
//! rows, everything where a page begins. Digests tell a damaged file, and by them the user's cache
//! folder knows keys whose points were checked (`checked_keys.rs`).
//!
//! Numbers are little-endian.
//!
//! | offset | field |
//! |---|---|
//! | 0 | `g16p`, `u32` version |
//! | 8 | `u32` each: curve (0 BLS12-381, 1 BN254), reduction (0 circom, 1 libsnark), roots (0 snarkjs, 1 arkworks), level to which the points were checked (0 none, 1 on the curve, 2 subgroup), flags (1: made by one party for development), sections |
//! | 32 | `u64` each: wires, public wires, domain size, bytes of the file |
//! | 64 | for each section: `u32` id, 4 zero bytes, `u64` offset, `u64` length, SHA-256 |
//! | 4064 | SHA-256 of all before |
//! | 4096 | sections one after the other, each filled up with zeros to a multiple of 4096 bytes |
//!
//! | section | content |
//! |---|---|
//! | 2 | α₁ β₁ β₂ γ₂ δ₁ δ₂ |
//! | 3 | IC, if the key has it |
//! | 16–19, 20–23 | A and B: starts of rows, columns, numbers of coefficients (`u32`), and the coefficients that differ |
//! | 9, 5, 6, 8, 7 | the queries h, a, b in G1, l, b in G2: the order in which devices keep them |
//!
//! A section's digest is that of the digests of its blocks of 2^20 bytes, filled up as in the file,
//! so that all cores compute it. Tables of roots are not in the file: they are computed faster than
//! read.
//!
//! The level in the header is for information. Whoever can write the file can write any level, so
//! that points are checked again unless the cache folder has the header's digest.

use super::output::NewFile;
use super::zkey::warn_insecure;
use super::{FileKind, le_u32, le_u64, map_file};
use crate::bytes::Bytes;
use crate::checked_keys;
use crate::curve::{CurveId, GpuCurve};
use crate::device::CacheFolder;
use crate::domain::{Domain, RootConvention};
use crate::error::{Error, InputClass, InputError, Result};
use crate::proving_key::{KeyCheck, KeyShape, Matrix, ProvingKey, QapReduction};
use crate::with_curve;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

pub(crate) const MAGIC: &[u8; 4] = b"g16p";
const VERSION: u32 = 1;
const PAGE: usize = 4096;
const DIGEST: usize = 32;
const HEADER: usize = PAGE - DIGEST;
const TABLE: usize = 64;
const ENTRY: usize = 24 + DIGEST;
/// Most sections that a header has room for.
const MAX_SECTIONS: usize = (HEADER - TABLE) / ENTRY;
/// Bytes that one digest is taken of.
const BLOCK: usize = 1 << 20;
const INSECURE: u32 = 1;

const POINTS: u32 = 2;
const IC: u32 = 3;
const A_ROWS: u32 = 16;
const B_ROWS: u32 = 20;
const A: u32 = 5;
const B_G1: u32 = 6;
const B_G2: u32 = 7;
const L: u32 = 8;
const H: u32 = 9;

const CURVES: [CurveId; 2] = [CurveId::Bls12_381, CurveId::Bn254];
const REDUCTIONS: [QapReduction; 2] = [QapReduction::Circom, QapReduction::Libsnark];
const ROOTS: [RootConvention; 2] = [RootConvention::Snarkjs, RootConvention::Arkworks];
const LEVELS: [KeyCheck; 3] = [KeyCheck::None, KeyCheck::OnCurve, KeyCheck::Subgroup];

/// An error about a section of a key.
fn section_error(shape: &KeyShape, section: u32, class: InputClass, message: String) -> InputError {
    let mut e = InputError::new(class, message).section(section);
    e.file.clone_from(&shape.source);
    e
}

/// SHA-256 of the digests of a section's blocks, filled up to whole pages.
fn digest(section: &[u8]) -> [u8; DIGEST] {
    let blocks: Vec<_> = section
        .par_chunks(BLOCK)
        .map(|block| {
            let zeros = [0; PAGE];
            let fill = block.len().next_multiple_of(PAGE) - block.len();
            Sha256::new()
                .chain_update(block)
                .chain_update(&zeros[..fill])
                .finalize()
        })
        .collect();
    Sha256::digest(blocks.concat()).into()
}

fn number<T: PartialEq>(all: &[T], value: &T) -> u32 {
    let at = all.iter().position(|v| v == value);
    at.expect("one of them") as u32
}

/// Writes a key whose points were checked at `level`; `insecure` marks it as made by one party.
/// Returns the digest that the cache folder is to know it by.
///
/// # Errors
/// [`crate::Error::Io`].
pub fn write(
    key: &ProvingKey,
    level: KeyCheck,
    insecure: bool,
    path: &Path,
) -> Result<[u8; DIGEST]> {
    let points = [
        &key.alpha_g1,
        &key.beta_g1,
        &key.beta_g2,
        &key.gamma_g2,
        &key.delta_g1,
        &key.delta_g2,
    ];
    let points = Bytes::from(points.map(|p| p.to_vec()).concat());
    let matrices = [(A_ROWS, &key.a), (B_ROWS, &key.b)].into_iter();
    let matrices = matrices.flat_map(|(id, m)| {
        (id..).zip([&m.row_starts, &m.entries, &m.coefficients].map(Bytes::clone))
    });
    let mut sections = vec![(POINTS, points)];
    sections.extend(key.ic.iter().map(|ic| (IC, ic.clone())));
    sections.extend(matrices);
    sections.extend([
        (H, key.h_query.clone()),
        (A, key.a_query.clone()),
        (B_G1, key.b_g1_query.clone()),
        (L, key.l_query.clone()),
        (B_G2, key.b_g2_query.clone()),
    ]);
    assert!(sections.len() <= MAX_SECTIONS);

    let mut header = Vec::with_capacity(PAGE);
    header.extend_from_slice(MAGIC);
    for word in [
        VERSION,
        number(&CURVES, &key.curve),
        number(&REDUCTIONS, &key.reduction),
        number(&ROOTS, &key.roots),
        number(&LEVELS, &level),
        if insecure { INSECURE } else { 0 },
        sections.len() as u32,
    ] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    let padded = |s: &(u32, Bytes)| s.1.len().next_multiple_of(PAGE);
    let length = PAGE + sections.iter().map(padded).sum::<usize>();
    for n in [key.n_vars, key.n_public, key.domain_size, length] {
        header.extend_from_slice(&(n as u64).to_le_bytes());
    }
    let mut offset = PAGE;
    for section in &sections {
        header.extend_from_slice(&section.0.to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&(offset as u64).to_le_bytes());
        header.extend_from_slice(&(section.1.len() as u64).to_le_bytes());
        header.extend_from_slice(&digest(&section.1));
        offset += padded(section);
    }
    header.resize(HEADER, 0);
    let own: [u8; DIGEST] = Sha256::digest(&header).into();
    header.extend_from_slice(&own);

    let mut file = NewFile::create(path)?;
    file.write(&header)?;
    for section in &sections {
        file.write(&section.1)?;
        file.write(&vec![0; padded(section) - section.1.len()])?;
    }
    file.commit()?;
    Ok(own)
}

/// As [`write()`], and remembers in `cache` what was checked.
///
/// # Errors
/// As [`write()`].
pub fn prepare(
    key: &ProvingKey,
    level: KeyCheck,
    insecure: bool,
    path: &Path,
    cache: &CacheFolder,
) -> Result<()> {
    let digest = write(key, level, insecure, path)?;
    checked_keys::remember(cache, &digest, level);
    Ok(())
}

/// A section of the file.
struct Section {
    id: u32,
    bytes: Bytes,
    /// With what fills it up.
    padded: Bytes,
    digest: [u8; DIGEST],
}

/// A file whose header is in order, not yet its sections.
pub(crate) struct OpenPrepared {
    pub shape: KeyShape,
    roots: RootConvention,
    /// To which level the header says that the points were checked.
    pub level: KeyCheck,
    pub insecure: bool,
    sections: Vec<Section>,
    digest: [u8; DIGEST],
}

impl OpenPrepared {
    /// # Errors
    /// `bad_magic`, `unsupported_version`, `truncated`, and `bad_section` for a header that is
    /// damaged or contradicts itself.
    pub fn open(path: &Path) -> Result<Self> {
        Self::parse(path, &map_file(path)?)
    }

    fn parse(path: &Path, file: &Bytes) -> Result<Self> {
        let err = |class, at: usize, message: String| -> Result<Self> {
            let e = InputError::new(class, message).file(path);
            Err(e.offset(at as u64).into())
        };
        let bad = |at, message: &str| err(InputClass::BadSection, at, message.to_owned());
        if file.len() >= 4 && FileKind::detect(file) != FileKind::Prepared {
            return err(InputClass::BadMagic, 0, "not a prepared key".into());
        }
        if file.len() < PAGE {
            let message = format!(
                "the file ends after {} bytes, inside the {PAGE}-byte header of a prepared key",
                file.len()
            );
            return err(InputClass::Truncated, file.len(), message);
        }
        let version = le_u32(&file[4..]);
        if version != VERSION {
            let message = format!(
                "a prepared key of version {version}; this program reads version {VERSION}: \
                 prepare the key again from its original"
            );
            return err(InputClass::UnsupportedVersion, 4, message);
        }
        let own: [u8; DIGEST] = Sha256::digest(&file[..HEADER]).into();
        if own != file[HEADER..PAGE] {
            return bad(0, "the header is damaged: its digest is another one");
        }
        let word = |i: usize| le_u32(&file[8 + 4 * i..]) as usize;
        let known = (
            CURVES.get(word(0)),
            REDUCTIONS.get(word(1)),
            ROOTS.get(word(2)),
            LEVELS.get(word(3)),
        );
        let (Some(&curve), Some(&reduction), Some(&roots), Some(&level)) = known else {
            return bad(
                8,
                "a curve, reduction, root convention or level of no known number",
            );
        };
        let count = word(5);
        if count > MAX_SECTIONS {
            return bad(28, "more sections than a header has room for");
        }
        let size = |i: usize| usize::try_from(le_u64(&file[32 + 8 * i..])).unwrap_or(usize::MAX);
        let (n_vars, n_public, domain_size, length) = (size(0), size(1), size(2), size(3));
        let has_domain = domain_size.is_power_of_two() && {
            let log2 = domain_size.trailing_zeros() + u32::from(reduction == QapReduction::Circom);
            with_curve!(curve, C => Domain::<<C as GpuCurve>::Fr>::new(log2, roots).is_some())
        };
        if n_public >= n_vars
            || n_vars > u32::MAX as usize
            || n_public >= domain_size
            || !has_domain
        {
            return bad(32, "sizes that no key has");
        }
        if file.len() < length {
            let message = format!("{} of {length} bytes are there", file.len());
            return err(InputClass::Truncated, file.len(), message);
        }
        if file.len() > length {
            return bad(length, "bytes after the last section");
        }
        let mut sections = Vec::with_capacity(count);
        let mut at = PAGE;
        for entry in file[TABLE..].chunks_exact(ENTRY).take(count) {
            let bytes = usize::try_from(le_u64(&entry[16..])).unwrap_or(usize::MAX);
            let padded = bytes.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
            if le_u64(&entry[8..]) != at as u64 || padded > length - at {
                return bad(TABLE, "sections that do not follow each other");
            }
            sections.push(Section {
                id: le_u32(entry),
                bytes: file.slice(at..at + bytes),
                padded: file.slice(at..at + padded),
                digest: entry[24..].try_into().expect("the rest of an entry"),
            });
            at += padded;
        }
        if at != length {
            return bad(at, "bytes after the last section");
        }
        let insecure = word(4) as u32 & INSECURE != 0;
        if insecure {
            warn_insecure(path);
        }
        Ok(Self {
            shape: KeyShape {
                source: Some(path.to_owned()),
                curve,
                reduction,
                n_vars,
                n_public,
                domain_size,
            },
            roots,
            level,
            insecure,
            sections,
            digest: own,
        })
    }

    fn section(&self, id: u32, expected: Option<usize>) -> Result<Bytes> {
        let found = self.sections.iter().find(|s| s.id == id);
        let error = |class, message| section_error(&self.shape, id, class, message);
        let section = found.ok_or_else(|| {
            error(
                InputClass::MissingSection,
                "the key lacks this section".into(),
            )
        })?;
        match expected {
            Some(bytes) if bytes != section.bytes.len() => {
                let message = format!("{bytes} bytes expected, found {}", section.bytes.len());
                Err(error(InputClass::BadSection, message).into())
            }
            _ => Ok(section.bytes.clone()),
        }
    }

    /// Compares every byte with the digests.
    fn check_digests(&self) -> Result<()> {
        let damaged = |s: &&Section| digest(&s.padded) != s.digest;
        match self.sections.par_iter().find_first(damaged) {
            None => Ok(()),
            Some(section) => {
                let message = "damaged: its digest is not the one in the header".to_owned();
                let at = section.bytes.file_offset().unwrap_or(0);
                let e = section_error(&self.shape, section.id, InputClass::BadSection, message);
                Err(e.offset(at).into())
            }
        }
    }

    /// A matrix whose tables stay in the mapped file, from the three sections that begin with
    /// `first`.
    fn matrix(&self, first: u32) -> Result<Matrix> {
        let part = |i| self.section(first + i, None);
        let matrix = Matrix {
            row_starts: part(0)?,
            entries: part(1)?,
            coefficients: part(2)?,
        };
        let shape = &self.shape;
        let checked = matrix.check(shape.curve, shape.n_vars, shape.domain_size);
        checked.map_err(|e| match e {
            Error::Input(mut e) => {
                e.file.clone_from(&shape.source);
                Error::Input(Box::new(e.section(first)))
            }
            other => other,
        })?;
        Ok(matrix)
    }

    /// Reads the key; its points stay in the mapped file and are not checked.
    ///
    /// # Errors
    /// `bad_section` for damage and for sizes that do not agree, `missing_section`,
    /// `bad_coefficient`.
    pub fn read(&self) -> Result<ProvingKey> {
        let matrices = || rayon::join(|| self.matrix(A_ROWS), || self.matrix(B_ROWS));
        // Both read each byte, and digests of what is wrong tell more.
        let (intact, (a, b)) = rayon::join(|| self.check_digests(), matrices);
        intact?;
        let shape = &self.shape;
        let (g1, g2) = (shape.curve.g1_bytes(), shape.curve.g2_bytes());
        let points = self.section(POINTS, Some(3 * g1 + 3 * g2))?;
        let mut at = 0;
        let mut point = |size| {
            at += size;
            points.slice(at - size..at)
        };
        let query = |id, count: usize, size: usize| self.section(id, Some(count * size));
        let has_ic = self.sections.iter().any(|s| s.id == IC);
        Ok(ProvingKey {
            curve: shape.curve,
            reduction: shape.reduction,
            roots: self.roots,
            source: shape.source.clone(),
            n_vars: shape.n_vars,
            n_public: shape.n_public,
            domain_size: shape.domain_size,
            a: Arc::new(a?),
            b: Arc::new(b?),
            alpha_g1: point(g1),
            beta_g1: point(g1),
            beta_g2: point(g2),
            gamma_g2: point(g2),
            delta_g1: point(g1),
            delta_g2: point(g2),
            ic: match has_ic {
                true => Some(query(IC, shape.n_public + 1, g1)?),
                false => None,
            },
            a_query: query(A, shape.n_vars, g1)?,
            b_g1_query: query(B_G1, shape.n_vars, g1)?,
            b_g2_query: query(B_G2, shape.n_vars, g2)?,
            l_query: query(L, shape.n_vars - shape.n_public - 1, g1)?,
            h_query: query(H, shape.h_len(), g1)?,
        })
    }

    /// Checks the key's points, unless `cache` knows that this was done.
    ///
    /// # Errors
    /// As [`ProvingKey::check`].
    pub fn check(&self, key: &ProvingKey, level: KeyCheck, cache: &CacheFolder) -> Result<()> {
        if checked_keys::is_known(cache, &self.digest, level) {
            return key.check(KeyCheck::None);
        }
        key.check(level)?;
        checked_keys::remember(cache, &self.digest, level);
        Ok(())
    }
}

impl ProvingKey {
    /// Reads a key that [`write()`](crate::formats::prepared::write) prepared, and checks that its points lie on the curve, unless that
    /// is known.
    ///
    /// # Errors
    /// `bad_magic`, `unsupported_version`, `truncated`; `bad_section` for damage; those of
    /// [`ProvingKey::check`].
    pub fn from_prepared(path: impl AsRef<Path>) -> Result<Self> {
        let file = OpenPrepared::open(path.as_ref())?;
        let key = file.read()?;
        file.check(&key, KeyCheck::default(), &CacheFolder::User)?;
        Ok(key)
    }
}

#[cfg(test)]
mod tests;
