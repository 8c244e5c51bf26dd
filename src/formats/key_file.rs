//! A proving key's file of any kind: first its header, from which proofs can be planned and devices
//! prepared, then its contents.

use super::prepared::OpenPrepared;
use super::r1cs::R1cs;
use super::zkey::OpenZkey;
use super::{FileKind, ark, bellman, libsnark, map_file};
use crate::bytes::Bytes;
use crate::cpu;
use crate::curve::CurveId;
use crate::device::CacheFolder;
use crate::error::Result;
use crate::proving_key::{KeyCheck, KeyShape, ProvingKey};
use crate::report::PhaseClock;
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// A key's file, opened. What its header says agrees with the file's length.
pub struct KeyFile<'a> {
    path: &'a Path,
    content: Content<'a>,
    shape: KeyShape,
    bytes: u64,
}

enum Content<'a> {
    Zkey(Box<OpenZkey>),
    Prepared(Box<OpenPrepared>),
    Libsnark {
        bytes: Bytes,
        encoding: libsnark::Encoding,
        layout: libsnark::Layout,
        r1cs: &'a R1cs,
    },
}

impl<'a> KeyFile<'a> {
    /// Opens a key of any kind: a `.zkey` or a prepared key by its magic number; keys without one, arkworks' and
    /// bellman's, as the encoding whose lengths agree, for the circuit `r1cs`.
    ///
    /// # Errors
    /// Those of the readers; `bad_magic` for a file of another kind, or one without a magic number
    /// when there is no `r1cs`.
    pub fn open(path: &'a Path, r1cs: Option<&'a R1cs>) -> Result<Self> {
        let bytes = map_file(path)?;
        let length = bytes.len() as u64;
        let (content, shape) = match (FileKind::detect(&bytes), r1cs) {
            (FileKind::Unknown, Some(r1cs)) => {
                let mut encodings = vec![ark::UNCOMPRESSED, ark::COMPRESSED];
                if r1cs.curve == CurveId::Bls12_381 {
                    encodings.push(bellman::PARAMETERS);
                }
                let (encoding, layout) = libsnark::best_layout(&encodings, &bytes, path, r1cs)?;
                let shape = libsnark::shape(r1cs, path)?;
                let content = Content::Libsnark {
                    bytes,
                    encoding,
                    layout,
                    r1cs,
                };
                (content, shape)
            }
            (FileKind::Prepared, _) => {
                let prepared = OpenPrepared::open(path)?;
                let shape = prepared.shape.clone();
                (Content::Prepared(Box::new(prepared)), shape)
            }
            // Also for files of other kinds: the reader says what they are.
            _ => {
                let zkey = OpenZkey::open(path)?;
                let shape = zkey.key.shape();
                (Content::Zkey(Box::new(zkey)), shape)
            }
        };
        Ok(Self {
            path,
            content,
            shape,
            bytes: length,
        })
    }

    /// What its header tells.
    pub fn shape(&self) -> &KeyShape {
        &self.shape
    }

    /// Whether it says of itself that one party made it, for development.
    pub fn is_insecure(&self) -> bool {
        match &self.content {
            Content::Zkey(file) => file.insecure,
            Content::Prepared(file) => file.insecure,
            Content::Libsnark { .. } => false,
        }
    }

    /// The level to which a prepared key says that its points were checked.
    pub fn checked(&self) -> Option<KeyCheck> {
        match &self.content {
            Content::Prepared(file) => Some(file.level),
            _ => None,
        }
    }

    /// Reads and checks the key.
    ///
    /// # Errors
    /// Those of the readers, and those of [`ProvingKey::check`].
    pub fn read(self, level: KeyCheck) -> Result<ProvingKey> {
        self.read_timed(level, &mut PhaseClock::start())
    }

    /// As [`Self::read`]; ends the phases `read_key` and `check_key` of a clock. Points are checked
    /// while matrices are read, where they are read apart, so that the second is what is left.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_timed(self, level: KeyCheck, clock: &mut PhaseClock) -> Result<ProvingKey> {
        let key = match self.content {
            Content::Zkey(file) => {
                let (matrices, checked) = thread::scope(|scope| {
                    let check = scope.spawn(|| file.key.check(level));
                    let matrices = file.matrices();
                    clock.end_phase("read_key", cpu::BACKEND, self.bytes);
                    (matrices, check.join())
                });
                let [a, b] = matrices?;
                checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                ProvingKey {
                    a: Arc::new(a),
                    b: Arc::new(b),
                    ..file.key
                }
            }
            Content::Prepared(file) => {
                let key = file.read()?;
                clock.end_phase("read_key", cpu::BACKEND, self.bytes);
                file.check(&key, level, &CacheFolder::User)?;
                key
            }
            Content::Libsnark {
                bytes,
                encoding,
                layout,
                r1cs,
            } => {
                let key = match encoding == bellman::PARAMETERS {
                    true => bellman::decode(&bytes, &layout, self.path, r1cs)?,
                    false => ark::decode(&bytes, &layout, self.path, r1cs)?,
                };
                clock.end_phase("read_key", cpu::BACKEND, self.bytes);
                key.check(level)?;
                key
            }
        };
        clock.end_phase("check_key", cpu::BACKEND, 0);
        Ok(key)
    }
}
