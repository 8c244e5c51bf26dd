//! Tests that are expected to fail somewhere, by back end, vendor, driver and adapter, as wgpu's own
//! suite has them. One that passes all the same fails: its entry is out of date.

use super::TestDevice;
use groth16_gpu::device::{Backend, DeviceInfo};
use groth16_gpu::kernels::WordTier;
use libtest_mimic::Failed;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An expected failure: all of what it names must fit.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    pub backend: Option<Backend>,
    pub vendor: Option<u32>,
    /// Parts of the driver's and the adapter's names, in lower case; empty ones fit all.
    pub driver: &'static str,
    pub adapter: &'static str,
    pub tier: Option<WordTier>,
    /// Part of the id behind adapter and tier.
    pub test: &'static str,
    /// What is wrong, with a link.
    pub reason: &'static str,
}

/// No adapter that the suite runs on has any.
pub const EXPECTED_FAILURES: [Expectation; 0] = [];

impl Expectation {
    pub fn fits(&self, info: &DeviceInfo, tier: WordTier, test: &str) -> bool {
        self.backend.is_none_or(|b| b == info.backend)
            && self.vendor.is_none_or(|v| v == info.vendor_id)
            && info.driver.to_lowercase().contains(self.driver)
            && info.name.to_lowercase().contains(self.adapter)
            && self.tier.is_none_or(|t| t == tier)
            && test.contains(self.test)
    }
}

/// Runs a test, and turns its outcome round if it is expected to fail.
pub fn judged(
    expectations: &[Expectation],
    device: &TestDevice,
    name: &str,
    test: impl FnOnce() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (info, tier) = (device.gpu.info(), device.gpu.tier());
    let expected = expectations.iter().find(|e| e.fits(info, tier, name));
    let Some(Expectation { reason, .. }) = expected else {
        return test();
    };
    match catch_unwind(AssertUnwindSafe(test)) {
        Ok(Ok(())) => Err(format!("passes although it should fail: {reason}").into()),
        Ok(Err(failed)) => {
            eprintln!(
                "fails as expected ({reason}): {}",
                failed.message().unwrap_or("")
            );
            Ok(())
        }
        Err(_) => {
            eprintln!("panics as expected: {reason}");
            Ok(())
        }
    }
}

/// The rules themselves.
pub fn rules_hold(device: &TestDevice) -> Result<(), Failed> {
    let info = device.gpu.info();
    let this = Expectation {
        backend: Some(info.backend),
        vendor: Some(info.vendor_id),
        driver: "",
        adapter: "",
        tier: Some(device.gpu.tier()),
        test: "kernels/",
        reason: "for this test",
    };
    let other = Expectation {
        vendor: Some(!info.vendor_id),
        ..this
    };
    let run = |e: Expectation, name: &str, fails: bool| {
        let outcome = judged(&[e], device, name, || match fails {
            true => Err("failed".into()),
            false => Ok(()),
        });
        outcome.is_ok()
    };
    for (expectation, name, fails, passes) in [
        (this, "kernels/scan", true, true),
        (this, "kernels/scan", false, false),
        (this, "primitives/ntt", true, false),
        (this, "primitives/ntt", false, true),
        (other, "kernels/scan", true, false),
        (other, "kernels/scan", false, true),
    ] {
        if run(expectation, name, fails) != passes {
            return Err(format!("{expectation:?}, {name}, fails: {fails}").into());
        }
    }
    let panics = judged(&[this], device, "kernels/scan", || panic!("as expected"));
    panics.map_err(|_| "a panic is no failure".into())
}
