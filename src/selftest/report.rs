//! What the self-test found: as JSON, whose fields `docs/selftest.md` describes, and as a page.

use super::Size;
use crate::device::deny::Denial;
use crate::device::{AdapterDetails, BackendSurvey, DeviceInfo};
use serde::Serialize;
use std::fmt::Write;

/// Form of the report. A change that a reader of the old form would stumble over raises the number.
pub const SCHEMA: &str = "groth16-gpu/selftest/1";

/// Outcome of the self-test on every adapter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelftestReport {
    /// [`SCHEMA`]
    pub schema: &'static str,
    /// Version of this crate.
    pub version: String,
    /// Operating system, processor architecture, and threads.
    pub host: Host,
    /// Whether every case passed in every tier of every listed adapter, and there was one.
    pub passed: bool,
    /// Time that the CPU took to compute what must come of the cases, once for all devices and
    /// tiers.
    pub references_ms: f64,
    pub total_ms: f64,
    /// Empty if devices were named.
    pub backends: Vec<BackendSurvey>,
    pub adapters: Vec<AdapterReport>,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    pub os: &'static str,
    pub arch: &'static str,
    pub threads: usize,
}

/// Outcome on one adapter through one back end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdapterReport {
    pub device: DeviceInfo,
    /// Whether it is a row of `devices`, and proofs can be made on it.
    pub listed: bool,
    /// What is known to be wrong with its driver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Denial>,
    /// Why it was not tested, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_tested: Option<String>,
    /// Once it could be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<AdapterDetails>,
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
    /// Every kernel over every curve.
    pub compiled: Vec<CompileTime>,
    /// Until all of them were ready, on all cores.
    pub compile_ms: f64,
    pub cases: Vec<CaseReport>,
    pub throughput: Vec<Throughput>,
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
    /// To make its pipeline, while other cores made others, and to run an empty dispatch of it,
    /// which is when some drivers compile.
    pub ms: f64,
    /// Time of processors in the empty dispatch, which other programs do not disturb; on software
    /// adapters alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_ms: Option<f64>,
    /// Why the driver refused it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Outcome of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// `name/curve`
    pub name: String,
    /// The kernels whose results decided; none for those about the device itself.
    pub kernels: Vec<&'static str>,
    pub passed: bool,
    /// What was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time of the first run.
    pub first_ms: f64,
    /// Time of a second run. None after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_ms: Option<f64>,
}

/// How fast something went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// `what/curve`
    pub name: String,
    /// What is counted, as `Mproducts/s`.
    pub unit: &'static str,
    /// Size of the input, as a power of two.
    pub log2: u32,
    /// The best of several runs.
    pub per_second: f64,
    /// Time of that run.
    pub ms: f64,
    /// Whether by the device's own clock, or else by the host's.
    pub device_clock: bool,
}

impl SelftestReport {
    /// A page for people, to attach to an issue.
    pub fn to_markdown(&self) -> String {
        let mut page = String::from("# Self-test of groth16-gpu\n\n");
        self.write(&mut page).expect("strings take everything");
        page
    }

    fn write(&self, page: &mut String) -> std::fmt::Result {
        let verdict = match self.passed {
            true => "every kernel passed",
            false => "**a kernel FAILED**",
        };
        let (host, seconds) = (&self.host, self.total_ms / 1e3);
        writeln!(
            page,
            "Version {}, {} {}, {} threads: {verdict} in {seconds:.1} s, {:.1} s of them for what \
             the CPU computed.\n",
            self.version,
            host.os,
            host.arch,
            host.threads,
            self.references_ms / 1e3
        )?;
        for backend in &self.backends {
            let name = backend.backend.name();
            match &backend.reason {
                Some(reason) => writeln!(page, "* {name}: {reason}")?,
                None => writeln!(page, "* {name}: {} adapters", backend.adapters)?,
            }
            for unfit in &backend.unfit {
                writeln!(page, "  * not fit: {unfit}")?;
            }
        }
        self.adapters.iter().try_for_each(|a| a.write(page))
    }
}

impl AdapterReport {
    fn write(&self, page: &mut String) -> std::fmt::Result {
        let device = &self.device;
        writeln!(page, "\n## {device}\n")?;
        writeln!(page, "| | |\n|---|---|")?;
        let mut row = |name: &str, value: &str| writeln!(page, "| {name} | {value} |");
        row("driver", &device.driver)?;
        row(
            "ids",
            &format!("{:#06x}:{:#06x}", device.vendor_id, device.device_id),
        )?;
        row("kind", &format!("{:?}", device.device_type))?;
        let memory = device.memory.map(|m| format!("{} MiB", m >> 20));
        row("memory", memory.as_deref().unwrap_or("unknown"))?;
        row(
            "largest binding",
            &format!("{} MiB", device.max_binding >> 20),
        )?;
        let listed = match self.listed {
            true => format!("as device {}", device.index),
            false => format!(
                "not listed: device {} through another back end",
                device.index
            ),
        };
        row("in `devices`", &listed)?;
        for denial in &self.denied {
            row("denied", &format!("{} ({})", denial.reason, denial.link))?;
        }
        if let Some(details) = &self.details {
            let [least, most] = details.subgroup;
            row("subgroups", &format!("{least} to {most}"))?;
            let limits = details.limits.iter();
            let limits: Vec<_> = limits.map(|(name, n)| format!("{name} {n}")).collect();
            row("limits", &limits.join(", "))?;
            row("features", &details.features.join(", "))?;
        }
        if let Some(why) = &self.not_tested {
            writeln!(page, "\nNot tested: {why}")?;
        }
        self.tiers.iter().try_for_each(|t| t.write(page))
    }
}

impl TierReport {
    fn write(&self, page: &mut String) -> std::fmt::Result {
        let (tier, verdict) = (self.tier, if self.passed() { "passed" } else { "FAILED" });
        let (seconds, compiling) = (self.total_ms / 1e3, self.compile_ms / 1e3);
        writeln!(
            page,
            "\n### Tier {tier}: {verdict}\n\n{seconds:.1} s, {compiling:.1} s of them compiling."
        )?;
        if let Some(error) = &self.error {
            writeln!(page, "\nCould not be opened: {error}")?;
        }
        if !self.cases.is_empty() {
            writeln!(page, "\n| case | | ms | again |\n|---|---|---|---|")?;
        }
        for case in &self.cases {
            let (name, first) = (&case.name, case.first_ms);
            let second = case.second_ms.map(|ms| format!("{ms:.1}"));
            let second = second.unwrap_or_default();
            let verdict = match &case.message {
                None => "ok".to_owned(),
                Some(why) => format!("**FAILED**: {}", one_line(why)),
            };
            writeln!(page, "| {name} | {verdict} | {first:.1} | {second} |")?;
        }
        if !self.throughput.is_empty() {
            writeln!(page, "\n| throughput | | |\n|---|---|---|")?;
        }
        for t in &self.throughput {
            let (name, unit, log2, ms) = (&t.name, t.unit, t.log2, t.ms);
            let rate = t.per_second / 1e6;
            writeln!(page, "| {name}, 2^{log2} | {rate:.2} {unit} | {ms:.3} ms |")?;
        }
        if !self.compiled.is_empty() {
            writeln!(page, "\n| kernel | ready after, ms |\n|---|---|")?;
        }
        for kernel in &self.compiled {
            let refused = kernel.error.as_deref().map(one_line);
            let refused = refused
                .map(|e| format!(" REFUSED: {e}"))
                .unwrap_or_default();
            writeln!(page, "| {} | {:.1}{refused} |", kernel.name, kernel.ms)?;
        }
        Ok(())
    }
}

/// Text of others in a cell of a table.
fn one_line(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
