//! One kind of damage or a few, decided by a number.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;

/// What counts and lengths are most often mistaken about.
fn extreme(rng: &mut StdRng, length: u64) -> u64 {
    let near = length.wrapping_add(rng.gen_range(0..5)).wrapping_sub(2);
    let powers = 1u64 << rng.gen_range(0..64);
    let all = [
        0,
        1,
        2,
        near,
        length / 2,
        u64::from(u32::MAX),
        u64::from(u32::MAX) + 1,
        i32::MAX as u64,
        u64::MAX,
        i64::MAX as u64,
        powers,
        powers - 1,
        rng.r#gen(),
    ];
    all[rng.gen_range(0..all.len())]
}

/// Where the sections of a file of circom's container begin and end; nothing for other files.
fn borders(bytes: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 12;
    while let Some(header) = bytes.get(at..at + 12) {
        found.extend([at, at + 4, at + 12]);
        let length = u64::from_le_bytes(header[4..].try_into().expect("8 bytes"));
        match usize::try_from(length)
            .ok()
            .and_then(|l| l.checked_add(at + 12))
        {
            Some(next) if next <= bytes.len() => at = next,
            _ => return Vec::new(),
        }
    }
    found.push(at);
    found
}

/// A place: anywhere, in the first bytes, where headers are, or at the border of a section.
fn place(rng: &mut StdRng, bytes: &[u8]) -> usize {
    let borders = borders(bytes);
    let at = match rng.gen_range(0..3) {
        0 if !borders.is_empty() => borders[rng.gen_range(0..borders.len())]
            .saturating_add(rng.gen_range(0..5))
            .saturating_sub(2),
        1 => rng.gen_range(0..200),
        _ => rng.gen_range(0..bytes.len().max(1)),
    };
    at.min(bytes.len().saturating_sub(1))
}

fn range(rng: &mut StdRng, bytes: &[u8]) -> Range<usize> {
    let start = place(rng, bytes);
    let longest = (bytes.len() - start).min(1 << rng.gen_range(0..14));
    start..start + rng.gen_range(0..=longest)
}

fn damage(rng: &mut StdRng, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        bytes.extend_from_slice(&other[..other.len().min(64)]);
        return;
    }
    let at = place(rng, bytes);
    match rng.gen_range(0..9) {
        0 => bytes[at] ^= 1 << rng.gen_range(0..8),
        1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'-', b'9', b'}'][rng.gen_range(0..9)],
        // Numbers of both sizes in both orders.
        2 | 3 => {
            let value = extreme(rng, bytes.len() as u64);
            let number = match rng.gen_range(0..4) {
                0 => value.to_le_bytes().to_vec(),
                1 => value.to_be_bytes().to_vec(),
                2 => (value as u32).to_le_bytes().to_vec(),
                _ => (value as u32).to_be_bytes().to_vec(),
            };
            for (byte, new) in bytes[at..].iter_mut().zip(number) {
                *byte = new;
            }
        }
        4 => bytes.truncate(at),
        5 => {
            let range = range(rng, bytes);
            bytes.drain(range);
        }
        // What is there a second time.
        6 => {
            let range = range(rng, bytes);
            let copy = bytes[range].to_vec();
            bytes.splice(at..at, copy);
        }
        7 => {
            let (start, end) = (at, range(rng, other));
            bytes.splice(start..start, other[end].iter().copied());
        }
        _ => bytes.extend((0..rng.gen_range(1..100)).map(|_| rng.r#gen::<u8>())),
    }
}

/// One of the files, damaged as the number says.
pub fn damaged(files: &[Vec<u8>], number: u64) -> Vec<u8> {
    let rng = &mut StdRng::seed_from_u64(number);
    let mut bytes = files[rng.gen_range(0..files.len())].clone();
    let other = &files[rng.gen_range(0..files.len())];
    let several = if rng.gen_bool(0.7) {
        1
    } else {
        rng.gen_range(2..6)
    };
    for _ in 0..several {
        damage(rng, &mut bytes, other);
    }
    bytes
}
