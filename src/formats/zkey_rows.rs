//! The matrices of a `.zkey`: coefficients of A and B one after the other, in any order.

use super::zkey::COEFFICIENT;
use crate::matrix::dictionary::{CHUNK, Hashed, LocalDictionary, merge};
use crate::matrix::{Coefficient, Entry, Matrix, pack};
use rayon::prelude::*;

/// As it lies in the file: `u32` matrix, `u32` row, `u32` wire, 32 bytes.
type Record = [u8; COEFFICIENT];

fn word(record: &Record, i: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&record[4 * i..4 * i + 4]);
    u32::from_le_bytes(bytes)
}

fn coefficient(record: &Record) -> &Coefficient {
    record.last_chunk().expect("the last 32 bytes")
}

/// The records of one matrix in one chunk.
#[derive(Clone, Copy, Default)]
struct Run {
    count: usize,
    first_row: u32,
    last_row: u32,
    unsorted: bool,
}

impl Run {
    fn of(chunk: &[Record]) -> [Self; 2] {
        let mut runs = [Self::default(); 2];
        for record in chunk {
            let (run, row) = (&mut runs[word(record, 0) as usize], word(record, 1));
            if run.count == 0 {
                run.first_row = row;
            }
            run.unsorted |= row < run.last_row;
            run.last_row = run.last_row.max(row);
            run.count += 1;
        }
        runs
    }
}

/// A and B from records that name matrices 0 and 1 alone. Both list the same number of rows;
/// entries of a row keep their order.
pub(super) fn matrices(records: &[Record]) -> [Matrix; 2] {
    let runs: Vec<_> = records.par_chunks(CHUNK).map(Run::of).collect();
    let last_row = |m: usize| {
        let used = runs.iter().map(|r| r[m]).filter(|r| r.count > 0);
        used.map(|r| r.last_row as usize + 1).max().unwrap_or(0)
    };
    let rows = last_row(0).max(last_row(1));
    let sorted = |m: usize| {
        let used = || runs.iter().map(|r| r[m]).filter(|r| r.count > 0);
        let ascending = |(a, b): (Run, Run)| a.last_row <= b.first_row;
        used().all(|r| !r.unsorted) && used().zip(used().skip(1)).all(ascending)
    };
    match sorted(0) && sorted(1) {
        // As snarkjs writes them.
        true => sorted_matrices(records, &runs, rows),
        false => [0, 1].map(|m| sorted_by_row(records, m, rows)),
    }
}

/// What a chunk of records fills of a matrix.
struct Part<'a> {
    entries: &'a mut [Entry],
    /// The first entry's number.
    first: usize,
    /// Of the rows after the last one of the chunks before, up to this chunk's last one.
    starts: &'a mut [[u8; 4]],
    first_row: usize,
}

/// Cuts a matrix's tables at the borders of the chunks.
fn parts<'a>(
    runs: impl Iterator<Item = Run>,
    mut entries: &'a mut [Entry],
    mut starts: &'a mut [[u8; 4]],
) -> Vec<Part<'a>> {
    let (mut first, mut first_row) = (0, 0);
    let mut parts = Vec::new();
    for run in runs {
        let next_row = match run.count {
            0 => first_row,
            _ => run.last_row as usize + 1,
        };
        let (entries_here, starts_here);
        (entries_here, entries) = entries.split_at_mut(run.count);
        (starts_here, starts) = starts.split_at_mut(next_row - first_row);
        parts.push(Part {
            entries: entries_here,
            first,
            starts: starts_here,
            first_row,
        });
        (first, first_row) = (first + run.count, next_row);
    }
    // The rows after the last entry.
    starts.fill((first as u32).to_le_bytes());
    parts
}

fn sorted_matrices(records: &[Record], runs: &[[Run; 2]], rows: usize) -> [Matrix; 2] {
    let total = |m: usize| runs.iter().map(|r| r[m].count).sum::<usize>();
    let mut entries = [0, 1].map(|m| vec![[0; 8]; total(m)]);
    let mut starts = [(); 2].map(|()| vec![[0; 4]; rows + 1]);
    let mut locals = [Vec::new(), Vec::new()];
    {
        let [entries_a, entries_b] = &mut entries;
        let [starts_a, starts_b] = &mut starts;
        let a = parts(runs.iter().map(|r| r[0]), entries_a, starts_a);
        let b = parts(runs.iter().map(|r| r[1]), entries_b, starts_b);
        let both: Vec<_> = a.into_iter().zip(b).collect();
        (locals[0], locals[1]) = records
            .par_chunks(CHUNK)
            .zip(both)
            .map(|(records, (a, b))| {
                let [a, b] = fill(records, [a, b]);
                (a, b)
            })
            .unzip();
    }
    let mut m = 0;
    entries.map(|mut entries| {
        let merged = merge(&locals[m]);
        let mut rest = &mut entries[..];
        let mut chunks = Vec::new();
        for run in runs {
            let chunk;
            (chunk, rest) = rest.split_at_mut(run[m].count);
            chunks.push(chunk);
        }
        let chunks = chunks.into_par_iter().enumerate();
        chunks.for_each(|(chunk, entries)| merged.renumber(chunk, entries));
        let starts = std::mem::take(&mut starts[m]);
        m += 1;
        Matrix::from_tables(starts, entries, &merged.coefficients, |c| *c)
    })
}

/// Fills both matrices' parts from a chunk; gives the chunk's dictionaries.
fn fill<'a>(records: &'a [Record], mut parts: [Part<'_>; 2]) -> [Vec<Hashed<'a>>; 2] {
    let mut dictionaries = [(); 2].map(|()| LocalDictionary::default());
    let (mut entry, mut started) = ([0; 2], [0; 2]);
    for record in records {
        let m = word(record, 0) as usize;
        let part = &mut parts[m];
        let row = word(record, 1) as usize;
        let start = ((part.first + entry[m]) as u32).to_le_bytes();
        while part.first_row + started[m] <= row {
            part.starts[started[m]] = start;
            started[m] += 1;
        }
        let number = dictionaries[m].number(coefficient(record));
        part.entries[entry[m]] = pack(word(record, 2), number);
        entry[m] += 1;
    }
    dictionaries.map(LocalDictionary::into_coefficients)
}

/// One matrix by a counting sort, stable within a row.
fn sorted_by_row(records: &[Record], matrix: u32, rows: usize) -> Matrix {
    let of_matrix = || {
        let all = records.iter().enumerate();
        all.filter(move |(_, record)| word(record, 0) == matrix)
    };
    let mut row_starts = vec![0u32; rows + 1];
    for (_, record) in of_matrix() {
        row_starts[word(record, 1) as usize + 1] += 1;
    }
    for i in 0..rows {
        row_starts[i + 1] += row_starts[i];
    }
    let mut next = row_starts.clone();
    let mut order = vec![0u32; row_starts[rows] as usize];
    for (i, record) in of_matrix() {
        let place = &mut next[word(record, 1) as usize];
        order[*place as usize] = i as u32;
        *place += 1;
    }
    let entry = |i: usize| {
        let record = &records[order[i] as usize];
        (word(record, 2), coefficient(record))
    };
    Matrix::from_entries(&row_starts, entry, |c| *c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    fn record(matrix: u32, row: u32, wire: u32, value: u64) -> Record {
        let mut out = [0; COEFFICIENT];
        let words = [matrix, row, wire];
        for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
        out[12..20].copy_from_slice(&value.to_le_bytes());
        out
    }

    fn same(a: &Matrix, b: &Matrix) {
        assert_eq!(*a.row_starts, *b.row_starts);
        assert_eq!(*a.entries, *b.entries);
        assert_eq!(*a.coefficients, *b.coefficients);
    }

    /// Records in the order of their rows, over several chunks, with empty rows and chunks without
    /// entries of one matrix, give what the counting sort gives.
    #[test]
    fn both_ways_agree() {
        let rng = &mut StdRng::seed_from_u64(5);
        let mut records = Vec::new();
        for row in 0..(CHUNK as u32 / 3) {
            if row % 1000 < 900 {
                for i in 0..rng.gen_range(0..12) {
                    // B has no entry for long.
                    let matrix = u32::from(row > CHUNK as u32 / 6) & i;
                    let value = rng.gen_range(1..300) << rng.gen_range(0..2);
                    records.push(record(matrix, row, rng.gen_range(0..5000), value));
                }
            }
        }
        assert!(records.len() > CHUNK && !records.len().is_multiple_of(CHUNK));
        let [a, b] = matrices(&records);
        let rows = a.rows();
        assert!(b.rows() == rows && b.n_entries() > 1000);
        assert_eq!(a.n_entries() + b.n_entries(), records.len());
        same(&a, &sorted_by_row(&records, 0, rows));
        same(&b, &sorted_by_row(&records, 1, rows));

        // Rows in any order: each has its entries.
        let mut shuffled = records.clone();
        shuffled.shuffle(rng);
        let again = matrices(&shuffled);
        for (m, again) in [a, b].iter().zip(again) {
            for row in 0..rows {
                let row_of = |m: &Matrix| {
                    let mut entries: Vec<_> = m.row(row).map(|i| m.entry(i)).collect();
                    entries.sort_unstable();
                    entries
                        .into_iter()
                        .map(|(w, c)| (w, *c))
                        .collect::<Vec<_>>()
                };
                assert_eq!(row_of(m), row_of(&again));
            }
        }
    }

    #[test]
    fn empty_ones() {
        let [a, b] = matrices(&[]);
        assert_eq!((a.rows(), b.rows(), a.n_entries()), (0, 0, 0));
        let [a, b] = matrices(&[record(1, 4, 0, 1)]);
        assert_eq!((a.rows(), b.rows(), a.n_entries()), (5, 5, 0));
        assert_eq!((b.row(4), b.row(3)), (0..1, 0..0));
    }
}
