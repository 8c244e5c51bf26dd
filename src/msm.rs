//! Multi-scalar multiplication as a plan: the bucket method (Pippenger; Bernstein, Doumen, Lange,
//! Oosterwijk 2012, §4) with signed digits, a counting sort on the device, runs of equal length
//! whatever the scalars, and a reduction by bits.
//!
//! | step | kernel | work |
//! |---|---|---|
//! | digits, counts, ranks | `msm_digits` | n·windows |
//! | offsets | `scan_*` | windows·buckets |
//! | sorted entries | `msm_scatter` | n·windows |
//! | bucket sums | `msm_accumulate` | n·windows mixed additions |
//! | what runs share | `msm_merge` | about 2 additions a run, by levels |
//! | Σ i·B_i | `msm_reduce` | 2 additions a bucket, by levels |
//! | window sums | host | some 500 additions and doublings |
//!
//! One sort serves every query over the same scalars.

mod pairs;

use self::pairs::BucketList;
use crate::curve::{CurveId, G1, G2, GpuCurve};
use crate::device::recording::{BufferId, BufferSlice, Dispatch, DownloadId, Recording};
use crate::error::Result;
use crate::kernels::Kernel;
use crate::scan::record_scan;
use ark_ec::AdditiveGroup;
use ark_ec::short_weierstrass::{Projective, SWCurveConfig};
use ark_ff::{PrimeField, Zero};

/// Which group the bases are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    G1,
    G2,
}

impl Group {
    /// Bytes of an affine point at rest.
    pub fn affine_bytes(self, curve: CurveId) -> u64 {
        match self {
            Self::G1 => curve.g1_bytes() as u64,
            Self::G2 => curve.g2_bytes() as u64,
        }
    }
    /// Bytes of an XYZZ point.
    pub fn point_bytes(self, curve: CurveId) -> u64 {
        2 * self.affine_bytes(curve)
    }
    /// Shortest run: below it the two slots of a run cost more than its additions.
    fn min_run(self) -> u64 {
        match self {
            Self::G1 => 32,
            Self::G2 => 16,
        }
    }
    /// Most runs: ten times the threads that the largest device measured holds at once, so that
    /// the last wave of them is short.
    fn max_runs(self) -> u64 {
        match self {
            Self::G1 => 1 << 19,
            Self::G2 => 1 << 20,
        }
    }
    /// Elements of the base field in a coordinate.
    fn coordinate_elements(self) -> u64 {
        match self {
            Self::G1 => 1,
            Self::G2 => 2,
        }
    }
    /// Base field multiplications of a product of coordinates.
    fn mul_cost(self) -> u64 {
        match self {
            Self::G1 => 1,
            Self::G2 => 3,
        }
    }
}

/// Products of coordinates in a mixed and in a full addition.
const MIXED_PRODUCTS: u64 = 10;
const FULL_PRODUCTS: u64 = 14;
/// Slots that a thread of `msm_merge` takes.
const MERGE_RUN: u32 = 8;
/// What a full addition costs in the choice of the window, in coordinate products: reductions are
/// short and run at half the rate of accumulation.
const REDUCTION_PRODUCTS: u64 = 20;
/// Most bits of a digit. Beyond, the buckets take more memory than most devices have.
const MAX_WINDOW: u32 = 20;
const GROUP_THREADS: u32 = 64;
/// Entries from which on pairs are summed first.
const MIN_PAIR_ENTRIES: u64 = 1 << 14;

/// Sizes of one multi-scalar multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Scalars.
    pub n: u32,
    /// Bits of a digit.
    pub window_bits: u32,
    /// Number of windows.
    pub windows: u32,
    /// Buckets a window, 2^(window_bits − 1).
    pub buckets: u32,
    /// Largest buffer in bytes.
    pub max_binding: u64,
    /// Passes that sum pairs before the rest is accumulated.
    pub pair_levels: u32,
}

impl Geometry {
    /// Geometry for `n` scalars below 2^scalar_bits of which about `dense` are neither 0 nor 1,
    /// such that no buffer for points of `point_bytes` exceeds `max_binding` bytes, and all of them
    /// together take no more than if all scalars were dense.
    ///
    /// `None` if `n` scalars do not fit one binding: cut them.
    pub fn new(
        n: usize,
        dense: usize,
        scalar_bits: u32,
        point_bytes: u64,
        max_binding: u64,
    ) -> Option<Self> {
        let best = |dense: usize, max_bytes: u64| {
            (2..=MAX_WINDOW)
                .filter_map(|c| {
                    let g = Self::with_window(n, scalar_bits, c, max_binding)?;
                    let total = u64::from(g.windows) * u64::from(g.buckets);
                    let entries = n as u64 * u64::from(g.windows);
                    let fits = total * point_bytes <= max_binding && 4 * entries <= max_binding;
                    // Ranks and entries; buckets and their nodes.
                    let bytes = 8 * entries + 2 * total * point_bytes;
                    let cost = u64::from(g.windows) * dense as u64 * MIXED_PRODUCTS
                        + total * 2 * REDUCTION_PRODUCTS;
                    (fits && bytes <= max_bytes).then_some((cost, bytes, g))
                })
                .min_by_key(|(cost, ..)| *cost)
        };
        // Scalars of which many are 0 or 1 want short digits, whose entries take more memory: no
        // more than what was planned for.
        let (_, max_bytes, _) = best(n, u64::MAX)?;
        best(dense, max_bytes).map(|(.., g)| g)
    }

    /// Geometry with a given digit size (2 to 20 bits).
    pub fn with_window(
        n: usize,
        scalar_bits: u32,
        window_bits: u32,
        max_binding: u64,
    ) -> Option<Self> {
        // One bit more, for the carry out of the topmost signed digit.
        let windows = (scalar_bits + 1).div_ceil(window_bits);
        let buckets = 1 << (window_bits - 1);
        Some(Self {
            n: u32::try_from(n).ok()?,
            window_bits,
            windows,
            buckets,
            max_binding,
            pair_levels: 0,
        })
    }

    /// The same with pairs summed first, where `dense` scalars that are neither 0 nor 1 make that
    /// worth it: down to about two points a bucket, where the odd one out of each begins to cost
    /// what pairs save.
    pub fn with_pairs(self, dense: usize) -> Self {
        let per_bucket = dense as u64 / u64::from(self.buckets);
        let worth = dense as u64 * u64::from(self.windows) >= MIN_PAIR_ENTRIES && per_bucket >= 4;
        Self {
            pair_levels: if worth { per_bucket.ilog2() - 1 } else { 0 },
            ..self
        }
    }

    /// Threads of `msm_accumulate` for so many entries, which share them evenly.
    fn runs(&self, group: Group, curve: CurveId, entries: u64) -> u32 {
        let slots_fit = self.max_binding / (2 * group.point_bytes(curve));
        entries
            .div_ceil(group.min_run())
            .min(group.max_runs())
            .min(slots_fit) as u32
    }

    fn total_buckets(&self) -> u32 {
        self.windows * self.buckets
    }

    /// Points that the host receives for each window: the sum of its buckets, then T_0, T_1, ….
    fn window_points(&self) -> u32 {
        self.window_bits
    }
}

/// Scalars sorted by window and digit, on the device.
#[derive(Clone, Copy, Debug)]
pub struct SortedDigits {
    pub geometry: Geometry,
    entries: BufferId,
    offsets: BufferId,
}

/// Records the digit sort of `geometry.n` canonical scalars of 32 bytes.
pub fn record_sort(
    rec: &mut Recording,
    curve: CurveId,
    scalars: BufferSlice,
    geometry: Geometry,
) -> SortedDigits {
    let g = geometry;
    debug_assert_eq!(scalars.size, 32 * u64::from(g.n));
    let entry_bytes = 4 * u64::from(g.n) * u64::from(g.windows);
    let offsets = rec.secret("bucket offsets", 4 * u64::from(g.total_buckets() + 1));
    let ranks = rec.secret("digit ranks", entry_bytes);
    let entries = rec.secret("sorted entries", entry_bytes);
    let params = vec![g.n, g.window_bits, g.windows, g.buckets];
    let groups = g.n.div_ceil(GROUP_THREADS);
    let work_per_group = u64::from(GROUP_THREADS * g.windows);
    rec.step("digits");
    rec.clear(rec.whole(offsets));
    rec.dispatch(Dispatch {
        kernel: Kernel::MsmDigits,
        curve,
        bindings: vec![scalars, rec.whole(offsets), rec.whole(ranks)],
        params: params.clone(),
        groups,
        work_per_group,
    });
    rec.step("scan");
    record_scan(rec, curve, offsets, g.total_buckets() + 1);
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
        params,
        groups,
        work_per_group,
    });
    SortedDigits {
        geometry,
        entries,
        offsets,
    }
}

/// Window sums on their way to the host.
#[derive(Clone, Copy, Debug)]
pub struct WindowSums {
    pub group: Group,
    pub geometry: Geometry,
    pub download: DownloadId,
}

/// Records the sums over `geometry.n` affine bases at rest.
pub fn record_sums(
    rec: &mut Recording,
    curve: CurveId,
    group: Group,
    sorted: &SortedDigits,
    bases: BufferSlice,
) -> WindowSums {
    let g = sorted.geometry;
    debug_assert_eq!(bases.size, group.affine_bytes(curve) * u64::from(g.n));
    let point = group.point_bytes(curve);
    let cost = group.mul_cost();
    let threads = u64::from(GROUP_THREADS);
    let reduce = match group {
        Group::G1 => Kernel::MsmReduceG1,
        Group::G2 => Kernel::MsmReduceG2,
    };
    let elements = 2 * u64::from(g.n) * group.coordinate_elements();
    rec.step("import");
    let points = rec.secret("bases in working form", bases.size);
    let points = rec.whole(points);
    rec.dispatch(Dispatch {
        kernel: Kernel::PointsImport,
        curve,
        bindings: vec![bases, points],
        params: vec![elements as u32],
        groups: (elements as u32).div_ceil(GROUP_THREADS),
        work_per_group: threads,
    });
    let buckets = rec.secret("buckets", u64::from(g.total_buckets()) * point);
    rec.clear(rec.whole(buckets));
    let at_a_time = pairs::windows_at_a_time(&g, group, curve);
    let step = at_a_time.unwrap_or(g.windows);
    for first in (0..g.windows).step_by(step as usize) {
        let windows = step.min(g.windows - first);
        let list = pairs::entries(sorted, points, first, windows);
        let list = match at_a_time {
            Some(_) => pairs::record(rec, (curve, group), list, g.pair_levels),
            None => list,
        };
        let slice = BufferSlice {
            buffer: buckets,
            offset: u64::from(first * g.buckets) * point,
            size: u64::from(windows * g.buckets) * point,
        };
        record_accumulate(rec, (curve, group), &g, &list, slice);
    }
    rec.step("reduce");
    // A level's points are never more than there were buckets: two buffers take turns.
    let spare = rec.secret("bucket nodes", u64::from(g.total_buckets()) * point);
    let (mut from, mut to) = (buckets, spare);
    for level in 0..g.window_bits - 1 {
        let log_nodes = g.window_bits - 2 - level;
        let outputs = (g.windows * (level + 2)) << log_nodes;
        rec.dispatch(Dispatch {
            kernel: reduce,
            curve,
            bindings: vec![rec.whole(from), rec.whole(to)],
            params: vec![g.windows, log_nodes, level],
            groups: outputs.div_ceil(GROUP_THREADS),
            work_per_group: threads * FULL_PRODUCTS * cost,
        });
        std::mem::swap(&mut from, &mut to);
    }
    let sums = BufferSlice {
        buffer: from,
        offset: 0,
        size: u64::from(g.windows * g.window_points()) * point,
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

/// Records the sums of a list's buckets, into `buckets`, which is clear.
fn record_accumulate(
    rec: &mut Recording,
    (curve, group): (CurveId, Group),
    g: &Geometry,
    list: &BucketList,
    buckets: BufferSlice,
) {
    let (accumulate, merge) = match group {
        Group::G1 => (Kernel::MsmAccumulateG1, Kernel::MsmMergeG1),
        Group::G2 => (Kernel::MsmAccumulateG2, Kernel::MsmMergeG2),
    };
    let (point, cost) = (group.point_bytes(curve), group.mul_cost());
    let threads = u64::from(GROUP_THREADS);
    rec.step("accumulate");
    let runs = g.runs(group, curve, list.capacity);
    let mut slots = 2 * runs;
    let mut keys = rec.secret("slot keys", 4 * u64::from(slots));
    let mut points = rec.secret("slots", u64::from(slots) * point);
    let direct = u32::from(list.entries.is_none());
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
        params: vec![list.buckets, runs, group.min_run() as u32, direct],
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

/// Σ_w 2^(c·w)·(S_w + Σ_k 2^k·T_{w,k}) by Horner's rule over all bit positions.
fn combine<P: SWCurveConfig>(points: &[Projective<P>], g: &Geometry) -> Projective<P> {
    let c = g.window_points() as usize;
    let mut sum = Projective::<P>::zero();
    for window in points.chunks_exact(c).rev() {
        for k in (0..c).rev() {
            sum.double_in_place();
            // Bit k of the bucket index; the topmost bit position of a window has no T.
            if k + 1 < c {
                sum += window[k + 1];
            }
        }
        sum += window[0];
    }
    sum
}

/// Jacobian coordinates (X·ZZ, Y·ZZZ, ZZ) of an XYZZ point.
fn to_jacobian<P: SWCurveConfig>(c: [P::BaseField; 4]) -> Projective<P> {
    let [x, y, zz, zzz] = c;
    if zz.is_zero() {
        return Projective::zero();
    }
    Projective::new_unchecked(x * zz, y * zzz, zz)
}

fn fault(what: &str) -> crate::Error {
    crate::Error::DeviceFault {
        device: "device".into(),
        message: format!("multi-scalar multiplication returned {what}"),
    }
}

/// The sum in G1 from downloaded window sums.
///
/// # Errors
/// `DeviceFault` if the bytes are not canonical field elements.
pub fn finish_g1<C: GpuCurve>(bytes: &[u8], g: &Geometry) -> Result<G1<C>> {
    let n = C::ID.fq_bytes();
    let mut points = Vec::with_capacity(bytes.len() / (4 * n));
    for chunk in bytes.chunks_exact(4 * n) {
        let mut c = [C::Fq::zero(); 4];
        for (c, b) in c.iter_mut().zip(chunk.chunks_exact(n)) {
            *c = C::fq_from_montgomery(b).ok_or_else(|| fault("a value not below the modulus"))?;
        }
        points.push(to_jacobian::<C::G1Config>(c));
    }
    Ok(combine(&points, g))
}

/// The sum in G2 from downloaded window sums, like [`finish_g1`].
///
/// # Errors
/// `DeviceFault` if the bytes are not canonical field elements.
pub fn finish_g2<C: GpuCurve>(bytes: &[u8], g: &Geometry) -> Result<G2<C>> {
    let n = C::ID.fq_bytes();
    let mut points = Vec::with_capacity(bytes.len() / (8 * n));
    for chunk in bytes.chunks_exact(8 * n) {
        let mut c = [C::Fq2::zero(); 4];
        for (c, b) in c.iter_mut().zip(chunk.chunks_exact(2 * n)) {
            let (Some(c0), Some(c1)) = (
                C::fq_from_montgomery(&b[..n]),
                C::fq_from_montgomery(&b[n..]),
            ) else {
                return Err(fault("a value not below the modulus"));
            };
            *c = C::fq2_from_parts(c0, c1);
        }
        points.push(to_jacobian::<C::G2Config>(c));
    }
    Ok(combine(&points, g))
}

/// Bits of the scalar field's modulus.
pub fn scalar_bits<C: GpuCurve>() -> u32 {
    C::Fr::MODULUS_BIT_SIZE
}
