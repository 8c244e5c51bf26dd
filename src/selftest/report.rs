//! Running the cases, and the report of it.

use super::{Case, Outcome, Size, cases, run_recording};
use crate::curve::CurveId;
use crate::device::recording::Recording;
use crate::device::{DeviceInfo, DeviceOptions, GpuDevice};
use crate::kernels::{Kernel, WordTier};
use crate::report::processor_ms;
use serde::Serialize;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// Outcome of the self-test on every adapter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelftestReport {
    /// Version of this crate.
    pub version: String,
    /// Whether every case passed in every tier, and there was one.
    pub passed: bool,
    pub adapters: Vec<AdapterReport>,
}

/// Outcome on one adapter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdapterReport {
    pub device: DeviceInfo,
    pub tiers: Vec<TierReport>,
}

/// Outcome on one adapter in one word tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierReport {
    /// `u64` or `u32`.
    pub tier: &'static str,
    pub size: Size,
    /// Why the adapter could not be opened, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Each kernel's time from its source to the end of a dispatch with nothing to do, in the order
    /// of first use.
    pub compiled: Vec<CompileTime>,
    pub cases: Vec<CaseReport>,
    /// From opening the adapter to the end of its last case, in milliseconds.
    pub total_ms: f64,
}

impl TierReport {
    /// Whether it opened and every case passed.
    pub fn passed(&self) -> bool {
        self.error.is_none() && self.cases.iter().all(|c| c.passed)
    }
}

/// How long it took until a kernel was ready.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompileTime {
    /// `kernel/curve`
    pub name: String,
    pub ms: f64,
    /// Time of processors, which other programs do not disturb. For drivers that compile in this
    /// process, as most do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_ms: Option<f64>,
}

/// Outcome of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// `name/curve`
    pub name: String,
    /// The kernels whose results decided.
    pub kernels: Vec<&'static str>,
    pub passed: bool,
    /// What was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time of the first run, the compiling of kernels that no case before used included.
    pub first_ms: f64,
    /// Time of a second run. None after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_ms: Option<f64>,
}

/// Tells of a case that has ended.
pub type Callback<'a> = &'a mut dyn FnMut(&DeviceInfo, WordTier, &CaseReport);

/// Runs every case on every adapter of `adapters` in every tier that it has, or only in the tier
/// that `options` force. `size` is by default what suits each adapter.
///
/// Memory is poisoned whatever the options say, so that a kernel which does nothing shows.
pub fn run(
    adapters: &[DeviceInfo],
    options: &DeviceOptions,
    size: Option<Size>,
    callback: Callback,
) -> SelftestReport {
    let cases = cases();
    let adapters: Vec<AdapterReport> = adapters
        .iter()
        .map(|info| {
            let forced = |tier: &WordTier| options.word_tier.is_none_or(|t| t == *tier);
            let tiers = info.tiers.iter().copied().filter(forced);
            let size = size.unwrap_or(Size::of(info));
            AdapterReport {
                device: info.clone(),
                tiers: tiers
                    .map(|tier| run_tier(info, tier, options, size, &cases, callback))
                    .collect(),
            }
        })
        .collect();
    let tiers = || adapters.iter().flat_map(|a| &a.tiers);
    SelftestReport {
        version: env!("CARGO_PKG_VERSION").into(),
        passed: tiers().next().is_some() && tiers().all(TierReport::passed),
        adapters,
    }
}

fn run_tier(
    info: &DeviceInfo,
    tier: WordTier,
    options: &DeviceOptions,
    size: Size,
    cases: &[Case],
    callback: Callback,
) -> TierReport {
    let start = Instant::now();
    let mut report = TierReport {
        tier: tier.name(),
        size,
        error: None,
        compiled: Vec::new(),
        cases: Vec::new(),
        total_ms: 0.0,
    };
    let options = DeviceOptions {
        word_tier: Some(tier),
        poison: true,
        ..options.clone()
    };
    match GpuDevice::open(info, &options) {
        Ok(gpu) => {
            for case in cases {
                let outcome = run_case(&gpu, size, case, &mut report.compiled);
                callback(info, tier, &outcome);
                report.cases.push(outcome);
            }
        }
        Err(e) => report.error = Some(e.to_string()),
    }
    report.total_ms = milliseconds(start);
    report
}

fn run_case(
    gpu: &Arc<GpuDevice>,
    size: Size,
    case: &Case,
    compiled: &mut Vec<CompileTime>,
) -> CaseReport {
    let guarded = |run: &mut dyn FnMut() -> Outcome| {
        // Whatever a bad driver makes a case do, the others are to be reported on.
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panic_message(&*panic)))
    };
    let start = Instant::now();
    let first = guarded(&mut || {
        for kernel in case.kernels {
            compile(gpu, *kernel, case.curve, compiled)?;
        }
        (case.run)(gpu, size)
    });
    let first_ms = milliseconds(start);
    let (outcome, second_ms) = match first {
        Ok(()) => {
            let start = Instant::now();
            let second = guarded(&mut || (case.run)(gpu, size));
            let second = second.map_err(|e| format!("in a second run: {e}"));
            (second, Some(milliseconds(start)))
        }
        failed => (failed, None),
    };
    CaseReport {
        name: case.id(),
        kernels: case.kernels.iter().map(|k| k.name()).collect(),
        passed: outcome.is_ok(),
        message: outcome.err(),
        first_ms,
        second_ms,
    }
}

/// Compiles a kernel if it is not in the list yet, and puts it there.
fn compile(
    gpu: &GpuDevice,
    kernel: Kernel,
    curve: CurveId,
    compiled: &mut Vec<CompileTime>,
) -> Outcome {
    let name = format!("{}/{curve}", kernel.name());
    if compiled.iter().any(|c| c.name == name) {
        return Ok(());
    }
    let (start, processor_start) = (Instant::now(), processor_ms());
    let mut rec = Recording::new();
    rec.warm_up(kernel.source(curve, gpu.tier()));
    run_recording(gpu, &rec)?;
    let ms = milliseconds(start);
    let used = processor_ms().zip(processor_start);
    compiled.push(CompileTime {
        name,
        ms,
        processor_ms: used.map(|(end, start)| end - start),
    });
    Ok(())
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
