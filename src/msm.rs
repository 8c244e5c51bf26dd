//! Multi-scalar multiplication as a plan: the bucket method (Pippenger; Bernstein, Doumen, Lange,
//! Oosterwijk 2012, §4) with signed digits, a counting sort on the device, runs of equal length
//! whatever the scalars, and a reduction by bits. Tables of the bases' multiples let windows share
//! buckets (Brickell, Gordon, McCurley, Wilson 1992).
//!
//! | step | kernel | work |
//! |---|---|---|
//! | digits, counts, ranks | `msm_digits` | n·windows |
//! | offsets | `scan_*` | rows·buckets |
//! | sorted entries | `msm_scatter` | n·windows |
//! | sums of pairs | `msm_pair_*` | most of n·windows affine additions |
//! | bucket sums | `msm_accumulate` | the rest as mixed additions |
//! | what runs share | `msm_merge` | about 2 additions a run, by levels |
//! | Σ i·B_i | `msm_reduce` | 2 additions a bucket, by levels |
//! | sums of the sets | host | some 40 to 500 additions and doublings |
//!
//! One sort serves every query over the same scalars.

mod finish;
mod fixed_base;
mod geometry;
mod pairs;
mod tables;

pub use self::finish::{finish_g1, finish_g2, scalar_bits};
pub use self::fixed_base::{
    FixedBaseWindows, record_fixed_base_entries, record_fixed_base_table, record_multiples,
};
pub use self::geometry::{Geometry, Group};
pub use self::tables::record_tables;

use self::geometry::{FULL_PRODUCTS, MIXED_PRODUCTS};
use self::pairs::BucketList;
use crate::curve::CurveId;
use crate::device::recording::{BufferId, BufferSlice, Dispatch, DownloadId, Recording};
use crate::kernels::Kernel;
use crate::scan::record_scan;

/// Slots that a thread of `msm_merge` takes.
const MERGE_RUN: u32 = 4;
const GROUP_THREADS: u32 = 64;

/// Scalars sorted by set of buckets and digit, on the device.
#[derive(Clone, Copy, Debug)]
pub struct SortedDigits {
    pub geometry: Geometry,
    entries: BufferId,
    offsets: BufferId,
}

impl SortedDigits {
    /// Where each bucket's entries start and the last ones end, and the entries.
    pub(crate) fn buffers(&self) -> [BufferId; 2] {
        [self.offsets, self.entries]
    }
}

/// Records the first half of the sort: a counter for each bucket, at the place of its offset, and
/// the rank of each digit in its bucket.
pub(crate) fn record_digits(
    rec: &mut Recording,
    curve: CurveId,
    scalars: BufferSlice,
    geometry: Geometry,
) -> [BufferId; 2] {
    let g = geometry;
    debug_assert_eq!(scalars.size, 32 * u64::from(g.n));
    let counts = g.lists() * g.total_buckets() + 1;
    let offsets = rec.secret("bucket offsets", 4 * u64::from(counts));
    let ranks = rec.secret("digit ranks", 4 * u64::from(g.n) * u64::from(g.windows));
    rec.step("digits");
    rec.clear(rec.whole(offsets));
    rec.dispatch(Dispatch {
        kernel: Kernel::MsmDigits,
        curve,
        bindings: vec![scalars, rec.whole(offsets), rec.whole(ranks)],
        params: sort_params(&g),
        groups: g.windows * g.n.div_ceil(GROUP_THREADS),
        work_per_group: u64::from(GROUP_THREADS),
    });
    [offsets, ranks]
}

/// Parameters of both halves.
fn sort_params(g: &Geometry) -> Vec<u32> {
    vec![
        g.n,
        g.window_bits,
        g.windows,
        g.buckets,
        g.sets,
        g.together,
        g.stride(),
        g.n.div_ceil(GROUP_THREADS),
    ]
}

/// Records the digit sort of `geometry.n` canonical scalars of 32 bytes.
pub fn record_sort(
    rec: &mut Recording,
    curve: CurveId,
    scalars: BufferSlice,
    geometry: Geometry,
) -> SortedDigits {
    let g = geometry;
    let counts = g.lists() * g.total_buckets() + 1;
    let [offsets, ranks] = record_digits(rec, curve, scalars, g);
    let entry_bytes = 4 * u64::from(g.n) * u64::from(g.windows);
    let entries = rec.secret("sorted entries", entry_bytes);
    rec.step("scan");
    record_scan(rec, curve, offsets, counts);
    rec.step("scatter");
    rec.dispatch(Dispatch {
        kernel: Kernel::MsmScatter,
        curve,
        bindings: vec![
            scalars,
            rec.whole(offsets),
            rec.whole(ranks),
            rec.whole(entries),
        ],
        params: sort_params(&g),
        groups: g.windows * g.n.div_ceil(GROUP_THREADS),
        work_per_group: u64::from(GROUP_THREADS),
    });
    SortedDigits {
        geometry,
        entries,
        offsets,
    }
}

/// Affine bases of a sum.
#[derive(Clone, Debug)]
pub enum Bases {
    /// At rest, without tables.
    AtRest(BufferSlice),
    /// Tables in working form, one slice for each of [`Geometry::lists`].
    Tables(Vec<BufferSlice>),
}

/// Window sums on their way to the host.
#[derive(Clone, Copy, Debug)]
pub struct WindowSums {
    pub group: Group,
    pub geometry: Geometry,
    pub download: DownloadId,
}

/// Records the sum over the bases of all `parts`, whose geometries differ in `n` at most.
///
/// # Panics
/// If there are no parts.
pub fn record_sums(
    rec: &mut Recording,
    curve: CurveId,
    group: Group,
    parts: &[(SortedDigits, Bases)],
) -> WindowSums {
    let geometry = parts[0].0.geometry;
    let point = group.point_bytes(curve);
    let buckets = rec.secret("buckets", u64::from(geometry.total_buckets()) * point);
    rec.clear(rec.whole(buckets));
    let mut seeded = false;
    for (sorted, bases) in parts {
        let g = sorted.geometry;
        let affine = group.affine_bytes(curve) * u64::from(g.n);
        let lists = match bases {
            Bases::AtRest(bases) => {
                debug_assert_eq!((bases.size, g.lists()), (affine, 1));
                vec![record_import(rec, curve, group, *bases)]
            }
            Bases::Tables(lists) => {
                let sizes = (0..g.lists()).map(|l| g.list_bytes(l, group, curve));
                debug_assert!(sizes.eq(lists.iter().map(|l| l.size)));
                lists.clone()
            }
        };
        for (l, points) in (0..).zip(lists) {
            let at_a_time = pairs::sets_at_a_time(&g, l, group, curve);
            let step = at_a_time.unwrap_or(g.sets);
            for first in (0..g.sets).step_by(step as usize) {
                let sets = step.min(g.sets - first);
                let list = pairs::entries(sorted, points, l, first, sets);
                let list = match at_a_time {
                    Some(_) => pairs::record(rec, (curve, group), list, g.pair_levels),
                    None => list,
                };
                let target = first * g.buckets;
                record_accumulate(rec, (curve, group), &g, &list, (buckets, target, seeded));
            }
            seeded = true;
        }
    }
    record_reduce(rec, curve, group, geometry, buckets)
}

/// Records the conversion of points at rest to working form.
fn record_import(
    rec: &mut Recording,
    curve: CurveId,
    group: Group,
    bases: BufferSlice,
) -> BufferSlice {
    rec.step("import");
    let points = rec.secret("bases in working form", bases.size);
    let points = rec.whole(points);
    tables::import(rec, curve, group, bases, points);
    points
}

/// Records Σ i·B_i over the buckets of every set.
fn record_reduce(
    rec: &mut Recording,
    curve: CurveId,
    group: Group,
    g: Geometry,
    buckets: BufferId,
) -> WindowSums {
    let (point, cost) = (group.point_bytes(curve), group.mul_cost());
    let threads = u64::from(GROUP_THREADS);
    let reduce = match group {
        Group::G1 => Kernel::MsmReduceG1,
        Group::G2 => Kernel::MsmReduceG2,
    };
    rec.step("reduce");
    // A level's points are never more than there were buckets: two buffers take turns.
    let spare = rec.secret("bucket nodes", u64::from(g.total_buckets()) * point);
    let (mut from, mut to) = (buckets, spare);
    for level in 0..g.window_bits - 1 {
        let log_nodes = g.window_bits - 2 - level;
        let outputs = (g.sets * (level + 2)) << log_nodes;
        rec.dispatch(Dispatch {
            kernel: reduce,
            curve,
            bindings: vec![rec.whole(from), rec.whole(to)],
            params: vec![g.sets, log_nodes, level],
            groups: outputs.div_ceil(GROUP_THREADS),
            work_per_group: threads * FULL_PRODUCTS * cost,
        });
        std::mem::swap(&mut from, &mut to);
    }
    let sums = BufferSlice {
        buffer: from,
        offset: 0,
        size: u64::from(g.sets * g.set_points()) * point,
    };
    let elements = (sums.size / curve.fq_bytes() as u64) as u32;
    rec.dispatch(Dispatch {
        kernel: Kernel::PointsExport,
        curve,
        bindings: vec![sums],
        params: vec![elements],
        groups: elements.div_ceil(GROUP_THREADS),
        work_per_group: threads,
    });
    WindowSums {
        group,
        geometry: g,
        download: rec.download(sums),
    }
}

/// Records the sums of a list's buckets into `buckets` from `target` on, which hold infinity or
/// are `seeded`.
fn record_accumulate(
    rec: &mut Recording,
    (curve, group): (CurveId, Group),
    g: &Geometry,
    list: &BucketList,
    (buckets, target, seeded): (BufferId, u32, bool),
) {
    let (accumulate, merge) = match group {
        Group::G1 => (Kernel::MsmAccumulateG1, Kernel::MsmMergeG1),
        Group::G2 => (Kernel::MsmAccumulateG2, Kernel::MsmMergeG2),
    };
    let (point, cost) = (group.point_bytes(curve), group.mul_cost());
    let threads = u64::from(GROUP_THREADS);
    let buckets = rec.whole(buckets);
    rec.step("accumulate");
    let runs = g.runs(group, curve, list.capacity);
    let mut slots = 2 * runs;
    let mut keys = rec.secret("slot keys", 4 * u64::from(slots));
    let mut points = rec.secret("slots", u64::from(slots) * point);
    rec.dispatch(Dispatch {
        kernel: accumulate,
        curve,
        bindings: vec![
            rec.whole(list.entries.unwrap_or(list.offsets)),
            rec.whole(list.offsets),
            list.points,
            buckets,
            rec.whole(keys),
            rec.whole(points),
        ],
        params: vec![
            list.buckets,
            list.first,
            target,
            runs,
            group.min_run() as u32,
            u32::from(list.entries.is_none()),
            u32::from(seeded),
        ],
        groups: runs.div_ceil(GROUP_THREADS),
        work_per_group: list.capacity.div_ceil(u64::from(runs))
            * threads
            * (MIXED_PRODUCTS + 1)
            * cost,
    });
    rec.step("merge");
    loop {
        let merge_threads = slots.div_ceil(MERGE_RUN);
        let out_keys = rec.secret("slot keys", 8 * u64::from(merge_threads));
        let out_points = rec.secret("slots", 2 * u64::from(merge_threads) * point);
        rec.dispatch(Dispatch {
            kernel: merge,
            curve,
            bindings: vec![
                rec.whole(keys),
                rec.whole(points),
                buckets,
                rec.whole(out_keys),
                rec.whole(out_points),
            ],
            params: vec![slots, merge_threads, MERGE_RUN],
            groups: merge_threads.div_ceil(GROUP_THREADS),
            work_per_group: threads * u64::from(MERGE_RUN) * FULL_PRODUCTS * cost,
        });
        if merge_threads == 1 {
            break;
        }
        (slots, keys, points) = (2 * merge_threads, out_keys, out_points);
    }
}
