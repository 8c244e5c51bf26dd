//! `selftest`: what it prints and writes.

use super::args::Selftest;
use super::commands::refuse_to_replace;
use super::{Output, engine, tune};
use groth16_gpu::formats::output::NewFile;
use groth16_gpu::selftest::{SelftestReport, TierReport};
use groth16_gpu::{Error, Result};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

/// Exit code 5 if a kernel fails, or gives a wrong sum when it is measured, as for any device fault.
pub fn selftest(args: &Selftest, out: &Output) -> Result<ExitCode> {
    let file = match &args.report {
        Some(path) => {
            refuse_to_replace(path)?;
            Some((NewFile::create(path)?, is_markdown(path)))
        }
        None => None,
    };
    let report = engine::selftest(args, out)?;
    let mut value = serde_json::to_value(&report)
        .map_err(|e| Error::io("report", std::io::Error::other(e.to_string())))?;
    let (tuning, tuning_text, right) = tune::tune_tested(args, &report, out);
    if !tuning_text.is_empty() {
        value["tuning"] = tuning;
    }
    if let Some((mut file, markdown)) = file {
        let text = match markdown {
            true => page(&report, &value, &tuning_text),
            false => format!("{value:#}\n"),
        };
        file.write(text.as_bytes())?;
        file.commit()?;
    }
    let text = tuning_text + &table(&report);
    out.result(&value, &text)?;
    Ok(ExitCode::from(if report.passed && right { 0 } else { 5 }))
}

fn is_markdown(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| e.eq_ignore_ascii_case("md"))
}

/// The page for an issue: tables, and the JSON to copy out.
fn page(report: &SelftestReport, value: &Value, tuning: &str) -> String {
    let mut page = report.to_markdown();
    if !tuning.is_empty() {
        page += &format!("\n## Measured\n\n```\n{}\n```\n", tuning.trim_end());
    }
    page += &format!(
        "\n<details><summary>The same as JSON</summary>\n\n```json\n{value}\n```\n\n</details>\n"
    );
    page
}

/// The report for people.
fn table(report: &SelftestReport) -> String {
    let mut text = String::new();
    for backend in &report.backends {
        let name = backend.backend.name();
        if let Some(reason) = &backend.reason {
            text += &format!("{name}: {reason}\n");
        }
        for unfit in &backend.unfit {
            text += &format!("{name}: not fit: {unfit}\n");
        }
    }
    for adapter in &report.adapters {
        let device = &adapter.device;
        let listed = if adapter.listed {
            ""
        } else {
            ", not in `devices`"
        };
        text += &format!("{device}, {}{listed}\n", device.driver);
        if let Some(why) = &adapter.not_tested {
            text += &format!("  not tested: {why}\n");
        }
        adapter
            .tiers
            .iter()
            .for_each(|tier| write_tier(&mut text, tier));
    }
    let (total, references) = (report.total_ms / 1e3, report.references_ms / 1e3);
    text += &format!("{total:.1} s, {references:.1} s of them for what the CPU computed\n");
    text + match report.passed {
        true => "every kernel passed",
        false => {
            "A KERNEL FAILED: do not prove on this device, and report it with --report FILE.md"
        }
    }
}

fn write_tier(text: &mut String, tier: &TierReport) {
    let (seconds, compiling) = (tier.total_ms / 1e3, tier.compile_ms / 1e3);
    *text += &format!(
        " tier {}: {seconds:.1} s, {compiling:.1} s of them compiling\n",
        tier.tier
    );
    if let Some(error) = &tier.error {
        *text += &format!("  FAIL  {error}\n");
    }
    let slowest = tier.compiled.iter().max_by(|a, b| a.ms.total_cmp(&b.ms));
    if let Some(kernel) = slowest {
        *text += &format!(
            "  slowest to compile: {}, {:.1} ms\n",
            kernel.name, kernel.ms
        );
    }
    for case in &tier.cases {
        let verdict = if case.passed { "ok  " } else { "FAIL" };
        let mut times = format!("{:8.1} ms", case.first_ms);
        if let Some(second) = case.second_ms {
            times += &format!(", then {second:8.1} ms");
        }
        *text += &format!("  {verdict}  {:26} {times}\n", case.name);
        if let Some(message) = &case.message {
            *text += &format!("        {message}\n");
        }
    }
    for t in &tier.throughput {
        let (name, rate, unit) = (
            format!("{}, 2^{}", t.name, t.log2),
            t.per_second / 1e6,
            t.unit,
        );
        *text += &format!("        {name:26} {rate:8.2} {unit}\n");
    }
}
