//! A constraint matrix in compressed rows. Real circuits have few distinct coefficients (1, −1,
//! powers of two, round constants), so an entry names its coefficient by number.

pub(crate) mod dictionary;

use crate::bytes::Bytes;
use crate::curve::CurveId;
use crate::error::{InputClass, InputError, Result};
use dictionary::{CHUNK, LocalDictionary, merge};
use rayon::prelude::*;
use std::ops::Range;

/// A scalar in 32 little-endian bytes.
pub type Coefficient = [u8; 32];
/// Wire, then number of the coefficient, little-endian.
pub(crate) type Entry = [u8; 8];

/// One of the matrices A, B in compressed rows.
///
/// The tables are little-endian bytes in the form that the kernels read, so that they go to a
/// device, to a file and back as they are.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// Start of each row in `entries`: `rows + 1` numbers of 4 bytes, or none.
    pub row_starts: Bytes,
    /// Row by row, 8 bytes an entry: `u32` wire, `u32` number of its coefficient.
    pub entries: Bytes,
    /// Distinct coefficients, 32 bytes each, in the order in which entries first use them.
    ///
    /// They are v·R² (R = 2^256) in canonical range: one Montgomery multiplication by a canonical
    /// witness value gives the product in Montgomery form.
    pub coefficients: Bytes,
}

impl Matrix {
    /// A matrix of `row_starts.len() − 1` rows. `entry` gives the wire and the coefficient of each
    /// entry, `encode` turns a coefficient into the form of [`Self::coefficients`] and is called
    /// once for each distinct one. Runs on all threads; `entry` is called once for each entry.
    pub fn from_entries<'a>(
        row_starts: &[u32],
        entry: impl Fn(usize) -> (u32, &'a Coefficient) + Sync,
        encode: impl Fn(&Coefficient) -> Coefficient + Sync,
    ) -> Self {
        let n = row_starts.last().map_or(0, |n| *n as usize);
        let mut entries = vec![[0; 8]; n];
        let locals: Vec<_> = entries
            .par_chunks_mut(CHUNK)
            .enumerate()
            .map(|(chunk, entries)| {
                let mut local = LocalDictionary::default();
                for (i, out) in (chunk * CHUNK..).zip(entries) {
                    let (wire, coefficient) = entry(i);
                    *out = pack(wire, local.number(coefficient));
                }
                local.into_coefficients()
            })
            .collect();
        let merged = merge(&locals);
        entries
            .par_chunks_mut(CHUNK)
            .enumerate()
            .for_each(|(chunk, entries)| merged.renumber(chunk, entries));
        let starts: Vec<_> = row_starts.par_iter().map(|s| s.to_le_bytes()).collect();
        Self::from_tables(starts, entries, &merged.coefficients, encode)
    }

    pub(crate) fn from_tables(
        row_starts: Vec<[u8; 4]>,
        entries: Vec<Entry>,
        coefficients: &[&Coefficient],
        encode: impl Fn(&Coefficient) -> Coefficient + Sync,
    ) -> Self {
        let coefficients: Vec<_> = coefficients
            .par_iter()
            .with_min_len(256)
            .map(|c| encode(c))
            .collect();
        Self {
            row_starts: row_starts.into_flattened().into(),
            entries: entries.into_flattened().into(),
            coefficients: coefficients.into_flattened().into(),
        }
    }

    /// Number of entries.
    pub fn n_entries(&self) -> usize {
        self.entries.len() / 8
    }
    /// Number of distinct coefficients.
    pub fn n_coefficients(&self) -> usize {
        self.coefficients.len() / 32
    }
    /// Number of rows that the matrix lists; rows beyond are empty.
    pub fn rows(&self) -> usize {
        (self.row_starts.len() / 4).saturating_sub(1)
    }
    /// Bytes of the tables.
    pub fn bytes(&self) -> u64 {
        let tables = [&self.row_starts, &self.entries, &self.coefficients];
        tables.iter().map(|t| t.len() as u64).sum()
    }
    /// First entry of row `i`; of `rows()`: the number of entries.
    pub fn row_start(&self, i: usize) -> u32 {
        u32::from_le_bytes(self.starts()[i])
    }
    /// The entries of row `i`.
    pub fn row(&self, i: usize) -> Range<usize> {
        self.row_start(i) as usize..self.row_start(i + 1) as usize
    }
    /// Wire and coefficient of entry `i`.
    pub fn entry(&self, i: usize) -> (u32, &Coefficient) {
        let (wire, number) = unpack(&self.packed()[i]);
        (wire, &self.dictionary()[number as usize])
    }

    pub(crate) fn starts(&self) -> &[[u8; 4]] {
        self.row_starts.as_chunks().0
    }
    pub(crate) fn packed(&self) -> &[Entry] {
        self.entries.as_chunks().0
    }
    pub(crate) fn dictionary(&self) -> &[Coefficient] {
        self.coefficients.as_chunks().0
    }

    /// Checks that the tables agree with each other and with the number of wires and rows: what
    /// kernels rely on.
    ///
    /// # Errors
    /// `bad_coefficient`, with the first entry or coefficient that is wrong.
    pub fn check(&self, curve: CurveId, n_vars: usize, max_rows: usize) -> Result<()> {
        let bad = |message: String, element: Option<usize>| {
            let e = InputError::new(InputClass::BadCoefficient, message);
            Err(match element {
                Some(i) => e.element(i as u64).into(),
                None => e.into(),
            })
        };
        if self.rows() > max_rows {
            let message = format!("{} rows in a domain of {max_rows}", self.rows());
            return bad(message, None);
        }
        let start = |s: &[u8; 4]| u32::from_le_bytes(*s);
        let first = self.starts().first().map_or(0, start);
        let last = self.starts().last().map_or(0, start) as usize;
        let ascending = |w: &[[u8; 4]]| start(&w[0]) <= start(&w[1]);
        if first != 0
            || last != self.n_entries()
            || !self.starts().par_windows(2).all(ascending)
            || !self.row_starts.len().is_multiple_of(4)
            || !self.entries.len().is_multiple_of(8)
            || !self.coefficients.len().is_multiple_of(32)
        {
            return bad("rows are out of order".into(), None);
        }
        let value = |c: &Coefficient| !curve.is_canonical_scalar(c);
        if let Some(i) = self.dictionary().par_iter().position_first(value) {
            let message = "coefficient is not below the scalar field's modulus";
            return bad(message.into(), Some(i));
        }
        let outside = |e: &Entry| {
            let (wire, number) = unpack(e);
            wire as usize >= n_vars || number as usize >= self.n_coefficients()
        };
        match self.packed().par_iter().position_first(outside) {
            Some(i) => bad("an entry of no such wire or coefficient".into(), Some(i)),
            None => Ok(()),
        }
    }
}

pub(crate) fn pack(wire: u32, number: u32) -> Entry {
    (u64::from(number) << 32 | u64::from(wire)).to_le_bytes()
}

pub(crate) fn unpack(entry: &Entry) -> (u32, u32) {
    let both = u64::from_le_bytes(*entry);
    (both as u32, (both >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    fn number(n: u64) -> Coefficient {
        let mut out = [0; 32];
        out[..8].copy_from_slice(&n.to_le_bytes());
        out
    }

    /// `n` entries with coefficients below `distinct`, in rows of up to 40.
    fn sample(n: usize, distinct: u64) -> (Vec<u32>, Vec<(u32, Coefficient)>) {
        let rng = &mut StdRng::seed_from_u64(n as u64 ^ distinct);
        let mut starts = vec![0u32];
        while (*starts.last().unwrap() as usize) < n {
            let next = starts.last().unwrap() + rng.gen_range(0..40);
            starts.push(next.min(n as u32));
        }
        let entries = (0..n)
            .map(|_| (rng.gen_range(0..1000), number(rng.gen_range(0..distinct))))
            .collect();
        (starts, entries)
    }

    /// Whatever the number of distinct coefficients, and over several chunks.
    #[test]
    fn entries_come_back() {
        for (n, distinct) in [
            (0, 1),
            (1, 1),
            (300, 2),
            (3 * CHUNK + 5, 1 << 60),
            (3 * CHUNK, 70_000),
            (2 * CHUNK + 1, 300),
        ] {
            let (starts, entries) = sample(n, distinct);
            let m = Matrix::from_entries(
                &starts,
                |i| (entries[i].0, &entries[i].1),
                |c| number(u64::from_le_bytes(c[..8].try_into().unwrap()) + 1),
            );
            assert_eq!((m.rows(), m.n_entries()), (starts.len() - 1, n));
            let mut first = Vec::new();
            let mut seen = std::collections::HashSet::new();
            for (i, (wire, c)) in entries.iter().enumerate() {
                let encoded = number(u64::from_le_bytes(c[..8].try_into().unwrap()) + 1);
                assert_eq!(m.entry(i), (*wire, &encoded));
                if seen.insert(*c) {
                    first.push(encoded);
                }
            }
            // Each once, in the order of first use: the same on any number of threads.
            assert_eq!(m.dictionary(), first);
            assert!((0..m.rows()).all(|i| m.row(i).end == starts[i + 1] as usize));
            m.check(CurveId::Bn254, 1000, m.rows()).unwrap();
        }
    }

    #[test]
    fn what_does_not_agree_is_refused() {
        let (starts, entries) = sample(500, 9);
        let good = Matrix::from_entries(&starts, |i| (entries[i].0, &entries[i].1), |c| *c);
        let rows = good.rows();
        let class = |m: &Matrix, wires| m.check(CurveId::Bn254, wires, rows).unwrap_err().class();
        good.check(CurveId::Bn254, 1000, rows).unwrap();
        Matrix::default().check(CurveId::Bn254, 0, 0).unwrap();
        assert!(good.check(CurveId::Bn254, 1000, rows - 1).is_err());
        assert_eq!(class(&good, 900), "bad_coefficient");
        let with = |f: &dyn Fn(&mut Matrix)| {
            let mut m = good.clone();
            f(&mut m);
            assert_eq!(class(&m, 1000), "bad_coefficient");
        };
        with(&|m| m.coefficients = m.coefficients.slice(0..32 * 8));
        with(&|m| m.coefficients = vec![255; 32 * 9].into());
        with(&|m| m.entries = m.entries.slice(0..8 * 499));
        with(&|m| m.row_starts = m.row_starts.slice(4..4 * (rows + 1)));
        with(&|m| {
            let mut starts = m.row_starts.to_vec();
            starts[4..8].copy_from_slice(&499u32.to_le_bytes());
            m.row_starts = starts.into();
        });
    }
}
