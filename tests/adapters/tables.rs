//! Proofs from tables of multiples, on lavapipe: the same as without, whatever number of tables the
//! memory has room for.

use crate::common::{self, ensure};
use groth16_gpu::curve::Bn254;
use groth16_gpu::device::{Device, DeviceInfo, DeviceOptions, GpuDevice};
use groth16_gpu::kernels::WordTier;
use groth16_gpu::key_layout::KeyLayout;
use groth16_gpu::proof_plan::Planner;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::setup::setup_insecure;
use groth16_gpu::synthetic::circuit;
use libtest_mimic::{Failed, Trial};

type Outcome = Result<(), Failed>;

/// Two proofs in a row: the first computes the tables, the second finds them. Then with memory for
/// fewer of them, and for none.
fn proofs(device: &DeviceInfo, tier: WordTier) -> Outcome {
    let (circuit, witness) = circuit::<Bn254>(1000, 0.2, 1);
    let key = setup_insecure(&circuit)?;
    let blinding = [3u8; 32];
    let prove = |prover: &Prover| {
        let options = ProveOptions::default();
        prover.prove_with_blinding(&key, &witness, &options, &blinding, &blinding)
    };
    let (expected, _) = prove(&Prover::new(Device::Cpu))?;
    let options = |vram_limit| DeviceOptions {
        tables: 8,
        vram_limit,
        ..common::options(tier)
    };
    let open = |vram_limit| GpuDevice::open(device, &options(vram_limit));

    let prover = Prover::new(Device::Gpu(open(None)?));
    for _ in 0..2 {
        let (proof, report) = prove(&prover)?;
        let plan = report.memory.map(|m| m.plan).unwrap_or_default();
        ensure!(plan.contains("8 multiples"), "{plan}");
        ensure!(proof == expected, "{plan}: another proof");
    }

    // What the variants take says which limits leave room for which.
    let gpu = open(None)?;
    let limits = gpu.limits().plan();
    let layout = KeyLayout::new::<Bn254>(&key, &limits, "device")?;
    let planner = Planner::new(&layout, limits, None);
    let variants = planner.list::<Bn254>()?;
    let of = |tables: u32| variants.iter().find(|v| v.variant.tables == tables);
    let (most, fewer) = of(8).zip(of(2)).ok_or("no such variants")?;
    ensure!(most.resident > fewer.resident, "{variants:?}");
    let room = most.resident + 2 * most.transient;
    for (bytes, tables) in [(room, 8), (room - 256, 4)] {
        let chosen = planner.choose::<Bn254>(bytes, "device")?;
        ensure!(chosen.variant.tables == tables, "{bytes}: {chosen:?}");
        ensure!(chosen.bytes() <= bytes, "{bytes}: {chosen:?}");
    }
    let none = planner.choose::<Bn254>(fewer.bytes() / 2, "device")?;
    ensure!(none.variant.tables == 1, "{none:?}");
    Ok(())
}

pub fn trials(adapters: &[(String, DeviceInfo)]) -> Vec<Trial> {
    let lavapipe = adapters.iter().find(|(name, _)| name == "lavapipe");
    [WordTier::U64, WordTier::U32]
        .into_iter()
        .map(|tier| {
            let id = format!("lavapipe/{}/tables/proofs", tier.name());
            match lavapipe {
                Some((_, info)) => {
                    let info = info.clone();
                    common::trial(id, move || proofs(&info, tier))
                }
                None => common::ignored(id),
            }
        })
        .collect()
}
