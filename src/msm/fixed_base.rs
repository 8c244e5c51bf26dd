//! Many multiples of one point as a plan
//! ([Brickell, Gordon, McCurley, Wilson 1992](https://doi.org/10.1007/3-540-47555-9_18)): a multiple is
//! the sum of one point a window from a table of the point's multiples.
//!
//! The number of windows is a power of two, so that passes over pairs (`pairs`) add up all summands
//! of all multiples in step.

use super::pairs::{self, BucketList};
use super::{GROUP_THREADS, Group, tables};
use crate::curve::CurveId;
use crate::device::recording::{BufferSlice, Dispatch, Recording};
use crate::kernels::Kernel;
use ark_ec::CurveGroup;
use ark_ec::models::short_weierstrass::{Affine, Projective, SWCurveConfig};
use rayon::prelude::*;

/// Bits of the scalars, filled up: both fields have moduli below 2^255, so that the last signed
/// digit has no carry.
const SCALAR_BITS: u32 = 256;
/// Least multiples that the larger table is worth computing for, which takes about half a second of
/// one processor in G1.
const MANY: usize = 1 << 22;

/// The cut of scalars into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedBaseWindows {
    bits: u32,
}

impl FixedBaseWindows {
    /// Windows of 8 bits and a table of 4,097 points.
    pub const SMALL: Self = Self { bits: 8 };
    /// Windows of 16 bits, half as many summands, and a table of 524,289 points.
    pub const LARGE: Self = Self { bits: 16 };

    /// What suits `n` multiples in all, with a table of at most `most` bytes.
    pub fn new(n: usize, curve: CurveId, group: Group, most: u64) -> Self {
        match n >= MANY && Self::LARGE.table_points() * group.affine_bytes(curve) <= most {
            true => Self::LARGE,
            false => Self::SMALL,
        }
    }

    /// Windows of a scalar.
    pub fn count(self) -> u32 {
        SCALAR_BITS / self.bits
    }

    /// Points of the table.
    pub fn table_points(self) -> u64 {
        u64::from(self.count() << (self.bits - 1)) + 1
    }

    /// Bytes of the largest buffer for each multiple: the sums of the first pass over pairs.
    pub fn bytes_each(self, curve: CurveId, group: Group) -> u64 {
        u64::from(self.count() / 2) * group.affine_bytes(curve)
    }

    /// The table of `base`, as `fixed_base_entries` looks it up: m·2^(bits·w)·base for windows w and
    /// 1 ≤ m ≤ 2^(bits − 1), then infinity.
    pub fn table<P: SWCurveConfig>(self, base: Projective<P>) -> Vec<Affine<P>> {
        let bases = std::iter::successors(Some(base), |base| {
            Some((0..self.bits).fold(*base, |point, _| point + point))
        });
        let bases: Vec<_> = bases.take(self.count() as usize).collect();
        let mut table: Vec<Affine<P>> = bases
            .into_par_iter()
            .flat_map_iter(|base| {
                let step = base.into_affine();
                let multiples = std::iter::successors(Some(base), |point| Some(*point + step));
                let multiples: Vec<_> = multiples.take(1 << (self.bits - 1)).collect();
                Projective::normalize_batch(&multiples)
            })
            .collect();
        table.push(Affine::identity());
        table
    }
}

/// Records the conversion of a table, affine points at rest, to working form.
pub fn record_fixed_base_table(
    rec: &mut Recording,
    curve: CurveId,
    group: Group,
    from: BufferSlice,
    to: BufferSlice,
) {
    tables::import(rec, curve, group, from, to);
}

/// Records the table entries of canonical scalars of 32 bytes: one for each scalar and window.
pub fn record_fixed_base_entries(
    rec: &mut Recording,
    curve: CurveId,
    windows: FixedBaseWindows,
    scalars: BufferSlice,
) -> BufferSlice {
    let n = (scalars.size / 32) as u32;
    let entries = n * windows.count();
    let to = rec.secret("table entries", 4 * u64::from(entries));
    let to = rec.whole(to);
    rec.dispatch(Dispatch {
        kernel: Kernel::FixedBaseEntries,
        curve,
        bindings: vec![scalars, to],
        params: vec![n, windows.bits, windows.count()],
        groups: entries.div_ceil(GROUP_THREADS),
        work_per_group: u64::from(GROUP_THREADS),
    });
    to
}

/// Records the multiples by canonical scalars of 32 bytes, whose number times
/// [`FixedBaseWindows::bytes_each`] fits a binding. `table` is in working form, the result at rest.
pub fn record_multiples(
    rec: &mut Recording,
    curve: CurveId,
    group: Group,
    windows: FixedBaseWindows,
    table: BufferSlice,
    scalars: BufferSlice,
) -> BufferSlice {
    let n = scalars.size / 32;
    rec.step("entries");
    let entries = record_fixed_base_entries(rec, curve, windows, scalars);
    // All of them in one bucket: its pairs are those of the multiples, pass after pass.
    let total = n as u32 * windows.count();
    let bounds = [0, total].map(u32::to_le_bytes).concat();
    let offsets = rec.transient("entry bounds", bounds.len() as u64);
    rec.upload(rec.whole(offsets), bounds.into());
    let list = BucketList {
        points: table,
        entries: Some(entries.buffer),
        offsets,
        first: 0,
        buckets: 1,
        capacity: u64::from(total),
    };
    let list = pairs::record(rec, (curve, group), list, windows.count().ilog2());
    debug_assert_eq!(list.capacity, n);
    rec.step("export");
    let multiples = rec.transient("multiples", n * group.affine_bytes(curve));
    let multiples = rec.whole(multiples);
    let coordinates = 2 * group.coordinate_elements() as u32;
    let elements = n as u32 * coordinates;
    rec.dispatch(Dispatch {
        kernel: Kernel::PointsExportAffine,
        curve,
        bindings: vec![list.points, multiples],
        params: vec![elements, coordinates],
        groups: elements.div_ceil(GROUP_THREADS),
        work_per_group: u64::from(GROUP_THREADS),
    });
    multiples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{G1, GpuCurve};
    use crate::with_curve;
    use ark_ec::{AffineRepr, PrimeGroup};

    #[test]
    fn tables_hold_multiples() {
        for curve in CurveId::ALL {
            with_curve!(curve, C => {
                let windows = FixedBaseWindows::SMALL;
                let g = G1::<C>::generator();
                let table = windows.table(g);
                assert_eq!(table.len() as u64, windows.table_points());
                assert!(table[table.len() - 1].is_zero());
                for (w, m) in [(0u64, 1u64), (0, 128), (1, 1), (3, 77), (31, 128)] {
                    let multiple = (0..8 * w).fold(g * <C as GpuCurve>::Fr::from(m), |p, _| p + p);
                    assert_eq!(table[(w * 128 + m - 1) as usize], multiple.into_affine());
                }
            });
        }
    }

    #[test]
    fn large_tables_are_for_many() {
        let new = |n, most| FixedBaseWindows::new(n, CurveId::Bls12_381, Group::G2, most);
        assert_eq!(new(MANY - 1, u64::MAX), FixedBaseWindows::SMALL);
        assert_eq!(new(MANY, u64::MAX), FixedBaseWindows::LARGE);
        assert_eq!(new(MANY, 100 << 20), FixedBaseWindows::LARGE);
        assert_eq!(new(MANY, 96 << 20), FixedBaseWindows::SMALL);
    }
}
