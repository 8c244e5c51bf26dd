//! Bucket sums by pairs of affine points with shared inversions: each pass halves every bucket's
//! points at 6 products a sum, where the running sum of `msm_accumulate` takes 10. What is left
//! after a few passes goes there.

use super::{GROUP_THREADS, Geometry, Group, SortedDigits};
use crate::curve::CurveId;
use crate::device::recording::{BufferId, BufferSlice, Dispatch, Recording};
use crate::kernels::Kernel;
use crate::scan::record_scan;

/// Elements of a thread at least: fewer, and its inversion costs too much.
const MIN_PER_THREAD: u64 = 8;
/// Threads at most: about what a large device holds at once. More, and their inversions cost too
/// much.
const MAX_THREADS: u64 = 1 << 16;
/// Points of a block of an interleaved list (`interleaved.wgsl`).
const BLOCK: u64 = 32;
/// What an inversion costs, in products.
const INVERSION_PRODUCTS: u64 = 60;
/// Pairs that a thread of `msm_pair_sources` looks up.
const SOURCE_RUN: u32 = 8;

/// Points by bucket, on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketList {
    /// Affine points in working form.
    pub points: BufferSlice,
    /// Indices into `points`, with the sign at the top; `None` if the points are in order.
    pub entries: Option<BufferId>,
    /// `offsets[first + b]` is where bucket b begins.
    pub offsets: BufferId,
    pub first: u32,
    pub buckets: u32,
    /// Entries at most.
    pub capacity: u64,
}

/// How many threads share `n` elements, and what each has at most.
pub(super) fn shares(n: u64) -> (u32, u64) {
    let each = n.div_ceil(MAX_THREADS).max(MIN_PER_THREAD);
    (n.div_ceil(each) as u32, each)
}

/// Sets of list `l` whose pairs are summed at a time: a pass's results fit `max_binding`.
/// `None` where pairs are not worth it.
pub(super) fn sets_at_a_time(g: &Geometry, l: u32, group: Group, curve: CurveId) -> Option<u32> {
    let most = match group {
        Group::G1 => 1u64 << 25,
        Group::G2 => 1 << 24,
    };
    let fits = (g.max_binding / group.affine_bytes(curve)).saturating_sub(BLOCK);
    let entries = u64::from(g.n) * u64::from(g.tables_of(l));
    let pairs = (entries + u64::from(g.buckets)) / 2;
    (g.pair_levels > 0 && fits >= pairs)
        .then(|| (fits.min(most) / pairs).clamp(1, u64::from(g.sets)) as u32)
}

struct Pairs<'a> {
    rec: &'a mut Recording,
    curve: CurveId,
    group: Group,
}

/// Records `levels` passes over the buckets of some windows.
pub(super) fn record(
    rec: &mut Recording,
    (curve, group): (CurveId, Group),
    list: BucketList,
    levels: u32,
) -> BucketList {
    let mut pairs = Pairs { rec, curve, group };
    (0..levels).fold(list, |list, _| pairs.pass(&list))
}

/// The entries of list `l`, over `points`, in `sets` sets of buckets from set `first` on.
pub(super) fn entries(
    sorted: &SortedDigits,
    points: BufferSlice,
    l: u32,
    first: u32,
    sets: u32,
) -> BucketList {
    let g = &sorted.geometry;
    BucketList {
        points,
        entries: Some(sorted.entries),
        offsets: sorted.offsets,
        first: (l * g.sets + first) * g.buckets,
        buckets: sets * g.buckets,
        capacity: u64::from(g.n) * u64::from(g.tables_of(l)) * u64::from(sets),
    }
}

impl Pairs<'_> {
    fn dispatch(
        &mut self,
        kernel: Kernel,
        bindings: Vec<BufferSlice>,
        params: Vec<u32>,
        threads: u32,
        work: u64,
    ) {
        self.rec.dispatch(Dispatch {
            kernel,
            curve: self.curve,
            bindings,
            params,
            groups: threads.div_ceil(GROUP_THREADS),
            work_per_group: u64::from(GROUP_THREADS) * work,
        });
    }

    fn secret(&mut self, label: &'static str, size: u64) -> BufferSlice {
        let id = self.rec.secret(label, size);
        self.rec.whole(id)
    }

    /// One pass: a list with the sums of the pairs.
    fn pass(&mut self, list: &BucketList) -> BucketList {
        let affine = self.group.affine_bytes(self.curve);
        let cost = self.group.mul_cost();
        let capacity = (list.capacity + u64::from(list.buckets)) / 2;
        let (threads, per_thread) = shares(capacity);
        let offsets = self.rec.whole(list.offsets);
        self.rec.step("pairs");
        let pair_offsets = self.secret("pair offsets", 4 * u64::from(list.buckets + 1));
        self.dispatch(
            Kernel::MsmPairCounts,
            vec![offsets, pair_offsets],
            vec![list.first, list.buckets],
            list.buckets + 1,
            1,
        );
        record_scan(self.rec, self.curve, pair_offsets.buffer, list.buckets + 1);
        let pairs = self.secret("pairs", 8 * capacity);
        let direct = u32::from(list.entries.is_none());
        let entries = list.entries.map_or(offsets, |e| self.rec.whole(e));
        self.dispatch(
            Kernel::MsmPairSources,
            vec![offsets, pair_offsets, entries, pairs],
            vec![list.first, list.buckets, SOURCE_RUN, direct],
            capacity.div_ceil(u64::from(SOURCE_RUN)) as u32,
            1,
        );
        let padded = capacity.next_multiple_of(BLOCK);
        let prefixes = self.secret("denominators", padded * affine / 2);
        let sums = self.secret("pair sums", padded * affine);
        let kernel = match self.group {
            Group::G1 => Kernel::MsmPairSumsG1,
            Group::G2 => Kernel::MsmPairSumsG2,
        };
        let bindings = vec![list.points, pairs, pair_offsets, prefixes, sums];
        let params = vec![threads, list.buckets, direct];
        self.rec.step("pair sums");
        self.dispatch(
            kernel,
            bindings,
            params,
            threads,
            cost * (7 * per_thread + INVERSION_PRODUCTS),
        );
        BucketList {
            points: sums,
            entries: None,
            offsets: pair_offsets.buffer,
            first: 0,
            buckets: list.buckets,
            capacity,
        }
    }
}
