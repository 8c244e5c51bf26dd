//! p53: a compiler that makes something else of a kernel than it says.

use super::{Outcome, circuit, expect_class, open};
use crate::cases::prepared;
use crate::common::{TestDevice, doing_nothing, ensure};
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::{CacheFolder, Device, DeviceInfo, DeviceOptions, GpuDevice, PlanLimits};
use groth16_gpu::first_use;
use groth16_gpu::kernels::{Kernel, KernelSource, WordTier};
use groth16_gpu::proof_kernels::kernels_of_proof;
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::proving_key::QapReduction;
use groth16_gpu::selftest::{self, Event, Size};
use libtest_mimic::Failed;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Which kernel [`broken`] breaks in each tier; and whether a constant of it is wrong rather than
/// that it does nothing.
static BREAK: [Mutex<Option<(Kernel, bool)>>; 2] = [Mutex::new(None), Mutex::new(None)];

fn set(tier: WordTier, broken: Option<(Kernel, bool)>) {
    *BREAK[tier as usize].lock().unwrap() = broken;
}

/// Kernels of which one is broken as [`BREAK`] says.
fn broken(kernel: Kernel, curve: CurveId, tier: WordTier) -> &'static KernelSource {
    type Made = HashMap<(Kernel, CurveId, WordTier, bool), &'static KernelSource>;
    static MADE: LazyLock<Mutex<Made>> = LazyLock::new(Mutex::default);
    let source = kernel.source(curve, tier);
    let constant = match *BREAK[tier as usize].lock().unwrap() {
        Some((k, constant)) if k == kernel => constant,
        _ => return source,
    };
    let mut made = MADE.lock().unwrap();
    made.entry((kernel, curve, tier, constant))
        .or_insert_with(|| {
            let wgsl = match constant {
                true => with_wrong_constant(source.wgsl),
                false => doing_nothing(source.wgsl),
            };
            Box::leak(Box::new(KernelSource {
                wgsl: wgsl.leak(),
                ..*source
            }))
        })
}

/// As a compiler that folds a constant wrongly: in the last product of field elements that the
/// kernel computes, the last limb of a constant. What a kernel does not call, nobody would notice.
fn with_wrong_constant(wgsl: &str) -> String {
    let functions: Vec<(&str, usize, &str)> = wgsl
        .match_indices("fn ")
        .filter_map(|(at, _)| {
            let (name, _) = wgsl[at + 3..].split_once('(')?;
            // Functions end with the next brace at the start of a line, or on their only line.
            let first_line = wgsl[at..].find('\n').unwrap_or(wgsl.len() - at);
            let end = match wgsl[at..at + first_line].ends_with('}') {
                true => first_line,
                false => wgsl[at..].find("\n}")?,
            };
            Some((name, at, &wgsl[at..at + end]))
        })
        .collect();
    let mut called = vec!["main"];
    let mut done = 0;
    while done < called.len() {
        let body = functions.iter().find(|f| f.0 == called[done]);
        let (.., body) = body.expect("a function that is called is there");
        for (name, ..) in &functions {
            if !called.contains(name) && body.contains(&format!("{name}(")) {
                called.push(name);
            }
        }
        done += 1;
    }
    let product = |name: &str| name.ends_with("_mul") || name.ends_with("_dot");
    let mut limbs = functions
        .iter()
        .filter(|(name, ..)| called.contains(name) && product(name))
        .filter_map(|&(_, at, body)| last_limb(body).map(|(start, end)| (at + start, at + end)));
    let (start, end) = limbs.next_back().expect("a limb of a constant");
    let limb: u64 = wgsl[start..end].parse().expect("digits");
    format!("{}{}{}", &wgsl[..start], limb ^ 1, &wgsl[end..])
}

/// The place of the last limb of a modulus: only they are numbers above a thousand that end in `u`
/// or `lu`.
fn last_limb(text: &str) -> Option<(usize, usize)> {
    let is_digit = |c: char| c.is_ascii_digit();
    let (mut found, mut at) = (None, 0);
    while let Some(start) = text[at..].find(is_digit).map(|i| at + i) {
        let end = text[start..]
            .find(|c| !is_digit(c))
            .map_or(text.len(), |i| start + i);
        if end - start > 3 && text[end..].starts_with(['u', 'l']) {
            found = Some((start, end));
        }
        at = end;
    }
    found
}

const WITHOUT_FIELD: [Kernel; 8] = [
    Kernel::NttReverse,
    Kernel::ScanBlock,
    Kernel::ScanAdd,
    Kernel::MsmDigits,
    Kernel::MsmScatter,
    Kernel::MsmPairCounts,
    Kernel::MsmPairSources,
    Kernel::FixedBaseEntries,
];

/// What a proof, or what comes before one, does in one go.
pub struct Stage {
    pub name: &'static str,
    kernels: &'static [Kernel],
    /// Wires of a circuit whose proof runs them; 0: none that is small does.
    wires: usize,
    /// Whether there are known answers for them: not for what is there for tests and setups.
    known: bool,
}

pub const STAGES: [Stage; 12] = {
    use Kernel::*;
    const fn stage(name: &'static str, kernels: &'static [Kernel], wires: usize) -> Stage {
        Stage {
            name,
            kernels,
            wires,
            known: true,
        }
    }
    const fn unknown(name: &'static str, kernels: &'static [Kernel]) -> Stage {
        Stage {
            name,
            kernels,
            wires: 0,
            known: false,
        }
    }
    const WIRES: usize = 1100;
    [
        stage("products", &[RowProduct, PointwiseMul], WIRES),
        stage("transforms", &[NttRoots, NttDif, NttDit], WIRES),
        stage("transforms_in_parts", &[NttSplit, NttReverse], 0),
        stage("quotient", &[Quotient], WIRES),
        stage("digit_sort", &[MsmDigits, MsmScatter], WIRES),
        // Fewer wires: what follows garbage for offsets takes its time.
        stage("scan", &[ScanBlock, ScanAdd], 300),
        stage("accumulation", &[MsmAccumulateG1, MsmAccumulateG2], WIRES),
        stage(
            "pairs",
            &[MsmPairCounts, MsmPairSources, MsmPairSumsG1, MsmPairSumsG2],
            6000,
        ),
        stage(
            "merge_and_reduction",
            &[MsmMergeG1, MsmMergeG2, MsmReduceG1, MsmReduceG2],
            WIRES,
        ),
        stage("points", &[PointsImport, PointsExport], WIRES),
        stage("tables", &[MsmTableG1, MsmTableG2], 0),
        unknown(
            "tests_and_setups",
            &[
                FieldOpsFq,
                FieldOpsFr,
                PointOpsG1,
                PointOpsG2,
                FixedBaseEntries,
                PointsExportAffine,
            ],
        ),
    ]
};

/// One device an adapter and tier for all stages, so that only what is broken is compiled again.
fn shared(d: &TestDevice) -> Result<Arc<GpuDevice>, Failed> {
    static OPEN: LazyLock<Mutex<HashMap<String, Arc<GpuDevice>>>> = LazyLock::new(Mutex::default);
    let mut open_devices = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(gpu) = open_devices.get(&d.label) {
        return Ok(gpu.clone());
    }
    let gpu = open(d, |o| o.kernels = broken)?;
    open_devices.insert(d.label.clone(), gpu.clone());
    Ok(gpu)
}

/// Every kernel of a stage, doing nothing or with one wrong constant, is caught by the self-test and
/// by the first-use probe, which names it, and never gives a proof.
pub fn p53_broken_stage(d: &TestDevice, stage: &Stage) -> Outcome {
    let tier = d.gpu.tier();
    let alone = ALONE[tier as usize].lock();
    let _alone = alone.unwrap_or_else(PoisonError::into_inner);
    set(tier, None);
    let gpu = shared(d)?;
    let outcome = stage_is_caught(&gpu, stage);
    set(tier, None);
    outcome
}

static ALONE: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

fn stage_is_caught(gpu: &Arc<GpuDevice>, stage: &Stage) -> Outcome {
    let (tier, curve) = (gpu.tier(), CurveId::Bn254);
    let prover = Prover::new(Device::Gpu(gpu.clone()));
    let circuit = match stage.wires {
        0 => None,
        n => Some(circuit(curve, n, QapReduction::Circom)?),
    };
    let prove = || {
        let made = circuit.as_ref().map(|(key, witness)| {
            let made = prover.prove(key, witness, &ProveOptions::default());
            // Kernels have a part in what stays on the device, too.
            prover.evict(key);
            made.map(drop)
        });
        made.transpose()
    };
    // What the proof runs, and the kernels of the stage.
    let mut needed: Vec<_> = stage.kernels.iter().map(|k| (*k, curve)).collect();
    if let Some((key, witness)) = &circuit {
        let dense = witness.dense(0..witness.len());
        let of_proof = kernels_of_proof(&key.shape(), dense, &gpu.limits().plan());
        let runs = |k: &(Kernel, CurveId)| of_proof.contains(k);
        ensure!(needed.iter().all(runs), "the proof does not run the stage");
        needed = of_proof;
    }
    let probe = || first_use::probe(gpu, &needed).map(|(_, failure)| failure);
    prove()?;
    ensure!(probe()?.is_none(), "the probe fails");
    for kernel in stage.kernels {
        for constant in [false, true] {
            if constant && WITHOUT_FIELD.contains(kernel) {
                continue;
            }
            set(tier, Some((*kernel, constant)));
            let what = format!("{}, wrong constant: {constant}", kernel.name());
            let cases = prepared(Size::Small);
            let mut covering = cases
                .cases()
                .enumerate()
                .filter(|(_, c)| c.curve == curve && c.kernels.contains(kernel));
            let caught = covering.any(|(index, _)| cases.run(index, gpu).is_err());
            ensure!(caught, "{what}: the self-test did not notice");
            let failure = probe()?;
            match failure {
                Some(failure) => {
                    let named = failure.kernels.iter().any(|k| k == kernel.name());
                    ensure!(named && stage.known, "{what}: the probe says {failure}");
                }
                None => ensure!(!stage.known, "{what}: the probe did not notice"),
            }
            // Where counts of pairs are garbage, what follows them takes lavapipe minutes.
            let minutes = stage.name == "pairs" && !constant;
            if circuit.is_some() && !minutes {
                // Sums may be no points, or give a proof that does not verify.
                expect_class(prove(), "device_fault").map_err(|e| format!("{what}: {e:?}"))?;
            }
        }
    }
    // What failed before failed for the broken kernel alone.
    set(tier, None);
    prove()?;
    Ok(())
}

/// Every kernel is of one stage.
pub fn p53_stages_are_complete(_: &TestDevice) -> Outcome {
    for kernel in Kernel::ALL {
        let of = STAGES.iter().filter(|s| s.kernels.contains(&kernel));
        ensure!(of.count() == 1, "{}", kernel.name());
    }
    Ok(())
}

/// The report is made alike in every tier.
pub fn p53_the_report_names_the_kernel(d: &TestDevice) -> Outcome {
    let tier = d.gpu.tier();
    if tier != d.gpu.info().tiers[0] {
        return Ok(());
    }
    let alone = ALONE[tier as usize].lock();
    let _alone = alone.unwrap_or_else(PoisonError::into_inner);
    set(tier, Some((Kernel::FieldOpsFq, true)));
    let reported = the_report_names_the_kernel(d);
    set(tier, None);
    reported
}

/// A device with a kernel broken in its first tier is used in the other one, and refused where
/// there is none; unless the probe is turned off.
pub fn p53_first_use(d: &TestDevice) -> Outcome {
    let info = d.gpu.info();
    if d.gpu.tier() != info.tiers[0] {
        return Ok(());
    }
    let locks: Vec<_> = info
        .tiers
        .iter()
        .map(|t| {
            ALONE[*t as usize]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        })
        .collect();
    let outcome = first_use_of(info);
    info.tiers.iter().for_each(|t| set(*t, None));
    drop(locks);
    outcome
}

fn first_use_of(info: &DeviceInfo) -> Outcome {
    let options = DeviceOptions {
        kernels: broken,
        cache: CacheFolder::None,
        ..DeviceOptions::default()
    };
    let needed = |_: &PlanLimits| {
        let kernels = [Kernel::PointwiseMul, Kernel::Quotient, Kernel::ScanBlock];
        kernels.map(|k| (k, CurveId::Bn254)).to_vec()
    };
    let ready = |options: &DeviceOptions| {
        let gpu = GpuDevice::open(info, options)?;
        gpu.ready_for(&needed, &|_, _| Ok(()))
    };
    let first = info.tiers[0];
    info.tiers.iter().for_each(|t| set(*t, None));
    ensure!(ready(&options)?.tier() == first, "a tier for no reason");
    set(first, Some((Kernel::Quotient, true)));
    let forced = DeviceOptions {
        word_tier: Some(first),
        ..options.clone()
    };
    let message = expect_class(ready(&forced), "device_fault")?;
    for part in ["quotient", first.name(), info.driver.as_str()] {
        ensure!(message.contains(part), "{message}");
    }
    let off = DeviceOptions {
        first_use_probe: false,
        ..forced
    };
    ensure!(ready(&off)?.tier() == first, "off is not off");
    if let Some(second) = info.tiers.get(1) {
        let gpu = ready(&options)?;
        ensure!(gpu.tier() == *second, "tier {}", gpu.tier().name());
        set(*second, Some((Kernel::PointwiseMul, false)));
        let message = expect_class(ready(&options), "device_fault")?;
        for part in ["quotient", "pointwise_mul", first.name(), second.name()] {
            ensure!(message.contains(part), "{message}");
        }
    }
    // A proof on a device that nobody made ready is refused likewise.
    let (key, witness) = circuit(CurveId::Bn254, 40, QapReduction::Circom)?;
    let gpu = GpuDevice::open(info, &options)?;
    let prover = Prover::new(Device::Gpu(gpu));
    let mut unverified = ProveOptions::default();
    unverified.self_verify = false;
    for _ in 0..2 {
        let message = expect_class(prover.prove(&key, &witness, &unverified), "device_fault")?;
        ensure!(message.contains("first-use probe"), "{message}");
    }
    Ok(())
}

/// With `field_ops_fq` broken, its cases fail in the report and no others.
fn the_report_names_the_kernel(d: &TestDevice) -> Outcome {
    let options = DeviceOptions {
        kernels: broken,
        word_tier: Some(d.gpu.tier()),
        ..DeviceOptions::default()
    };
    let adapters = [d.gpu.info().clone()];
    let mut seen = 0;
    let report = selftest::run(&adapters, 1, &options, Some(Size::Small), &mut |event| {
        seen += usize::from(matches!(event, Event::Case(..)));
    });
    ensure!(!report.passed, "the report says that all passed");
    let cases = &report.adapters[0].tiers[0].cases;
    ensure!(seen == cases.len(), "{seen} calls");
    for case in cases {
        let of_kernel = case.name.starts_with("field_ops_fq/");
        ensure!(case.passed != of_kernel, "{}", case.name);
        ensure!(case.message.is_some() == of_kernel, "{}", case.name);
    }
    Ok(())
}
