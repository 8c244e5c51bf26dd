//! The native CPU path: the sums of a proof with this machine's threads.
//!
//! A backend of its own with the same two primitives as the device path, [`msm`] and [`ntt`]; it
//! does not emulate the kernels.

mod affine;
pub(crate) mod fixed_base;
pub mod msm;
pub mod ntt;

use crate::control::Control;
use crate::curve::{G1Affine, G2Affine, GpuCurve};
use crate::domain::Domain;
use crate::error::{InputClass, InputError, Result};
use crate::proof::ProofSums;
use crate::proving_key::ProvingKey;
use crate::qap::{quotient_scalars, row_products};
use crate::report::PhaseClock;
use crate::witness::Witness;
use zeroize::Zeroize;

/// Name of this backend in reports.
pub const BACKEND: &str = "cpu";

/// Wires above which the five sums run one after another on few threads: each then keeps all of
/// them busy by itself, and only one holds decoded points.
const MAX_CONCURRENT_SUMS: usize = 1 << 18;
/// Threads that one sum keeps busy: its 16 or 17 windows make no even load for more.
const FEW_THREADS: usize = 4;

/// Whether the five sums run at once.
fn concurrent(n_vars: usize) -> bool {
    n_vars <= MAX_CONCURRENT_SUMS || rayon::current_num_threads() > FEW_THREADS
}

/// The five sums of a proof, before blinding ([Groth 2016](https://eprint.iacr.org/2016/260), §3.2).
///
/// Ends the phases `row_products`, `quotient` and `msm` on `clock`.
///
/// # Errors
/// Input errors where key and witness do not fit each other or hold values that are not below
/// their modulus; `Cancelled`.
pub fn proof_sums<C: GpuCurve>(
    key: &ProvingKey,
    witness: &Witness,
    control: &Control,
    clock: &mut PhaseClock,
) -> Result<ProofSums<C>> {
    control.step("row products", 0.0)?;
    let domain = domain_of::<C>(key)?;
    let a = row_products::<C>(&key.a, witness, domain.size())?;
    let b = row_products::<C>(&key.b, witness, domain.size())?;
    clock.end_phase("row_products", BACKEND, key.a.bytes() + key.b.bytes());

    control.step("quotient", 0.05)?;
    let mut h = quotient_scalars(key.reduction, domain, a, b)?;
    clock.end_phase("quotient", BACKEND, 0);

    control.step("multi-scalar multiplications", 0.2)?;
    let sums = five_sums::<C>(key, witness, &h, control);
    h.zeroize();
    let bytes = [
        &key.a_query,
        &key.b_g1_query,
        &key.b_g2_query,
        &key.l_query,
        &key.h_query,
    ]
    .iter()
    .map(|query| query.len() as u64)
    .sum();
    clock.end_phase("msm", BACKEND, bytes);
    sums
}

/// Memory that [`proof_sums`] allocates at its highest, in bytes: first the five vectors of the
/// quotient (a, b, c, the transforms' factors, the coset's), then h with the points and buckets of
/// the sums. Nothing of the key is counted.
pub fn working_bytes<C: GpuCurve>(key: &ProvingKey) -> u64 {
    let vector = 32 * key.domain_size as u64;
    let g1 = |points: usize| msm::terms_bytes::<G1Affine<C>>(points);
    let sums = [
        msm::terms_bytes::<G2Affine<C>>(key.n_vars),
        g1(key.domain_size),
        g1(key.n_vars),
        g1(key.n_vars),
        g1(key.n_vars.saturating_sub(key.n_public + 1)),
    ];
    let terms = if concurrent(key.n_vars) {
        sums.iter().sum::<u64>()
    } else {
        sums.into_iter().max().unwrap_or(0)
    };
    let points = key.n_vars.max(key.domain_size);
    (5 * vector).max(vector + terms + msm::bucket_bytes::<G2Affine<C>>(points))
}

/// The evaluation domain of a key.
///
/// # Errors
/// `bad_section` if the size is no power of two, or the field has no such domain.
pub fn domain_of<C: GpuCurve>(key: &ProvingKey) -> Result<Domain<C::Fr>> {
    let size = key.domain_size;
    size.is_power_of_two()
        .then(|| Domain::new(size.trailing_zeros(), key.roots))
        .flatten()
        .ok_or_else(|| {
            InputError::new(
                InputClass::BadSection,
                format!("{} has no evaluation domain of size {size}", key.curve),
            )
            .into()
        })
}

fn five_sums<C: GpuCurve>(
    key: &ProvingKey,
    witness: &Witness,
    h: &[C::Fr],
    control: &Control,
) -> Result<ProofSums<C>> {
    let wires: &[u8] = &witness.values;
    let private = wires.get(32 * (key.n_public + 1)..).ok_or_else(|| {
        InputError::new(
            InputClass::CountMismatch,
            format!(
                "witness of {} wires for a key with {} public inputs",
                witness.len(),
                key.n_public
            ),
        )
    })?;
    let a = || {
        control
            .check()
            .and_then(|()| msm::msm_g1::<C>(&key.a_query, wires))
    };
    let b_g1 = || {
        control
            .check()
            .and_then(|()| msm::msm_g1::<C>(&key.b_g1_query, wires))
    };
    let b_g2 = || {
        control
            .check()
            .and_then(|()| msm::msm_g2::<C>(&key.b_g2_query, wires))
    };
    let l = || {
        control
            .check()
            .and_then(|()| msm::msm_g1::<C>(&key.l_query, private))
    };
    let h = || {
        control
            .check()
            .and_then(|()| msm::msm_g1_field::<C>(&key.h_query, h))
    };
    let (b_g2, (h, (a, (b_g1, l)))) = if concurrent(key.n_vars) {
        rayon::join(b_g2, || {
            rayon::join(h, || rayon::join(a, || rayon::join(b_g1, l)))
        })
    } else {
        (b_g2(), (h(), (a(), (b_g1(), l()))))
    };
    Ok(ProofSums {
        a: a?,
        b_g1: b_g1?,
        b_g2: b_g2?,
        l: l?,
        h: h?,
    })
}
