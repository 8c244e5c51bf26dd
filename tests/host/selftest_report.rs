//! The self-test's report is what `docs/selftest.md` says.

use groth16_gpu::curve::CurveId;
use groth16_gpu::device::deny::Denial;
use groth16_gpu::device::{AdapterDetails, Backend, BackendSurvey, DeviceInfo, DeviceType};
use groth16_gpu::kernels::WordTier;
use groth16_gpu::selftest::{
    AdapterReport, CaseReport, CompileTime, Host, SCHEMA, SelftestReport, Size, Throughput,
    TierReport,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Everything that a report can hold.
fn full() -> SelftestReport {
    let text = |s: &str| Some(s.to_owned());
    let tier = TierReport {
        tier: "u64",
        size: Size::Large,
        error: text("refused"),
        compiled: vec![CompileTime {
            name: format!("scan_add/{}", CurveId::Bn254),
            ms: 1.0,
            processor_ms: Some(1.0),
            error: text("a | b\nc"),
        }],
        compile_ms: 1.0,
        cases: vec![CaseReport {
            name: "scan/bn254".into(),
            kernels: vec!["scan_add"],
            passed: false,
            message: text("wrong | sum\nhere"),
            first_ms: 1.0,
            second_ms: Some(1.0),
        }],
        throughput: vec![Throughput {
            name: "ntt/bn254".into(),
            unit: "Melements/s",
            log2: 18,
            per_second: 1e9,
            ms: 1.0,
            device_clock: true,
        }],
        total_ms: 1.0,
    };
    SelftestReport {
        schema: SCHEMA,
        version: "0.0.0".into(),
        host: Host {
            os: "os",
            arch: "arch",
            threads: 2,
        },
        passed: false,
        references_ms: 1.0,
        total_ms: 1.0,
        backends: vec![BackendSurvey {
            backend: Backend::Gl,
            adapters: 0,
            unfit: vec!["old: no compute shaders".into()],
            reason: text("none"),
        }],
        adapters: vec![AdapterReport {
            device: DeviceInfo {
                index: 0,
                name: "card".into(),
                backend: Backend::Vulkan,
                driver: "driver 1.2".into(),
                pci_bus: String::new(),
                device_type: DeviceType::Discrete,
                software: false,
                vendor_id: 1,
                device_id: 2,
                tiers: vec![WordTier::U64],
                max_binding: 1,
                max_buffer: 1,
                max_storage_buffers: 8,
                workgroup_bytes: 1,
                memory: Some(1),
            },
            listed: true,
            denied: vec![Denial {
                tier: Some(WordTier::U64),
                reason: "because",
                link: "https://example.org",
            }],
            not_tested: text("for no reason"),
            details: Some(AdapterDetails {
                features: vec!["FEATURE".into()],
                limits: [("max_buffer_size", 1)].into(),
                subgroup: [32, 32],
            }),
            tiers: vec![tier],
        }],
    }
}

/// The path of every leaf.
fn paths(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let name = if path.ends_with("limits") {
                    "NAME"
                } else {
                    name
                };
                let dot = if path.is_empty() { "" } else { "." };
                paths(value, &format!("{path}{dot}{name}"), out);
            }
        }
        Value::Array(items) => {
            for item in items {
                paths(item, &format!("{path}[]"), out);
            }
        }
        _ => {
            out.insert(path.to_owned());
        }
    }
}

/// What the first column of the table names.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/selftest.md");
    let table = page.split("## The JSON").nth(1).unwrap();
    let table = table.split("## ").next().unwrap();
    let rows = table.lines().filter_map(|l| l.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split("`, `"));
    names.map(|n| n.trim_matches('`').to_owned()).collect()
}

#[test]
fn every_field_is_documented_and_every_documented_field_is_there() {
    let mut there = BTreeSet::new();
    paths(&serde_json::to_value(full()).unwrap(), "", &mut there);
    let documented = documented();
    let undocumented: Vec<_> = there.difference(&documented).collect();
    let missing: Vec<_> = documented.difference(&there).collect();
    assert!(
        undocumented.is_empty() && missing.is_empty(),
        "not in docs/selftest.md: {undocumented:?}; not in the report: {missing:?}"
    );
    assert!(include_str!("../../docs/selftest.md").contains(&format!("`{SCHEMA}`")));
}

#[test]
fn the_page_names_everything_in_whole_rows() {
    let page = full().to_markdown();
    for part in [
        "FAILED",
        "card",
        "driver 1.2",
        "FEATURE",
        "because",
        "scan/bn254",
        "ntt/bn254",
        "not fit: old",
        "for no reason",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // What others wrote breaks no table.
    assert!(
        page.contains(r"wrong \| sum here") && page.contains(r"a \| b c"),
        "{page}"
    );
}
