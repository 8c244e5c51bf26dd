//! Transforms of vectors in 2^k parts, each of which fits a binding.
//!
//! The k widest stages go between parts, one dispatch for each pair of parts; what is left of each
//! part is a transform of its own (Bailey 1990, with 2^k rows). In bit-reversed order, part q has the
//! elements whose natural indices end in the bits of q, reversed.

use super::{Finish, Order, TransformBuffers, record_part};
use crate::curve::GpuCurve;
use crate::device::recording::{BufferSlice, Dispatch, Recording};
use crate::kernels::Kernel;
use crate::parts::Parts;

const THREADS: u32 = 64;

/// The lowest `bits` bits of x in reversed order.
fn reversed(x: u32, bits: u32) -> u32 {
    match bits {
        0 => 0,
        _ => x.reverse_bits() >> (32 - bits),
    }
}

pub(super) fn record<C: GpuCurve>(
    rec: &mut Recording,
    tables: &TransformBuffers,
    order: Order,
    source: &Parts,
    target: &Parts,
    finish: Finish,
) {
    if source.slices() != target.slices() && !finish.natural {
        for (from, to) in source.slices().iter().zip(target.slices()) {
            rec.copy(*from, *to);
        }
    }
    // A reversal is not in place.
    let work = if finish.natural { source } else { target };
    let parts = |rec: &mut Recording| {
        for (q, slice) in work.slices().iter().enumerate() {
            let index = reversed(q as u32, tables.split_log);
            let finish = Finish {
                natural: false,
                ..finish
            };
            record_part::<C>(rec, tables, order, (*slice, *slice), finish, index);
        }
    };
    match order {
        Order::NaturalToReversed => {
            for stage in 0..tables.split_log {
                record_stage::<C>(rec, tables, order, work.slices(), stage);
            }
            parts(rec);
        }
        Order::ReversedToNatural => {
            parts(rec);
            for stage in (0..tables.split_log).rev() {
                record_stage::<C>(rec, tables, order, work.slices(), stage);
            }
        }
    }
    if finish.natural {
        record_reversal::<C>(rec, tables, source.slices(), target.slices());
    }
}

/// The stage over blocks of 1/2^`stage` of the vector.
fn record_stage<C: GpuCurve>(
    rec: &mut Recording,
    tables: &TransformBuffers,
    order: Order,
    parts: &[BufferSlice],
    stage: u32,
) {
    let half = parts.len() >> (stage + 1);
    let n = 1u32 << tables.log_n;
    for block in parts.chunks_exact(2 * half) {
        let (x, y) = block.split_at(half);
        for (i, (x, y)) in x.iter().zip(y).enumerate() {
            rec.dispatch(Dispatch {
                kernel: Kernel::NttSplit,
                curve: C::ID,
                bindings: vec![
                    *x,
                    *y,
                    rec.whole(tables.powers.low),
                    rec.whole(tables.powers.high),
                ],
                params: vec![
                    n,
                    i as u32 * n,
                    stage,
                    tables.powers.low_log,
                    u32::from(order == Order::ReversedToNatural),
                ],
                groups: n.div_ceil(THREADS),
                work_per_group: 2 * u64::from(THREADS),
            });
        }
    }
}

/// From bit-reversed to natural order, from one vector to another.
fn record_reversal<C: GpuCurve>(
    rec: &mut Recording,
    tables: &TransformBuffers,
    source: &[BufferSlice],
    target: &[BufferSlice],
) {
    assert!(tables.split_log <= tables.log_n, "more parts than elements");
    let n = 1u32 << (tables.log_n - tables.split_log);
    for (part, natural) in target.iter().enumerate() {
        for (q, from) in source.iter().enumerate() {
            rec.dispatch(Dispatch {
                kernel: Kernel::NttReverse,
                curve: C::ID,
                bindings: vec![*from, *natural],
                params: vec![
                    n,
                    tables.log_n,
                    tables.split_log,
                    part as u32,
                    reversed(q as u32, tables.split_log),
                ],
                groups: n.div_ceil(THREADS),
                work_per_group: u64::from(THREADS) / 4,
            });
        }
    }
}
