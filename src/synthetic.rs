//! Circuits of any size, shaped like real ones: for benches where no circuit can be downloaded.

use crate::curve::GpuCurve;
use crate::formats::r1cs::{R1cs, R1csMatrix};
use crate::witness::Witness;
use ark_ff::{BigInteger, One, PrimeField, UniformRand};
use rand::{SeedableRng, rngs::StdRng};
use rayon::prelude::*;

/// Rows of a block. The rows of one have each other's results to refer to; blocks side by side do
/// not.
const BLOCK: usize = 1 << 14;
/// Blocks that are made at a time, at most.
const WAVE: usize = 64;
/// Wide coefficients, as the matrices of a hash over the field have them.
const WIDE_COEFFICIENTS: usize = 64;
/// Powers of two among the coefficients, as bits have them that are packed into a number.
const POWERS: usize = 32;
/// Draws of an operand with some property before the constant has to do.
const DRAWS: usize = 64;

/// What a circuit looks like. Each row adds a wire, besides the constant and one public input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub constraints: usize,
    /// Share of rows over bits, and so of wires that are 0 or 1. The others multiply sums of two
    /// earlier wires, with wide values.
    pub bits: f64,
    /// Shares of wires that occur in A, and that occur in B, of which all occur in A.
    ///
    /// A bit that occurs in B is a row b·(b − 1) = 0, as range checks have them; one that does not
    /// is the exclusive or of two others, 2a·b = a + b − c, as hashes over bits have them.
    pub in_a: f64,
    pub in_b: f64,
}

/// Constraints of one of the ten partitions of Filecoin's proof of replication for sectors of
/// 32 GiB, which needs a domain of 2^27.
pub const POREP_CONSTRAINTS: usize = 130_278_869;
const POREP_LOG2: u32 = 27;

impl Shape {
    /// All wires occur in A and in B.
    pub fn new(constraints: usize, bits: f64) -> Self {
        Self {
            constraints,
            bits,
            in_a: 1.0,
            in_b: 1.0,
        }
    }

    /// The shape of Filecoin's proof of replication, scaled to a domain of 2^log2.
    ///
    /// Provers of it report [`POREP_CONSTRAINTS`], and queries a and b_g1, b_g2 of which 99.7 % and
    /// 25.4 % are not infinity. Not published, and assumed here: 98 % of the wires are bits, and
    /// there is one wire a constraint. A partition has 18 challenges of 11 labels, each the SHA-256
    /// of 20 blocks of some 27,000 constraints over bits: 107 million, nearly all of what is not
    /// the Poseidon hashes of Merkle paths.
    pub fn porep(log2: u32) -> Self {
        let constraints = match log2.checked_sub(POREP_LOG2) {
            Some(more) => POREP_CONSTRAINTS << more,
            None => POREP_CONSTRAINTS >> (POREP_LOG2 - log2),
        };
        Self {
            constraints: constraints.max(1),
            bits: 0.98,
            in_a: 0.997,
            in_b: 0.254,
        }
    }
}

/// What a row does.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// b·(b − 1) = 0 for a new b.
    Boolean,
    /// 2a·b = a + b − c for a new c.
    Xor,
    /// (x + k·y)·(1 + z) = c for a new c.
    Product,
}

/// A row by what can be told of it alone.
#[derive(Clone, Copy)]
struct Row {
    kind: Kind,
    /// Whether its wire occurs in A, and in B.
    in_a: bool,
    in_b: bool,
}

/// A well-mixed word for each i (SplitMix64, [Steele, Lea, Flood 2014](https://doi.org/10.1145/2660193.2660195)).
fn mix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The constant, the public input, and the wire of row 0.
const CONSTANT: usize = 0;
const PUBLIC: usize = 1;
const FIRST: usize = 2;

struct Plan<C: GpuCurve> {
    shape: Shape,
    seed: u64,
    /// 1, −1, powers of two from 2 on, wide ones.
    coefficients: Vec<C::Fr>,
}

const ONE: u32 = 0;
const MINUS_ONE: u32 = 1;
const TWO: u32 = 2;

impl<C: GpuCurve> Plan<C> {
    fn new(shape: Shape, seed: u64) -> Self {
        let mut coefficients = vec![C::Fr::one(), -C::Fr::one()];
        coefficients.extend((1..=POWERS).map(|i| C::Fr::from(1u64 << i)));
        let rng = &mut StdRng::seed_from_u64(seed);
        coefficients.extend((0..WIDE_COEFFICIENTS).map(|_| C::Fr::rand(rng)));
        Self {
            shape,
            seed,
            coefficients,
        }
    }

    fn row(&self, row: usize) -> Row {
        let word = mix(self.seed, row as u64);
        let share = |word: u64| (word & 0xffff_ffff) as f64 / (1u64 << 32) as f64;
        let (bit, place) = (share(word) < self.shape.bits, share(word >> 32));
        let in_b = place < self.shape.in_b;
        let kind = match (bit, in_b) {
            (true, true) => Kind::Boolean,
            (true, false) => Kind::Xor,
            (false, _) => Kind::Product,
        };
        Row {
            kind,
            in_a: place < self.shape.in_a,
            in_b,
        }
    }
}

/// Entries of A, B and C of a row.
fn entries(kind: Kind) -> [usize; 3] {
    match kind {
        Kind::Boolean => [1, 2, 0],
        Kind::Xor => [1, 1, 3],
        Kind::Product => [2, 2, 1],
    }
}

fn canonical<F: PrimeField>(x: &F) -> [u8; 32] {
    let mut bytes = [0; 32];
    let le = x.into_bigint().to_bytes_le();
    bytes[..le.len()].copy_from_slice(&le);
    bytes
}

/// A wire's value from its canonical bytes.
fn scalar<F: PrimeField>(bytes: &[u8]) -> F {
    let mut big = F::BigInt::default();
    for (limb, chunk) in big.as_mut().iter_mut().zip(bytes.chunks_exact(8)) {
        *limb = u64::from_le_bytes(chunk.try_into().expect("chunks of 8"));
    }
    F::from_bigint(big).expect("values of wires are canonical")
}

/// Rows of one matrix that a block fills.
struct Rows<'a> {
    /// Ends of the rows.
    ends: &'a mut [u32],
    columns: &'a mut [u32],
    values: &'a mut [u32],
    /// Entries of the blocks before.
    before: u32,
    used: usize,
}

impl Rows<'_> {
    fn push(&mut self, row: usize, entries: &[(usize, u32)]) {
        for (wire, value) in entries {
            self.columns[self.used] = *wire as u32;
            self.values[self.used] = *value;
            self.used += 1;
        }
        self.ends[row] = self.before + self.used as u32;
    }
}

/// What is left of a matrix to hand out to blocks.
struct Rest<'a> {
    ends: &'a mut [u32],
    columns: &'a mut [u32],
    values: &'a mut [u32],
    before: u32,
}

impl<'a> Rest<'a> {
    fn new(matrix: &'a mut R1csMatrix) -> Self {
        Self {
            ends: &mut matrix.row_starts[1..],
            columns: &mut matrix.columns,
            values: &mut matrix.values,
            before: 0,
        }
    }

    fn take(&mut self, rows: usize, entries: usize) -> Rows<'a> {
        let before = self.before;
        self.before += entries as u32;
        Rows {
            ends: take(&mut self.ends, rows),
            columns: take(&mut self.columns, entries),
            values: take(&mut self.values, entries),
            before,
            used: 0,
        }
    }
}

/// The first `n` elements, which are no longer in `rest` then.
fn take<'a, T>(rest: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    let (first, second) = std::mem::take(rest).split_at_mut(n);
    *rest = second;
    first
}

/// A block of rows being made.
struct Block<'a, C: GpuCurve> {
    plan: &'a Plan<C>,
    first_row: usize,
    /// Values of the wires of earlier waves.
    earlier: &'a [u8],
    /// Values of the block's own wires.
    own: &'a mut [u8],
    matrices: [Rows<'a>; 3],
    /// Words drawn so far.
    drawn: u64,
}

impl<C: GpuCurve> Block<'_, C> {
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(
            !self.plan.seed,
            ((self.first_row as u64) << 32) + self.drawn,
        )
    }

    /// A wire from before row `own` of this block: seven of eight are of the block itself.
    fn wire(&mut self, own: usize) -> usize {
        let word = self.draw();
        let place = (word >> 8) as usize;
        match own {
            1.. if word & 7 != 0 => FIRST + self.first_row + place % own,
            _ => place % (self.earlier.len() / 32),
        }
    }

    /// As [`Self::wire`], one whose row has a property, or the constant if it is hard to find.
    fn wire_with(&mut self, own: usize, property: impl Fn(Row) -> bool) -> usize {
        for _ in 0..DRAWS {
            let wire = self.wire(own);
            let row = wire.checked_sub(FIRST);
            if row.is_some_and(|row| property(self.plan.row(row))) {
                return wire;
            }
        }
        CONSTANT
    }

    /// Canonical bytes of a wire's value.
    fn bytes(&self, wire: usize) -> &[u8] {
        match wire.checked_sub(FIRST + self.first_row) {
            Some(own) => &self.own[32 * own..32 * (own + 1)],
            None => &self.earlier[32 * wire..32 * (wire + 1)],
        }
    }

    fn push(&mut self, own: usize, terms: [&[(usize, u32)]; 3]) {
        for (matrix, terms) in self.matrices.iter_mut().zip(terms) {
            matrix.push(own, terms);
        }
    }

    fn make(mut self) {
        // The last wires of a kind that A or B is still to mention: that an operand is taken from
        // the row before makes that all of them are.
        let (mut xor, mut product, mut factor) = (CONSTANT, PUBLIC, PUBLIC);
        for own in 0..self.own.len() / 32 {
            let row = self.plan.row(self.first_row + own);
            let new = FIRST + self.first_row + own;
            let value = match row.kind {
                Kind::Boolean => {
                    let b = [(CONSTANT, MINUS_ONE), (new, ONE)];
                    self.push(own, [&[(new, ONE)], &b, &[]]);
                    bit(self.draw() as u8)
                }
                Kind::Xor => {
                    let a = xor;
                    let b = self.wire_with(own, |row| row.kind == Kind::Boolean);
                    let c = [(a, ONE), (b, ONE), (new, MINUS_ONE)];
                    self.push(own, [&[(a, TWO)], &[(b, ONE)], &c]);
                    xor = if row.in_a { new } else { CONSTANT };
                    bit(self.bytes(a)[0] ^ self.bytes(b)[0])
                }
                Kind::Product => {
                    let other = self.wire_with(own, |row| row.in_a);
                    let k = self.coefficient();
                    let a = [(product, ONE), (other, k)];
                    let b = [(CONSTANT, ONE), (factor, ONE)];
                    self.push(own, [&a, &b, &[(new, ONE)]]);
                    let [x, y, z]: [C::Fr; 3] =
                        [product, other, factor].map(|wire| scalar(self.bytes(wire)));
                    product = if row.in_a { new } else { CONSTANT };
                    factor = if row.in_b { new } else { factor };
                    let sum = x + self.plan.coefficients[k as usize] * y;
                    canonical(&(sum * (C::Fr::one() + z)))
                }
            };
            self.own[32 * own..32 * (own + 1)].copy_from_slice(&value);
        }
    }

    /// A quarter each are 1 and powers of two, the others wide.
    fn coefficient(&mut self) -> u32 {
        let word = self.draw();
        let place = (word >> 8) as u32;
        match word & 3 {
            0 => ONE,
            1 => TWO + place % POWERS as u32,
            _ => TWO + POWERS as u32 + place % WIDE_COEFFICIENTS as u32,
        }
    }
}

/// The lowest bit as a canonical value.
fn bit(word: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = word & 1;
    bytes
}

/// As [`circuit_of`], where all wires occur in A and in B.
pub fn circuit<C: GpuCurve>(constraints: usize, bits: f64, seed: u64) -> (R1cs, Witness) {
    circuit_of::<C>(Shape::new(constraints, bits), seed)
}

/// A satisfiable circuit of a shape with one public input, and its witness; the same ones for the
/// same seed. Takes all threads, and little memory besides the result.
///
/// # Panics
/// If there are more than 2^30 constraints.
pub fn circuit_of<C: GpuCurve>(shape: Shape, seed: u64) -> (R1cs, Witness) {
    let n = shape.constraints;
    assert!(n <= 1 << 30, "{n} constraints");
    let plan = Plan::<C>::new(shape, seed);
    let rows_of = |block: usize| block * BLOCK..n.min((block + 1) * BLOCK);
    let counts: Vec<[usize; 3]> = (0..n.div_ceil(BLOCK))
        .into_par_iter()
        .map(|block| {
            let rows = rows_of(block).map(|row| entries(plan.row(row).kind));
            rows.fold([0; 3], |sums, row| [0, 1, 2].map(|m| sums[m] + row[m]))
        })
        .collect();
    let mut matrices = [0, 1, 2].map(|m| {
        let entries = counts.iter().map(|c| c[m]).sum();
        let mut matrix = R1csMatrix::new();
        for coefficient in &plan.coefficients {
            matrix.coefficient(canonical(coefficient));
        }
        matrix.row_starts = vec![0; n + 1];
        matrix.columns = vec![0; entries];
        matrix.values = vec![0; entries];
        matrix
    });
    let mut values = vec![0; 32 * (FIRST + n)];
    values[32 * CONSTANT] = 1;
    let public = C::Fr::rand(&mut StdRng::seed_from_u64(!seed));
    values[32 * PUBLIC..][..32].copy_from_slice(&canonical(&public));

    let mut rests = matrices.each_mut().map(Rest::new);
    let mut done = 0;
    while done < counts.len() {
        let wave = done..counts.len().min(done + done.clamp(1, WAVE));
        let (earlier, mut rest) = values.split_at_mut(32 * (FIRST + done * BLOCK));
        let blocks: Vec<_> = wave
            .clone()
            .map(|block| {
                let rows = rows_of(block);
                let [a, b, c] = &mut rests;
                Block {
                    plan: &plan,
                    first_row: rows.start,
                    earlier,
                    own: take(&mut rest, 32 * rows.len()),
                    matrices: [(a, 0), (b, 1), (c, 2)]
                        .map(|(rest, m)| rest.take(rows.len(), counts[block][m])),
                    drawn: 0,
                }
            })
            .collect();
        blocks.into_par_iter().for_each(Block::make);
        done = wave.end;
    }
    let [a, b, c] = matrices;
    let circuit = R1cs {
        curve: C::ID,
        source: None,
        n_wires: FIRST + n,
        n_pub_out: 0,
        n_pub_in: 1,
        n_prv_in: 0,
        n_constraints: n,
        a,
        b,
        c,
    };
    let witness = Witness {
        curve: C::ID,
        values: values.into(),
    };
    (circuit, witness)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{Bls12381, Bn254};

    #[test]
    fn satisfied() {
        // One block, several waves, and blocks that are not full.
        for n in [1, 300, 5 * BLOCK + 7] {
            for bits in [0.0, 0.5, 1.0] {
                let (r1cs, witness) = circuit_of::<Bn254>(Shape::new(n, bits), 7);
                assert_eq!(r1cs.first_unsatisfied(&witness).unwrap(), None);
                let shape = Shape {
                    in_a: 0.9,
                    in_b: 0.3,
                    ..Shape::new(n, bits)
                };
                let (r1cs, witness) = circuit_of::<Bls12381>(shape, 7);
                assert_eq!(r1cs.first_unsatisfied(&witness).unwrap(), None);
            }
        }
    }

    /// Seeds make circuits; threads do not.
    #[test]
    fn the_same_for_a_seed() {
        let shape = Shape::new(3 * BLOCK, 0.5);
        let all = circuit_of::<Bn254>(shape, 7);
        let one = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        let again = one.install(|| circuit_of::<Bn254>(shape, 7));
        assert!(all.0 == again.0 && *all.1.values == *again.1.values);
        assert!(circuit_of::<Bn254>(shape, 8).0 != all.0);
    }

    /// Densities of the queries and of bits are what the shape says.
    #[test]
    fn shares_are_met() {
        let shape = Shape::porep(20);
        assert_eq!(shape.constraints, POREP_CONSTRAINTS >> 7);
        assert!((shape.constraints + 2).next_power_of_two() == 1 << 20);
        let (r1cs, witness) = circuit_of::<Bls12381>(shape, 1);
        let n = r1cs.n_wires;
        let share = |count: usize| count as f64 / n as f64;
        let mentioned = |matrix: &R1csMatrix| {
            let mut wires = vec![false; n];
            matrix
                .columns
                .iter()
                .for_each(|c| wires[*c as usize] = true);
            share(wires.into_iter().filter(|m| *m).count())
        };
        let bits = witness.values.chunks_exact(32);
        let bits = bits
            .filter(|v| v[0] < 2 && v[1..].iter().all(|b| *b == 0))
            .count();
        for (what, got, expected) in [
            ("A", mentioned(&r1cs.a), shape.in_a),
            ("B", mentioned(&r1cs.b), shape.in_b),
            ("bits", share(bits), shape.bits),
        ] {
            assert!(
                (got - expected).abs() < 0.002,
                "{what}: {got}, not {expected}"
            );
        }
        // As a dictionary holds them.
        assert!(r1cs.a.coefficients().len() <= 2 + POWERS + WIDE_COEFFICIENTS);
    }
}
