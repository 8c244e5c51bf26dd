//! p53: a compiler that makes something else of a kernel than it says.

use super::{Outcome, circuit, expect_class, open};
use crate::cases::prepared;
use crate::common::{TestDevice, doing_nothing, ensure};
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::{Device, DeviceOptions};
use groth16_gpu::kernels::{Kernel, KernelSource, WordTier};
use groth16_gpu::prover::{ProveOptions, Prover};
use groth16_gpu::proving_key::QapReduction;
use groth16_gpu::selftest::{self, Event, Size};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

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

/// Small proofs have few pairs, no tables and no vector in parts, keys are made by a setup, and none runs the kernels that are there for tests.
fn used_by_proofs(kernel: Kernel) -> bool {
    !matches!(
        kernel,
        Kernel::FieldOpsFq
            | Kernel::FieldOpsFr
            | Kernel::PointOpsG1
            | Kernel::PointOpsG2
            | Kernel::MsmPairCounts
            | Kernel::MsmPairSources
            | Kernel::MsmPairSumsG1
            | Kernel::MsmPairSumsG2
            | Kernel::MsmTableG1
            | Kernel::MsmTableG2
            | Kernel::NttSplit
            | Kernel::NttReverse
            | Kernel::FixedBaseEntries
            | Kernel::PointsExportAffine
    )
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

/// Every kernel, doing nothing or with one wrong constant, is caught by the self-test and never
/// gives a proof. All on one device, so that only what is broken is compiled again.
pub fn p53_broken_kernels(d: &TestDevice) -> Outcome {
    static ALONE: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
    let tier = d.gpu.tier();
    let alone = ALONE[tier as usize].lock();
    let _alone = alone.unwrap_or_else(PoisonError::into_inner);
    let (key, witness) = circuit(CurveId::Bn254, 1100, QapReduction::Circom)?;
    let gpu = open(d, |o| o.kernels = broken)?;
    let prover = Prover::new(Device::Gpu(gpu.clone()));
    let prove = || {
        let made = prover.prove(&key, &witness, &ProveOptions::default());
        // Kernels have a part in what stays on the device, too.
        prover.evict(&key);
        made
    };
    set(tier, None);
    prove()?;
    for kernel in Kernel::ALL {
        for constant in [false, true] {
            if constant && WITHOUT_FIELD.contains(&kernel) {
                continue;
            }
            set(tier, Some((kernel, constant)));
            let what = format!("{}, wrong constant: {constant}", kernel.name());
            let cases = prepared(Size::Small);
            let mut covering = cases
                .cases()
                .enumerate()
                .filter(|(_, c)| c.curve == CurveId::Bn254 && c.kernels.contains(&kernel));
            let caught = covering.any(|(index, _)| cases.run(index, &gpu).is_err());
            ensure!(caught, "{what}: the self-test did not notice");
            if used_by_proofs(kernel) {
                // Sums may be no points, or give a proof that does not verify.
                expect_class(prove(), "device_fault").map_err(|e| format!("{what}: {e:?}"))?;
            }
        }
    }
    // What failed before failed for the broken kernel alone.
    set(tier, None);
    prove()?;
    // The report is made alike in every tier.
    if tier == d.gpu.info().tiers[0] {
        set(tier, Some((Kernel::FieldOpsFq, true)));
        let reported = the_report_names_the_kernel(d);
        set(tier, None);
        reported?;
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
