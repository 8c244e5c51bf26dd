//! Bucket sums by pairs of affine points with shared inversions: each pass halves every bucket's
//! points at 6 products a sum, where the running sum of `msm_accumulate` takes 10. What is left
//! after a few passes goes there.
//!
//! An affine addition needs one inversion. It is shared by all pairs of a pass: products of
//! denominators go up, by threads and then by threads' threads, a few thousand elements are
//! inverted, and the inverses come back down (Montgomery 1987, "Speeding the Pollard and elliptic
//! curve methods of factorization", §10.3.1).

use super::{GROUP_THREADS, Geometry, Group, SortedDigits};
use crate::curve::CurveId;
use crate::device::recording::{BufferId, BufferSlice, Dispatch, Recording};
use crate::kernels::Kernel;
use crate::scan::record_scan;

/// Pairs of a thread at least: fewer, and the shared inversion costs too much.
const MIN_PER_THREAD: u64 = 32;
/// Threads of a pass at most: as many as a large device holds.
const MAX_THREADS: u64 = 1 << 18;
/// Elements of a thread of the inversion above.
const INVERT_PER_THREAD: u32 = 64;
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

/// Windows whose pairs are summed at a time, and how often: a pass's results fit `max_binding`.
/// `None` where it is not worth it.
pub(super) fn windows_at_a_time(g: &Geometry, group: Group, curve: CurveId) -> Option<u32> {
    let most = match group {
        Group::G1 => 1u64 << 23,
        Group::G2 => 1 << 22,
    };
    let fits = (g.max_binding / group.affine_bytes(curve)).min(most);
    let pairs = (u64::from(g.n) + u64::from(g.buckets)) / 2;
    let large = g.max_binding / group.affine_bytes(curve) >= pairs;
    (g.pair_levels > 0 && large).then(|| (fits / pairs).clamp(1, u64::from(g.windows)) as u32)
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

/// The list of all entries of the windows from `first` on.
pub(super) fn entries(
    sorted: &SortedDigits,
    points: BufferSlice,
    first: u32,
    windows: u32,
) -> BucketList {
    let g = &sorted.geometry;
    BucketList {
        points,
        entries: Some(sorted.entries),
        offsets: sorted.offsets,
        first: first * g.buckets,
        buckets: windows * g.buckets,
        capacity: u64::from(g.n) * u64::from(windows),
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
        let per_thread = capacity.div_ceil(MAX_THREADS).max(MIN_PER_THREAD);
        let threads = capacity.div_ceil(per_thread) as u32;
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
        let sources = self.secret("pair sources", 4 * capacity);
        self.dispatch(
            Kernel::MsmPairSources,
            vec![offsets, pair_offsets, sources],
            vec![list.first, list.buckets, SOURCE_RUN],
            capacity.div_ceil(u64::from(SOURCE_RUN)) as u32,
            1,
        );
        let prefixes = self.secret("denominators", capacity * affine / 2);
        let totals = self.secret("denominator products", u64::from(threads) * affine / 2);
        let sums = self.secret("pair sums", capacity * affine);
        let direct = u32::from(list.entries.is_none());
        let entries = list.entries.map_or(sources, |e| self.rec.whole(e));
        let (up, down) = match self.group {
            Group::G1 => (Kernel::MsmPairUpG1, Kernel::MsmPairDownG1),
            Group::G2 => (Kernel::MsmPairUpG2, Kernel::MsmPairDownG2),
        };
        let bindings = vec![
            list.points,
            entries,
            sources,
            pair_offsets,
            prefixes,
            totals,
        ];
        let params = vec![threads, list.buckets, direct];
        self.rec.step("pairs up");
        self.dispatch(
            up,
            bindings.clone(),
            params.clone(),
            threads,
            2 * cost * per_thread,
        );
        self.rec.step("invert");
        self.invert(totals, threads);
        self.rec.step("pairs down");
        let bindings = [bindings, vec![sums]].concat();
        self.dispatch(down, bindings, params, threads, 5 * cost * per_thread);
        BucketList {
            points: sums,
            entries: None,
            offsets: pair_offsets.buffer,
            first: 0,
            buckets: list.buckets,
            capacity,
        }
    }

    /// Inverts `n` elements in place.
    fn invert(&mut self, values: BufferSlice, n: u32) {
        let kernel = match self.group {
            Group::G1 => Kernel::BatchInvertG1,
            Group::G2 => Kernel::BatchInvertG2,
        };
        let element = self.group.affine_bytes(self.curve) / 2;
        let cost = self.group.mul_cost();
        let threads = n.div_ceil(INVERT_PER_THREAD);
        let prefixes = self.secret("denominators", u64::from(n) * element);
        let totals = self.secret("denominator products", u64::from(threads) * element);
        let exponent = exponent(self.curve);
        let params = |mode, n, threads| [vec![mode, n, threads, 0], exponent.clone()].concat();
        let work = u64::from(INVERT_PER_THREAD) * cost;
        let whole = vec![values, prefixes, totals];
        self.dispatch(kernel, whole.clone(), params(0, n, threads), threads, work);
        let alone = vec![totals, prefixes, values];
        self.dispatch(kernel, alone, params(2, threads, threads), threads, 600);
        self.dispatch(kernel, whole, params(1, n, threads), threads, 2 * work);
    }
}

/// q − 2 in words, the lowest first.
fn exponent(curve: CurveId) -> Vec<u32> {
    let bytes = curve.fq_modulus_bytes();
    let words = bytes.chunks_exact(4);
    let mut words: Vec<u32> = words
        .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
        .collect();
    // Both moduli end in more than 2.
    words[0] -= 2;
    words
}
