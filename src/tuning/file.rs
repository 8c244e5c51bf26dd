//! What was measured, in a file of the cache folder: one for each adapter and driver.
//!
//! The file says what was measured and not what follows from it, so that there is one place that
//! decides. It is read as what anybody may have written: it is small, a plain file, for this
//! adapter, driver, version and these kernels, and its numbers are times, or it counts as missing.

use super::{Measurement, MsmTuning, Tuning, choose, group_name};
use crate::adapter_file::{self, AdapterKey, path};
use crate::curve::CurveId;
use crate::device::DeviceInfo;
use crate::device::pipelines::replace_file;
use crate::kernels::WordTier;
use crate::msm::Group;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Form of the file.
const FORMAT: u32 = 1;
/// What its name begins with.
const KIND: &str = "tuning";
/// No measurement comes near.
const MAX_SHIFT: i32 = 4;

/// What was measured on one adapter with one driver by this version of the program. Equal cards
/// share a record.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningRecord {
    key: AdapterKey,
    pub measurements: Vec<Measurement>,
}

impl TuningRecord {
    /// A record without measurements.
    pub fn new(info: &DeviceInfo) -> Self {
        Self {
            key: AdapterKey::new(info),
            measurements: Vec::new(),
        }
    }

    /// Whether it was measured on such an adapter, with its driver, by this version.
    pub fn is_for(&self, info: &DeviceInfo) -> bool {
        self.key == AdapterKey::new(info)
    }

    /// Whether sums over a curve were measured in a tier.
    pub fn has(&self, curve: CurveId, tier: WordTier) -> bool {
        let of_it = |m: &Measurement| (m.curve, m.tier) == (curve, tier);
        self.measurements.iter().any(of_it)
    }

    /// Puts measurements in the place of those that there are of the same curves and tiers.
    pub fn replace(&mut self, new: &[Measurement]) {
        let of = |m: &Measurement| (m.curve, m.tier);
        self.measurements
            .retain(|old| new.iter().all(|new| of(new) != of(old)));
        self.measurements.extend_from_slice(new);
    }

    /// What follows from it on its adapter.
    pub fn tuning(&self, info: &DeviceInfo) -> Tuning {
        let defaults = MsmTuning::default_for(info);
        choose(&self.measurements, &info.tiers, defaults)
    }

    /// Writes it to `folder`, which is made if need be, for its owner alone to read; what was there
    /// is replaced at once or not at all. Returns the file's path.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, folder: &Path, info: &DeviceInfo) -> std::io::Result<PathBuf> {
        let path = path(folder, KIND, info);
        let content = Content {
            format: FORMAT,
            measured_on: self.key.clone(),
            measurements: self.measurements.iter().map(Line::from).collect(),
        };
        let text = serde_json::to_string_pretty(&content)?;
        replace_file(&path, &[text.as_bytes(), b"\n"])?;
        Ok(path)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    measured_on: AdapterKey,
    measurements: Vec<Line>,
}

/// A [`Measurement`] as the file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    curve: String,
    tier: String,
    group: String,
    log2: u32,
    pairs: bool,
    window_shift: i32,
    window_bits: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<&Measurement> for Line {
    fn from(m: &Measurement) -> Self {
        Self {
            curve: m.curve.name().to_owned(),
            tier: m.tier.name().to_owned(),
            group: group_name(m.group).to_owned(),
            log2: m.log2,
            pairs: m.pairs,
            window_shift: m.window_shift,
            window_bits: m.window_bits,
            ms: m.outcome.as_ref().ok().copied(),
            error: m.outcome.as_ref().err().cloned(),
        }
    }
}

impl Line {
    /// `None` if it says what no measurement would.
    fn parse(self) -> Option<Measurement> {
        let named = |name: &str, names: &[(&str, usize)]| {
            names.iter().find(|(n, _)| *n == name).map(|(_, i)| *i)
        };
        let curves = CurveId::ALL.map(|c| c.name());
        let tiers = [WordTier::U64, WordTier::U32];
        let groups = [Group::G1, Group::G2];
        let indexed = |names: [&'static str; 2]| [(names[0], 0), (names[1], 1)];
        let outcome = match (self.ms, self.error) {
            (Some(ms), None) if ms.is_finite() && ms > 0.0 => Ok(ms),
            (None, Some(error)) => Err(error),
            _ => return None,
        };
        (self.window_shift.abs() <= MAX_SHIFT).then_some(())?;
        Some(Measurement {
            curve: CurveId::ALL[named(&self.curve, &indexed(curves))?],
            tier: tiers[named(&self.tier, &indexed(tiers.map(WordTier::name)))?],
            group: groups[named(&self.group, &indexed(groups.map(group_name)))?],
            log2: self.log2,
            pairs: self.pairs,
            window_shift: self.window_shift,
            window_bits: self.window_bits,
            outcome,
        })
    }
}

/// The record of an adapter, if `folder` has one that is for this driver and version.
pub fn load(folder: &Path, info: &DeviceInfo) -> Option<TuningRecord> {
    let path = path(folder, KIND, info);
    let ignored = |why: &str| log::warn!("{}: {why}; ignored", path.display());
    let content: Content = adapter_file::read(&path, FORMAT)?;
    let measurements: Option<Vec<_>> = content.measurements.into_iter().map(Line::parse).collect();
    let Some(measurements) = measurements else {
        ignored("damaged: no such measurement");
        return None;
    };
    let record = TuningRecord {
        key: content.measured_on,
        measurements,
    };
    if !record.is_for(info) {
        log::debug!("{}: of another version", path.display());
        return None;
    }
    Some(record)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::adapter_file::MAX_BYTES;
    use crate::device::{Backend, DeviceOptions, DeviceType};
    use crate::kernels::KERNELS_DIGEST;
    use crate::tuning::{MsmTuning, TuningSource, resolve};
    use std::fs;

    pub(crate) fn card() -> DeviceInfo {
        DeviceInfo {
            index: 0,
            name: "card".into(),
            backend: Backend::Vulkan,
            driver: "driver 1.2".into(),
            pci_bus: "0000:01:00.0".into(),
            device_type: DeviceType::Discrete,
            software: false,
            vendor_id: 0x10de,
            device_id: 0x2330,
            tiers: vec![WordTier::U64, WordTier::U32],
            max_binding: 1 << 30,
            max_buffer: 1 << 30,
            max_storage_buffers: 8,
            workgroup_bytes: 16384,
            memory: None,
        }
    }

    /// On this card the 32-bit tier is faster, and so are pairs over G1 in it.
    fn record(info: &DeviceInfo) -> TuningRecord {
        let mut record = TuningRecord::new(info);
        for (tier, factor) in [(WordTier::U64, 2.0), (WordTier::U32, 1.0)] {
            for group in [Group::G1, Group::G2] {
                for pairs in [false, true] {
                    let slower = if pairs == (group == Group::G1) {
                        1.0
                    } else {
                        1.5
                    };
                    record.measurements.push(Measurement {
                        curve: CurveId::Bls12_381,
                        tier,
                        group,
                        log2: 16,
                        pairs,
                        window_shift: 0,
                        window_bits: 13,
                        outcome: Ok(factor * slower),
                    });
                }
            }
        }
        record.measurements[1].outcome = Err("wrong sum".into());
        record
    }

    #[test]
    fn what_is_written_is_read_and_used() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let info = card();
        assert_eq!(load(&folder, &info), None);
        let record = record(&info);
        let file = record.save(&folder, &info).unwrap();
        assert_eq!(load(&folder, &info), Some(record.clone()));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{mode:o}");
        }
        // The only file there: nothing is left of writing it.
        record.save(&folder, &info).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);

        let options = DeviceOptions {
            cache: crate::device::CacheFolder::At(folder.clone()),
            ..DeviceOptions::default()
        };
        let (tier, msm) = resolve(&info, &options);
        assert_eq!(tier, WordTier::U32);
        assert!(msm.bls12_381.pairs_g1 && !msm.bls12_381.pairs_g2);
        let defaults = MsmTuning::default_for(&info);
        assert_eq!(msm.bn254, defaults, "BN254 was not measured");
        // What is asked for by name goes before it.
        let forced = DeviceOptions {
            word_tier: Some(WordTier::U64),
            ..options.clone()
        };
        assert_eq!(resolve(&info, &forced).0, WordTier::U64);
        let defaults = DeviceOptions {
            tuning: TuningSource::Defaults,
            ..options.clone()
        };
        assert_eq!(resolve(&info, &defaults).0, WordTier::U64);
        let empty = TuningRecord::new(&info);
        let given = DeviceOptions {
            tuning: TuningSource::Records(vec![empty]),
            ..options
        };
        assert_eq!(resolve(&info, &given).0, WordTier::U64);
    }

    #[test]
    fn other_drivers_versions_and_kernels_have_records_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, info) = (folder.path(), card());
        let file = record(&info).save(folder, &info).unwrap();
        let other = |change: &dyn Fn(&mut DeviceInfo)| {
            let mut other = card();
            change(&mut other);
            load(folder, &other)
        };
        assert_eq!(other(&|d| d.driver = "driver 1.3".into()), None);
        assert_eq!(other(&|d| d.name = "another card".into()), None);
        assert_eq!(other(&|d| d.backend = Backend::Dx12), None);
        assert_eq!(other(&|d| d.device_id = 1), None);
        assert_eq!(other(&|d| d.tiers = vec![WordTier::U32]), None);
        // An equal card in another slot is the same to it.
        assert!(other(&|d| d.pci_bus = "0000:41:00.0".into()).is_some());

        let text = fs::read_to_string(&file).unwrap();
        let version = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
        for (from, to) in [
            (version.as_str(), "\"version\": \"0.0.1\""),
            (KERNELS_DIGEST, "0123456789abcdef"),
            ("\"format\": 1", "\"format\": 2"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            fs::write(&file, changed).unwrap();
            assert_eq!(load(folder, &info), None, "{from}");
        }
        // A later form may have any content.
        fs::write(&file, r#"{"format": 9, "else": []}"#).unwrap();
        assert_eq!(load(folder, &info), None);
        fs::write(&file, text).unwrap();
        assert!(load(folder, &info).is_some());
    }

    #[test]
    fn damaged_files_count_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, info) = (folder.path(), card());
        let file = record(&info).save(folder, &info).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let large = " ".repeat(MAX_BYTES as usize) + &text;
        for (from, to) in [
            ("\"ms\": 2.0", "\"ms\": -2.0"),
            ("\"ms\": 2.0", "\"ms\": 1e999"),
            ("\"ms\": 2.0", "\"ms\": null"),
            ("\"ms\": 2.0", "\"ms\": 2.0, \"error\": \"both\""),
            ("\"ms\": 2.0", "\"ms\": 2.0, \"other\": 1"),
            ("\"window_shift\": 0", "\"window_shift\": 1000000000"),
            ("\"tier\": \"u64\"", "\"tier\": \"u128\""),
            ("\"group\": \"g1\"", "\"group\": \"gt\""),
            ("\"curve\": \"bls12_381\"", "\"curve\": \"pasta\""),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            fs::write(&file, changed).unwrap();
            assert_eq!(load(folder, &info), None, "{to}");
        }
        for content in [b"".as_slice(), b"{", b"[]", b"\xff\xfe", large.as_bytes()] {
            fs::write(&file, content).unwrap();
            assert_eq!(load(folder, &info), None);
        }
        for end in (0..text.trim_end().len()).step_by(97) {
            fs::write(&file, &text[..end]).unwrap();
            assert_eq!(load(folder, &info), None, "cut at {end}");
        }
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(load(folder, &info), None);
    }

    #[test]
    fn measurements_of_one_curve_leave_the_other() {
        let info = card();
        let mut all = record(&info);
        let mut new = all.measurements.clone();
        new.iter_mut().for_each(|m| m.curve = CurveId::Bn254);
        all.replace(&new);
        all.replace(&new);
        assert_eq!(all.measurements.len(), 16);
        assert!(CurveId::ALL.iter().all(|c| all.has(*c, WordTier::U32)));
        all.replace(&new[..1]);
        assert!(all.has(CurveId::Bn254, WordTier::U64));
        assert_eq!(all.measurements.len(), 13);
    }
}
