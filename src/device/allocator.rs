//! Which bytes of which slab are free: the arena's bookkeeping, without any device.

use std::collections::BTreeMap;

/// Offsets and sizes are multiples of this. The largest `min_storage_buffer_offset_alignment` and
/// `min_uniform_buffer_offset_alignment` that WebGPU allows.
pub const ALIGNMENT: u64 = 256;

/// `size` rounded up to [`ALIGNMENT`].
pub fn align(size: u64) -> u64 {
    size.next_multiple_of(ALIGNMENT)
}

/// A range of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    pub slab: usize,
    pub offset: u64,
    /// Multiple of [`ALIGNMENT`].
    pub size: u64,
}

/// From which end of a gap a slice is cut. Short-lived slices come from the front and long-lived
/// ones from the back, which keeps the gaps between them whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Front,
    Back,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slab {
    size: u64,
    /// Offset to size. No two gaps touch.
    gaps: BTreeMap<u64, u64>,
}

impl Slab {
    fn unused(&self) -> bool {
        self.gaps.get(&0) == Some(&self.size)
    }
}

/// The slabs and their gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allocator {
    /// Indices stay valid: a removed slab leaves `None`.
    slabs: Vec<Option<Slab>>,
    in_use: u64,
}

impl Allocator {
    /// A new slab, all of it free. `size` is a multiple of [`ALIGNMENT`].
    pub fn add(&mut self, size: u64) -> usize {
        assert!(size > 0 && size.is_multiple_of(ALIGNMENT));
        let slab = Slab {
            size,
            gaps: BTreeMap::from([(0, size)]),
        };
        let free = self.slabs.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        self.slabs[index] = Some(slab);
        index
    }

    /// Takes away the slabs that hold nothing, and returns their indices.
    pub fn remove_unused(&mut self) -> Vec<usize> {
        let unused = |s: &Option<Slab>| s.as_ref().is_some_and(Slab::unused);
        let gone: Vec<usize> = (0..self.slabs.len())
            .filter(|&i| unused(&self.slabs[i]))
            .collect();
        gone.iter().for_each(|&i| self.slabs[i] = None);
        gone
    }

    /// The smallest gap that holds `size` bytes (not zero), or nothing.
    pub fn allocate(&mut self, size: u64, end: End) -> Option<Slice> {
        let size = align(size);
        let fits = self.slabs.iter().enumerate().filter_map(|(i, slab)| {
            let gaps = slab.as_ref()?.gaps.iter();
            gaps.filter(|&(_, &gap)| gap >= size)
                .map(move |(&offset, &gap)| (gap, i, offset))
                .min()
        });
        let (gap, slab, offset) = fits.min()?;
        let gaps = &mut self.slabs[slab].as_mut()?.gaps;
        gaps.remove(&offset);
        let rest = gap - size;
        let (start, rest_at) = match end {
            End::Front => (offset, offset + size),
            End::Back => (offset + rest, offset),
        };
        if rest > 0 {
            gaps.insert(rest_at, rest);
        }
        self.in_use += size;
        Some(Slice {
            slab,
            offset: start,
            size,
        })
    }

    /// Gives back what [`Self::allocate`] returned.
    pub fn free(&mut self, slice: Slice) {
        let gaps = &mut self.slabs[slice.slab]
            .as_mut()
            .expect("a slab with a slice in use stays")
            .gaps;
        let (mut start, mut end) = (slice.offset, slice.offset + slice.size);
        if let Some((&before, &size)) = gaps.range(..start).next_back() {
            assert!(before + size <= start, "slice freed twice");
            if before + size == start {
                gaps.remove(&before);
                start = before;
            }
        }
        if let Some((&after, &size)) = gaps.range(slice.offset..).next() {
            assert!(after >= end, "slice freed twice");
            if after == end {
                gaps.remove(&after);
                end += size;
            }
        }
        gaps.insert(start, end - start);
        self.in_use -= slice.size;
    }

    /// Bytes in slices.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Bytes in slabs.
    pub fn capacity(&self) -> u64 {
        self.slabs.iter().flatten().map(|s| s.size).sum()
    }

    /// Size of the largest gap.
    pub fn largest_gap(&self) -> u64 {
        let gaps = self.slabs.iter().flatten().flat_map(|s| s.gaps.values());
        gaps.copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Allocate(u64, bool),
        Free(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1u64..5000, any::<bool>()).prop_map(|(n, back)| Step::Allocate(n, back)),
            2 => any::<prop::sample::Index>().prop_map(Step::Free),
        ]
    }

    proptest! {
        /// Slices never overlap, lie inside their slab, and freeing all of them leaves every slab
        /// as one gap; a request fails only if no gap is large enough.
        #[test]
        fn slices_are_disjoint_and_coalesce(steps in prop::collection::vec(step(), 1..200)) {
            let sizes = [8192u64, 16384, 4096];
            let mut allocator = Allocator::default();
            sizes.iter().for_each(|&s| { allocator.add(s); });
            let mut held: Vec<Slice> = Vec::new();
            for step in steps {
                match step {
                    Step::Allocate(size, back) => {
                        let gap = allocator.largest_gap();
                        let end = if back { End::Back } else { End::Front };
                        match allocator.allocate(size, end) {
                            Some(s) => {
                                prop_assert!(s.size >= size && s.size < size + ALIGNMENT);
                                prop_assert!(s.offset.is_multiple_of(ALIGNMENT));
                                prop_assert!(s.offset + s.size <= sizes[s.slab]);
                                for h in &held {
                                    prop_assert!(h.slab != s.slab
                                        || h.offset + h.size <= s.offset
                                        || s.offset + s.size <= h.offset);
                                }
                                held.push(s);
                            }
                            None => prop_assert!(gap < align(size)),
                        }
                    }
                    Step::Free(index) if !held.is_empty() => {
                        let i = index.index(held.len());
                        allocator.free(held.swap_remove(i));
                    }
                    Step::Free(_) => {}
                }
                prop_assert_eq!(allocator.in_use(), held.iter().map(|h| h.size).sum::<u64>());
            }
            held.drain(..).for_each(|h| allocator.free(h));
            prop_assert_eq!(allocator.largest_gap(), 16384);
            prop_assert_eq!(allocator.remove_unused().len(), 3);
            prop_assert_eq!(allocator.capacity(), 0);
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_second_free_is_noticed() {
        let mut allocator = Allocator::default();
        allocator.add(4096);
        let slice = allocator.allocate(256, End::Front).unwrap();
        allocator.free(slice);
        allocator.free(slice);
    }

    #[test]
    fn long_and_short_lived_slices_come_from_opposite_ends() {
        let mut allocator = Allocator::default();
        allocator.add(4096);
        assert_eq!(allocator.allocate(256, End::Front).unwrap().offset, 0);
        assert_eq!(allocator.allocate(256, End::Back).unwrap().offset, 3840);
        assert_eq!(allocator.largest_gap(), 3584);
    }
}
