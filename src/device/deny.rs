//! Drivers that are known to compute wrongly, each with its reason and where that is reported in
//! public. What is not here has the first-use probe ([`crate::first_use`]) to pass.
//!
//! A device that is denied is not opened unless the options say so by name
//! ([`super::DeviceOptions::allow_denied`]), and `auto` does not choose it.

use crate::device::selector::{Backend, DeviceInfo};
use crate::error::{Error, Result};
use crate::kernels::WordTier;
use serde::{Serialize, Serializer};

/// An entry: all of what it names must fit.
#[derive(Clone, Copy, Debug)]
struct Entry {
    backend: Option<Backend>,
    vendor_id: Option<u32>,
    /// One of these is in the adapter's name, in any case; any if there is none.
    names: &'static [&'static str],
    /// The same for the driver's name.
    drivers: &'static [&'static str],
    /// The driver's version is from the first of these on and below the second.
    versions: Option<(&'static [u32], &'static [u32])>,
    denial: Denial,
}

/// What is not to be used, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// One tier; all if it is none.
    #[serde(serialize_with = "tier_name", skip_serializing_if = "Option::is_none")]
    pub tier: Option<WordTier>,
    pub reason: &'static str,
    /// Where it is reported.
    pub link: &'static str,
}

fn tier_name<S: Serializer>(tier: &Option<WordTier>, s: S) -> std::result::Result<S::Ok, S::Error> {
    tier.map(WordTier::name).serialize(s)
}

const INTEL: u32 = 0x8086;

const LIST: [Entry; 4] = [
    Entry {
        backend: Some(Backend::Vulkan),
        vendor_id: Some(INTEL),
        names: &[],
        drivers: &["intel corporation"],
        // 0.405.0 to 0.405.286 as Vulkan encodes it.
        versions: Some((&[101, 4096], &[101, 4382])),
        denial: Denial {
            tier: None,
            reason: "compute shaders are broken in Intel's drivers for Windows before 101.4382",
            link: "https://github.com/yuzu-emu/yuzu/pull/10835",
        },
    },
    Entry {
        backend: Some(Backend::Gl),
        vendor_id: None,
        names: &["v3d"],
        drivers: &[],
        versions: None,
        denial: Denial {
            tier: None,
            reason: "compute shaders leave garbage in part of their results",
            link: "https://github.com/gfx-rs/wgpu/issues/1583",
        },
    },
    Entry {
        backend: Some(Backend::Vulkan),
        vendor_id: None,
        names: &["microsoft direct3d12"],
        drivers: &[],
        versions: None,
        denial: Denial {
            tier: None,
            reason: "Mesa's Vulkan over Direct3D 12 (Dozen) is for tests, as it says itself",
            link: "https://github.com/gfx-rs/wgpu/pull/4718",
        },
    },
    Entry {
        backend: Some(Backend::Vulkan),
        vendor_id: Some(INTEL),
        names: &["(hsw", "(ivb", "(byt"],
        drivers: &["mesa"],
        versions: None,
        denial: Denial {
            tier: None,
            reason: "Mesa's Vulkan for this generation is incomplete, as it says itself",
            link: "https://github.com/gfx-rs/wgpu/pull/4718",
        },
    },
];

/// The version in what a driver says of itself: the first word of numbers and dots.
fn version(driver: &str) -> Option<Vec<u32>> {
    let numbers = |word: &str| -> Option<Vec<u32>> {
        let parts: Vec<u32> = word
            .split('.')
            .map(|n| n.parse().ok())
            .collect::<Option<_>>()?;
        (parts.len() > 1).then_some(parts)
    };
    driver.split_whitespace().find_map(numbers)
}

impl Entry {
    fn fits(&self, info: &DeviceInfo) -> bool {
        let one_of = |text: &str, parts: &[&str]| {
            let text = text.to_lowercase();
            parts.is_empty() || parts.iter().any(|p| text.contains(p))
        };
        let in_range = |(from, below): (&[u32], &[u32])| {
            // A driver that does not say its version is not accused of one.
            version(&info.driver).is_some_and(|v| v.as_slice() >= from && v.as_slice() < below)
        };
        self.backend.is_none_or(|b| b == info.backend)
            && self.vendor_id.is_none_or(|v| v == info.vendor_id)
            && one_of(&info.name, self.names)
            && one_of(&info.driver, self.drivers)
            && self.versions.is_none_or(in_range)
    }
}

/// Everything that is denied of a device.
pub fn denials(info: &DeviceInfo) -> Vec<Denial> {
    denials_in(&LIST, info)
}

fn denials_in(list: &[Entry], info: &DeviceInfo) -> Vec<Denial> {
    let fitting = list.iter().filter(|entry| entry.fits(info));
    fitting.map(|entry| entry.denial).collect()
}

/// Whether no tier of a device is left.
pub fn is_denied(info: &DeviceInfo) -> bool {
    let denials = denials(info);
    info.tiers
        .iter()
        .all(|tier| denied_tier(&denials, *tier).is_some())
}

fn denied_tier(denials: &[Denial], tier: WordTier) -> Option<&Denial> {
    denials.iter().find(|d| d.tier.is_none_or(|t| t == tier))
}

/// The tier to use: `preferred` unless it is denied, then another one unless `forced`.
///
/// # Errors
/// [`Error::NoDevice`] with the reason if none is left.
pub(super) fn choose_tier(
    info: &DeviceInfo,
    preferred: WordTier,
    forced: bool,
) -> Result<WordTier> {
    choose_in(&denials(info), info, preferred, forced)
}

fn choose_in(
    denials: &[Denial],
    info: &DeviceInfo,
    preferred: WordTier,
    forced: bool,
) -> Result<WordTier> {
    let Some(denial) = denied_tier(denials, preferred) else {
        return Ok(preferred);
    };
    let (reason, link) = (denial.reason, denial.link);
    let fine = |tier: &WordTier| denied_tier(denials, *tier).is_none();
    let other = info.tiers.iter().copied().find(fine).filter(|_| !forced);
    if let Some(other) = other {
        log::warn!("{info}: tier {} is used: {reason} ({link})", other.name());
        return Ok(other);
    }
    Err(Error::NoDevice(format!(
        "{info}, {}: {reason} ({link}); --allow-denied uses it all the same",
        info.driver
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::file::tests::card;

    fn device(name: &str, driver: &str, vendor_id: u32, backend: Backend) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            driver: driver.into(),
            vendor_id,
            backend,
            ..card()
        }
    }

    #[test]
    fn p53_entries_fit_what_they_name_and_nothing_else() {
        use Backend::{Dx12, Gl, Vulkan};
        let arc = "Intel(R) Arc(TM) A770 Graphics";
        for (name, driver, vendor, backend, denied) in [
            (arc, "Intel Corporation 101.4255", INTEL, Vulkan, true),
            (arc, "Intel Corporation 101.4096", INTEL, Vulkan, true),
            (arc, "Intel Corporation 101.4382", INTEL, Vulkan, false),
            (arc, "Intel Corporation 101.4095", INTEL, Vulkan, false),
            (arc, "Intel Corporation", INTEL, Vulkan, false),
            (arc, "31.0.101.4255", INTEL, Dx12, false),
            (
                arc,
                "Intel open-source Mesa driver Mesa 24.1.0",
                INTEL,
                Vulkan,
                false,
            ),
            ("V3D 4.2", "3.1 Mesa 20.3.5", 0, Gl, true),
            ("V3D 4.2", "V3DV Mesa 24.2.8", 0x14e4, Vulkan, false),
            (
                "Microsoft Direct3D12 (NVIDIA GeForce RTX 3060)",
                "Dozen Mesa 24.0.0",
                0x10de,
                Vulkan,
                true,
            ),
            (
                "NVIDIA GeForce RTX 3060",
                "NVIDIA 560.35.03",
                0x10de,
                Vulkan,
                false,
            ),
            (
                "Intel(R) HD Graphics 4400 (HSW GT2)",
                "Intel open-source Mesa driver Mesa 23.2.1",
                INTEL,
                Vulkan,
                true,
            ),
            (
                "Intel(R) HD Graphics 620 (KBL GT2)",
                "Intel open-source Mesa driver Mesa 23.2.1",
                INTEL,
                Vulkan,
                false,
            ),
            (
                "llvmpipe (LLVM 15.0.6, 256 bits)",
                "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)",
                0x10005,
                Vulkan,
                false,
            ),
        ] {
            let info = device(name, driver, vendor, backend);
            assert_eq!(is_denied(&info), denied, "{name}, {driver}, {backend:?}");
        }
    }

    #[test]
    fn every_entry_says_why_and_where() {
        for entry in &LIST {
            assert!(entry.denial.reason.len() > 10);
            assert!(entry.denial.link.starts_with("https://"));
            let lower = |parts: &[&str]| parts.iter().all(|p| *p == p.to_lowercase());
            assert!(lower(entry.names) && lower(entry.drivers));
        }
    }

    #[test]
    fn a_denied_tier_is_left_for_the_other_one() {
        let (info, reason, link) = (card(), "because", "https://example.org");
        let denial = |tier| Denial { tier, reason, link };
        let choose = |denials: &[Denial], forced| choose_in(denials, &info, WordTier::U64, forced);
        let wide = denial(Some(WordTier::U64));
        assert_eq!(choose(&[], false).unwrap(), WordTier::U64);
        assert_eq!(choose(&[wide], false).unwrap(), WordTier::U32);
        for error in [
            choose(&[wide], true).unwrap_err(),
            choose(&[denial(None)], false).unwrap_err(),
            choose(&[wide, denial(Some(WordTier::U32))], false).unwrap_err(),
        ] {
            assert_eq!((error.class(), error.exit_code()), ("no_device", 3));
            assert!(error.to_string().contains("because (https://example.org)"));
        }
    }
}
