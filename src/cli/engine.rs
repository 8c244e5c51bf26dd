//! Everything here that computes: the one place where the command line meets devices, prover,
//! setup and self-test.

use super::Output;
use super::args::{DeviceChoice, Selftest};
use groth16_gpu::curve::{CurveId, GpuCurve};
use groth16_gpu::device::deny::denials;
use groth16_gpu::device::selector::{DeviceSelector, select};
use groth16_gpu::device::{
    Adapters, BackendSurvey, Device, DeviceInfo, DeviceOptions, Selected, Survey,
};
use groth16_gpu::formats::r1cs::R1cs;
use groth16_gpu::host::{JobPlace, job_bytes, key_bytes};
use groth16_gpu::kernels::{Kernel, WordTier};
use groth16_gpu::key_layout::KeyLayout;
use groth16_gpu::proof_plan::{Planner, plan_room};
use groth16_gpu::prover::{Fallback, ProveOptions, Prover, ProverOptions};
use groth16_gpu::proving_key::ProvingKey;
use groth16_gpu::selftest::{self, Event, SelftestReport};
use groth16_gpu::setup::{SetupOptions, SetupReport, setup_bytes, setup_insecure_with};
use groth16_gpu::witness::Witness;
use groth16_gpu::{Error, ProofReport, Result, with_curve};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Opens the device asked for, or the CPU where that is allowed to take over.
pub fn open(choice: &DeviceChoice) -> Result<Device> {
    open_one(choice, &choice.selectors[0], &find(choice))
}

/// The adapters that a choice is among; none, and no driver loaded, if it is the CPU.
pub fn find(choice: &DeviceChoice) -> Adapters {
    match choice.selectors.iter().all(|s| *s == DeviceSelector::Cpu) {
        true => Adapters::default(),
        false => Adapters::find(),
    }
}

/// How to open the devices asked for.
pub fn device_options(choice: &DeviceChoice) -> DeviceOptions {
    DeviceOptions {
        vram_limit: choice.vram_limit,
        word_tier: choice.word_tier,
        allow_denied: choice.allow_denied,
        tables: choice.tables,
        tuning: choice.tuning.clone(),
        ..DeviceOptions::default()
    }
}

fn open_one(
    choice: &DeviceChoice,
    selector: &DeviceSelector,
    adapters: &Adapters,
) -> Result<Device> {
    match adapters.open(selector, &device_options(choice)) {
        Ok(Device::Cpu) if *selector == DeviceSelector::Auto && !choice.fallback => Err(
            Error::NoDevice("auto: no GPU, and --fallback never".to_owned()),
        ),
        Err(Error::NoDevice(what)) if choice.fallback => {
            log::warn!("no such device: {what}; proving on the CPU");
            Ok(Device::Cpu)
        }
        result => result,
    }
}

/// Opens all devices asked for.
pub fn open_all(choice: &DeviceChoice, adapters: &Adapters) -> Result<Vec<Device>> {
    let mut devices: Vec<Device> = Vec::new();
    for selector in &choice.selectors {
        let device = open_one(choice, selector, adapters)?;
        match &device {
            Device::Gpu(gpu) => {
                let mut others = devices.iter().filter_map(Device::gpu);
                if others.any(|other| other.info() == gpu.info()) {
                    let what = format!("--device {selector}: {device} was named already");
                    return Err(Error::Usage(what));
                }
            }
            // Also in the place of devices that are missing; one does for all.
            Device::Cpu if devices.iter().any(|d| d.gpu().is_none()) => continue,
            Device::Cpu => {}
        }
        devices.push(device);
    }
    Ok(devices)
}

/// A prover for one key, whose proofs have what the key leaves of the host's limit; for one proof, if
/// its witness is given.
pub fn prover(
    choice: &DeviceChoice,
    devices: Vec<Device>,
    key: &ProvingKey,
    witness: Option<&Witness>,
) -> Result<Prover> {
    let options = ProverOptions {
        host_limit: choice.host_limit.map(|l| l.saturating_sub(key_bytes(key))),
        single_proof: witness.is_some(),
    };
    let prover = Prover::with_options(devices, options);
    let needed = key_bytes(key) + prover.job_bytes(key, witness);
    match choice.host_limit {
        Some(available) if needed > available => Err(Error::OutOfMemory {
            device: "host memory (--host-limit)".to_owned(),
            needed,
            available,
        }),
        _ => Ok(prover),
    }
}

/// How to prove.
pub fn prove_options(
    choice: &DeviceChoice,
    self_verify: bool,
    deadline: Option<Instant>,
) -> ProveOptions {
    let mut options = ProveOptions::default();
    options.self_verify = self_verify;
    options.deadline = deadline;
    if choice.fallback {
        options.fallback = Fallback::Cpu;
    }
    options
}

pub fn report_json(report: &ProofReport) -> Result<Value> {
    serde_json::to_value(report)
        .map_err(|e| Error::io("report", std::io::Error::other(e.to_string())))
}

pub fn progress_bar(out: &Output) -> ProgressBar {
    if !out.shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(100);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:30} {percent:>3} % {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// The memory that proving with this key takes: on the host, and for each device asked for (all of
/// them for `auto`) the variants with the one that is chosen.
pub fn memory_plans(key: &ProvingKey, choice: &DeviceChoice) -> Result<Value> {
    let beside = |place| key_bytes(key) + job_bytes(key, place, None);
    let device = JobPlace::Device { load_key: true };
    let mut plans = vec![json!({
        "device": "host",
        "bytes": beside(JobPlace::Cpu),
        "bytes_with_device": beside(device),
        "limit": choice.host_limit,
    })];
    let found = Device::list();
    let rows = match choice.selectors.as_slice() {
        [DeviceSelector::Auto] => (0..found.len()).collect(),
        selectors => gpu_rows(selectors, &found)?,
    };
    let options = device_options(choice);
    for row in rows {
        plans.push(with_curve!(key.curve, C => device_plans::<C>(key, &found[row], &options))?);
    }
    Ok(plans.into())
}

/// Rows of the devices that selectors name; the CPU is none of them.
fn gpu_rows(selectors: &[DeviceSelector], found: &[DeviceInfo]) -> Result<Vec<usize>> {
    let mut rows = Vec::new();
    for selector in selectors.iter().filter(|s| **s != DeviceSelector::Cpu) {
        match select(selector, found)? {
            Selected::Gpu(row) if !rows.contains(&row) => rows.push(row),
            _ => {}
        }
    }
    Ok(rows)
}

fn device_plans<C: GpuCurve>(
    key: &ProvingKey,
    info: &DeviceInfo,
    options: &DeviceOptions,
) -> Result<Value> {
    let limits = info.plan_limits(options);
    let budget = limits.memory;
    let name = info.to_string();
    let mut plan = json!({ "device": name, "limit": options.vram_limit, "budget": budget });
    let layout = match KeyLayout::new::<C>(key, &limits, &name) {
        Ok(layout) => layout,
        Err(e @ Error::OutOfMemory { .. }) => {
            plan["error"] = json!(e.to_string());
            return Ok(plan);
        }
        Err(e) => return Err(e),
    };
    let planner = Planner::new(&layout, limits, None);
    match planner.choose::<C>(plan_room(budget), &name) {
        Ok(chosen) => plan["chosen"] = json!(chosen),
        Err(e) => plan["error"] = json!(e.to_string()),
    }
    plan["variants"] = json!(planner.list::<C>()?);
    Ok(plan)
}

/// A one-party key, computed on the device asked for.
pub fn setup(circuit: R1cs, choice: &DeviceChoice) -> Result<(ProvingKey, SetupReport)> {
    let needed = setup_bytes(&circuit);
    if let Some(available) = choice.host_limit.filter(|limit| needed > *limit) {
        return Err(Error::OutOfMemory {
            device: "host memory (--host-limit)".to_owned(),
            needed,
            available,
        });
    }
    let options = SetupOptions {
        device: open(choice)?,
        fallback: match choice.fallback {
            true => Fallback::Cpu,
            false => Fallback::Never,
        },
        ..SetupOptions::default()
    };
    setup_insecure_with(circuit, &options)
}

/// Lists the devices.
pub fn devices(out: &Output) -> Result<()> {
    let devices = Device::list();
    let mut text = String::from("cpu: the native CPU path");
    for d in &devices {
        let bus = if d.pci_bus.is_empty() {
            String::new()
        } else {
            format!(", pci:{}", d.pci_bus)
        };
        let software = if d.software { ", software" } else { "" };
        text += &format!("\n{}: {d}, {}{bus}{software}", d.index, d.driver);
        for denial in denials(d) {
            let tier = denial.tier.map_or("not used", |t| match t {
                WordTier::U64 => "tier u64 not used",
                WordTier::U32 => "tier u32 not used",
            });
            text += &format!("\n   {tier}: {} ({})", denial.reason, denial.link);
        }
    }
    let mut value = serde_json::to_value(&devices)
        .map_err(|e| Error::io("devices", std::io::Error::other(e.to_string())))?;
    for (i, device) in devices.iter().enumerate() {
        let denials = denials(device);
        if !denials.is_empty() {
            value[i]["denied"] = json!(denials);
        }
    }
    out.result(&json!({ "devices": value }), &text)
}

/// The adapters to test, with the number of those that `devices` lists, and what back ends there
/// are: everything if no device was named.
fn adapters_to_test(args: &Selftest) -> Result<(Vec<DeviceInfo>, usize, Vec<BackendSurvey>)> {
    if args.devices.is_empty() {
        let survey = Survey::new();
        return match survey.adapters.is_empty() {
            true => Err(Error::NoDevice("no adapter found to test".to_owned())),
            false => Ok((survey.adapters, survey.listed, survey.backends)),
        };
    }
    let found = Device::list();
    let mut rows = Vec::new();
    for selector in &args.devices {
        match select(selector, &found)? {
            Selected::Gpu(row) if !rows.contains(&row) => rows.push(row),
            Selected::Gpu(_) => {}
            Selected::Cpu { note } => {
                let note = note.unwrap_or_else(|| "the CPU path has no kernels to test".to_owned());
                return Err(Error::NoDevice(format!("{selector}: {note}")));
            }
        }
    }
    let named: Vec<_> = rows.into_iter().map(|row| found[row].clone()).collect();
    let listed = named.len();
    Ok((named, listed, Vec::new()))
}

/// Runs the self-test.
pub fn selftest(args: &Selftest, out: &Output) -> Result<SelftestReport> {
    let (adapters, listed, backends) = adapters_to_test(args)?;
    if let Some(tier) = args.word_tier
        && !adapters.iter().any(|a| a.tiers.contains(&tier))
    {
        let tier = tier.name();
        return Err(Error::NoDevice(format!("none of them has the tier {tier}")));
    }
    let options = DeviceOptions {
        word_tier: args.word_tier,
        ..DeviceOptions::default()
    };
    let tiers = |a: &DeviceInfo| {
        let asked = |t: &&WordTier| args.word_tier.is_none_or(|tier| tier == **t);
        a.tiers.iter().filter(asked).count()
    };
    let kernels = Kernel::ALL.len() * CurveId::ALL.len();
    let each = kernels + selftest::cases().len();
    let total = each * adapters.iter().map(tiers).sum::<usize>();
    let bar = progress_bar(out);
    let mut done = 0;
    let report = selftest::run(&adapters, listed, &options, None, &mut |event| {
        match event {
            Event::Preparing => bar.set_message("computing references"),
            Event::Compiling(adapter, tier, n) => {
                done += 1;
                let tier = tier.name();
                bar.set_message(format!("{adapter}, {tier}: compiling, {n} of {kernels}"));
            }
            Event::Case(adapter, tier, case) => {
                done += 1;
                bar.set_message(format!("{adapter}, {}: {}", tier.name(), case.name));
            }
        }
        bar.set_position((100 * done / total.max(1)) as u64);
    });
    bar.finish_and_clear();
    Ok(SelftestReport { backends, ..report })
}
