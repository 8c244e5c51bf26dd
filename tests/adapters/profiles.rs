//! Devices opened as kinds of devices that are not there ([`DeviceProfile`]): every kernel is accepted
//! and right within the limits of each, and whole proofs are.

use crate::cases::prepared;
use crate::circuits::random_chain;
use crate::common::{self, TestDevice, ensure};
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::{Device, DeviceProfile, GpuDevice};
use groth16_gpu::kernels::WordTier;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::proving_key::QapReduction;
use groth16_gpu::selftest::Size;
use groth16_gpu::setup::setup_from_seed;
use groth16_gpu::with_curve;
use libtest_mimic::{Failed, Trial};
use std::sync::Arc;

fn open(d: &TestDevice, profile: DeviceProfile) -> Result<Arc<GpuDevice>, Failed> {
    let mut options = common::options(d.gpu.tier());
    options.profile = Some(profile);
    let gpu = GpuDevice::open(d.gpu.info(), &options)?;
    let (limits, info) = (gpu.limits(), gpu.info());
    ensure!(
        limits.max_binding <= profile.max_binding
            && limits.max_storage_buffers <= profile.max_storage_buffers
            && limits.workgroup_bytes <= profile.workgroup_bytes
            && limits.workgroup_invocations <= profile.workgroup_invocations
            && limits.memory_budget <= profile.memory
            && info.tiers.len() <= 1 + usize::from(profile.word_tier == WordTier::U64),
        "{limits:?}, {info:?}"
    );
    Ok(gpu)
}

/// All cases of the self-test in the tier that the kind of device has, and proofs over each curve. On
/// software adapters the limits of AMD's and Intel's devices are those of the other kinds: proofs do.
fn kernels_and_proofs(d: &TestDevice, profile: DeviceProfile) -> Result<(), Failed> {
    let gpu = open(d, profile)?;
    let only_proofs =
        d.gpu.info().software && [DeviceProfile::AMD, DeviceProfile::INTEL].contains(&profile);
    let cases = prepared(Size::Small);
    for (index, case) in cases.cases().enumerate().filter(|_| !only_proofs) {
        let outcome = cases.run(index, &gpu);
        outcome.map_err(|e| format!("{}: {e}", case.id()))?;
    }
    for curve in CurveId::ALL {
        let (r1cs, witness) = with_curve!(curve, C => random_chain::<C>(300, 2, 250));
        for reduction in [QapReduction::Circom, QapReduction::Libsnark] {
            let key = setup_from_seed(&r1cs, reduction, 1)?;
            let prover = Prover::new(Device::Gpu(gpu.clone()));
            prover.prove(&key, &witness, &ProveOptions::default())?;
        }
    }
    Ok(())
}

/// A device without 64-bit integers does not open in the tier that needs them.
fn no_tier_that_is_missing(d: &TestDevice) -> Result<(), Failed> {
    match open(d, DeviceProfile::WEBGPU) {
        Err(_) => Ok(()),
        Ok(gpu) => Err(format!("opened in tier {}", gpu.tier().name()).into()),
    }
}

pub fn trials(all: &[TestDevice]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for d in all.iter().filter(|d| !d.is_slow()) {
        for profile in DeviceProfile::ALL {
            // Once in the tier that such devices would be opened in.
            if profile.word_tier != d.gpu.tier() {
                continue;
            }
            let (id, d) = (format!("{}/profiles/{}", d.label, profile.name), d.clone());
            trials.push(common::trial(id, move || kernels_and_proofs(&d, profile)));
        }
        if d.gpu.tier() == WordTier::U64 {
            let (id, d) = (format!("{}/profiles/missing_tier", d.label), d.clone());
            trials.push(common::trial(id, move || no_tier_that_is_missing(&d)));
        }
    }
    for label in common::missing(all) {
        if !label.starts_with("swiftshader") {
            trials.push(common::ignored(format!("{label}/profiles/all")));
        }
    }
    trials
}
