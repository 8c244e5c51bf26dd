//! `--retune`, and when devices are measured without it.

use super::Output;
use super::args::{DeviceChoice, Selftest};
use super::engine::device_options;
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::selector::select;
use groth16_gpu::device::{Adapters, DeviceInfo, DeviceOptions, Selected};
use groth16_gpu::selftest::SelftestReport;
use groth16_gpu::tuning::{Measurement, Probe, TuningRecord, TuningSource, file, probe};
use groth16_gpu::{Error, Result};
use serde_json::{Value, json};

/// Domain, as a power of two, from which on a proof measures a card that never was: reading such a
/// key and compiling kernels take longer than the probe.
const WORTH_PROBING_LOG2: u32 = 20;

/// Devices as a command is to open them, and what was measured for that, as JSON and for people.
pub struct Tuned {
    pub choice: DeviceChoice,
    pub json: Vec<Value>,
    pub text: String,
}

impl Tuned {
    /// Nothing was measured.
    pub fn nothing(choice: &DeviceChoice) -> Self {
        Self {
            choice: choice.clone(),
            json: Vec::new(),
            text: String::new(),
        }
    }

    /// Prints what was measured to stderr, where JSON does not have it.
    pub fn note(&self, out: &Output) {
        if !self.text.is_empty() {
            out.note(self.text.trim_end());
        }
    }
}

/// What is on file about a device.
fn on_file(info: &DeviceInfo, options: &DeviceOptions) -> Option<TuningRecord> {
    file::load(&options.cache.path()?, info)
}

/// Whether anything may have to be measured before a command.
pub fn may_measure(choice: &DeviceChoice, proof_log2: Option<u32>) -> bool {
    choice.retune || proof_log2.is_some_and(|log2| log2 >= WORTH_PROBING_LOG2)
}

/// What is to be measured before a command, and with which options: what `--retune` asks for.
/// Without it, and before a proof over a domain of 2^`proof_log2`, a card that was not measured yet,
/// in the one tier that it will be opened in: the kernels of another one can take minutes to
/// compile. Nothing is measured by itself on a software
/// adapter, where compiling takes longer than a proof.
pub fn due(
    choice: &DeviceChoice,
    curve: CurveId,
    proof_log2: Option<u32>,
    adapters: &Adapters,
) -> Vec<(DeviceInfo, DeviceOptions)> {
    if !may_measure(choice, proof_log2) {
        return Vec::new();
    }
    let found = adapters.list();
    let mut rows: Vec<usize> = Vec::new();
    for selector in &choice.selectors {
        // Opening it says what is wrong with a selector.
        if let Ok(Selected::Gpu(row)) = select(selector, &found)
            && !rows.contains(&row)
        {
            rows.push(row);
        }
    }
    let mut due = Vec::new();
    for info in rows.into_iter().map(|row| &found[row]) {
        let mut options = device_options(choice);
        if !choice.retune {
            let record = on_file(info, &options);
            let chosen = record.as_ref().map(|r| r.tuning(info).word_tier);
            let tier = choice.word_tier.or(chosen).unwrap_or(info.tiers[0]);
            let known = record.is_some_and(|r| r.has(curve, tier));
            // With no place to remember it, it would be measured each time.
            if info.software || known || options.cache.path().is_none() {
                continue;
            }
            options.word_tier = Some(tier);
        }
        due.push((info.clone(), options));
    }
    due
}

/// Measures what is [`due`].
///
/// # Errors
/// Those of [`probe`], under `--retune`.
pub fn tune(
    choice: &DeviceChoice,
    curve: CurveId,
    proof_log2: Option<u32>,
    adapters: &Adapters,
    out: &Output,
) -> Result<Tuned> {
    let mut tuned = Tuned::nothing(choice);
    let due = due(choice, curve, proof_log2, adapters);
    if choice.retune && due.is_empty() {
        out.note("--retune: no GPU to measure; the CPU path leaves nothing to choose");
    }
    let mut records = Vec::new();
    for (info, options) in &due {
        out.note(&format!("measuring {info}"));
        match probe(info, options, curve, &mut |_| {}) {
            Ok(probe) => {
                tuned.json.push(json!(probe));
                tuned.text += &table(&probe);
                records.push(probe.record);
            }
            Err(e) if choice.retune => return Err(e),
            Err(e) => log::warn!("{info} could not be measured: {e}"),
        }
    }
    if !records.is_empty() {
        tuned.choice.tuning = TuningSource::Records(records);
    }
    Ok(tuned)
}

/// Measures after a self-test, over both curves, if `--retune` asks for it. Returns what was measured,
/// also as text, and whether every sum was right.
pub fn tune_tested(
    args: &Selftest,
    report: &SelftestReport,
    out: &Output,
) -> (Value, String, bool) {
    let (mut values, mut text, mut right) = (Vec::new(), String::new(), true);
    let options = DeviceOptions {
        word_tier: args.word_tier,
        ..DeviceOptions::default()
    };
    for adapter in report.adapters.iter().filter(|a| args.retune && a.listed) {
        let info = &adapter.device;
        for curve in CurveId::ALL {
            out.note(&format!("measuring {info}, {curve}"));
            match probe(info, &options, curve, &mut |_| {}) {
                Ok(probe) => {
                    right &= probe.measured.iter().all(|m| m.outcome.is_ok());
                    text += &table(&probe);
                    values.push(json!(probe));
                }
                Err(e) => {
                    right = false;
                    text += &format!("{info}, {curve}: {e}\n");
                    values.push(failure(info, curve, &e));
                }
            }
        }
    }
    (values.into(), text, right)
}

fn failure(info: &DeviceInfo, curve: CurveId, e: &Error) -> Value {
    let curve = curve.name();
    json!({ "device": info.to_string(), "curve": curve, "error": e.to_string() })
}

/// A probe for people.
fn table(probe: &Probe) -> String {
    let (device, driver, seconds) = (&probe.device, &probe.driver, probe.total_ms / 1e3);
    let compiling = probe.compile_ms / 1e3;
    let mut text = format!(
        "{device}, {driver}: measured over {} in {seconds:.1} s, {compiling:.1} s of them \
         compiling\n",
        probe.curve
    );
    for m in &probe.measured {
        let time = match &m.outcome {
            Ok(ms) => format!("{ms:.2} ms"),
            Err(why) => format!("NOT TO BE USED: {why}"),
        };
        text += &format!("  {}  {time}\n", way(m));
    }
    let tier = probe.chosen.word_tier;
    let msm = probe.chosen.msm(tier).of(probe.curve);
    let pairs = match (msm.pairs_g1, msm.pairs_g2) {
        (true, true) => "in G1 and G2",
        (true, false) => "in G1",
        (false, true) => "in G2",
        (false, false) => "nowhere",
    };
    let (tier, shift) = (tier.name(), msm.window_shift);
    text += &format!("  chosen: tier {tier}, pairs first {pairs}, digits {shift:+} bits\n");
    if let Some(file) = &probe.file {
        text += &format!("  wrote {}\n", file.display());
    }
    text
}

fn way(m: &Measurement) -> String {
    let group = format!("{:?}", m.group);
    let pairs = if m.pairs { "pairs" } else { "runs" };
    let (tier, log2, bits) = (m.tier.name(), m.log2, m.window_bits);
    format!("{tier} {group} 2^{log2:<2} {pairs:5} {bits:2} bits")
}
