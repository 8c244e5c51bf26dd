//! Sizes of a multi-scalar multiplication, and how they are chosen.

use crate::curve::CurveId;

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
    pub(super) fn min_run(self) -> u64 {
        match self {
            Self::G1 => 32,
            Self::G2 => 16,
        }
    }
    /// Most runs: ten times the threads that the largest device measured holds at once, so that
    /// the last wave of them is short.
    pub(super) fn max_runs(self) -> u64 {
        match self {
            Self::G1 => 1 << 19,
            Self::G2 => 1 << 20,
        }
    }
    /// Elements of the base field in a coordinate.
    pub(super) fn coordinate_elements(self) -> u64 {
        match self {
            Self::G1 => 1,
            Self::G2 => 2,
        }
    }
    /// Base field multiplications of a product of coordinates.
    pub(super) fn mul_cost(self) -> u64 {
        match self {
            Self::G1 => 1,
            Self::G2 => 3,
        }
    }
}

/// Products of coordinates in a mixed and in a full addition.
pub(super) const MIXED_PRODUCTS: u64 = 10;
pub(super) const FULL_PRODUCTS: u64 = 14;
/// What a full addition costs in the choice of the window, in coordinate products: reductions are
/// short and run at half the rate of accumulation.
const REDUCTION_PRODUCTS: u64 = 20;
/// Most bits of a digit. Beyond, the buckets take more memory than most devices have.
const MAX_WINDOW: u32 = 20;
/// Most passes of pairs: the fourth gained nothing on any adapter measured.
const MAX_PAIR_LEVELS: u32 = 3;

/// Sizes of one multi-scalar multiplication.
///
/// Without tables every window has buckets of its own. With tables of the bases' multiples
/// 2^(c·sets·t), t = 0, 1, …, windows w, w + sets, w + 2·sets, … share the buckets of set w.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Scalars.
    pub n: u32,
    /// Bits of a digit, c.
    pub window_bits: u32,
    /// Number of windows.
    pub windows: u32,
    /// Sets of buckets.
    pub sets: u32,
    /// Tables whose entries are sorted together: what fits one binding.
    pub together: u32,
    /// Buckets a set, 2^(window_bits − 1).
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
        Self::best(n, dense, scalar_bits, point_bytes, max_binding, 1)
    }

    /// As [`Self::new`] with at most `tables` tables of multiples, the bases themselves among
    /// them, each in one binding.
    pub fn with_tables(
        n: usize,
        scalar_bits: u32,
        point_bytes: u64,
        max_binding: u64,
        tables: u32,
    ) -> Option<Self> {
        Self::best(n, n, scalar_bits, point_bytes, max_binding, tables)
    }

    fn best(
        n: usize,
        dense: usize,
        scalar_bits: u32,
        point_bytes: u64,
        max_binding: u64,
        tables: u32,
    ) -> Option<Self> {
        let best = |dense: usize, max_bytes: u64| {
            (2..=MAX_WINDOW)
                .filter_map(|c| {
                    let g = Self::with_window(n, scalar_bits, c, max_binding)?
                        .tabled(tables, point_bytes / 2)?;
                    let total = u64::from(g.sets) * u64::from(g.buckets);
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

    /// Geometry with a given digit size (2 to 20 bits) and no tables.
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
            sets: windows,
            together: 1,
            buckets,
            max_binding,
            pair_levels: 0,
        })
    }

    /// The same windows with at most `tables` tables of affine points of `affine_bytes`.
    ///
    /// `None` if a table does not fit one binding.
    pub fn tabled(self, tables: u32, affine_bytes: u64) -> Option<Self> {
        let sets = self.windows.div_ceil(tables.max(1));
        let tables = self.windows.div_ceil(sets);
        let fit = self.max_binding / (u64::from(self.stride()) * affine_bytes).max(1);
        // As few lists as possible, and those as even as possible.
        let lists = u64::from(tables).div_ceil(fit.max(1)) as u32;
        (fit > 0).then_some(Self {
            sets,
            together: tables.div_ceil(lists),
            ..self
        })
    }

    /// The same with pairs summed first, where `dense` scalars that are neither 0 nor 1 make that
    /// worth it: down to some two points a bucket, where the odd one out of each begins to cost
    /// what pairs save, and no more than three times, where what is left costs less than a pass.
    pub fn with_pairs(self, dense: usize) -> Self {
        let per_bucket = dense as u64 * u64::from(self.together) / u64::from(self.buckets);
        Self {
            pair_levels: if per_bucket >= 4 {
                (per_bucket.ilog2() - 1).min(MAX_PAIR_LEVELS)
            } else {
                0
            },
            ..self
        }
    }

    /// Points of a table with what follows it up to the next, which begins at a multiple of every
    /// adapter's alignment.
    pub fn stride(&self) -> u32 {
        self.n.next_multiple_of(8)
    }

    /// Bytes of the points of list `l`.
    pub fn list_bytes(&self, l: u32, group: Group, curve: CurveId) -> u64 {
        group.affine_bytes(curve) * u64::from(self.stride()) * u64::from(self.tables_of(l))
    }

    /// Tables, the bases themselves among them.
    pub fn tables(&self) -> u32 {
        self.windows.div_ceil(self.sets)
    }

    /// Lists of entries: one for each `together` tables.
    pub fn lists(&self) -> u32 {
        self.tables().div_ceil(self.together)
    }

    /// Tables of list `l`.
    pub fn tables_of(&self, l: u32) -> u32 {
        self.together.min(self.tables() - l * self.together)
    }

    /// By how many doublings a table differs from the one before.
    pub fn doublings(&self) -> u32 {
        self.window_bits * self.sets
    }

    /// Threads of `msm_accumulate` for so many entries, which share them evenly.
    pub(super) fn runs(&self, group: Group, curve: CurveId, entries: u64) -> u32 {
        let slots_fit = self.max_binding / (2 * group.point_bytes(curve));
        // Longer runs have fewer slots to merge, once there are enough to fill a device.
        let enough = entries.div_ceil(2 * group.min_run()).max(1 << 16);
        entries
            .div_ceil(group.min_run())
            .min(enough)
            .min(group.max_runs())
            .min(slots_fit) as u32
    }

    pub(super) fn total_buckets(&self) -> u32 {
        self.sets * self.buckets
    }

    /// Points that the host receives for each set: the sum of its buckets, then T_0, T_1, ….
    pub(super) fn set_points(&self) -> u32 {
        self.window_bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: u32 = 255;
    const AFFINE: u64 = 96;

    /// Every window has a table and a set, lists hold all tables, and each list fits a binding.
    #[test]
    fn tables_cover_all_windows() {
        for c in 2..=20 {
            for tables in [1, 2, 3, 4, 8, 16, 64] {
                for max_binding in [100_000, 1 << 20, (1 << 31) - 256] {
                    let g = Geometry::with_window(1001, BITS, c, max_binding).expect("a geometry");
                    let g = g.tabled(tables, AFFINE).expect("a table fits");
                    let what = format!("{g:?}, {tables} tables");
                    assert!(g.tables() <= tables, "{what}");
                    assert!(g.tables() * g.sets >= g.windows, "{what}");
                    assert!((g.tables() - 1) * g.sets < g.windows, "{what}");
                    let of_lists: u32 = (0..g.lists()).map(|l| g.tables_of(l)).sum();
                    assert_eq!(of_lists, g.tables(), "{what}");
                    for l in 0..g.lists() {
                        let bytes = g.list_bytes(l, Group::G1, CurveId::Bls12_381);
                        assert!(bytes <= max_binding && bytes > 0, "{what}");
                    }
                }
            }
        }
        let g = Geometry::with_window(1001, BITS, 8, 90_000).expect("a geometry");
        assert_eq!(g.tabled(4, AFFINE), None, "no table fits");
    }

    /// More tables never cost more in the estimate that chooses digits, and one is none.
    #[test]
    fn tables_share_buckets() {
        for log_n in [8, 12, 16, 20] {
            let (n, max) = (1 << log_n, (1 << 31) - 256);
            let of = |t| Geometry::with_tables(n, BITS, 2 * AFFINE, max, t).expect("fits");
            assert_eq!(Some(of(1)), Geometry::new(n, n, BITS, 2 * AFFINE, max));
            let cost = |g: &Geometry| {
                n as u64 * u64::from(g.windows) * MIXED_PRODUCTS
                    + u64::from(g.total_buckets()) * 2 * REDUCTION_PRODUCTS
            };
            for pair in [1, 2, 4, 8, 16].windows(2) {
                assert!(
                    cost(&of(pair[1])) <= cost(&of(pair[0])),
                    "2^{log_n}, {pair:?}"
                );
            }
        }
    }
}
