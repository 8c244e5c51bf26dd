//! Running the cases.

use super::report::{
    AdapterReport, CaseReport, CompileTime, Host, SCHEMA, SelftestReport, TierReport,
};
use super::throughput::{self, Inputs};
use super::{CaseError, Outcome, PreparedCases, Size, run_recording};
use crate::curve::CurveId;
use crate::device::deny::denials;
use crate::device::recording::Recording;
use crate::device::{DeviceInfo, DeviceOptions, GpuDevice};
use crate::first_use;
use crate::kernels::{Kernel, WordTier};
use crate::report::processor_ms;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What the self-test is about to do, or has done.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The CPU computes what must come of the cases.
    Preparing,
    /// Kernels are being compiled, of which so many are done.
    Compiling(&'a DeviceInfo, WordTier, usize),
    /// A case has ended.
    Case(&'a DeviceInfo, WordTier, &'a CaseReport),
}

/// Told of every [`Event`].
pub type Callback<'a> = &'a mut (dyn FnMut(Event) + Send);

/// Runs every case on every adapter of `adapters` in every tier that it has, or only in the tier
/// that `options` force. `size` is by default what suits each adapter. Of the adapters the first
/// `listed` are rows of [`crate::device::Device::list`]; the others do not decide whether the
/// self-test passed.
///
/// Memory is poisoned whatever the options say, so that a kernel which does nothing shows.
pub fn run(
    adapters: &[DeviceInfo],
    listed: usize,
    options: &DeviceOptions,
    size: Option<Size>,
    callback: Callback,
) -> SelftestReport {
    let start = Instant::now();
    callback(Event::Preparing);
    let of = |info: &DeviceInfo| size.unwrap_or(Size::of(info));
    let mut sizes: Vec<Size> = adapters.iter().map(of).collect();
    sizes.sort();
    sizes.dedup();
    let prepare = |size| {
        let cases = PreparedCases::new(size);
        cases.prepare();
        (cases, Inputs::new(size))
    };
    let prepared: Vec<_> = sizes.iter().map(|s| prepare(*s)).collect();
    let references_ms = milliseconds(start);
    let mut reports: Vec<AdapterReport> = Vec::new();
    for (i, info) in adapters.iter().enumerate() {
        let forced = |tier: &WordTier| options.word_tier.is_none_or(|t| t == *tier);
        let tiers: Vec<_> = info.tiers.iter().copied().filter(forced).collect();
        let row = sizes.iter().position(|s| *s == of(info));
        let prepared = &prepared[row.expect("prepared above")];
        let mut report = AdapterReport {
            device: info.clone(),
            listed: i < listed,
            not_tested: tiers
                .is_empty()
                .then(|| "it lacks the tier asked for".into()),
            denied: denials(info),
            details: None,
            tiers: Vec::new(),
        };
        for tier in tiers {
            let tested = run_tier(info, tier, options, prepared, &mut report.details, callback);
            report.tiers.push(tested);
        }
        reports.push(report);
    }
    let tiers = || reports.iter().filter(|a| a.listed).flat_map(|a| &a.tiers);
    SelftestReport {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").into(),
        host: Host {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        },
        passed: tiers().next().is_some() && tiers().all(TierReport::passed),
        references_ms,
        total_ms: milliseconds(start),
        backends: Vec::new(),
        adapters: reports,
    }
}

fn run_tier(
    info: &DeviceInfo,
    tier: WordTier,
    options: &DeviceOptions,
    (cases, inputs): &(PreparedCases, Vec<Inputs>),
    details: &mut Option<crate::device::AdapterDetails>,
    callback: Callback,
) -> TierReport {
    let start = Instant::now();
    let mut report = TierReport {
        tier: tier.name(),
        size: cases.size(),
        error: None,
        compiled: Vec::new(),
        compile_ms: 0.0,
        cases: Vec::new(),
        throughput: Vec::new(),
        total_ms: 0.0,
    };
    let remembering = options;
    let options = DeviceOptions {
        word_tier: Some(tier),
        poison: true,
        // Or a kernel known to fail could not be tested again.
        first_use_probe: false,
        allow_denied: true,
        ..options.clone()
    };
    match GpuDevice::open(info, &options) {
        Ok(gpu) => {
            *details = Some(gpu.details().clone());
            let compiling = Instant::now();
            report.compiled = compile(&gpu, callback);
            report.compile_ms = milliseconds(compiling);
            let mut wrong = Vec::new();
            for (index, case) in cases.cases().enumerate() {
                let kernels = case.kernels.iter().map(|k| k.name()).collect();
                let outcome = run_case(case.id(), kernels, &mut || {
                    let result = cases.run(index, &gpu);
                    if let Err(CaseError::Wrong(what)) = &result {
                        wrong.push((*case, what.clone()));
                    }
                    result
                });
                callback(Event::Case(info, tier, &outcome));
                report.cases.push(outcome);
            }
            if report.passed() || !wrong.is_empty() {
                first_use::remember_selftest(info, remembering, tier, &wrong);
            }
            if report.passed() {
                report.throughput = inputs
                    .iter()
                    .flat_map(|i| throughput::measure(&gpu, i))
                    .collect();
            }
        }
        Err(e) => report.error = Some(e.to_string()),
    }
    report.total_ms = milliseconds(start);
    report
}

fn run_case(
    name: String,
    kernels: Vec<&'static str>,
    run: &mut dyn FnMut() -> Outcome,
) -> CaseReport {
    // Whatever a bad driver makes a case do, the others are to be reported on.
    let mut guarded = || {
        catch_unwind(AssertUnwindSafe(&mut *run))
            .unwrap_or_else(|panic| Err(panic_message(&*panic).into()))
    };
    let start = Instant::now();
    let first = guarded();
    let first_ms = milliseconds(start);
    let (outcome, second_ms) = match first {
        Ok(()) => {
            let start = Instant::now();
            let second = guarded().map_err(|e| format!("in a second run: {e}").into());
            (second, Some(milliseconds(start)))
        }
        failed => (failed, None),
    };
    CaseReport {
        name,
        kernels,
        passed: outcome.is_ok(),
        message: outcome.err().map(|e| e.to_string()),
        first_ms,
        second_ms,
    }
}

/// Compiles every kernel: pipelines on all cores, then an empty dispatch of each.
fn compile(gpu: &Arc<GpuDevice>, callback: Callback) -> Vec<CompileTime> {
    let (info, tier) = (gpu.info(), gpu.tier());
    let mut kernels: Vec<(Kernel, CurveId)> = CurveId::ALL
        .iter()
        .flat_map(|curve| Kernel::ALL.map(|k| (k, *curve)))
        .collect();
    // The slow ones first: they decide when the last one is done.
    kernels.sort_by_key(|(k, _)| !k.name().ends_with("_g2"));
    let unknown = |(kernel, curve): &(Kernel, CurveId)| CompileTime {
        name: format!("{}/{curve}", kernel.name()),
        ms: 0.0,
        processor_ms: None,
        error: None,
    };
    let times: Vec<_> = kernels.iter().map(unknown).collect();
    let shared = Mutex::new((times, 0, callback));
    gpu.compile_each(&kernels, &|at, compiled, time| {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let (times, done, callback) = &mut *shared;
        times[at].ms = time.as_secs_f64() * 1e3;
        times[at].error = compiled.err().map(|e| e.to_string());
        *done += 1;
        callback(Event::Compiling(info, tier, *done));
    });
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut times = shared.0;
    for ((kernel, curve), time) in kernels.iter().zip(&mut times) {
        if time.error.is_some() {
            continue;
        }
        let (start, processor_start) = (Instant::now(), processor_ms());
        let mut rec = Recording::new();
        rec.warm_up(kernel.source(*curve, tier));
        time.error = run_recording(gpu, &rec).err().map(|e| e.to_string());
        time.ms += milliseconds(start);
        let used = processor_ms().zip(processor_start);
        time.processor_ms = used
            .map(|(end, start)| end - start)
            .filter(|_| info.software);
    }
    times
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
