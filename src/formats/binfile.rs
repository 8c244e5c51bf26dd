//! iden3's binary container, which `.zkey`, `.wtns` and `.r1cs` share
//! ([specification](https://github.com/iden3/r1csfile/blob/master/doc/r1cs_bin_format.md)).
//!
//! | field | bytes | |
//! |---|---|---|
//! | magic | 4 | `zkey`, `wtns`, `r1cs` |
//! | version | 4 | little-endian, as all numbers |
//! | sections | 4 | how many follow |
//! | then, for each: id | 4 | in any order |
//! | length | 8 | of the body |
//! | body | length | |
//!
//! Bytes after the last section are ignored, as snarkjs does. A section that runs past the end of
//! the file, or occurs again, is remembered, not reported at once: its header may only look wrong
//! because the section before it gives a wrong length, which its reader can tell and the container
//! cannot. Readers check the sections that they can size, then call [`BinFile::finish`].

use super::{FileKind, le_u32, le_u64, map_file};
use crate::bytes::Bytes;
use crate::error::{InputClass, InputError, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADER: usize = 12;
const SECTION_HEADER: usize = 12;

/// A container with its section table read and checked against the file's length.
#[derive(Debug)]
pub struct BinFile {
    path: Arc<PathBuf>,
    sections: BTreeMap<u32, Section>,
    /// The table's first defect, at which reading it stopped.
    defect: Option<InputError>,
}

/// A section's body.
#[derive(Clone, Debug)]
pub struct Section {
    pub id: u32,
    /// Start of the body in the file.
    pub offset: u64,
    pub bytes: Bytes,
    path: Arc<PathBuf>,
}

impl BinFile {
    /// Maps `path` and reads the section table.
    ///
    /// # Errors
    /// `truncated` for less than a header, `bad_magic`, `unsupported_version`;
    /// [`crate::Error::Io`] if the file cannot be mapped.
    pub fn open(path: &Path, kind: FileKind, version: u32) -> Result<Self> {
        Self::parse(path, &map_file(path)?, kind, version)
    }

    /// As [`Self::open`], of bytes already at hand; `path` is for messages.
    pub fn parse(path: &Path, bytes: &Bytes, kind: FileKind, version: u32) -> Result<Self> {
        let err = |class, message: String| InputError::new(class, message).file(path);
        let found = FileKind::detect(bytes);
        if bytes.len() >= 4 && found != kind {
            let what = kind.describe();
            let message = match found {
                FileKind::Unknown => {
                    format!("not {what}: it starts with the bytes {:02x?}", &bytes[..4])
                }
                _ => format!("expected {what}, but this is {}", found.describe()),
            };
            return Err(err(InputClass::BadMagic, message).offset(0).into());
        }
        if bytes.len() < HEADER {
            let message = format!(
                "the file ends after {} bytes, inside the {HEADER}-byte header of {}",
                bytes.len(),
                kind.describe()
            );
            return Err(err(InputClass::Truncated, message)
                .offset(bytes.len() as u64)
                .into());
        }
        let found_version = le_u32(&bytes[4..]);
        if found_version != version {
            let message = format!("version {found_version} is not supported; expected {version}");
            return Err(err(InputClass::UnsupportedVersion, message)
                .offset(4)
                .into());
        }
        let mut file = Self {
            path: Arc::new(path.to_owned()),
            sections: BTreeMap::new(),
            defect: None,
        };
        file.read_table(bytes, le_u32(&bytes[8..]));
        Ok(file)
    }

    fn read_table(&mut self, bytes: &Bytes, count: u32) {
        let mut at = HEADER;
        for index in 0..count {
            let rest = bytes.len() - at;
            if rest < SECTION_HEADER {
                self.defect = Some(
                    InputError::new(
                        InputClass::Truncated,
                        format!("the file lists {count} sections, but ends before number {index}"),
                    )
                    .file(self.path.as_path())
                    .offset(at as u64),
                );
                return;
            }
            let (id, length) = (le_u32(&bytes[at..]), le_u64(&bytes[at + 4..]));
            let body = at + SECTION_HEADER;
            let left = (bytes.len() - body) as u64;
            if length > left {
                self.defect = Some(
                    InputError::new(
                        InputClass::Truncated,
                        format!("claims {length} bytes, but the file has {left} more"),
                    )
                    .file(self.path.as_path())
                    .section(id)
                    .offset(at as u64 + 4),
                );
                return;
            }
            let end = body + length as usize;
            if let Some(first) = self.sections.get(&id) {
                let message = format!("occurs twice, first at byte {}", first.offset);
                self.defect = Some(
                    InputError::new(InputClass::DuplicateSection, message)
                        .file(self.path.as_path())
                        .section(id)
                        .offset(at as u64),
                );
                return;
            }
            let section = Section {
                id,
                offset: body as u64,
                bytes: bytes.slice(body..end),
                path: self.path.clone(),
            };
            self.sections.insert(id, section);
            at = end;
        }
        if at < bytes.len() {
            log::warn!(
                "{}: {} bytes after the last section are ignored",
                self.path.display(),
                bytes.len() - at
            );
        }
    }

    /// The section `id`, if it is there in full.
    pub fn section(&self, id: u32) -> Option<&Section> {
        self.sections.get(&id)
    }

    /// The section `id`.
    ///
    /// # Errors
    /// That of [`Self::finish`], else `missing_section`.
    pub fn require(&self, id: u32, what: &str) -> Result<&Section> {
        match self.sections.get(&id) {
            Some(section) => Ok(section),
            None => {
                self.finish()?;
                Err(InputError::new(
                    InputClass::MissingSection,
                    format!("the file has no section {id} ({what})"),
                )
                .file(self.path.as_path())
                .section(id)
                .into())
            }
        }
    }

    /// Reports what was wrong with the section table: `truncated` or `duplicate_section`.
    pub fn finish(&self) -> Result<()> {
        match &self.defect {
            Some(e) => Err(e.clone().into()),
            None => Ok(()),
        }
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Section {
    /// An error about this section; `at` counts from the start of its body.
    pub fn error(&self, class: InputClass, at: usize, message: impl Into<String>) -> InputError {
        InputError::new(class, message)
            .file(self.path.as_path())
            .section(self.id)
            .offset(self.offset + at as u64)
    }

    /// Checks that the body is `count` elements of `size` bytes.
    ///
    /// # Errors
    /// `bad_section`.
    pub fn expect_elements(&self, what: &str, count: u64, size: usize) -> Result<()> {
        // Both factors are below 2^33, so the product does not overflow.
        let expected = count * size as u64;
        if self.bytes.len() as u64 == expected {
            return Ok(());
        }
        let message = format!(
            "{what}: expected {count} × {size} = {expected} bytes, found {}",
            self.bytes.len()
        );
        Err(self.error(InputClass::BadSection, 0, message).into())
    }

    /// Reads this section from its start.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor {
            section: self,
            at: 0,
        }
    }
}

/// A bounds-checked reading position in a [`Section`].
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    section: &'a Section,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Bytes from the start of the section.
    pub fn position(&self) -> usize {
        self.at
    }
    /// Bytes left.
    pub fn remaining(&self) -> usize {
        self.section.bytes.len() - self.at
    }
    /// The next `n` bytes.
    ///
    /// # Errors
    /// `bad_section` if fewer are left.
    pub fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        if n > self.remaining() {
            let message = format!(
                "{what} needs {n} bytes, but the section has {} more",
                self.remaining()
            );
            let e = self.section.error(InputClass::BadSection, self.at, message);
            return Err(e.into());
        }
        let bytes = &self.section.bytes[self.at..self.at + n];
        self.at += n;
        Ok(bytes)
    }
    /// As [`Self::take`], sharing the file's map.
    pub fn take_shared(&mut self, n: usize, what: &str) -> Result<Bytes> {
        let at = self.at;
        self.take(n, what)?;
        Ok(self.section.bytes.slice(at..at + n))
    }
    /// A little-endian u32.
    pub fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(le_u32(self.take(4, what)?))
    }
    /// A little-endian u64.
    pub fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(le_u64(self.take(8, what)?))
    }
}
