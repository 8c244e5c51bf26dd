//! Which kernels a proof will need, told by the sizes of its key and witness alone, so that they can
//! be compiled while the key is read.

use crate::curve::{CurveId, GpuCurve};
use crate::device::PlanLimits;
use crate::device::recording::{Command, Recording};
use crate::gpu_proof::chunk_size;
use crate::kernels::Kernel;
use crate::msm::{self, Bases, Group};
use crate::proving_key::{KeyShape, QapReduction};
use crate::with_curve;

/// The kernels of every proof, besides those of its sums.
const OF_QUOTIENTS: [Kernel; 6] = [
    Kernel::RowProduct,
    Kernel::PointwiseMul,
    Kernel::NttRoots,
    Kernel::NttDif,
    Kernel::NttDit,
    Kernel::Quotient,
];

/// The kernels of a proof over a witness of which `dense` values are neither 0 nor 1, on a device
/// with such limits. If the device turns out to need a plan with smaller buffers, or keeps tables of
/// multiples, its proofs may take others, too.
pub fn kernels_of_proof(
    shape: &KeyShape,
    dense: usize,
    limits: &PlanLimits,
) -> Vec<(Kernel, CurveId)> {
    with_curve!(shape.curve, C => kernels::<C>(shape, dense, limits))
}

fn kernels<C: GpuCurve>(
    shape: &KeyShape,
    dense: usize,
    limits: &PlanLimits,
) -> Vec<(Kernel, CurveId)> {
    let g1 = [Group::G1];
    let both = [Group::G2, Group::G1];
    let mut rec = Recording::new();
    for (n, dense, groups) in [
        (shape.h_len(), shape.h_len(), &g1[..]),
        (shape.n_vars, dense, &both[..]),
    ] {
        record_sums::<C>(&mut rec, n, dense, groups, limits);
    }
    let mut kernels = OF_QUOTIENTS.to_vec();
    if 32 * shape.domain_size as u64 > limits.max_binding {
        kernels.push(Kernel::NttSplit);
        if shape.reduction == QapReduction::Libsnark {
            kernels.push(Kernel::NttReverse);
        }
    }
    for command in &rec.commands {
        if let Command::Dispatch(d) = command
            && !kernels.contains(&d.kernel)
        {
            kernels.push(d.kernel);
        }
    }
    // The slow ones first: they decide when the last one is done.
    kernels.sort_by_key(|k| !k.name().ends_with("_g2"));
    kernels.into_iter().map(|k| (k, C::ID)).collect()
}

/// Records sums over `n` scalars, as proofs do; nothing of it will run.
fn record_sums<C: GpuCurve>(
    rec: &mut Recording,
    n: usize,
    dense: usize,
    groups: &[Group],
    limits: &PlanLimits,
) {
    let Ok(chunk) = chunk_size::<C>(n, limits.max_binding) else {
        return;
    };
    let (n, dense) = (n.min(chunk), dense.min(chunk));
    let point = groups.iter().map(|g| g.point_bytes(C::ID)).max();
    let tuning = limits.msm.of(C::ID);
    let bits = msm::scalar_bits::<C>();
    let geometry = tuning.geometry(n, dense, bits, point.unwrap_or(0), limits.max_binding);
    let Some(geometry) = geometry.filter(|_| n > 0) else {
        return;
    };
    let scalars = rec.transient("scalars", 32 * n as u64);
    let scalars = rec.whole(scalars);
    let mut sorted = msm::record_sort(rec, C::ID, scalars, geometry);
    for &group in groups {
        sorted.geometry = tuning.passes(group, geometry, dense);
        let bases = rec.transient("bases", group.affine_bytes(C::ID) * n as u64);
        let bases = Bases::AtRest(rec.whole(bases));
        msm::record_sums(rec, C::ID, group, &[(sorted, bases)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{Bls12381, Bn254};
    use crate::key_layout::{KeyLayout, LEVELS};
    use crate::proof_plan::Variant;
    use crate::proving_key::QapReduction;
    use crate::setup::setup_insecure_as;
    use crate::synthetic::circuit;
    use crate::tuning::{MsmTuning, MsmTunings};
    use std::collections::BTreeSet;

    fn limits(pairs_from: u64) -> PlanLimits {
        let tuning = MsmTuning {
            pairs_g1: true,
            pairs_g2: false,
            window_shift: 0,
            pairs_from,
        };
        PlanLimits {
            max_binding: 1 << 30,
            memory: 1 << 34,
            max_storage_buffers: 8,
            msm: MsmTunings {
                bls12_381: tuning,
                bn254: tuning,
            },
            tables: 1,
        }
    }

    fn compare<C: GpuCurve>(constraints: usize, bits: f64, reduction: QapReduction, pairs: u64) {
        let (r1cs, witness) = circuit::<C>(constraints, bits, 3);
        let key = setup_insecure_as(&r1cs, reduction).unwrap();
        let limits = limits(pairs);
        let layout = KeyLayout::new::<C>(&key, &limits, "test").unwrap();
        let variant = Variant {
            level: LEVELS,
            max_buffer: limits.max_binding,
            hold_witness: true,
            tables: 1,
        };
        let (rec, _) = layout.record_proof::<C>(&witness, &variant).unwrap();
        let needed: BTreeSet<Kernel> = rec
            .commands
            .iter()
            .filter_map(|c| match c {
                Command::Dispatch(d) => Some(d.kernel),
                _ => None,
            })
            .collect();
        let dense = witness.dense(0..witness.len());
        let told = kernels_of_proof(&key.shape(), dense, &limits);
        let told: BTreeSet<Kernel> = told.into_iter().map(|(k, _)| k).collect();
        assert_eq!(
            told, needed,
            "{constraints} constraints, {bits} bits, {pairs}"
        );
    }

    #[test]
    fn the_kernels_of_a_proof_and_no_others() {
        for reduction in [QapReduction::Circom, QapReduction::Libsnark] {
            for (constraints, bits) in [(1, 0.0), (60, 1.0), (1000, 0.0), (1000, 0.9)] {
                // Pairs always, for dense vectors alone, and never.
                for pairs in [0, 30_000, u64::MAX] {
                    compare::<Bn254>(constraints, bits, reduction, pairs);
                    compare::<Bls12381>(constraints, bits, reduction, pairs);
                }
            }
        }
    }
}
