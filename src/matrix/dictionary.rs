//! Numbers distinct coefficients on all threads: chunks of entries are numbered on their own, then
//! the chunks' dictionaries are merged.

use super::{Coefficient, Entry, pack, unpack};
use rayon::prelude::*;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Entries of a chunk: its dictionary stays in a core's cache.
pub(crate) const CHUNK: usize = 1 << 16;
const RECENT_LOG: u32 = 8;

/// A coefficient with its hash.
#[derive(Clone, Copy)]
pub(crate) struct Hashed<'a> {
    hash: u64,
    coefficient: &'a Coefficient,
}

/// NH ([UMAC](https://doi.org/10.1007/3-540-48405-1_14), §3) of four words, folded; under a key of
/// this process, since keys of proofs come from files that may be crafted.
fn hash(coefficient: &Coefficient) -> u64 {
    static KEY: OnceLock<[u64; 4]> = OnceLock::new();
    let key = KEY.get_or_init(|| [0; 4].map(|i: u8| RandomState::new().hash_one(i)));
    let words = coefficient.as_chunks::<8>().0.iter().zip(key);
    let [a, b, c, d] = {
        let mut sums = [0; 4];
        for (sum, (word, key)) in sums.iter_mut().zip(words) {
            *sum = u128::from(u64::from_le_bytes(*word).wrapping_add(*key));
        }
        sums
    };
    let both = (a * b).wrapping_add(c * d);
    both as u64 ^ (both >> 64) as u64
}

impl PartialEq for Hashed<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.coefficient == other.coefficient
    }
}
impl Eq for Hashed<'_> {}
impl Hash for Hashed<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Passes on what is a hash already.
#[derive(Default)]
struct Known(u64);

impl Hasher for Known {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("`Hashed` writes one number");
    }
}

type Numbers<'a> = HashMap<Hashed<'a>, u32, BuildHasherDefault<Known>>;

/// The dictionary of one chunk. Coefficients stay where they are.
pub(crate) struct LocalDictionary<'a> {
    coefficients: Vec<Hashed<'a>>,
    numbers: Numbers<'a>,
    /// Numbers by hash; most entries have one of a few coefficients.
    recent: [u32; 1 << RECENT_LOG],
}

impl Default for LocalDictionary<'_> {
    fn default() -> Self {
        Self {
            coefficients: Vec::new(),
            numbers: Numbers::default(),
            recent: [0; 1 << RECENT_LOG],
        }
    }
}

impl<'a> LocalDictionary<'a> {
    /// The number of a coefficient, a new one if it is new.
    pub fn number(&mut self, coefficient: &'a Coefficient) -> u32 {
        let hash = hash(coefficient);
        let hashed = Hashed { hash, coefficient };
        let recent = &mut self.recent[(hash >> (64 - RECENT_LOG)) as usize];
        if self.coefficients.get(*recent as usize) == Some(&hashed) {
            return *recent;
        }
        let next = self.coefficients.len() as u32;
        let number = *self.numbers.entry(hashed).or_insert(next);
        if number == next {
            self.coefficients.push(hashed);
        }
        *recent = number;
        number
    }

    /// By number.
    pub fn into_coefficients(self) -> Vec<Hashed<'a>> {
        self.coefficients
    }
}

/// The dictionary of all chunks.
pub(crate) struct Merged<'a> {
    /// In the order in which they first occur.
    pub coefficients: Vec<&'a Coefficient>,
    /// First of each chunk in `numbers`.
    offsets: Vec<usize>,
    /// Number of each chunk's coefficients, chunk by chunk.
    numbers: Vec<u32>,
}

/// Merges the dictionaries of chunks, in the order of the chunks.
pub(crate) fn merge<'a>(locals: &[Vec<Hashed<'a>>]) -> Merged<'a> {
    let mut offsets = Vec::with_capacity(locals.len());
    let mut total = 0;
    for local in locals {
        offsets.push(total);
        total += local.len();
    }
    // Each shard of the hashes is merged by one thread, in a table that is not much too large for
    // its cache.
    let threads = rayon::current_num_threads();
    let shards = (total / CHUNK).clamp(1, 64).max(threads) as u64;
    let shard = |h: &Hashed| ((u128::from(h.hash) * u128::from(shards)) >> 64) as u64;
    // Where each coefficient occurs first. Shards write places of their own.
    let first: Vec<AtomicU32> = (0..total).into_par_iter().map(|_| 0.into()).collect();
    (0..shards).into_par_iter().for_each(|own| {
        let mut known = Numbers::default();
        let all = locals.iter().flatten().enumerate();
        for (i, coefficient) in all.filter(|(_, h)| shard(h) == own) {
            let at = *known.entry(*coefficient).or_insert(i as u32);
            first[i].store(at, Ordering::Relaxed);
        }
    });
    let mut coefficients = Vec::new();
    let mut numbers: Vec<u32> = Vec::with_capacity(total);
    for (i, hashed) in locals.iter().flatten().enumerate() {
        let first = first[i].load(Ordering::Relaxed) as usize;
        if first == i {
            numbers.push(coefficients.len() as u32);
            coefficients.push(hashed.coefficient);
        } else {
            numbers.push(numbers[first]);
        }
    }
    Merged {
        coefficients,
        offsets,
        numbers,
    }
}

impl Merged<'_> {
    /// Replaces a chunk's numbers in its entries.
    pub fn renumber(&self, chunk: usize, entries: &mut [Entry]) {
        let numbers = &self.numbers[self.offsets[chunk]..];
        for e in entries {
            let (wire, number) = unpack(e);
            *e = pack(wire, numbers[number as usize]);
        }
    }
}
