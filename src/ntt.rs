//! The number-theoretic transform as a plan: passes over tiles in workgroup memory.
//!
//! Decimation in frequency takes natural order to bit-reversed order, decimation in time back, so
//! that a product of transforms never permutes. See `shaders/ntt_pass.wgsl` for the arithmetic.

use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::recording::{BufferId, BufferSlice, Dispatch, Recording};
use crate::domain::{Domain, RootConvention};
use crate::kernels::{Kernel, NTT_TILE_LOG};
use ark_ff::{Field, One};
use rayon::prelude::*;

/// Most stages of a pass whose tile has columns: leaves 4 neighbouring elements (128 bytes) a row.
const STRIDED_STAGES: u32 = NTT_TILE_LOG - 2;
/// log2 of the largest block whose roots are in a table by position: 64 MiB.
const MAX_BLOCK_LOG: u32 = 22;

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
    pub fn new<C: GpuCurve>(base: C::Fr, first: C::Fr, log_n: u32) -> Self {
        let low_log = log_n.div_ceil(2);
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

/// What a transform over one domain in one direction reads besides the data.
#[derive(Clone, Debug)]
pub struct TransformTables {
    pub log_n: u32,
    /// The first half of the powers of the root of the tile's order.
    pub stage_roots: Bytes,
    pub powers: PowerTable,
    /// The first half of the powers of the root of order 2^block_log, that of the largest block of a
    /// strided pass which is not too large; empty if no pass has one.
    pub block_roots: Bytes,
    pub block_log: u32,
}

/// base^0 to base^(n − 1).
fn first_powers<C: GpuCurve>(base: C::Fr, n: usize) -> Vec<u8> {
    const PART: usize = 1 << 12;
    (0..n.div_ceil(PART))
        .into_par_iter()
        .flat_map_iter(|part| {
            let mut out = Vec::with_capacity(32 * PART);
            let mut x = base.pow([(part * PART) as u64]);
            for _ in part * PART..n.min((part + 1) * PART) {
                push_scalar::<C>(&x, &mut out);
                x *= base;
            }
            out
        })
        .collect()
}

impl TransformTables {
    /// Tables of the forward transform (coefficients to values), or of the inverse without 1/n.
    ///
    /// `None` if the field has no domain of that size.
    pub fn new<C: GpuCurve>(log_n: u32, roots: RootConvention, inverse: bool) -> Option<Self> {
        let root = |log: u32| {
            let g = Domain::<C::Fr>::new(log, roots)?.generator;
            Some(if inverse {
                g.inverse().expect("a root of unity")
            } else {
                g
            })
        };
        let stage_root = root(NTT_TILE_LOG)?;
        let mut stage_roots = Vec::new();
        let mut x = C::Fr::one();
        for _ in 0..1 << (NTT_TILE_LOG - 1) {
            push_scalar::<C>(&x, &mut stage_roots);
            x *= stage_root;
        }
        let blocks = passes(log_n).into_iter().filter(|p| p.stride_log > 0);
        let block_log = blocks.map(|p| p.stages + p.stride_log);
        let block_log = block_log.filter(|log| *log <= MAX_BLOCK_LOG).max();
        let block_roots = match block_log {
            Some(log) => first_powers::<C>(root(log)?, 1 << (log - 1)),
            None => Vec::new(),
        };
        Some(Self {
            log_n,
            block_log: block_log.unwrap_or(0),
            block_roots: block_roots.into(),
            stage_roots: stage_roots.into(),
            powers: PowerTable::new::<C>(root(log_n)?, C::Fr::one(), log_n),
        })
    }
}

/// A [`PowerTable`] on the device.
#[derive(Clone, Copy, Debug)]
pub struct PowerBuffers {
    pub low_log: u32,
    pub low: BufferId,
    pub high: BufferId,
}

/// [`TransformTables`] on the device.
#[derive(Clone, Copy, Debug)]
pub struct TransformBuffers {
    pub log_n: u32,
    pub stage_roots: BufferId,
    pub powers: PowerBuffers,
    /// [`TransformTables::block_log`] and the roots, if there are any.
    pub blocks: Option<(u32, BufferId)>,
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

impl TransformTables {
    /// Declares and uploads the tables.
    pub fn upload(&self, rec: &mut Recording) -> TransformBuffers {
        TransformBuffers {
            log_n: self.log_n,
            stage_roots: upload(rec, "stage roots", &self.stage_roots),
            powers: self.powers.upload(rec),
            blocks: (self.block_log > 0).then(|| {
                (
                    self.block_log,
                    upload(rec, "block roots", &self.block_roots),
                )
            }),
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

/// Records a transform of `2^log_n` scalars at rest from `source` to `target` (which may be the
/// same slice).
pub fn record_transform<C: GpuCurve>(
    rec: &mut Recording,
    tables: &TransformBuffers,
    order: Order,
    source: BufferSlice,
    target: BufferSlice,
    finish: Finish,
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
            kernel: Kernel::NttPass,
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
                u32::from(in_time),
                mode,
                powers.low_log,
                u32::from(natural),
                pass.columns_log,
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
