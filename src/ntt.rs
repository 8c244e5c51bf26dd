//! The number-theoretic transform as a plan: passes over tiles in workgroup memory, and over the parts
//! of a vector that exceeds one binding (`split`).
//!
//! Decimation in frequency takes natural order to bit-reversed order, decimation in time back, so
//! that a product of transforms never permutes. See `shaders/ntt_pass.wgsl` for the arithmetic.

use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::recording::{BufferId, BufferSlice, Dispatch, Recording};
use crate::domain::{Domain, RootConvention};
use crate::kernels::{Kernel, NTT_TILE_LOG};
use crate::parts::Parts;
use ark_ff::{Field, One};
use rayon::prelude::*;

mod resident;
mod split;
pub use resident::ResidentRoots;

/// Most stages of a pass whose tile has columns: leaves 2 neighbouring elements (64 bytes) a row.
const STRIDED_STAGES: u32 = NTT_TILE_LOG - 1;
const ROOT_THREADS: u32 = 64;

/// One pass: `stages` stages at stride `2^stride_log`, on tiles of `2^(stages + columns_log)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    pub stages: u32,
    pub stride_log: u32,
    pub columns_log: u32,
}

/// The passes of a transform of 2^log_n elements, from the widest stride to stride 1.
///
/// # Panics
/// If `log_n` is 0: a transform of one element needs no pass.
pub fn passes(log_n: u32) -> Vec<Pass> {
    assert!(log_n > 0);
    let last = log_n.min(NTT_TILE_LOG);
    let strided = log_n - last;
    let count = strided.div_ceil(STRIDED_STAGES);
    let mut block = log_n;
    let mut out = Vec::new();
    for i in 0..count {
        // As even as possible, the longer ones first.
        let stages = strided / count + u32::from(i < strided % count);
        let stride_log = block - stages;
        out.push(Pass {
            stages,
            stride_log,
            columns_log: (NTT_TILE_LOG - stages).min(stride_log),
        });
        block = stride_log;
    }
    out.push(Pass {
        stages: last,
        stride_log: 0,
        columns_log: 0,
    });
    out
}

/// Appends the form at rest (Montgomery, little-endian) of a scalar.
pub(crate) fn push_scalar<C: GpuCurve>(x: &C::Fr, out: &mut Vec<u8>) {
    for limb in C::fr_montgomery(x) {
        out.extend_from_slice(&limb.to_le_bytes());
    }
}

/// The powers first·base^e, 0 ≤ e < 2^log_n, as two short tables:
/// `high[e >> low_log]·low[e mod 2^low_log]`.
#[derive(Clone, Debug)]
pub struct PowerTable {
    pub low_log: u32,
    pub low: Bytes,
    pub high: Bytes,
}

impl PowerTable {
    /// The powers in a table as long as the vector, which costs a transform one product an element
    /// instead of two.
    pub fn whole<C: GpuCurve>(base: C::Fr, first: C::Fr, log_n: u32) -> Self {
        const PART: usize = 1 << 12;
        let n = 1usize << log_n;
        let mut low = vec![0; 32 * n];
        low.par_chunks_mut(32 * PART)
            .enumerate()
            .for_each(|(part, out)| {
                let mut x = first * base.pow([(part * PART) as u64]);
                let mut bytes = Vec::with_capacity(out.len());
                for _ in 0..out.len() / 32 {
                    push_scalar::<C>(&x, &mut bytes);
                    x *= base;
                }
                out.copy_from_slice(&bytes);
            });
        let mut high = Vec::new();
        push_scalar::<C>(&C::Fr::one(), &mut high);
        Self {
            low_log: log_n,
            low: low.into(),
            high: high.into(),
        }
    }

    /// The powers in two short tables.
    pub fn new<C: GpuCurve>(base: C::Fr, first: C::Fr, log_n: u32) -> Self {
        // Less than log_n: a low table as long as the vector is the only one.
        let low_log = log_n / 2;
        let table = |base: C::Fr, first: C::Fr, log: u32| {
            let mut out = Vec::with_capacity(32 << log);
            let mut x = first;
            for _ in 0..1u64 << log {
                push_scalar::<C>(&x, &mut out);
                x *= base;
            }
            Bytes::from(out)
        };
        Self {
            low_log,
            low: table(base, C::Fr::one(), low_log),
            high: table(base.pow([1u64 << low_log]), first, log_n - low_log),
        }
    }
}

/// The powers of the root of a transform over one domain in one direction, forward (coefficients to
/// values) or inverse (without 1/n).
///
/// `None` if the field has no domain of that size.
pub fn root_powers<C: GpuCurve>(
    log_n: u32,
    roots: RootConvention,
    inverse: bool,
) -> Option<PowerTable> {
    let generator = Domain::<C::Fr>::new(log_n, roots)?.generator;
    let root = match inverse {
        true => generator.inverse().expect("a root of unity"),
        false => generator,
    };
    Some(PowerTable::new::<C>(root, C::Fr::one(), log_n))
}

/// A [`PowerTable`] on the device.
#[derive(Clone, Copy, Debug)]
pub struct PowerBuffers {
    pub low_log: u32,
    pub low: BufferId,
    pub high: BufferId,
}

/// What a transform over one domain in one direction reads besides the data.
#[derive(Clone, Copy, Debug)]
pub struct TransformBuffers {
    /// Of one part of the vector.
    pub log_n: u32,
    /// log2 of the number of parts. The powers are those of the root of order 2^(log_n + split_log).
    pub split_log: u32,
    /// The first half of the powers of the root of order 2^[`tile_log`].
    pub stage_roots: BufferId,
    pub powers: PowerBuffers,
    /// log2 of the order of a root, and the first half of its powers: the roots of blocks up to that
    /// size by position.
    pub blocks: Option<(u32, BufferId)>,
}

/// log2 of the order of the root that the stages of one tile need.
pub fn tile_log(log_n: u32) -> u32 {
    log_n.min(NTT_TILE_LOG)
}

/// log2 of the largest block of a strided pass whose roots take at most `max_bytes`.
pub fn block_log(log_n: u32, max_bytes: u64) -> Option<u32> {
    let strided = passes(log_n).into_iter().filter(|p| p.stride_log > 0);
    let blocks = strided.map(|p| p.stages + p.stride_log);
    blocks.filter(|log| 16u64 << log <= max_bytes).max()
}

/// Bytes of a table of the first half of the powers of a root of order 2^log.
pub fn roots_bytes(log: u32) -> u64 {
    32 << log.saturating_sub(1)
}

/// Records the tables of a transform of 2^`split_log` parts of 2^`log_n` from the powers of its root:
/// of the stages of a tile, and of blocks as `blocks` says.
pub fn record_roots<C: GpuCurve>(
    rec: &mut Recording,
    (log_n, split_log): (u32, u32),
    powers: PowerBuffers,
    blocks: Option<u32>,
) -> TransformBuffers {
    let table = |rec: &mut Recording, label, log| {
        let id = rec.transient(label, roots_bytes(log));
        let whole = rec.whole(id);
        record_roots_into::<C>(rec, log_n + split_log, powers, log, whole);
        id
    };
    TransformBuffers {
        log_n,
        split_log,
        stage_roots: table(rec, "stage roots", tile_log(log_n)),
        powers,
        blocks: blocks.map(|log| (log, table(rec, "block roots", log))),
    }
}

/// Records the first half of the powers of the root of order 2^log, in the working form of the
/// kernels, from those of the root of order 2^log_n.
pub fn record_roots_into<C: GpuCurve>(
    rec: &mut Recording,
    log_n: u32,
    powers: PowerBuffers,
    log: u32,
    target: BufferSlice,
) {
    debug_assert_eq!(target.size, roots_bytes(log));
    let n = (target.size / 32) as u32;
    rec.dispatch(Dispatch {
        kernel: Kernel::NttRoots,
        curve: C::ID,
        bindings: vec![rec.whole(powers.low), rec.whole(powers.high), target],
        params: vec![n, log_n - log, powers.low_log],
        groups: n.div_ceil(ROOT_THREADS),
        work_per_group: 2 * u64::from(ROOT_THREADS),
    });
}

/// Uploads bytes into a new buffer of the recording.
pub(crate) fn upload(rec: &mut Recording, label: &'static str, bytes: &Bytes) -> BufferId {
    let id = rec.transient(label, bytes.len() as u64);
    let whole = rec.whole(id);
    rec.upload(whole, bytes.clone());
    id
}

impl PowerTable {
    /// Declares and uploads the tables.
    pub fn upload(&self, rec: &mut Recording) -> PowerBuffers {
        PowerBuffers {
            low_log: self.low_log,
            low: upload(rec, "powers low", &self.low),
            high: upload(rec, "powers high", &self.high),
        }
    }
}

/// Order of a transform's input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Natural to bit-reversed: decimation in frequency.
    NaturalToReversed,
    /// Bit-reversed to natural: decimation in time.
    ReversedToNatural,
}

/// What happens to the elements of a natural-to-reversed transform at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finish {
    /// Multiply the element of natural index e by the table's e-th power.
    pub powers: Option<PowerBuffers>,
    /// Store in natural order after all, into a buffer that is not the source.
    pub natural: bool,
}

/// Records a transform of scalars at rest, in parts as the tables say. `target` may be `source`, but
/// not where `finish` is natural.
pub fn record_transform<C: GpuCurve>(
    rec: &mut Recording,
    tables: &TransformBuffers,
    order: Order,
    source: &Parts,
    target: &Parts,
    finish: Finish,
) {
    assert_eq!(source.slices().len(), 1 << tables.split_log);
    assert_eq!(target.slices().len(), 1 << tables.split_log);
    if tables.split_log > 0 {
        return split::record::<C>(rec, tables, order, source, target, finish);
    }
    let (source, target) = (source.slices()[0], target.slices()[0]);
    record_part::<C>(rec, tables, order, (source, target), finish, 0);
}

/// Records a transform of one part. `split_index` is its number among the parts, its bits reversed.
fn record_part<C: GpuCurve>(
    rec: &mut Recording,
    tables: &TransformBuffers,
    order: Order,
    (source, target): (BufferSlice, BufferSlice),
    finish: Finish,
    split_index: u32,
) {
    let log_n = tables.log_n;
    debug_assert_eq!(source.size, 32 << log_n);
    debug_assert_eq!(target.size, 32 << log_n);
    let in_time = order == Order::ReversedToNatural;
    debug_assert!(!in_time || (finish.powers.is_none() && !finish.natural));
    let mut list = passes(log_n);
    if in_time {
        list.reverse();
    }
    let mut from = source;
    for (i, pass) in list.iter().enumerate() {
        let last = i + 1 == list.len();
        let block_log = pass.stages + pass.stride_log;
        let (mode, powers) = match (pass.stride_log > 0, finish.powers) {
            (true, _) => match tables.blocks {
                Some((low_log, low)) if block_log <= low_log => {
                    let high = tables.powers.high;
                    (3, PowerBuffers { low_log, low, high })
                }
                _ => (1, tables.powers),
            },
            (false, Some(p)) => (2, p),
            (false, None) => (0, tables.powers),
        };
        // A reversing store must not overwrite what other tiles have yet to read.
        let natural = last && finish.natural;
        debug_assert!(
            !natural || from != target || list.len() == 1 && log_n <= NTT_TILE_LOG,
            "a reversing store needs a buffer of its own"
        );
        let to = if !last && finish.natural {
            source
        } else {
            target
        };
        let groups = 1u32 << (log_n - pass.stages - pass.columns_log);
        rec.dispatch(Dispatch {
            kernel: match order {
                Order::NaturalToReversed => Kernel::NttDif,
                Order::ReversedToNatural => Kernel::NttDit,
            },
            curve: C::ID,
            bindings: vec![
                from,
                to,
                rec.whole(tables.stage_roots),
                rec.whole(powers.low),
                rec.whole(powers.high),
            ],
            params: vec![
                log_n,
                pass.stages,
                pass.stride_log,
                mode,
                powers.low_log,
                u32::from(natural),
                pass.columns_log,
                tables.split_log,
                split_index,
            ],
            groups,
            work_per_group: (u64::from(pass.stages) / 2 + 2) << (pass.stages + pass.columns_log),
        });
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_cover_every_stage_once() {
        for log_n in 1..=28 {
            let list = passes(log_n);
            let mut block = log_n;
            for p in &list {
                assert_eq!(p.stride_log + p.stages, block, "log_n {log_n}");
                assert!(p.stages + p.columns_log <= NTT_TILE_LOG);
                assert!(p.columns_log <= p.stride_log);
                block = p.stride_log;
            }
            assert_eq!(block, 0);
        }
        assert_eq!(passes(20).len(), 3);
        assert_eq!(passes(9).len(), 1);
    }
}
