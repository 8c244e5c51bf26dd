//! Keys made on every device: the CPU's, bit for bit, however they are cut; and what becomes of a
//! device that fails, or computes something else.

use crate::circuits::random_chain;
use crate::common::{self, TestDevice, doing_nothing, ensure};
use groth16_gpu::curve::{Bn254, CurveId};
use groth16_gpu::device::{Device, DeviceInfo, DeviceOptions, Fault, GpuDevice};
use groth16_gpu::formats::r1cs::R1cs;
use groth16_gpu::kernels::{Kernel, KernelSource, WordTier};
use groth16_gpu::prover::{Fallback, ProveOptions, Prover};
use groth16_gpu::proving_key::{ProvingKey, QapReduction};
use groth16_gpu::selftest::Size;
use groth16_gpu::setup::{SetupOptions, setup_from_seed_with, setup_insecure_with};
use groth16_gpu::synthetic::{Shape, circuit_of};
use groth16_gpu::{Result, with_curve};
use libtest_mimic::{Failed, Trial};

type Outcome = Result<(), Failed>;

fn options(device: &Device) -> SetupOptions {
    SetupOptions {
        device: device.clone(),
        ..SetupOptions::default()
    }
}

/// Everything that depends on the trapdoor.
fn points(key: &ProvingKey) -> [&[u8]; 12] {
    [
        &key.alpha_g1,
        &key.beta_g1,
        &key.beta_g2,
        &key.gamma_g2,
        &key.delta_g1,
        &key.delta_g2,
        key.ic.as_deref().unwrap_or_default(),
        &key.a_query,
        &key.b_g1_query,
        &key.b_g2_query,
        &key.l_query,
        &key.h_query,
    ]
}

/// A key of a seed on a device, beside the CPU's.
fn compare(r1cs: &R1cs, options: &SetupOptions) -> Outcome {
    let on_cpu = SetupOptions {
        device: Device::Cpu,
        ..options.clone()
    };
    let expected = setup_from_seed_with(r1cs, &on_cpu, 5)?;
    let key = setup_from_seed_with(r1cs, options, 5)?;
    for (i, (got, expected)) in points(&key).into_iter().zip(points(&expected)).enumerate() {
        ensure!(got == expected, "{}: part {i} of the key", r1cs.curve);
    }
    Ok(())
}

/// Wires that no row of B mentions have infinity there, and the smallest circuit has no private
/// wires at all.
fn keys_are_the_cpus(device: &TestDevice) -> Outcome {
    device.prepare();
    let n = match device.size {
        Size::Small => 30,
        Size::Large | Size::Huge => 500,
    };
    let shape = Shape {
        in_b: 0.3,
        ..Shape::new(n, 0.5)
    };
    for curve in CurveId::ALL {
        let device = Device::Gpu(device.gpu.clone());
        with_curve!(curve, C => {
            compare(&circuit_of::<C>(shape, 3).0, &options(&device))?;
            let libsnark = SetupOptions {
                reduction: QapReduction::Libsnark,
                ..options(&device)
            };
            compare(&random_chain::<C>(9, 2, 3).0, &libsnark)?;
        });
    }
    Ok(())
}

/// Bindings and memory for few multiples at a time: chunks, the last of them shorter.
fn chunks(device: &DeviceInfo, tier: WordTier) -> Outcome {
    let (r1cs, witness) = circuit_of::<Bn254>(Shape::new(700, 0.5), 3);
    let open = |max_binding, vram_limit| {
        let options = DeviceOptions {
            max_binding,
            vram_limit,
            ..common::options(tier)
        };
        GpuDevice::open(device, &options).map(Device::Gpu)
    };
    // The table of G2 takes half a mebibyte.
    for (max_binding, vram_limit) in [(Some(600 << 10), None), (None, Some(24 << 20))] {
        compare(&r1cs, &options(&open(max_binding, vram_limit)?))?;
    }
    let (key, _) = setup_insecure_with(r1cs, &options(&open(None, None)?))?;
    Prover::new(Device::Cpu).prove(&key, &witness, &ProveOptions::default())?;
    Ok(())
}

/// A device that fails is an error, or the CPU takes over and says so.
fn failures(device: &DeviceInfo, tier: WordTier) -> Outcome {
    let (r1cs, _) = circuit_of::<Bn254>(Shape::new(100, 0.5), 3);
    let gpu = GpuDevice::open(device, &common::options(tier))?;
    let never = options(&Device::Gpu(gpu.clone()));
    let cpu = SetupOptions {
        fallback: Fallback::Cpu,
        ..never.clone()
    };
    gpu.inject_fault(Fault::LoseSubmission(0));
    let error = setup_insecure_with(r1cs.clone(), &never).err();
    let class = error.as_ref().map(|e| e.class());
    ensure!(class == Some("device_fault"), "{error:?}");
    gpu.inject_fault(Fault::LoseSubmission(0));
    compare(&r1cs, &cpu)?;
    gpu.inject_fault(Fault::LoseSubmission(0));
    let (_, report) = setup_insecure_with(r1cs.clone(), &cpu)?;
    ensure!(report.device == "cpu", "{}", report.device);
    let (_, report) = setup_insecure_with(r1cs, &cpu)?;
    ensure!(report.device == gpu.info().to_string(), "{}", report.device);
    Ok(())
}

/// A kernel that a compiler made nothing of.
fn broken(kernel: Kernel, curve: CurveId, tier: WordTier) -> &'static KernelSource {
    let source = kernel.source(curve, tier);
    if kernel != Kernel::PointsExportAffine {
        return source;
    }
    Box::leak(Box::new(KernelSource {
        wgsl: doing_nothing(source.wgsl).leak(),
        ..*source
    }))
}

/// p53: wrong points are noticed before a key is made of them, and the CPU may compute the right ones.
fn p53_wrong_points(device: &DeviceInfo, tier: WordTier) -> Outcome {
    let (r1cs, _) = circuit_of::<Bn254>(Shape::new(100, 0.5), 3);
    let broken = DeviceOptions {
        kernels: broken,
        ..common::options(tier)
    };
    let gpu = GpuDevice::open(device, &broken)?;
    let on_gpu = options(&Device::Gpu(gpu));
    let with_fallback = SetupOptions {
        fallback: Fallback::Cpu,
        ..on_gpu.clone()
    };
    compare(&r1cs, &with_fallback)?;
    let error = setup_insecure_with(r1cs, &on_gpu).err();
    let text = error.as_ref().map(|e| format!("{}: {e}", e.class()));
    let right = |t: &String| t.starts_with("device_fault") && t.contains("differs from the CPU's");
    ensure!(text.as_ref().is_some_and(right), "{text:?}");
    Ok(())
}

pub fn trials(devices: &[TestDevice], adapters: &[(String, DeviceInfo)]) -> Vec<Trial> {
    let mut trials = common::on_each(devices, "setup/keys_are_the_cpus", keys_are_the_cpus);
    type Test = fn(&DeviceInfo, WordTier) -> Outcome;
    let tests: [(&str, Test); 3] = [
        ("chunks", chunks),
        ("failures", failures),
        ("p53_wrong_points", p53_wrong_points),
    ];
    let tier = WordTier::U64;
    let lavapipe = adapters.iter().find(|(name, _)| name == "lavapipe");
    for (name, test) in tests {
        let id = format!("lavapipe/{}/setup/{name}", tier.name());
        trials.push(match lavapipe {
            Some((_, info)) => {
                let info = info.clone();
                common::trial(id, move || test(&info, tier))
            }
            None => common::ignored(id),
        });
    }
    trials
}
