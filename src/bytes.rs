//! Shared, read-only bytes: a range of a memory-mapped file, or owned.

use memmap2::Mmap;
use std::ops::{Deref, Range};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Cheap to clone; keeps the mapping alive.
#[derive(Clone)]
pub struct Bytes {
    source: Source,
    range: Range<usize>,
}

#[derive(Clone)]
enum Source {
    Mapped(Arc<Mmap>),
    Owned(Arc<Vec<u8>>),
    Secret(Arc<Zeroizing<Vec<u8>>>),
}

impl Bytes {
    /// The whole of a mapped file.
    pub fn mapped(map: Mmap) -> Self {
        let range = 0..map.len();
        Self {
            source: Source::Mapped(Arc::new(map)),
            range,
        }
    }
    /// Bytes that are wiped when nobody has them any more.
    pub fn secret(bytes: Zeroizing<Vec<u8>>) -> Self {
        let range = 0..bytes.len();
        Self {
            source: Source::Secret(Arc::new(bytes)),
            range,
        }
    }
    /// Where these bytes start in their file; `None` for owned bytes.
    pub fn file_offset(&self) -> Option<u64> {
        match &self.source {
            Source::Mapped(_) => Some(self.range.start as u64),
            Source::Owned(_) | Source::Secret(_) => None,
        }
    }
    /// Takes mapped bytes out of this process' memory, except for pages that they share with other
    /// ranges; they come back from the file when they are read again.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Source::Mapped(map) = &self.source {
            // More than any system's page has.
            const PAGE: usize = 64 << 10;
            let start = self.range.start.next_multiple_of(PAGE);
            let end = self.range.end / PAGE * PAGE;
            if start < end {
                // SAFETY: the map is read-only and of a file, so that dropped pages are read from
                // it again.
                let dropped = unsafe {
                    map.unchecked_advise_range(
                        memmap2::UncheckedAdvice::DontNeed,
                        start,
                        end - start,
                    )
                };
                if let Err(error) = dropped {
                    log::debug!("mapped pages were not released: {error}");
                }
            }
        }
    }
    /// A part of these bytes, sharing the storage.
    ///
    /// # Panics
    /// If `range` does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len());
        Self {
            source: self.source.clone(),
            range: self.range.start + range.start..self.range.start + range.end,
        }
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(v: Vec<u8>) -> Self {
        let range = 0..v.len();
        Self {
            source: Source::Owned(Arc::new(v)),
            range,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.source {
            Source::Mapped(m) => m,
            Source::Owned(v) => v,
            Source::Secret(v) => v,
        };
        &all[self.range.clone()]
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({})", self.len())
    }
}
