//! The plan against sums over the matrix itself, with the kernel's rules interpreted over numbers
//! modulo 2^64.

use super::*;
use crate::device::recording::Command;
use crate::matrix::Coefficient;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::HashMap;

/// Memory by buffer, as scalars' low words or as words of a table.
#[derive(Default)]
struct Memory {
    scalars: HashMap<u32, Vec<Option<u64>>>,
    tables: HashMap<u32, Bytes>,
}

impl Memory {
    fn word(&self, slice: BufferSlice, i: u32) -> u32 {
        let table = &self.tables[&slice.buffer.0];
        let at = 4 * i as usize;
        u32::from_le_bytes(table[at..at + 4].try_into().unwrap())
    }
    fn dictionary(&self, slice: BufferSlice, i: u32) -> u64 {
        let low = u64::from(self.word(slice, 8 * i));
        low | u64::from(self.word(slice, 8 * i + 1)) << 32
    }
    fn scalar(&self, slice: BufferSlice, i: u32) -> u64 {
        assert!(32 * u64::from(i) < slice.size && slice.offset == 0);
        self.scalars[&slice.buffer.0][i as usize].expect("written before it is read")
    }
    fn place(&mut self, slice: BufferSlice, i: u32) -> &mut Option<u64> {
        let at = (slice.offset / 32) as usize + i as usize;
        assert!(32 * u64::from(i) < slice.size);
        &mut self.scalars.get_mut(&slice.buffer.0).unwrap()[at]
    }

    /// What `row_product.wgsl` does; at most `PIECE` turns a thread.
    fn row_product(&mut self, d: &Dispatch) {
        let p = &d.params;
        let [pieces, entries, dictionary] = [0, 1, 2].map(|i| d.bindings[i]);
        let result = d.bindings[7];
        assert!(d.groups == p[0].div_ceil(64) && d.bindings.len() == 8);
        assert_eq!(d.params.len(), 12);
        for number in p[1]..p[1] + p[0] {
            let (at, end, slot) = if p[11] & LISTED != 0 {
                let word = |i| self.word(pieces, 3 * number + i);
                (word(0), word(1), word(2).wrapping_sub(p[5]))
            } else {
                let row = number - p[2];
                let at = self.word(pieces, row) - p[3];
                let end = self.word(pieces, row + 1) - p[3];
                (at, end.min(at + p[4]), number.wrapping_sub(p[5]))
            };
            if slot >= p[6] {
                continue;
            }
            assert!(end - at <= PIECE as u32);
            let mut sum = match p[11] & ADD {
                0 => 0,
                _ => self.scalar(result, slot),
            };
            for e in at..end {
                if p[11] & SUMS != 0 {
                    sum = self.scalar(d.bindings[3], e).wrapping_add(sum);
                    continue;
                }
                let wire = self.word(entries, 2 * e).wrapping_sub(p[9]);
                let coefficient = self.word(entries, 2 * e + 1).wrapping_sub(p[7]);
                if wire < 4 * p[10] && coefficient < p[8] {
                    let part = d.bindings[3 + (wire / p[10]) as usize];
                    let value = self.scalar(part, wire % p[10]);
                    sum = self
                        .dictionary(dictionary, coefficient)
                        .wrapping_mul(value)
                        .wrapping_add(sum);
                }
            }
            *self.place(result, slot) = Some(sum);
        }
    }

    fn run(&mut self, rec: &Recording) {
        for (id, buffer) in (0..).zip(&rec.buffers) {
            let scalars = vec![None; buffer.size as usize / 32];
            self.scalars.entry(id).or_insert(scalars);
        }
        for command in &rec.commands {
            match command {
                Command::Clear { dst } => {
                    (0..(dst.size / 32) as u32).for_each(|i| *self.place(*dst, i) = Some(0));
                }
                Command::Dispatch(d) => self.row_product(d),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn number(n: u64) -> Coefficient {
    let mut out = [0; 32];
    out[..8].copy_from_slice(&n.to_le_bytes());
    out
}

struct Sizes {
    wires: usize,
    wires_per_part: usize,
    rows_per_part: usize,
    max_binding: u64,
}

/// Records and interprets; gives the number of dispatches.
fn check(lengths: &[usize], distinct: u64, sizes: &Sizes) -> usize {
    let rng = &mut StdRng::seed_from_u64(distinct ^ sizes.max_binding);
    let mut starts = vec![0u32];
    starts.extend(lengths.iter().scan(0, |sum, l| {
        *sum += *l as u32;
        Some(*sum)
    }));
    let entries: Vec<_> = (0..*starts.last().unwrap())
        .map(|_| {
            let wire = rng.gen_range(0..sizes.wires as u32);
            (wire, number(rng.gen_range(0..distinct)))
        })
        .collect();
    let m = Matrix::from_entries(&starts, |i| (entries[i].0, &entries[i].1), |c| *c);
    let witness: Vec<u64> = (0..sizes.wires).map(|_| rng.r#gen()).collect();
    let low = |c: &Coefficient| u64::from_le_bytes(c[..8].try_into().unwrap());
    let expected = (0..m.rows()).map(|row| {
        let entries = m.row(row).map(|i| m.entry(i));
        let products = entries.map(|(wire, c)| low(c).wrapping_mul(witness[wire as usize]));
        products.fold(0, u64::wrapping_add)
    });
    let mut expected: Vec<_> = expected.collect();
    expected.resize(lengths.len().next_power_of_two(), 0);

    let host = RowPieces::new(&m, sizes.max_binding);
    let (mut rec, mut memory) = (Recording::new(), Memory::default());
    let mut ids = Vec::new();
    for (label, bytes) in host.tables() {
        let largest = sizes.max_binding.max(8 * PIECE as u64);
        assert!(bytes.len() as u64 <= largest, "{label}: {}", bytes.len());
        let id = rec.transient(label, bytes.len() as u64);
        memory.tables.insert(id.0, bytes);
        ids.push(rec.whole(id));
    }
    let w = Parts::secret(&mut rec, "witness", sizes.wires, sizes.wires_per_part);
    for (range, slice) in w.iter() {
        let values = witness[range].iter().map(|w| Some(*w)).collect();
        memory.scalars.insert(slice.buffer.0, values);
    }
    let target = Parts::secret(&mut rec, "target", expected.len(), sizes.rows_per_part);
    let device = host.map(&mut ids.into_iter());
    device.record(&mut rec, CurveId::Bn254, &w, &target, &mut |_, t| *t);
    memory.run(&rec);
    for (range, slice) in target.iter() {
        for (i, expected) in range.clone().zip(&expected[range.clone()]) {
            let got = memory.scalar(slice, (i - range.start) as u32);
            assert_eq!(got, *expected, "row {i}");
        }
    }
    assert!(
        rec.buffers
            .iter()
            .all(|b| b.label != "row pieces" || b.secret)
    );
    rec.commands.len()
}

const ONE_PART: Sizes = Sizes {
    wires: 97,
    wires_per_part: 97,
    rows_per_part: 1 << 20,
    max_binding: 1 << 27,
};

fn mixed(rng: &mut StdRng, rows: usize) -> Vec<usize> {
    let mut lengths = vec![
        0usize,
        1,
        31,
        32,
        33,
        0,
        3000,
        64,
        65,
        2 * 32 * 32 + 1,
        0,
        0,
    ];
    lengths.extend((0..rows).map(|_| rng.gen_range(0..6)));
    lengths.extend([0; 9]);
    lengths.push(40 * 32);
    lengths
}

#[test]
fn short_rows_take_one_dispatch() {
    // And one command that clears the rows that the matrix does not list.
    assert_eq!(check(&[3, 0, 1, 32, 5], 4, &ONE_PART), 2);
    assert_eq!(check(&[0, 0, 0, 0], 4, &ONE_PART), 1);
}

#[test]
fn every_kind_of_part() {
    let rng = &mut StdRng::seed_from_u64(3);
    let lengths = mixed(rng, 700);
    check(&lengths, 3, &ONE_PART);
    for max_binding in [256, 1000, 4096, 1 << 27] {
        for distinct in [1, 5, 1 << 40] {
            // 1, 2, 4, 5, and 13 parts of the witness.
            for wires_per_part in [104, 56, 32, 24, 8] {
                for rows_per_part in [1024, 256, 8] {
                    let sizes = Sizes {
                        wires_per_part,
                        rows_per_part,
                        max_binding,
                        ..ONE_PART
                    };
                    check(&lengths, distinct, &sizes);
                }
            }
        }
    }
}

/// Windows end between rows or between pieces, cover everything, and are not cut needlessly.
#[test]
fn windows_cover_the_matrix() {
    let rng = &mut StdRng::seed_from_u64(4);
    for rows in [0, 1, 50, 3000] {
        let lengths = mixed(rng, rows);
        let mut starts = vec![0u32];
        for l in &lengths {
            starts.push(starts.last().unwrap() + *l as u32);
        }
        let m = Matrix::from_entries(&starts, |_| (0, &[1; 32]), |c| *c);
        for (max_rows, max_entries) in [(1, 32), (7, 33), (63, 100), (1 << 20, 1000)] {
            let (mut row, mut entry) = (0, 0);
            for (rows, entries) in windows(&m, max_rows, max_entries) {
                assert_eq!((rows.start, entries.start), (row, entry));
                assert!(rows.len() <= max_rows && entries.len() <= max_entries);
                assert!(!rows.is_empty() || !entries.is_empty());
                let full = entries.len() + PIECE > max_entries || rows.len() == max_rows;
                assert!(full || rows.end == m.rows());
                for r in rows.clone().map(|r| m.row(r)).filter(|r| !r.is_empty()) {
                    let first_piece = r.end.min(r.start + PIECE);
                    assert!(entries.contains(&r.start) && first_piece <= entries.end);
                }
                (row, entry) = (rows.end, entries.end);
            }
            assert_eq!((row, entry), (m.rows(), m.n_entries()));
        }
    }
    assert!(RowPieces::new(&Matrix::default(), 1024).windows.is_empty());
}

/// A row of 2^20 entries is added up by many threads, level by level.
#[test]
fn a_very_long_row() {
    let commands = check(&[1, 1 << 20, 2], 9, &ONE_PART);
    // Rows, 32,767 pieces, 1,024, 32, one; and the row that the matrix does not list.
    assert_eq!(commands, 6);
}
