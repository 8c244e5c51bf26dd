//! Shared by the test binaries that run on every adapter found: one test id for each adapter,
//! tier and case, so that a missing adapter shows as ignored and never as passed.
#![allow(dead_code)]

use groth16_gpu::device::{Device, DeviceInfo, DeviceOptions, GpuDevice};
use groth16_gpu::kernels::WordTier;
use libtest_mimic::{Arguments, Failed, Trial};
use std::sync::Arc;

/// Software adapters that the suite expects; `tests/run` installs them.
const EXPECTED: [(&str, &str); 2] = [("lavapipe", "llvmpipe"), ("swiftshader", "swiftshader")];

/// One adapter in one word tier.
#[derive(Clone)]
pub struct TestDevice {
    /// `adapter/tier`
    pub label: String,
    pub gpu: Arc<GpuDevice>,
    /// An adapter so slow that tests take their smallest sizes.
    pub slow: bool,
}

/// The name of an adapter in test ids.
pub fn short_name(info: &DeviceInfo) -> String {
    let lower = info.name.to_lowercase();
    EXPECTED
        .iter()
        .find(|(_, part)| lower.contains(part))
        .map_or_else(
            || {
                lower
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                    .collect()
            },
            |(short, _)| (*short).to_string(),
        )
}

/// Every adapter found, in every tier that it can run.
pub fn devices() -> Vec<TestDevice> {
    let mut out = Vec::new();
    for info in Device::list() {
        let name = short_name(&info);
        for tier in [WordTier::U64, WordTier::U32] {
            if !info.tiers.contains(&tier) {
                continue;
            }
            let options = DeviceOptions {
                word_tier: Some(tier),
                poison: true,
                ..Default::default()
            };
            let gpu = GpuDevice::open(&info, &options)
                .unwrap_or_else(|e| panic!("{name} was listed but does not open: {e}"));
            out.push(TestDevice {
                label: format!("{name}/{}", tier.name()),
                gpu,
                slow: name == "swiftshader",
            });
        }
    }
    out
}

/// A case: its name, and what it does on a device.
pub type Case = (String, fn(&TestDevice) -> Result<(), Failed>);

/// Expected software adapters that are not among these.
pub fn missing<'a>(
    found: impl Iterator<Item = &'a DeviceInfo>,
) -> impl Iterator<Item = &'static str> {
    let found: Vec<String> = found.map(short_name).collect();
    let names = EXPECTED.into_iter().map(|(short, _)| short);
    names.filter(move |short| !found.iter().any(|f| f == short))
}

/// Runs every case on every device; expected adapters that are missing give ignored tests.
pub fn run(cases: Vec<Case>) -> ! {
    let _ = env_logger::builder().is_test(true).try_init();
    let arguments = Arguments::from_args();
    let devices = devices();
    let mut trials = Vec::new();
    for device in &devices {
        for (name, case) in &cases {
            let (device, case) = (device.clone(), *case);
            trials.push(Trial::test(format!("{}/{name}", device.label), move || {
                case(&device)
            }));
        }
    }
    for short in missing(devices.iter().map(|d| d.gpu.info())) {
        for (name, _) in &cases {
            let name = format!("{short}/missing/{name}");
            trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
        }
    }
    libtest_mimic::run(&arguments, trials).exit()
}

/// Fails with a message.
#[macro_export]
macro_rules! ensure {
    ($cond:expr, $($message:tt)+) => {
        if !$cond {
            return Err(format!($($message)+).into());
        }
    };
}
