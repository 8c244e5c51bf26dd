//! Exclusive prefix sums of 32-bit counts as a plan.

use crate::curve::CurveId;
use crate::device::recording::{BufferId, Dispatch, Recording};
use crate::kernels::Kernel;

/// Counts that one workgroup of the scan kernels takes.
pub const BLOCK: u32 = 1024;

/// Records the exclusive scan of the first `n` words of `counts`, in place.
///
/// `curve` only names the permutation of the kernel; the scan has no field arithmetic.
pub fn record_scan(rec: &mut Recording, curve: CurveId, counts: BufferId, n: u32) {
    let blocks = n.div_ceil(BLOCK);
    let sums = rec.transient("scan sums", 4 * u64::from(blocks));
    let bindings = vec![rec.whole(counts), rec.whole(sums)];
    let dispatch = |kernel| Dispatch {
        kernel,
        curve,
        bindings: bindings.clone(),
        params: vec![n],
        groups: blocks,
        work_per_group: 64,
    };
    let (up, down) = (dispatch(Kernel::ScanBlock), dispatch(Kernel::ScanAdd));
    rec.dispatch(up);
    if blocks > 1 {
        record_scan(rec, curve, sums, blocks);
        rec.dispatch(down);
    }
}
