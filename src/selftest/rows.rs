//! Sparse matrix times witness.

use super::{CaseError, Prepared, Size, check, expect_scalars, random, rng, run_recording};
use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::GpuDevice;
use crate::device::recording::Recording;
use crate::formats::r1cs::R1csMatrix;
use crate::matrix::Matrix;
use crate::parts::Parts;
use crate::row_product::RowPieces;
use ark_ff::{BigInteger, One, PrimeField, Zero};
use rand::Rng;

fn canonical<F: PrimeField>(x: &F) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&x.into_bigint().to_bytes_le());
    bytes
}

/// Rows that are empty, short, as long as a piece, and of several levels of pieces, with
/// coefficients 1, −1 and others: in one binding each, and with tables, coefficients, witness and
/// result in many.
pub(super) fn row_product<C: GpuCurve>(size: Size) -> Prepared {
    let rng = &mut rng(7);
    let longest = size.pick(300, 5000);
    let mut lengths = vec![0, 1, 31, 32, 33, 0, longest, 2, 65];
    lengths.extend((0..size.pick(60, 600)).map(|_| rng.gen_range(0..6)));
    let wires = random::<C>(97, rng);
    let mut matrix = R1csMatrix::new();
    let mut expected = Vec::new();
    for length in lengths {
        let mut sum = C::Fr::zero();
        for value in random::<C>(length, rng) {
            let value = match rng.gen_range(0..4) {
                0 => C::Fr::one(),
                1 => -C::Fr::one(),
                _ => value,
            };
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
    check(move |gpu| {
        let one_part = (wires.len(), expected.len(), gpu.limits().max_binding);
        // 2 and 5 parts of the witness: a pass sees 4.
        for (wires_per_part, rows_per_part, max_binding) in [
            one_part,
            (56, expected.len() / 2, 1 << 12),
            (24, 32, 32 * 64),
        ] {
            let got = products::<C>(gpu, &matrix, &wires, |rec| {
                let witness = Parts::secret(rec, "witness", wires.len(), wires_per_part);
                let target = Parts::secret(rec, "products", expected.len(), rows_per_part);
                (RowPieces::new(&matrix, max_binding), witness, target)
            })?;
            let what =
                format!("rows, parts of {wires_per_part} wires, tables of {max_binding} bytes");
            expect_scalars::<C>(&got, &expected, &what)?;
        }
        Ok(())
    })
}

/// The product, from pieces, witness and target that `declare` gives.
pub(super) fn products<C: GpuCurve>(
    gpu: &GpuDevice,
    matrix: &Matrix,
    wires: &[C::Fr],
    declare: impl FnOnce(&mut Recording) -> (RowPieces<Bytes>, Parts, Parts),
) -> Result<Vec<u8>, CaseError> {
    let mut rec = Recording::new();
    let (pieces, witness, target) = declare(&mut rec);
    matrix
        .check(C::ID, wires.len(), target.len())
        .map_err(|e| e.to_string())?;
    for (range, slice) in witness.iter() {
        let values: Vec<u8> = wires[range].iter().flat_map(canonical).collect();
        rec.upload(slice, values.into());
    }
    let tables: Vec<_> = pieces
        .tables()
        .iter()
        .map(|(label, bytes)| {
            let id = crate::ntt::upload(&mut rec, label, bytes);
            rec.whole(id)
        })
        .collect();
    let pieces = pieces.map(&mut tables.into_iter());
    pieces.record(&mut rec, C::ID, &witness, &target, &mut |_, table| *table);
    for slice in target.slices() {
        rec.download(*slice);
    }
    Ok(run_recording(gpu, &rec)?.downloads.concat())
}
