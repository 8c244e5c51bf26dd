//! Bases in working form, and tables of their multiples.

use super::geometry::{Geometry, Group};
use super::{GROUP_THREADS, pairs};
use crate::curve::CurveId;
use crate::device::recording::{BufferSlice, Dispatch, Recording};
use crate::kernels::Kernel;

/// Points whose multiples are computed at a time: what they need besides is half as much again as
/// the points themselves.
const POINTS_AT_A_TIME: u64 = 1 << 20;
/// Products of a thread at most. lavapipe leaves every loop of an invocation once all of them
/// together have taken 65,535 turns, and a product of G2 takes some 18 in tier u32. An inversion costs
/// little beside so many products.
const MAX_PRODUCTS: u64 = 2500;

/// Records the conversion of affine points at rest to working form.
pub(super) fn import(
    rec: &mut Recording,
    curve: CurveId,
    group: Group,
    from: BufferSlice,
    to: BufferSlice,
) {
    let elements = from.size / group.affine_bytes(curve) * 2 * group.coordinate_elements();
    rec.dispatch(Dispatch {
        kernel: Kernel::PointsImport,
        curve,
        bindings: vec![from, to],
        params: vec![elements as u32],
        groups: (elements as u32).div_ceil(GROUP_THREADS),
        work_per_group: u64::from(GROUP_THREADS),
    });
}

/// Records the tables of `bases` (affine, at rest) into `lists`, one slice for each of
/// [`Geometry::lists`]: table t holds the multiples by 2^(t·doublings), in working form.
pub fn record_tables(
    rec: &mut Recording,
    curve: CurveId,
    group: Group,
    geometry: &Geometry,
    bases: BufferSlice,
    lists: &[BufferSlice],
) {
    let g = geometry;
    let affine = group.affine_bytes(curve);
    debug_assert_eq!(lists.len(), g.lists() as usize);
    let table = |t: u32, first: u64, points: u64| {
        let list = lists[(t / g.together) as usize];
        let at = u64::from(t % g.together) * u64::from(g.stride()) + first;
        BufferSlice {
            buffer: list.buffer,
            offset: list.offset + at * affine,
            size: points * affine,
        }
    };
    rec.step("import");
    let first = table(0, 0, u64::from(g.n));
    import(rec, curve, group, bases, first);
    rec.step("tables");
    let most = POINTS_AT_A_TIME.min(u64::from(g.n));
    let scratch = rec.transient("multiples", most * affine / 2 * 3);
    let kernel = match group {
        Group::G1 => Kernel::MsmTableG1,
        Group::G2 => Kernel::MsmTableG2,
    };
    // Of each point.
    let products = 9 * u64::from(g.doublings()) + 8;
    for t in 1..g.tables() {
        for first in (0..u64::from(g.n)).step_by(most as usize) {
            let points = most.min(u64::from(g.n) - first);
            let (_, each) = pairs::shares(points);
            let each = each.min((MAX_PRODUCTS / products).max(1));
            let threads = points.div_ceil(each) as u32;
            rec.dispatch(Dispatch {
                kernel,
                curve,
                bindings: vec![
                    table(t - 1, first, points),
                    table(t, first, points),
                    rec.whole(scratch),
                ],
                params: vec![points as u32, threads, g.doublings()],
                groups: threads.div_ceil(GROUP_THREADS),
                work_per_group: u64::from(GROUP_THREADS) * each * group.mul_cost() * products,
            });
        }
    }
}
