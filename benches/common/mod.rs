//! Shared by the benches of primitives: what to measure, on what.

// Each bench uses its own part of this.
#![allow(dead_code)]

#[path = "../../src/cli/inputs.rs"]
pub mod inputs;

use criterion::Criterion;
use groth16_gpu::device::{Device, DeviceOptions, GpuDevice};
use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Duration;

/// Sizes as powers of two: those of `BENCH_LOG2`, as `12` or `10..18`; else `default`. Of these the
/// first alone where each bench runs once, as under `cargo test --benches`.
pub fn sizes(default: &[u32]) -> Vec<u32> {
    let widened = std::env::var("BENCH_LOG2").ok().map(|text| {
        let number = |n: &str| {
            let n = n.trim().parse::<u32>().ok();
            n.filter(|n| (1..=26).contains(n))
                .unwrap_or_else(|| panic!("BENCH_LOG2={text}: 12, or 10..18"))
        };
        match text.split_once("..") {
            Some((a, b)) => (number(a)..=number(b)).collect(),
            None => vec![number(&text)],
        }
    });
    let mut sizes = widened.unwrap_or_else(|| default.to_vec());
    let measures = std::env::args().any(|arg| arg == "--bench");
    if !measures || std::env::args().any(|arg| arg == "--test") {
        sizes.truncate(1);
    }
    sizes
}

/// Few samples: a sum on a software adapter takes tenths of a second.
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args()
}

/// A device that is opened when a bench that is not filtered out needs it.
pub type LazyDevice = LazyCell<Arc<GpuDevice>, Box<dyn FnOnce() -> Arc<GpuDevice>>>;

/// Every software adapter in every tier that it has, as `llvmpipe/u64`. Cards are for
/// `groth16-gpu bench`, which knows their clocks.
pub fn software_devices() -> Vec<(String, LazyDevice)> {
    let mut devices = Vec::new();
    for info in Device::list().into_iter().filter(|d| d.software) {
        for &tier in &info.tiers {
            let name = info.name.split([' ', '(']).next().unwrap_or("software");
            let label = format!("{}/{}", name.to_lowercase(), tier.name());
            let info = info.clone();
            let options = DeviceOptions {
                word_tier: Some(tier),
                ..DeviceOptions::default()
            };
            let open = move || GpuDevice::open(&info, &options).expect("it was listed");
            let open: Box<dyn FnOnce() -> Arc<GpuDevice>> = Box::new(open);
            devices.push((label, LazyCell::new(open)));
        }
    }
    devices
}
