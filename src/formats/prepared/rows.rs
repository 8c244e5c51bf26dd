//! A matrix in a prepared key: compressed rows, with each coefficient as its number in a list of
//! those that differ. Circuits have few of them, so that 4 bytes stand for 32.

use super::section_error;
use crate::bytes::Bytes;
use crate::curve::CurveId;
use crate::error::{InputClass, Result};
use crate::formats::le_u32;
use crate::proving_key::{KeyShape, Matrix};
use rayon::prelude::*;
use std::collections::HashMap;

/// Sections that a matrix takes: starts of rows, columns, numbers of coefficients (`u32` each), and
/// the coefficients that differ (32 bytes each).
pub const SECTIONS: usize = 4;

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The contents of a matrix' sections.
pub fn encode(matrix: &Matrix) -> [Vec<u8>; SECTIONS] {
    let mut numbers = HashMap::new();
    let mut distinct = Vec::new();
    let index = |value: &[u8; 32]| {
        *numbers.entry(*value).or_insert_with(|| {
            distinct.extend_from_slice(value);
            (distinct.len() / 32 - 1) as u32
        })
    };
    let indices: Vec<u32> = matrix.values.iter().map(index).collect();
    [
        words(&matrix.row_starts),
        words(&matrix.columns),
        words(&indices),
        distinct,
    ]
}

/// Reads a matrix from sections that begin with number `first`, and checks that it is one of this
/// key.
///
/// # Errors
/// `bad_section`, `bad_coefficient`, `bad_scalar`.
pub fn decode(first: u32, sections: [Bytes; SECTIONS], shape: &KeyShape) -> Result<Matrix> {
    let [starts, columns, indices, distinct] = &sections;
    let err = |section: usize, class, message: &str| {
        let e = section_error(shape, first + section as u32, class, message.to_owned());
        Err(e.into())
    };
    if [starts, columns, indices].iter().any(|s| s.len() % 4 != 0) || distinct.len() % 32 != 0 {
        return err(0, InputClass::BadSection, "a matrix of broken elements");
    }
    let read = |bytes: &[u8]| -> Vec<u32> { bytes.par_chunks_exact(4).map(le_u32).collect() };
    let (row_starts, columns) = rayon::join(|| read(starts), || read(columns));
    let in_order = row_starts.first().is_none_or(|first| *first == 0)
        && row_starts.is_sorted()
        && row_starts.last().copied().unwrap_or(0) as usize == columns.len()
        && row_starts.len() <= shape.domain_size + 1;
    if !in_order {
        let message = "rows that are out of order, too many, or do not hold all entries";
        return err(0, InputClass::BadSection, message);
    }
    if columns.par_iter().any(|c| *c as usize >= shape.n_vars) {
        let message = "an entry for a wire that the key does not have";
        return err(1, InputClass::BadCoefficient, message);
    }
    let (distinct, _) = distinct.as_chunks::<32>();
    let canonical = |v: &[u8; 32]| CurveId::is_canonical_scalar(shape.curve, v);
    if !distinct.par_iter().all(canonical) {
        let message = "a coefficient that is not below the scalar field's modulus";
        return err(3, InputClass::BadScalar, message);
    }
    let value = |i: &[u8]| distinct.get(le_u32(i) as usize).copied();
    let values: Option<Vec<[u8; 32]>> = indices.par_chunks_exact(4).map(value).collect();
    let Some(values) = values.filter(|values| values.len() == columns.len()) else {
        let message = "an entry without a coefficient";
        return err(2, InputClass::BadCoefficient, message);
    };
    Ok(Matrix {
        row_starts,
        columns,
        values,
    })
}
