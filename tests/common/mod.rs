//! Shared by the test binaries that run on every adapter found: one test id for each adapter,
//! tier and case, so that a missing adapter shows as ignored and never as passed.

// Each test binary uses its own part of this.
#![allow(dead_code, unused_imports, unused_macros)]

pub mod expectations;

use expectations::{EXPECTED_FAILURES, judged};
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::{Backend, Device, DeviceInfo, DeviceOptions, GpuDevice, Survey};
use groth16_gpu::kernels::{Kernel, WordTier};
use groth16_gpu::selftest::Size;
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::Instant;

/// A software adapter that the suite expects, through Vulkan.
struct Expected {
    /// As test ids have it.
    name: &'static str,
    /// Part of the name under which its driver lists it, in lower case.
    listed: &'static str,
    tiers: &'static [WordTier],
}

const EXPECTED: [Expected; 2] = [
    Expected {
        name: "lavapipe",
        listed: "llvmpipe",
        tiers: &[WordTier::U64, WordTier::U32],
    },
    Expected {
        name: "swiftshader",
        listed: "swiftshader",
        tiers: &[WordTier::U32],
    },
];

/// One adapter in one word tier.
#[derive(Clone)]
pub struct TestDevice {
    /// `adapter/tier`
    pub label: String,
    pub gpu: Arc<GpuDevice>,
    /// What the adapter does in reasonable time.
    pub size: Size,
    prepared: Arc<Once>,
}

impl TestDevice {
    /// Whether it is this adapter of [`EXPECTED`].
    pub fn is(&self, name: &str) -> bool {
        self.label.starts_with(name)
    }

    /// Whether it takes minutes to compile what proofs need, and remembers nothing.
    pub fn is_slow(&self) -> bool {
        self.is("swiftshader")
    }

    /// Compiles what proofs need on all cores, if the adapter is slow: SwiftShader takes up to 20 s
    /// for a kernel of G2.
    pub fn prepare(&self) {
        if !self.is_slow() {
            return;
        }
        self.prepared.call_once(|| {
            let of_proofs = |k: &Kernel| !k.name().contains("_ops_");
            // The slow ones first.
            let mut kernels: Vec<_> = Kernel::ALL.into_iter().filter(of_proofs).collect();
            kernels.sort_by_key(|k| !k.name().ends_with("_g2"));
            let both = |k: &Kernel| CurveId::ALL.map(|curve| (*k, curve));
            let kernels: Vec<_> = kernels.iter().flat_map(both).collect();
            // What is wrong shows in the tests.
            let _ = self.gpu.precompile(&kernels, &|_| Ok(()));
        });
    }
}

pub fn short_name(info: &DeviceInfo) -> String {
    let lower = info.name.to_lowercase();
    let known = EXPECTED
        .iter()
        .find(|e| lower.contains(e.listed) && info.backend == Backend::Vulkan);
    known.map_or_else(
        || {
            let plain = lower.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            format!("{plain}_{}", info.backend.name())
        },
        |e| e.name.to_owned(),
    )
}

/// Hides every driver from a command.
pub fn without_drivers(command: &mut Command) {
    for variable in [
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "__EGL_VENDOR_LIBRARY_FILENAMES",
        "LIBGL_DRIVERS_PATH",
    ] {
        command.env(variable, "/nonexistent");
    }
}

/// Whether what takes software adapters long is to run as well.
pub fn wide() -> bool {
    std::env::var_os("GROTH16_GPU_TEST_WIDE").is_some_and(|v| !v.is_empty())
}

/// How the tests open a device.
pub fn options(tier: WordTier) -> DeviceOptions {
    DeviceOptions {
        word_tier: Some(tier),
        poison: true,
        // The tests are about kernels, broken ones too; the probe has tests of its own.
        first_use_probe: false,
        // What is known to fail is tested like the rest.
        allow_denied: true,
        ..Default::default()
    }
}

/// Every adapter found with its name in test ids.
pub fn adapters() -> Vec<(String, DeviceInfo)> {
    let named = |info| (short_name(&info), info);
    Device::list().into_iter().map(named).collect()
}

/// Every adapter found, in every tier that it can run.
pub fn devices() -> Vec<TestDevice> {
    let mut out = Vec::new();
    for (name, info) in adapters() {
        for &tier in &info.tiers {
            let gpu = GpuDevice::open(&info, &options(tier))
                .unwrap_or_else(|e| panic!("{name} was listed but does not open: {e}"));
            out.push(TestDevice {
                label: format!("{name}/{}", tier.name()),
                gpu,
                // lavapipe is fast enough for the sizes of hardware.
                size: match name.as_str() {
                    "swiftshader" => Size::Small,
                    _ if wide() && !info.software => Size::Huge,
                    _ => Size::Large,
                },
                prepared: Arc::new(Once::new()),
            });
        }
    }
    out
}

/// Mesa's software rasteriser through GL, a compiler's path of its own, if it is there. No list has
/// it where there is a Vulkan driver. One test at a time may use it: wgpu has one context for all
/// threads, and panics if one waits for it for 6 s.
pub fn gl_device() -> Option<TestDevice> {
    let adapters = Survey::new().adapters.into_iter();
    let mut through_gl = adapters.filter(|a| a.backend == Backend::Gl && a.software);
    let info = through_gl.next()?;
    let options = options(WordTier::U32);
    let gpu = GpuDevice::open(&info, &options)
        .unwrap_or_else(|e| panic!("{info} was listed but does not open: {e}"));
    Some(TestDevice {
        label: GL_LABEL.to_owned(),
        gpu,
        size: Size::Small,
        prepared: Arc::new(Once::new()),
    })
}

/// What ids of tests on [`gl_device`] begin with.
pub const GL_LABEL: &str = "llvmpipe_gl/u32";

/// The expected adapters and tiers, as labels, that are not among `devices`.
pub fn missing(devices: &[TestDevice]) -> Vec<String> {
    EXPECTED
        .iter()
        .flat_map(|e| e.tiers.iter().map(|t| format!("{}/{}", e.name, t.name())))
        .filter(|label| !devices.iter().any(|d| d.label == *label))
        .collect()
}

/// The expected adapters that are not listed at all.
pub fn missing_adapters(found: &[DeviceInfo]) -> Vec<&'static str> {
    let found: Vec<String> = found.iter().map(short_name).collect();
    let names = EXPECTED.iter().map(|e| e.name);
    names.filter(|n| !found.iter().any(|f| f == n)).collect()
}

/// An ignored test, in the place of one whose adapter is missing.
pub fn ignored(id: String) -> Trial {
    Trial::test(id, || Ok(())).with_ignored_flag(true)
}

/// A test whose time `RUST_LOG=info` shows.
pub fn trial(id: String, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let label = id.clone();
    Trial::test(id, move || {
        let start = Instant::now();
        let outcome = test();
        log::info!("{label}: {:?}", start.elapsed());
        outcome
    })
}

/// A test on one device, which may be expected to fail there.
pub fn trial_on(
    device: &TestDevice,
    name: &str,
    test: impl FnOnce(&TestDevice) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let (device, name) = (device.clone(), name.to_owned());
    trial(format!("{}/{name}", device.label), move || {
        judged(&EXPECTED_FAILURES, &device, &name, || test(&device))
    })
}

/// The trials of one test: one a device, and an ignored one for each that is missing.
pub fn on_each(
    devices: &[TestDevice],
    name: &str,
    test: impl Fn(&TestDevice) -> Result<(), Failed> + Clone + Send + 'static,
) -> Vec<Trial> {
    let here = devices
        .iter()
        .map(|device| trial_on(device, name, test.clone()));
    let gone = missing(devices).into_iter();
    here.chain(gone.map(|label| ignored(format!("{label}/{name}"))))
        .collect()
}

/// A kernel's text whose entry point does nothing, which is what an invalid pipeline is to some
/// drivers.
pub fn doing_nothing(wgsl: &str) -> String {
    let main = wgsl.find("fn main(").expect("an entry point");
    // Entry points end with their files.
    let body = main + wgsl[main..].find('{').expect("its body");
    format!("{}{{}}\n", &wgsl[..body])
}

/// Runs trials as the command line says.
pub fn run(trials: Vec<Trial>) -> ! {
    let _ = env_logger::try_init();
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}

/// Fails with a message unless a condition holds.
macro_rules! ensure {
    ($cond:expr, $($message:tt)+) => {
        if !$cond {
            return Err(format!($($message)+).into());
        }
    };
}
pub(crate) use ensure;
