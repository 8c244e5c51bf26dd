//! A vector in several buffers, where it exceeds one binding.

use crate::device::recording::{BufferId, BufferSlice, Recording};
use std::ops::Range;

/// Bytes of an element.
const SCALAR: u64 = 32;

/// A vector of scalars, cut into parts of the same number of elements; the last one may be
/// shorter.
#[derive(Clone, Debug)]
pub struct Parts {
    per_part: usize,
    slices: Vec<BufferSlice>,
}

impl Parts {
    /// # Panics
    /// If there is no part, if a part is not of whole scalars, or if one but the last has not
    /// `per_part` elements.
    pub fn new(per_part: usize, slices: Vec<BufferSlice>) -> Self {
        let (last, full) = slices.split_last().expect("a part");
        let size = SCALAR * per_part as u64;
        assert!(full.iter().all(|s| s.size == size), "{slices:?}");
        assert!(last.size <= size && last.size.is_multiple_of(SCALAR));
        Self { per_part, slices }
    }

    /// A vector in one part.
    pub fn whole(slice: BufferSlice) -> Self {
        Self::new((slice.size / SCALAR) as usize, vec![slice])
    }

    /// Declares the buffers of a vector of `len` elements: [`Recording::secret`] each.
    pub fn secret(rec: &mut Recording, label: &'static str, len: usize, per_part: usize) -> Self {
        let mut declare = |first: usize| -> BufferId {
            let elements = per_part.min(len - first) as u64;
            rec.secret(label, SCALAR * elements)
        };
        let ids: Vec<_> = (0..len).step_by(per_part).map(&mut declare).collect();
        Self::new(per_part, ids.into_iter().map(|id| rec.whole(id)).collect())
    }

    /// Elements of each part but the last.
    pub fn per_part(&self) -> usize {
        self.per_part
    }
    pub fn slices(&self) -> &[BufferSlice] {
        &self.slices
    }
    /// Elements of all parts.
    pub fn len(&self) -> usize {
        let last = self.slices.last().map_or(0, |s| s.size / SCALAR);
        (self.slices.len() - 1) * self.per_part + last as usize
    }
    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Each part with the elements that it has.
    pub fn iter(&self) -> impl Iterator<Item = (Range<usize>, BufferSlice)> + '_ {
        self.slices.iter().enumerate().map(|(i, slice)| {
            let first = i * self.per_part;
            (first..first + (slice.size / SCALAR) as usize, *slice)
        })
    }
}
