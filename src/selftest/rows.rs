//! Sparse matrix times witness.

use super::{Outcome, Size, expect_scalars, random, rng, run_recording, upload};
use crate::curve::GpuCurve;
use crate::device::GpuDevice;
use crate::device::recording::Recording;
use crate::formats::r1cs::R1csMatrix;
use crate::row_product::RowPieces;
use ark_ff::{BigInteger, PrimeField, Zero};
use rand::Rng;
use std::sync::Arc;

fn canonical<F: PrimeField>(x: &F) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&x.into_bigint().to_bytes_le());
    bytes
}

/// Rows that are empty, short, as long as a piece, and of several levels of pieces; tables in one
/// binding, and cut into several.
pub(super) fn row_product<C: GpuCurve>(gpu: &Arc<GpuDevice>, size: Size) -> Outcome {
    let rng = &mut rng(7);
    let longest = size.pick(300, 5000);
    let mut lengths = vec![0, 1, 63, 64, 65, 0, longest, 2, 128];
    lengths.extend((0..size.pick(60, 600)).map(|_| rng.gen_range(0..6)));
    let wires = random::<C>(97, rng);
    let mut matrix = R1csMatrix::new();
    let mut expected = Vec::new();
    for length in lengths {
        let mut sum = C::Fr::zero();
        for value in random::<C>(length, rng) {
            let wire = rng.gen_range(0..wires.len());
            sum += value * wires[wire];
            matrix.push(wire as u32, canonical(&value));
        }
        matrix.end_row();
        expected.push(sum);
    }
    // Rows of the domain that the matrix does not list are 0.
    expected.resize(expected.len().next_power_of_two(), C::Fr::zero());
    let matrix = matrix.to_key_matrix::<C>();
    for max_binding in [gpu.limits().max_binding, 32 * 512] {
        let pieces = RowPieces::new(&matrix, max_binding);
        let mut rec = Recording::new();
        let witness = wires.iter().flat_map(canonical).collect();
        let witness = upload(&mut rec, "witness", witness);
        let tables: Vec<_> = pieces
            .tables()
            .iter()
            .map(|(label, bytes)| {
                let id = crate::ntt::upload(&mut rec, label, bytes);
                rec.whole(id)
            })
            .collect();
        let target = rec.transient("products", 32 * expected.len() as u64);
        let (witness, target) = (rec.whole(witness), rec.whole(target));
        let pieces = pieces.map(&mut tables.into_iter());
        pieces.record(&mut rec, C::ID, witness, target, &mut |_, table| *table);
        rec.download(target);
        let output = run_recording(gpu, &rec)?;
        let what = format!("rows, tables of {max_binding} bytes");
        expect_scalars::<C>(&output.downloads[0], &expected, &what)?;
    }
    Ok(())
}
