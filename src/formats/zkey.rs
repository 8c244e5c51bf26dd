//! `.zkey` of snarkjs, protocol Groth16, over bn128 and bls12381.
//!
//! Container: [`super::binfile`], version 1. Numbers are little-endian; coordinates and prime
//! sizes are n8q and n8r bytes. Points are affine, in Montgomery form, infinity all zeros.
//!
//! | section | content |
//! |---|---|
//! | 1 | `u32` protocol: 1 is Groth16 (2 PLONK, 10 FFLONK) |
//! | 2 | `u32` n8q, q, `u32` n8r, r, `u32` nVars, `u32` nPublic, `u32` domain size, then α₁ β₁ β₂ γ₂ δ₁ δ₂ |
//! | 3 | IC: nPublic + 1 G1 points |
//! | 4 | `u32` count, then per coefficient `u32` matrix (0 A, 1 B), `u32` constraint, `u32` signal, value·R² (n8r bytes) |
//! | 5 | A: nVars G1 points |
//! | 6 | B₁: nVars G1 points |
//! | 7 | B₂: nVars G2 points |
//! | 8 | C: nVars − nPublic − 1 G1 points |
//! | 9 | H: domain size G1 points, in Lagrange form on the odd coset |
//! | 10 | hash of the circuit (64 bytes), contributions; not needed here |
//!
//! Sections come in any order, unknown ones are skipped. The rows of the public inputs
//! (one a public wire, after the constraints) are among section 4's coefficients of A.

use super::binfile::{BinFile, Section};
use super::output::NewFile;
use super::{FileKind, le_u32, zkey_rows};
use crate::bytes::Bytes;
use crate::curve::{CurveId, GpuCurve};
use crate::domain::{Domain, RootConvention};
use crate::error::{Error, InputClass, Result};
use crate::proving_key::{KeyCheck, Matrix, ProvingKey, QapReduction};
use crate::with_curve;
use rayon::prelude::*;
use std::path::Path;
use std::sync::Arc;

const VERSION: u32 = 1;
const GROTH16: u32 = 1;
/// Bytes of one coefficient: matrix, constraint, signal, value.
pub(super) const COEFFICIENT: usize = 12 + 32;

/// Section that marks a key made by one party for development, in which nobody should trust.
/// Other readers skip it.
pub const INSECURE_SECTION: u32 = 0x6465_7630;

/// Reads a key; the points stay in the mapped file and are not checked ([`ProvingKey::check`]).
///
/// A file without section 3 gives a key without IC points, which proves, but cannot verify.
///
/// # Errors
/// Those of [`BinFile::open`]; `unsupported_protocol`, `unsupported_curve`, `missing_section`,
/// `bad_section` for sizes that do not agree, `bad_coefficient`, `bad_scalar`.
pub fn read(path: &Path) -> Result<ProvingKey> {
    let file = OpenZkey::open(path)?;
    let [a, b] = file.matrices()?;
    Ok(ProvingKey {
        a: Arc::new(a),
        b: Arc::new(b),
        ..file.key
    })
}

/// A file whose header and sizes are checked, not yet its contents.
pub(crate) struct OpenZkey {
    /// The key without its matrices.
    pub key: ProvingKey,
    /// Whether it carries [`INSECURE_SECTION`].
    pub insecure: bool,
    header: Header,
    coefficients: Section,
}

impl OpenZkey {
    pub fn open(path: &Path) -> Result<Self> {
        let file = BinFile::open(path, FileKind::Zkey, VERSION)?;
        check_protocol(&file)?;
        let header = read_header(&file)?;
        check_sizes(&file, &header)?;
        // Only now: a wrong length makes the sections behind it look cut off.
        file.finish()?;
        let points = |id, what| file.require(id, what).map(|s| s.bytes.clone());
        let coefficients = file.require(4, "coefficients")?.clone();
        let (a_query, b_g1_query) = (points(5, "A query")?, points(6, "B query in G1")?);
        let (b_g2_query, l_query) = (points(7, "B query in G2")?, points(8, "C query")?);
        let h_query = points(9, "H query")?;
        let insecure = file.section(INSECURE_SECTION).is_some();
        if insecure {
            warn_insecure(path);
        }
        let [alpha_g1, beta_g1, beta_g2, gamma_g2, delta_g1, delta_g2] = header.points.clone();
        let key = ProvingKey {
            curve: header.curve,
            reduction: QapReduction::Circom,
            roots: RootConvention::Snarkjs,
            source: Some(path.to_owned()),
            n_vars: header.n_vars as usize,
            n_public: header.n_public as usize,
            domain_size: header.domain_size as usize,
            a: Arc::default(),
            b: Arc::default(),
            alpha_g1,
            beta_g1,
            beta_g2,
            gamma_g2,
            delta_g1,
            delta_g2,
            ic: file.section(3).map(|s| s.bytes.clone()),
            a_query,
            b_g1_query,
            b_g2_query,
            l_query,
            h_query,
        };
        Ok(Self {
            key,
            insecure,
            header,
            coefficients,
        })
    }

    /// A and B. What of the file they come from is not needed in memory any more.
    pub fn matrices(&self) -> Result<[Matrix; 2]> {
        let matrices = read_matrices(&self.coefficients, &self.header);
        self.coefficients.bytes.release();
        matrices
    }
}

/// Warns of a key in which nobody should trust.
pub(crate) fn warn_insecure(path: &Path) {
    log::warn!(
        "{}: made by one party for development; whoever made it can forge proofs",
        path.display()
    );
}

struct Header {
    curve: CurveId,
    n_vars: u32,
    n_public: u32,
    domain_size: u32,
    /// α₁ β₁ β₂ γ₂ δ₁ δ₂
    points: [Bytes; 6],
}

fn check_protocol(file: &BinFile) -> Result<()> {
    let section = file.require(1, "protocol")?;
    let found = section.cursor().u32("the protocol")?;
    if found == GROTH16 {
        return Ok(());
    }
    let name = match found {
        2 => "PLONK",
        10 => "FFLONK",
        _ => "unknown",
    };
    let message = format!("protocol {found} ({name}) is not supported; expected 1 (Groth16)");
    Err(section
        .error(InputClass::UnsupportedProtocol, 0, message)
        .into())
}

fn read_header(file: &BinFile) -> Result<Header> {
    let section = file.require(2, "Groth16 header")?;
    let mut at = section.cursor();
    let mut prime = |what: &str| -> Result<Vec<u8>> {
        let start = at.position();
        let n8 = at.u32(what)?;
        // Rejects absurd sizes as what they are, a field that is not ours.
        if n8 != 32 && n8 != 48 {
            let message = format!("{what} has {n8} bytes; the supported curves have 32 or 48");
            return Err(section
                .error(InputClass::UnsupportedCurve, start, message)
                .into());
        }
        Ok(at.take(n8 as usize, what)?.to_vec())
    };
    let q = prime("the base field's prime")?;
    let known = CurveId::ALL
        .into_iter()
        .find(|c| c.fq_modulus_bytes() == q)
        .ok_or_else(|| {
            let message = "the base field's prime is of neither BN254 nor BLS12-381";
            section.error(InputClass::UnsupportedCurve, 4, message)
        })?;
    let r = prime("the scalar field's prime")?;
    let r_at = at.position() - r.len();
    if CurveId::from_fr_modulus(&r) != Some(known) {
        let message = format!("the base field is that of {known}, the scalar field is not");
        return Err(section
            .error(InputClass::UnsupportedCurve, r_at, message)
            .into());
    }
    let sizes_at = at.position();
    let n_vars = at.u32("nVars")?;
    let n_public = at.u32("nPublic")?;
    let domain_size = at.u32("the domain size")?;
    let (g1, g2) = (known.g1_bytes(), known.g2_bytes());
    let points = [
        at.take_shared(g1, "alpha (G1)")?,
        at.take_shared(g1, "beta (G1)")?,
        at.take_shared(g2, "beta (G2)")?,
        at.take_shared(g2, "gamma (G2)")?,
        at.take_shared(g1, "delta (G1)")?,
        at.take_shared(g2, "delta (G2)")?,
    ];
    let bad = |at, message: String| Err(section.error(InputClass::BadSection, at, message).into());
    if at.remaining() != 0 {
        return bad(
            at.position(),
            format!("{} bytes more than a header has", at.remaining()),
        );
    }
    if n_public >= n_vars {
        let message = format!("{n_public} public wires, but only {n_vars} wires in all");
        return bad(sizes_at + 4, message);
    }
    // The quotient is evaluated on the coset of a root of order twice the domain's size, so that
    // must exist, too.
    let log2 = domain_size.trailing_zeros();
    let has_coset = with_curve!(known, C => {
        Domain::<<C as GpuCurve>::Fr>::new(log2 + 1, RootConvention::Snarkjs).is_some()
    });
    if domain_size < 2 || !domain_size.is_power_of_two() || !has_coset {
        let message = format!(
            "the domain size {domain_size} is not a power of two, at least 2, whose double is \
             still a domain of {known}"
        );
        return bad(sizes_at + 8, message);
    }
    if domain_size <= n_public {
        let message = format!("{n_public} public wires do not fit a domain of {domain_size} rows");
        return bad(sizes_at + 8, message);
    }
    Ok(Header {
        curve: known,
        n_vars,
        n_public,
        domain_size,
        points,
    })
}

/// Checks the sizes of those sections that are there.
fn check_sizes(file: &BinFile, header: &Header) -> Result<()> {
    let (vars, public) = (u64::from(header.n_vars), u64::from(header.n_public));
    let (g1, g2) = (header.curve.g1_bytes(), header.curve.g2_bytes());
    let expected = [
        (3, "IC points", public + 1, g1),
        (5, "points of the A query", vars, g1),
        (6, "points of the B query in G1", vars, g1),
        (7, "points of the B query in G2", vars, g2),
        (8, "points of the C query", vars - public - 1, g1),
        (9, "points of the H query", header.domain_size.into(), g1),
    ];
    for (id, what, count, size) in expected {
        if let Some(section) = file.section(id) {
            section.expect_elements(what, count, size)?;
        }
    }
    if let Some(section) = file.section(4) {
        let count = section.cursor().u32("the number of coefficients")?;
        let expected = 4 + u64::from(count) * COEFFICIENT as u64;
        if section.bytes.len() as u64 != expected {
            let message = format!(
                "{count} coefficients need {expected} bytes, the section has {}",
                section.bytes.len()
            );
            return Err(section.error(InputClass::BadSection, 0, message).into());
        }
    }
    Ok(())
}

/// A and B from section 4, whose size has been checked.
fn read_matrices(section: &Section, header: &Header) -> Result<[Matrix; 2]> {
    let entries = &section.bytes[4..];
    check_coefficients(section, entries, header)?;
    Ok(zkey_rows::matrices(entries.as_chunks().0))
}

fn check_coefficients(section: &Section, entries: &[u8], header: &Header) -> Result<()> {
    let defect = |e: &[u8]| {
        let (matrix, row, column) = (le_u32(e), le_u32(&e[4..]), le_u32(&e[8..]));
        let coefficient = |message| Some((InputClass::BadCoefficient, message));
        if matrix > 1 {
            coefficient(format!("matrix {matrix}; there are 0 (A) and 1 (B)"))
        } else if row >= header.domain_size {
            let size = header.domain_size;
            coefficient(format!("constraint {row} in a domain of {size} rows"))
        } else if column >= header.n_vars {
            coefficient(format!("signal {column} of {}", header.n_vars))
        } else if !header.curve.is_canonical_scalar(&e[12..]) {
            let message = "the coefficient's value is not below the scalar field's modulus";
            Some((InputClass::BadScalar, message.to_owned()))
        } else {
            None
        }
    };
    let found = entries
        .par_chunks_exact(COEFFICIENT)
        .enumerate()
        .with_min_len(4096)
        .find_map_first(|(i, e)| defect(e).map(|d| (i, d)));
    match found {
        None => Ok(()),
        Some((i, (class, message))) => Err(section
            .error(class, 4 + i * COEFFICIENT, message)
            .element(i as u64)
            .into()),
    }
}

/// Writes a key in snarkjs' form. The section of contributions is left empty.
///
/// `insecure` marks the file as made by one party ([`INSECURE_SECTION`]).
///
/// # Errors
/// [`Error::Usage`] if the key is not of the circom reduction with snarkjs' roots;
/// [`Error::Io`].
pub fn write(key: &ProvingKey, path: &Path, insecure: bool) -> Result<()> {
    if key.reduction != QapReduction::Circom || key.roots != RootConvention::Snarkjs {
        let message = "only keys of the circom reduction can be written as .zkey";
        return Err(Error::Usage(message.to_owned()));
    }
    let header = encode_header(key);
    let coefficients = encode_coefficients(key);
    let protocol = GROTH16.to_le_bytes();
    // Hash of the circuit (64 bytes, unknown), then the number of contributions.
    let contributions = [0u8; 68];
    let mut sections: Vec<(u32, &[u8])> = vec![
        (1, &protocol),
        (2, &header),
        (4, &coefficients),
        (5, &key.a_query),
        (6, &key.b_g1_query),
        (7, &key.b_g2_query),
        (8, &key.l_query),
        (9, &key.h_query),
        (10, &contributions),
    ];
    if let Some(ic) = &key.ic {
        sections.insert(2, (3, ic));
    }
    if insecure {
        sections.push((
            INSECURE_SECTION,
            b"one party made this key: development only",
        ));
    }
    let mut out = NewFile::create(path)?;
    out.write(b"zkey")?;
    out.write(&VERSION.to_le_bytes())?;
    out.write(&(sections.len() as u32).to_le_bytes())?;
    for (id, body) in sections {
        out.write(&id.to_le_bytes())?;
        out.write(&(body.len() as u64).to_le_bytes())?;
        out.write(body)?;
    }
    out.commit()
}

fn encode_header(key: &ProvingKey) -> Vec<u8> {
    let mut out = Vec::new();
    let q = key.curve.fq_modulus_bytes();
    out.extend_from_slice(&(q.len() as u32).to_le_bytes());
    out.extend_from_slice(&q);
    out.extend_from_slice(&32u32.to_le_bytes());
    out.extend_from_slice(&key.curve.fr_modulus_bytes());
    for n in [key.n_vars, key.n_public, key.domain_size] {
        out.extend_from_slice(&(n as u32).to_le_bytes());
    }
    let points = [
        &key.alpha_g1,
        &key.beta_g1,
        &key.beta_g2,
        &key.gamma_g2,
        &key.delta_g1,
        &key.delta_g2,
    ];
    for point in points {
        out.extend_from_slice(point);
    }
    out
}

fn encode_coefficients(key: &ProvingKey) -> Vec<u8> {
    let count = key.a.n_entries() + key.b.n_entries();
    let mut out = Vec::with_capacity(4 + count * COEFFICIENT);
    out.extend_from_slice(&(count as u32).to_le_bytes());
    for (id, matrix) in [(0u32, &key.a), (1, &key.b)] {
        for row in 0..matrix.rows() {
            for (wire, coefficient) in matrix.row(row).map(|i| matrix.entry(i)) {
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&(row as u32).to_le_bytes());
                out.extend_from_slice(&wire.to_le_bytes());
                out.extend_from_slice(coefficient);
            }
        }
    }
    out
}

impl ProvingKey {
    /// Reads a `.zkey` ([`read`]) and checks that its points lie on the curve.
    ///
    /// # Errors
    /// Those of [`read`] and [`ProvingKey::check`].
    pub fn from_zkey(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_zkey_checked(path, KeyCheck::default())
    }

    /// As [`Self::from_zkey`], with another depth of checks.
    pub fn from_zkey_checked(path: impl AsRef<Path>, level: KeyCheck) -> Result<Self> {
        let key = read(path.as_ref())?;
        key.check(level)?;
        Ok(key)
    }
}
