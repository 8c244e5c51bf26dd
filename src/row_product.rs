//! Sparse matrix times witness as a plan. A thread adds up a piece of a row; what a row has beyond
//! its first piece is listed, added up in a tree and then to the row, so that no row is summed by
//! one thread.
//!
//! The matrix is cut into windows, ranges of its entries whose tables each fit a binding. Tables
//! share the matrix's bytes: only lists of long rows are made here. Coefficients and witness may
//! exceed a binding, too; then several passes over a window see a part of them each.

use crate::bytes::Bytes;
use crate::curve::CurveId;
use crate::device::allocator::ALIGNMENT;
use crate::device::recording::{BufferSlice, Dispatch, Recording};
use crate::kernels::Kernel;
use crate::matrix::{Matrix, unpack};
use crate::parts::Parts;
use rayon::prelude::*;
use std::ops::Range;

/// Most entries of a piece.
const PIECE: usize = 32;
const GROUP_THREADS: u32 = 64;
/// Parts of the witness that a pass sees.
const WITNESS_PARTS: usize = 4;
/// Largest table of entries: they are brought one after the other if need be.
const MAX_TABLE: u64 = 64 << 20;
/// Largest part of the coefficients, which all windows use.
const MAX_DICTIONARY: u64 = 256 << 20;

/// Bits of the kernel's `mode`.
const LISTED: u32 = 1;
const SUMS: u32 = 2;
const ADD: u32 = 4;

/// Pieces with begin, end and slot, 12 bytes each.
#[derive(Clone, Debug)]
struct Pieces<B> {
    count: u32,
    /// Where their sums go, in order.
    slots: Range<u32>,
    table: B,
}

/// One level of the trees over a window's long rows: it adds up entries, or sums of the level
/// before.
#[derive(Clone, Debug)]
struct Level<B> {
    /// To slots of a vector that the next level adds up.
    partial: Option<Pieces<B>>,
    /// To rows.
    last: Option<Pieces<B>>,
}

/// A range of the entries.
#[derive(Clone, Debug)]
struct Window<B> {
    /// Those that start here.
    rows: Range<u32>,
    entries: Range<u32>,
    starts: Option<B>,
    table: Option<B>,
    /// Parts of the coefficients that the entries use.
    dictionaries: Vec<u32>,
    long: Vec<Level<B>>,
}

/// A matrix in pieces. `B` is [`Bytes`] on the host, and a buffer on a device.
#[derive(Clone, Debug)]
pub struct RowPieces<B> {
    rows: u32,
    coefficients: u32,
    /// Coefficients of each part but the last.
    per_dictionary: u32,
    dictionaries: Vec<B>,
    windows: Vec<Window<B>>,
}

/// The first index whose row start is not below `entry`.
fn first_row(starts: &[[u8; 4]], entry: usize) -> usize {
    starts.partition_point(|s| (u32::from_le_bytes(*s) as usize) < entry)
}

/// Rows and entries of each window of at most so many.
fn windows(
    matrix: &Matrix,
    max_rows: usize,
    max_entries: usize,
) -> Vec<(Range<usize>, Range<usize>)> {
    let (starts, rows, total) = (matrix.starts(), matrix.rows(), matrix.n_entries());
    let start = |row: usize| matrix.row_start(row) as usize;
    let mut windows = Vec::new();
    let (mut row, mut entry) = (0, 0);
    while row < rows || entry < total {
        let limit = entry + max_entries;
        let mut end = total;
        if limit < total {
            // Between rows, or between pieces of the row that does not fit.
            let across = first_row(starts, limit + 1) - 1;
            end = start(across);
            if end + PIECE <= limit {
                end += (limit - end) / PIECE * PIECE;
            }
        }
        let mut next = match end == total {
            true => rows,
            false => first_row(starts, end),
        };
        if next - row > max_rows {
            next = row + max_rows;
            end = start(next);
        }
        windows.push((row..next, entry..end));
        (row, entry) = (next, end);
    }
    windows
}

/// What long rows have in a window beyond their first pieces, as (row, begin, end).
fn rests(
    matrix: &Matrix,
    long: &[u32],
    window: &Range<usize>,
) -> impl Iterator<Item = (u32, u32, u32)> {
    let first = long.partition_point(|r| matrix.row(*r as usize).end <= window.start);
    let rows = long[first..]
        .iter()
        .map(|r| (*r, matrix.row(*r as usize)))
        .take_while(|(_, entries)| entries.start < window.end);
    rows.filter_map(|(row, entries)| {
        let begin = (entries.start + PIECE).max(window.start);
        let end = entries.end.min(window.end);
        let local = |at: usize| (at - window.start) as u32;
        (begin < end).then(|| (row, local(begin), local(end)))
    })
}

/// The levels that add up `rests` to their rows.
fn levels(mut rests: Vec<(u32, u32, u32)>) -> Vec<Level<Bytes>> {
    let pieces = |list: &[[u32; 3]]| -> Option<Pieces<Bytes>> {
        let (first, last) = (list.first()?[2], list.last()?[2]);
        let words = list.iter().flatten().map(|w| w.to_le_bytes());
        Some(Pieces {
            count: list.len() as u32,
            slots: first..last + 1,
            table: words.collect::<Vec<_>>().into_flattened().into(),
        })
    };
    let mut levels = Vec::new();
    while !rests.is_empty() {
        let (mut partial, mut last, mut next) = (Vec::new(), Vec::new(), Vec::new());
        for (row, begin, end) in rests {
            if (end - begin) as usize <= PIECE {
                last.push([begin, end, row]);
                continue;
            }
            let first = partial.len() as u32;
            for at in (begin..end).step_by(PIECE) {
                let slot = partial.len() as u32;
                partial.push([at, end.min(at + PIECE as u32), slot]);
            }
            next.push((row, first, partial.len() as u32));
        }
        levels.push(Level {
            partial: pieces(&partial),
            last: pieces(&last),
        });
        rests = next;
    }
    levels
}

/// Which parts of the dictionary entries use.
fn used_parts(matrix: &Matrix, entries: Range<usize>, parts: u32, per_part: u32) -> Vec<u32> {
    if parts < 2 {
        return (0..parts).collect();
    }
    let part = |e: &[u8; 8]| unpack(e).1 / per_part;
    let none = || vec![false; parts as usize];
    let used = matrix.packed()[entries]
        .par_chunks(1 << 16)
        .fold(none, |mut used, chunk| {
            chunk.iter().for_each(|e| used[part(e) as usize] = true);
            used
        });
    let used = used.reduce(none, |mut a, b| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a |= b);
        a
    });
    (0..parts).filter(|p| used[*p as usize]).collect()
}

impl RowPieces<Bytes> {
    /// Cuts a matrix ([`Matrix::check`] accepts it) so that no table exceeds `max_binding` bytes,
    /// at least 256.
    pub fn new(matrix: &Matrix, max_binding: u64) -> Self {
        let max_table = max_binding.min(MAX_TABLE) as usize;
        let max_entries = (max_table / 8).max(PIECE);
        let max_rows = (max_table / 4 - 1).max(1);
        let per_dictionary = (max_binding.min(MAX_DICTIONARY) / 32).max(1) as usize;
        let long = |row: &usize| matrix.row(*row).len() > PIECE;
        let long: Vec<u32> = (0..matrix.rows())
            .into_par_iter()
            .with_min_len(1 << 12)
            .filter(long)
            .map(|row| row as u32)
            .collect();
        let coefficients = matrix.n_coefficients();
        let dictionaries: Vec<_> = (0..coefficients)
            .step_by(per_dictionary)
            .map(|i| (32 * i, 32 * coefficients.min(i + per_dictionary)))
            .map(|(from, until)| matrix.coefficients.slice(from..until))
            .collect();
        let parts = dictionaries.len() as u32;
        let window = |(rows, entries): (Range<usize>, Range<usize>)| {
            let starts = 4 * rows.start..4 * (rows.end + 1);
            let table = 8 * entries.start..8 * entries.end;
            Window {
                rows: rows.start as u32..rows.end as u32,
                entries: entries.start as u32..entries.end as u32,
                starts: (!rows.is_empty()).then(|| matrix.row_starts.slice(starts)),
                table: (!table.is_empty()).then(|| matrix.entries.slice(table)),
                long: levels(rests(matrix, &long, &entries).collect()),
                dictionaries: used_parts(matrix, entries, parts, per_dictionary as u32),
            }
        };
        Self {
            rows: matrix.rows() as u32,
            coefficients: coefficients as u32,
            per_dictionary: per_dictionary as u32,
            dictionaries,
            windows: windows(matrix, max_rows, max_entries)
                .into_par_iter()
                .map(window)
                .collect(),
        }
    }

    /// The tables with their labels, in the order in which [`Self::map`] takes them.
    pub fn tables(&self) -> Vec<(&'static str, Bytes)> {
        let mut out = Vec::new();
        self.each(&mut |label, table| out.push((label, table.clone())));
        out
    }
}

impl<T> RowPieces<T> {
    fn each(&self, f: &mut dyn FnMut(&'static str, &T)) {
        self.dictionaries.iter().for_each(|d| f("coefficients", d));
        for w in &self.windows {
            w.starts.iter().for_each(|t| f("row starts", t));
            w.table.iter().for_each(|t| f("row entries", t));
            for level in &w.long {
                let lists = [&level.partial, &level.last].into_iter().flatten();
                lists.for_each(|pieces| f("long rows", &pieces.table));
            }
        }
    }

    /// The same pieces over other table handles, taken one by one from `tables`.
    pub fn map<B>(&self, tables: &mut impl Iterator<Item = B>) -> RowPieces<B> {
        let mut next = || tables.next().expect("one handle a table");
        let dictionaries = self.dictionaries.iter().map(|_| next()).collect();
        let mut windows = Vec::new();
        for w in &self.windows {
            let (starts, table) = (
                w.starts.as_ref().map(|_| next()),
                w.table.as_ref().map(|_| next()),
            );
            let mut pieces = |p: &Option<Pieces<T>>| {
                p.as_ref().map(|p| Pieces {
                    count: p.count,
                    slots: p.slots.clone(),
                    table: next(),
                })
            };
            let levels = w.long.iter().map(|level| Level {
                partial: pieces(&level.partial),
                last: pieces(&level.last),
            });
            windows.push(Window {
                rows: w.rows.clone(),
                entries: w.entries.clone(),
                long: levels.collect(),
                starts,
                table,
                dictionaries: w.dictionaries.clone(),
            });
        }
        RowPieces {
            rows: self.rows,
            coefficients: self.coefficients,
            per_dictionary: self.per_dictionary,
            dictionaries,
            windows,
        }
    }
}

/// One pass over a window: what of the dictionary and the vector it sees.
#[derive(Clone, Debug)]
struct Pass {
    /// `None` where there are no entries to look at.
    dictionary: Option<BufferSlice>,
    first_coefficient: u32,
    coefficients: u32,
    vector: Vec<BufferSlice>,
    first_wire: u32,
    wires_per_part: u32,
}

impl Pass {
    /// Over a vector of sums.
    fn over(sums: BufferSlice) -> Self {
        Self {
            dictionary: None,
            first_coefficient: 0,
            coefficients: 0,
            vector: vec![sums],
            first_wire: 0,
            wires_per_part: 0,
        }
    }
}

/// What the dispatches of a window have in common.
struct Step<'a> {
    curve: CurveId,
    pass: &'a Pass,
    pieces: BufferSlice,
    entries: Option<BufferSlice>,
    /// Number of the first row and of the first entry of the tables.
    first_row: u32,
    first_entry: u32,
    mode: u32,
    /// Estimated field multiplications of a piece.
    work: u64,
}

impl Step<'_> {
    /// Pieces `range`, whose sums go to the slots of `result`, the first of which is `first_slot`.
    fn dispatch(
        &self,
        rec: &mut Recording,
        range: Range<u32>,
        result: BufferSlice,
        first_slot: u32,
    ) {
        let (pass, count) = (self.pass, range.end - range.start);
        let part = |i: usize| pass.vector.get(i).copied();
        let mut bindings = vec![self.pieces];
        let used = [
            self.entries,
            pass.dictionary,
            part(0),
            part(1),
            part(2),
            part(3),
        ];
        // What is not used still needs something to bind, and of its own: WebGPU refuses two
        // bindings that overlap and may be written to.
        let missing = used.iter().filter(|b| b.is_none()).count() as u64;
        let unused = (missing > 0).then(|| rec.transient("unused", missing * ALIGNMENT));
        let mut offset = 0;
        bindings.extend(used.into_iter().map(|binding| {
            binding.unwrap_or_else(|| {
                let buffer = unused.expect("made for it");
                offset += ALIGNMENT;
                BufferSlice {
                    buffer,
                    offset: offset - ALIGNMENT,
                    size: ALIGNMENT,
                }
            })
        }));
        bindings.push(result);
        rec.dispatch(Dispatch {
            kernel: Kernel::RowProduct,
            curve: self.curve,
            bindings,
            params: vec![
                count,
                range.start,
                self.first_row,
                self.first_entry,
                PIECE as u32,
                first_slot,
                (result.size / 32) as u32,
                pass.first_coefficient,
                pass.coefficients,
                pass.first_wire,
                pass.wires_per_part,
                self.mode,
            ],
            groups: count.div_ceil(GROUP_THREADS),
            work_per_group: 1 + self.work * u64::from(GROUP_THREADS),
        });
    }
}

/// The parts of a vector that have some of its elements `range`, with the first element of each.
fn overlapping(
    parts: &Parts,
    range: Range<u32>,
) -> impl Iterator<Item = (Range<u32>, u32, BufferSlice)> {
    parts.iter().filter_map(move |(part, slice)| {
        let (first, end) = (part.start as u32, part.end as u32);
        let both = range.start.max(first)..range.end.min(end);
        (both.start < both.end).then_some((both, first, slice))
    })
}

impl<B> RowPieces<B> {
    /// Records `target = matrix · witness`: canonical witness in, forms at rest out; rows that the
    /// matrix does not list become 0. `table` says where a table is, just before it is used.
    ///
    /// # Panics
    /// If the target has fewer elements than the matrix has rows.
    pub fn record(
        &self,
        rec: &mut Recording,
        curve: CurveId,
        witness: &Parts,
        target: &Parts,
        table: &mut dyn FnMut(&mut Recording, &B) -> BufferSlice,
    ) {
        assert!(self.rows as usize <= target.len());
        let unlisted = self.rows..target.len() as u32;
        for (rows, first, slice) in overlapping(target, unlisted) {
            let skipped = 32 * u64::from(rows.start - first);
            rec.clear(BufferSlice {
                offset: slice.offset + skipped,
                size: slice.size - skipped,
                ..slice
            });
        }
        for window in &self.windows {
            let passes = self.passes(rec, window, witness, table);
            let entries = window.table.as_ref().map(|t| table(rec, t));
            if let Some(starts) = &window.starts {
                let starts = table(rec, starts);
                let rows = u64::from(window.rows.end - window.rows.start);
                let all = u64::from(window.entries.end - window.entries.start);
                for (number, pass) in passes.iter().enumerate() {
                    let step = Step {
                        curve,
                        pass,
                        pieces: starts,
                        entries,
                        first_row: window.rows.start,
                        first_entry: window.entries.start,
                        mode: if number == 0 { 0 } else { ADD },
                        work: all.div_ceil(rows).min(PIECE as u64),
                    };
                    for (rows, first, slice) in overlapping(target, window.rows.clone()) {
                        step.dispatch(rec, rows, slice, first);
                    }
                }
            }
            record_long_rows(rec, curve, &window.long, passes, entries, target, table);
        }
    }

    /// The passes over a window that see every combination of parts.
    fn passes(
        &self,
        rec: &mut Recording,
        window: &Window<B>,
        witness: &Parts,
        table: &mut dyn FnMut(&mut Recording, &B) -> BufferSlice,
    ) -> Vec<Pass> {
        if window.table.is_none() {
            return vec![Pass::over(witness.slices()[0])];
        }
        let mut passes = Vec::new();
        for part in &window.dictionaries {
            let dictionary = table(rec, &self.dictionaries[*part as usize]);
            let first = part * self.per_dictionary;
            for (i, vector) in witness.slices().chunks(WITNESS_PARTS).enumerate() {
                passes.push(Pass {
                    dictionary: Some(dictionary),
                    first_coefficient: first,
                    coefficients: self.per_dictionary.min(self.coefficients - first),
                    vector: vector.to_vec(),
                    first_wire: (i * WITNESS_PARTS * witness.per_part()) as u32,
                    wires_per_part: witness.per_part() as u32,
                });
            }
        }
        passes
    }
}

/// Adds what `levels` list to rows of `target`, the first level over entries.
fn record_long_rows<B>(
    rec: &mut Recording,
    curve: CurveId,
    levels: &[Level<B>],
    mut passes: Vec<Pass>,
    mut entries: Option<BufferSlice>,
    target: &Parts,
    table: &mut dyn FnMut(&mut Recording, &B) -> BufferSlice,
) {
    for level in levels {
        let source = if entries.is_some() { 0 } else { SUMS };
        let step = |pass, pieces, mode| Step {
            curve,
            pass,
            pieces,
            entries,
            first_row: 0,
            first_entry: 0,
            mode: LISTED | source | mode,
            work: PIECE as u64,
        };
        if let Some(last) = &level.last {
            let pieces = table(rec, &last.table);
            for pass in &passes {
                // Each part takes its rows of the whole list.
                for (_, first, slice) in overlapping(target, last.slots.clone()) {
                    step(pass, pieces, ADD).dispatch(rec, 0..last.count, slice, first);
                }
            }
        }
        if let Some(partial) = &level.partial {
            let pieces = table(rec, &partial.table);
            let sums = rec.secret("row pieces", 32 * u64::from(partial.count));
            let sums = rec.whole(sums);
            for (number, pass) in passes.iter().enumerate() {
                let mode = if number == 0 { 0 } else { ADD };
                step(pass, pieces, mode).dispatch(rec, 0..partial.count, sums, 0);
            }
            passes = vec![Pass::over(sums)];
            entries = None;
        }
    }
}

#[cfg(test)]
mod tests;
