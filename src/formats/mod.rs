//! Readers and writers of the files of the Groth16 ecosystem.
//!
//! Every reader maps its file, checks each length against the bytes that are there before it
//! allocates, and reports what is wrong with an [`InputClass`](crate::error::InputClass) and the place in the file.

pub mod ark;
pub mod bellman;
pub mod binfile;
pub mod json;
mod key_file;
mod libsnark;
pub mod output;
pub mod prepared;
pub mod r1cs;
pub mod wtns;
pub mod zkey;
mod zkey_rows;

use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::proving_key::{KeyCheck, ProvingKey};
pub use key_file::KeyFile;
use memmap2::Mmap;
use r1cs::R1cs;
use std::fs::File;
use std::path::Path;

/// What a file is, told by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// snarkjs proving key.
    Zkey,
    /// Witness.
    Wtns,
    /// Constraint system.
    R1cs,
    /// Powers of tau.
    Ptau,
    /// Prepared proving key.
    Prepared,
    /// A JSON object: proof or verification key.
    JsonObject,
    /// A JSON array: public inputs.
    JsonArray,
    /// None of these: arkworks and bellman files have no magic.
    Unknown,
}

impl FileKind {
    /// The kind of a file that starts with `bytes`.
    pub fn detect(bytes: &[u8]) -> Self {
        match bytes.get(..4) {
            Some(b"zkey") => return Self::Zkey,
            Some(b"wtns") => return Self::Wtns,
            Some(b"r1cs") => return Self::R1cs,
            Some(b"ptau") => return Self::Ptau,
            Some(start) if start == prepared::MAGIC => return Self::Prepared,
            _ => {}
        }
        let head = &bytes[..bytes.len().min(64)];
        let mut text = head.iter().skip_while(|b| b.is_ascii_whitespace());
        match text.next() {
            // A lone bracket is too little to tell JSON from a point's first byte.
            Some(b'{') if head.is_ascii() => Self::JsonObject,
            Some(b'[') if head.is_ascii() => Self::JsonArray,
            _ => Self::Unknown,
        }
    }
    /// Reads the first bytes of `path`.
    pub fn of_file(path: &Path) -> Result<Self> {
        Ok(Self::detect(&map_file(path)?))
    }
    /// What to call it in a message.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Zkey => "a proving key (.zkey)",
            Self::Wtns => "a witness (.wtns)",
            Self::R1cs => "a constraint system (.r1cs)",
            Self::Ptau => "a powers-of-tau file (.ptau)",
            Self::Prepared => "a prepared proving key",
            Self::JsonObject => "a JSON object (a proof or verification key)",
            Self::JsonArray => "a JSON array (public inputs)",
            Self::Unknown => "of no kind that has a magic number",
        }
    }
}

/// Maps a regular file. Empty files give empty bytes.
///
/// # Errors
/// [`Error::Io`] if it cannot be opened or is not a regular file.
pub fn map_file(path: &Path) -> Result<Bytes> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let meta = file.metadata().map_err(|e| Error::io(path, e))?;
    if !meta.is_file() {
        let e = std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file");
        return Err(Error::io(path, e));
    }
    if meta.len() == 0 {
        return Ok(Bytes::from(Vec::new()));
    }
    // SAFETY: the map is read-only and private to this process. Its contract, that nobody shortens
    // or rewrites the file while it is mapped, is passed on to the user: keys and witnesses are
    // inputs that stay as they are while a proof is made. Values are range-checked when read, and
    // every later use decodes them with checks, so a changed file gives a wrong proof, which
    // self-verification discards, or a bus error, not memory corruption.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
    Ok(Bytes::mapped(map))
}

/// Reads a proving key of any kind ([`KeyFile`]).
///
/// # Errors
/// Those of [`KeyFile::open`] and [`KeyFile::read`].
pub fn read_proving_key(path: &Path, r1cs: Option<&R1cs>, level: KeyCheck) -> Result<ProvingKey> {
    KeyFile::open(path, r1cs)?.read(level)
}

/// Little-endian u32 at the start of `bytes`, which must have four.
pub(crate) fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Little-endian u64 at the start of `bytes`, which must have eight.
pub(crate) fn le_u64(bytes: &[u8]) -> u64 {
    u64::from(le_u32(bytes)) | u64::from(le_u32(&bytes[4..])) << 32
}
