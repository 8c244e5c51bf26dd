//! Sparse matrix times witness as a plan: rows are cut into pieces of bounded length, and the
//! pieces of a long row are added up by further levels, so that no row is summed by one thread.

use crate::bytes::Bytes;
use crate::curve::CurveId;
use crate::device::recording::{BufferSlice, Dispatch, Recording};
use crate::kernels::Kernel;
use crate::proving_key::Matrix;

/// Most entries of a piece.
const PIECE: usize = 64;
/// Pieces whose sums fill the alignment of a binding, 256 bytes: chunks are cut at multiples.
const ALIGN: usize = 8;
const GROUP_THREADS: u32 = 64;

/// Part of a level that fits one binding.
#[derive(Clone, Debug)]
pub struct Chunk<B> {
    /// First piece, and their number.
    first: u32,
    pieces: u32,
    /// Entries of this chunk.
    entries: u32,
    starts: B,
    columns: B,
    /// Coefficients; `None` where all are 1.
    values: Option<B>,
}

/// A matrix in pieces. `B` is [`Bytes`] on the host, and a buffer on a device.
#[derive(Clone, Debug)]
pub struct RowPieces<B> {
    /// Each level turns the vector of the level before (the witness at first) into a shorter one.
    levels: Vec<Vec<Chunk<B>>>,
    /// Pieces of each level.
    sizes: Vec<u32>,
}

fn bytes_of(words: &[u32]) -> Bytes {
    words
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect::<Vec<u8>>()
        .into()
}

impl RowPieces<Bytes> {
    /// Cuts a matrix. No table of a chunk exceeds `max_binding` bytes.
    pub fn new(matrix: &Matrix, max_binding: u64) -> Self {
        let max_entries = (max_binding / 32).min(1 << 26) as usize;
        let (mut levels, mut sizes) = (Vec::new(), Vec::new());
        let mut row_starts: Vec<u32> =
            (matrix.starts().iter().map(|s| u32::from_le_bytes(*s))).collect();
        let cols: Vec<u32> = (matrix.packed().iter().map(|e| crate::matrix::unpack(e).0)).collect();
        if matrix.rows() == 0 {
            return Self { levels, sizes };
        }
        let mut columns: Option<&[u32]> = Some(&cols);
        loop {
            // Pieces of this level, and which of them make up a row.
            let mut starts = vec![0u32];
            let mut next_rows = vec![0u32];
            for row in row_starts.windows(2) {
                let (mut at, end) = (row[0], row[1]);
                loop {
                    at = end.min(at + PIECE as u32);
                    starts.push(at);
                    if at == end {
                        break;
                    }
                }
                next_rows.push(starts.len() as u32 - 1);
            }
            let mut chunks = Vec::new();
            let mut first = 0;
            while first + 1 < starts.len() {
                let base = starts[first];
                let pieces = starts[first + 1..]
                    .partition_point(|s| (s - base) as usize <= max_entries.max(ALIGN * PIECE))
                    .min(max_entries.max(ALIGN));
                let rest = starts.len() - 1 - first;
                let pieces = if pieces < rest {
                    pieces / ALIGN * ALIGN
                } else {
                    pieces
                };
                let local: Vec<u32> = starts[first..=first + pieces]
                    .iter()
                    .map(|s| s - base)
                    .collect();
                let range = base as usize..starts[first + pieces] as usize;
                let entries = range.len() as u32;
                // An empty table still needs something to bind.
                let (columns, values) = match columns {
                    Some(all) => {
                        let mut columns = all[range.clone()].to_vec();
                        let mut values: Vec<u8> =
                            range.map(|i| *matrix.entry(i).1).flatten().collect();
                        if columns.is_empty() {
                            columns.push(0);
                            values.resize(32, 0);
                        }
                        (columns, Some(Bytes::from(values)))
                    }
                    // Later levels add up consecutive pieces of the level before.
                    None => ((range.start as u32..range.end as u32).collect(), None),
                };
                chunks.push(Chunk {
                    first: first as u32,
                    pieces: pieces as u32,
                    entries,
                    starts: bytes_of(&local),
                    columns: bytes_of(&columns),
                    values,
                });
                first += pieces;
            }
            let pieces = starts.len() as u32 - 1;
            levels.push(chunks);
            sizes.push(pieces);
            if pieces as usize == matrix.rows() {
                return Self { levels, sizes };
            }
            row_starts = next_rows;
            columns = None;
        }
    }

    /// The tables with their labels, in the order in which [`Self::map`] takes them.
    pub fn tables(&self) -> Vec<(&'static str, Bytes)> {
        let mut out = Vec::new();
        for c in self.levels.iter().flatten() {
            out.push(("row starts", c.starts.clone()));
            out.push(("row columns", c.columns.clone()));
            out.extend(c.values.iter().map(|v| ("row values", v.clone())));
        }
        out
    }

    /// The same pieces over other table handles, taken one by one from `tables`.
    pub fn map<B>(&self, tables: &mut impl Iterator<Item = B>) -> RowPieces<B> {
        let mut next = || tables.next().expect("one handle a table");
        RowPieces {
            levels: self
                .levels
                .iter()
                .map(|level| {
                    level
                        .iter()
                        .map(|c| Chunk {
                            first: c.first,
                            pieces: c.pieces,
                            entries: c.entries,
                            starts: next(),
                            columns: next(),
                            values: c.values.as_ref().map(|_| next()),
                        })
                        .collect()
                })
                .collect(),
            sizes: self.sizes.clone(),
        }
    }
}

impl<B> RowPieces<B> {
    /// Records `target = matrix · witness`: canonical witness in, forms at rest out; rows that the
    /// matrix does not list become 0. `table` says where a table is, just before it is used.
    pub fn record(
        &self,
        rec: &mut Recording,
        curve: CurveId,
        witness: BufferSlice,
        target: BufferSlice,
        table: &mut dyn FnMut(&mut Recording, &B) -> BufferSlice,
    ) {
        rec.clear(target);
        let mut vector = witness;
        for (i, (level, size)) in self.levels.iter().zip(&self.sizes).enumerate() {
            let last = i + 1 == self.levels.len();
            let out = if last {
                target
            } else {
                let id = rec.secret("row pieces", 32 * u64::from(*size));
                rec.whole(id)
            };
            for c in level {
                let result = BufferSlice {
                    buffer: out.buffer,
                    offset: out.offset + 32 * u64::from(c.first),
                    size: 32 * u64::from(c.pieces),
                };
                let bindings = vec![
                    table(rec, &c.starts),
                    table(rec, &c.columns),
                    // Unused where all values are 1; any buffer will do.
                    c.values.as_ref().map_or(vector, |v| table(rec, v)),
                    vector,
                    result,
                ];
                rec.dispatch(Dispatch {
                    kernel: Kernel::RowProduct,
                    curve,
                    bindings,
                    params: vec![c.pieces, u32::from(c.values.is_none())],
                    groups: c.pieces.div_ceil(GROUP_THREADS),
                    work_per_group: 1 + u64::from(c.entries)
                        / u64::from(c.pieces.div_ceil(GROUP_THREADS)),
                });
            }
            vector = out;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_take_levels() {
        let lengths = [0usize, 3, 64, 65, 5000, 0, 1];
        let mut starts = vec![0u32];
        for l in lengths {
            starts.push(starts.last().unwrap() + l as u32);
        }
        let m = Matrix::from_entries(&starts, |i| (i as u32, &[1; 32]), |c| *c);
        let p = RowPieces::new(&m, 1 << 27);
        // 5000 entries: 79 pieces, then 2, then 1.
        assert_eq!(p.sizes, [1 + 1 + 1 + 2 + 79 + 1 + 1, 8, 7]);
        let small = RowPieces::new(&m, 32 * 128);
        assert_eq!(small.sizes, p.sizes);
        assert!(small.levels[0].len() > 5);
        for chunk in small.levels.iter().flatten() {
            assert!(chunk.first.is_multiple_of(8) && chunk.entries <= 8 * 64);
        }
        assert!(RowPieces::new(&Matrix::default(), 1024).levels.is_empty());
    }
}
