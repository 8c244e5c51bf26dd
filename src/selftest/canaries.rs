//! Canaries: what every kernel relies on, pushed harder than a proof does. A barrier that does not
//! hold, a dispatch that does not see what the one before it wrote, or an atomic addition that gets
//! lost shows here first; so does a binding whose far end is not there.

use super::msm::canonical;
use super::{Prepared, Size, check, ensure, run_recording, upload};
use crate::curve::GpuCurve;
use crate::device::allocator::ALIGNMENT;
use crate::device::recording::{BufferSlice, Recording};
use crate::kernels::Kernel;
use crate::msm::{Geometry, record_digits, scalar_bits};
use crate::scan::record_scan;

pub(super) const SCANS: &[Kernel] = &[Kernel::ScanBlock, Kernel::ScanAdd];

fn bytes(words: &[u32]) -> crate::bytes::Bytes {
    let all: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    all.into()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |w: &[u8]| u32::from_le_bytes(w.try_into().expect("chunks of 4"));
    bytes.chunks_exact(4).map(word).collect()
}

/// Prefix sums of prefix sums, in place and modulo 2^32: each of three dispatches a time needs all
/// that the one before it wrote, in other workgroups too, and each block ten barriers. One word that
/// comes too late changes everything after it.
pub(super) fn chained_scans<C: GpuCurve>(size: Size) -> Prepared {
    let (n, times) = size.pick((5_000, 12), (300_000, 40));
    let mut values: Vec<u32> = (0..n).map(|i: u32| i.wrapping_mul(2_654_435_761)).collect();
    let input = bytes(&values);
    for _ in 0..times {
        let mut sum = 0u32;
        for x in &mut values {
            sum = sum.wrapping_add(std::mem::replace(x, sum));
        }
    }
    check(move |gpu| {
        let mut rec = Recording::new();
        let id = upload(&mut rec, "values", &input);
        for _ in 0..times {
            record_scan(&mut rec, C::ID, id, n);
        }
        let whole = rec.whole(id);
        rec.download(whole);
        let output = run_recording(gpu, &rec)?;
        let wrong = words(&output.downloads[0])
            .iter()
            .zip(&values)
            .position(|(a, b)| a != b);
        ensure!(wrong.is_none(), "word {wrong:?} of {n} after {times} scans");
        Ok(())
    })
}

/// Every thread adds to one of few counters: the ranks that they get are all different, and none is
/// left out.
pub(super) fn contended_atomics<C: GpuCurve>(size: Size) -> Prepared {
    let n = size.pick(2_000, 200_000);
    let scalars = canonical::<C>(&vec![C::Fr::from(5u64); n]);
    check(move |gpu| {
        let max_binding = gpu.limits().max_binding;
        // 5 is one digit; the other windows are 0 and count nothing.
        let geometry = Geometry::with_window(n, scalar_bits::<C>(), 8, max_binding);
        let g = geometry.ok_or("does not fit a binding")?;
        let mut rec = Recording::new();
        let scalars = upload(&mut rec, "scalars", &scalars);
        let scalars = rec.whole(scalars);
        for buffer in record_digits(&mut rec, C::ID, scalars, g) {
            let whole = rec.whole(buffer);
            rec.download(whole);
        }
        let output = run_recording(gpu, &rec)?;
        let [counts, ranks] = [0, 1].map(|i| words(&output.downloads[i]));
        let counted: Vec<_> = counts
            .iter()
            .enumerate()
            .filter(|(_, c)| **c != 0)
            .collect();
        ensure!(counted == [(4, &(n as u32))], "counts {counted:?} of {n}");
        let mut seen = vec![false; n];
        for rank in &ranks[..n] {
            let free = seen.get_mut(*rank as usize).filter(|s| !**s);
            *free.ok_or_else(|| format!("rank {rank} of {n} twice, or too large"))? = true;
        }
        Ok(())
    })
}

/// Most of a binding on a software adapter, where it is the machine's memory that is filled.
const SOFTWARE_BYTES: u64 = 64 << 20;

/// p41: prefix sums over as large a binding as there is, zeros but for the last words of it.
pub(super) fn far_end<C: GpuCurve>(size: Size) -> Prepared {
    check(move |gpu| {
        let limits = gpu.limits();
        let most = match (size, gpu.info().software) {
            (Size::Small, _) => SOFTWARE_BYTES / 4,
            (_, true) => SOFTWARE_BYTES,
            (_, false) => u64::MAX,
        };
        let room = (limits.memory_budget / 2) & !(ALIGNMENT - 1);
        let bytes_in_all = limits.max_binding.min(room).min(most);
        let values: Vec<u32> = (0..1000).map(|i| i * i % 11).collect();
        let mut rec = Recording::new();
        let id = rec.transient("as large as a binding", bytes_in_all);
        let end = BufferSlice {
            buffer: id,
            offset: bytes_in_all - (4 * values.len() as u64).next_multiple_of(ALIGNMENT),
            size: 4 * values.len() as u64,
        };
        rec.clear(rec.whole(id));
        rec.upload(end, bytes(&values));
        record_scan(&mut rec, C::ID, id, (bytes_in_all / 4) as u32);
        rec.download(end);
        let output = run_recording(gpu, &rec)?;
        let mut sum = 0;
        for (i, (got, value)) in words(&output.downloads[0]).iter().zip(&values).enumerate() {
            ensure!(
                *got == sum,
                "word {i} at the end of {bytes_in_all} bytes: {got}, not {sum}"
            );
            sum += value;
        }
        Ok(())
    })
}
