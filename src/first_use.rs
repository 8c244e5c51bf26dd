//! The probe at a device's first use: before a proof runs a kernel, the kernel has given known
//! answers on this adapter, with this driver, in this version of the program. So a driver that
//! compiles one of them wrongly is noticed before there is a proof to fail its verification.
//!
//! It compiles what the proof needs and no more, takes some milliseconds beside that, and happens
//! once: a file of the cache folder remembers which kernels passed. What is not on file is probed
//! where it is first needed, by [`GpuDevice::ready_for`] or by the proof itself. A tier in which
//! a kernel failed is left for the other one, or the device is refused.

use crate::adapter_file::{self, AdapterKey};
use crate::curve::CurveId;
use crate::device::pipelines::replace_file;
use crate::device::{DeviceInfo, DeviceOptions, GpuDevice, PlanLimits};
use crate::error::{Error, Result};
use crate::kernels::{Kernel, WordTier};
use crate::selftest::{Case, CaseError, known_answers};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Form of the file, and what its name begins with.
const FORMAT: u32 = 1;
const KIND: &str = "first_use";

/// A kernel over a curve.
pub type KernelOver = (Kernel, CurveId);

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// `u64` or `u32`
    pub tier: String,
    pub curve: String,
    /// The case, as the self-test names it.
    pub case: String,
    /// Those of its kernels that had not passed before.
    pub kernels: Vec<String>,
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kernels, message) = (self.kernels.join(" or "), &self.message);
        let (tier, curve, case) = (&self.tier, &self.curve, &self.case);
        write!(
            f,
            "kernel {kernels} over {curve} fails in tier {tier}: {case}: {message}"
        )
    }
}

/// What is known of an adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    format: u32,
    tested_on: AdapterKey,
    passed: Vec<Passed>,
    failed: Vec<Failure>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Passed {
    tier: String,
    curve: String,
    kernels: Vec<String>,
}

impl Record {
    fn new(info: &DeviceInfo) -> Self {
        Self {
            format: FORMAT,
            tested_on: AdapterKey::new(info),
            passed: Vec::new(),
            failed: Vec::new(),
        }
    }

    fn failure(&self, tier: WordTier) -> Option<&Failure> {
        self.failed.iter().find(|f| f.tier == tier.name())
    }

    fn passed(&self, tier: WordTier, curve: CurveId) -> u64 {
        let of_it =
            |p: &&Passed| (p.tier.as_str(), p.curve.as_str()) == (tier.name(), curve.name());
        let names = self.passed.iter().filter(of_it).flat_map(|p| &p.kernels);
        // Names that mean nothing are no kernels of a proof.
        let kernels = names.filter_map(|n| Kernel::ALL.into_iter().find(|k| k.name() == n));
        kernels.fold(0, |set, k| set | bit(k))
    }

    fn set_passed(&mut self, tier: WordTier, curve: CurveId, set: u64) {
        let of_it = |p: &Passed| (p.tier.as_str(), p.curve.as_str()) == (tier.name(), curve.name());
        self.passed.retain(|p| !of_it(p));
        let names = Kernel::ALL.into_iter().filter(|k| set & bit(*k) != 0);
        self.passed.push(Passed {
            tier: tier.name().to_owned(),
            curve: curve.name().to_owned(),
            kernels: names.map(|k| k.name().to_owned()).collect(),
        });
    }
}

const _: () = assert!(Kernel::ALL.len() <= 64);

fn bit(kernel: Kernel) -> u64 {
    1 << kernel as u32
}

/// By adapter and cache folder.
type Records = HashMap<(AdapterKey, Option<PathBuf>), Record>;

/// Records of this process: nothing is probed twice, file or no file.
static KNOWN: LazyLock<Mutex<Records>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn on_file(info: &DeviceInfo, options: &DeviceOptions) -> Record {
    let path = options
        .cache
        .path()
        .map(|f| adapter_file::path(&f, KIND, info));
    let read = path.and_then(|p| adapter_file::read::<Record>(&p, FORMAT));
    let fresh = Record::new(info);
    read.filter(|r| r.tested_on == fresh.tested_on)
        .unwrap_or(fresh)
}

fn recall(info: &DeviceInfo, options: &DeviceOptions) -> Record {
    let key = (AdapterKey::new(info), options.cache.path());
    let mut known = lock(&KNOWN);
    known
        .entry(key)
        .or_insert_with(|| on_file(info, options))
        .clone()
}

/// Changes the record of an adapter, here and on file. What another process wrote meanwhile stays.
fn remember(info: &DeviceInfo, options: &DeviceOptions, change: impl FnOnce(&mut Record)) {
    let folder = options.cache.path();
    let mut known = lock(&KNOWN);
    let mut record = on_file(info, options);
    let key = (AdapterKey::new(info), folder.clone());
    if let Some(own) = known.get(&key).filter(|_| folder.is_none()) {
        record = own.clone();
    }
    change(&mut record);
    if let Some(folder) = folder {
        let path = adapter_file::path(&folder, KIND, info);
        let text = serde_json::to_string_pretty(&record).unwrap_or_default();
        if let Err(error) = replace_file(&path, &[text.as_bytes(), b"\n"]) {
            log::warn!("{}: not written: {error}", path.display());
        }
    }
    known.insert(key, record);
}

/// Whether what happens with these kernels says something about those of this version.
fn genuine(options: &DeviceOptions, kernel: Kernel, curve: CurveId, tier: WordTier) -> bool {
    let used = (options.kernels)(kernel, curve, tier);
    std::ptr::eq(used, kernel.source(curve, tier)) && !options.checked_shaders
}

fn all_genuine(options: &DeviceOptions, tier: WordTier) -> bool {
    let over = |curve| {
        Kernel::ALL
            .into_iter()
            .all(|k| genuine(options, k, curve, tier))
    };
    CurveId::ALL.into_iter().all(over)
}

fn refusal(info: &DeviceInfo, failures: &[Failure]) -> Error {
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    Error::DeviceFault {
        device: info.to_string(),
        message: format!(
            "first-use probe, driver {}: {}; `groth16-gpu selftest` tests it anew",
            info.driver,
            failures.join("; ")
        ),
    }
}

/// The tier to open a device in: `preferred`, unless a kernel is known to fail in it.
///
/// # Errors
/// [`Error::DeviceFault`] if there is no other, or the options force it.
pub(crate) fn choose_tier(
    info: &DeviceInfo,
    options: &DeviceOptions,
    preferred: WordTier,
) -> Result<WordTier> {
    if !options.first_use_probe || !all_genuine(options, preferred) {
        return Ok(preferred);
    }
    let record = recall(info, options);
    let Some(failure) = record.failure(preferred) else {
        return Ok(preferred);
    };
    let other = |tier: &WordTier| record.failure(*tier).is_none();
    let other = info.tiers.iter().copied().find(other);
    match other.filter(|_| options.word_tier.is_none()) {
        Some(tier) => {
            log::warn!(
                "{info}, {}: {failure}; tier {} is used",
                info.driver,
                tier.name()
            );
            Ok(tier)
        }
        None => Err(refusal(info, &record.failed)),
    }
}

/// What a device knows of its kernels.
#[derive(Debug, Default)]
pub(crate) struct FirstUse {
    /// Kernels that passed, over each curve.
    passed: [AtomicU64; 2],
    /// Held while kernels are probed. The first failure stays.
    failed: Mutex<Option<Failure>>,
}

impl FirstUse {
    /// With what is remembered.
    pub fn new(info: &DeviceInfo, options: &DeviceOptions, tier: WordTier) -> Self {
        let new = Self::default();
        if options.first_use_probe && all_genuine(options, tier) {
            let record = recall(info, options);
            for (curve, passed) in CurveId::ALL.into_iter().zip(&new.passed) {
                passed.store(record.passed(tier, curve), Ordering::Relaxed);
            }
        }
        new
    }

    fn of(&self, curve: CurveId) -> &AtomicU64 {
        let at = CurveId::ALL.iter().position(|c| *c == curve);
        &self.passed[at.expect("all are listed")]
    }

    fn has_passed(&self, (kernel, curve): KernelOver) -> bool {
        self.of(curve).load(Ordering::Relaxed) & bit(kernel) != 0
    }
}

/// The known answers over a curve that tell whether kernels work, run in this order. They run no
/// others than the kernels `of_proof` where there is a choice.
fn answers_for(curve: CurveId, of_proof: u64, passed: u64) -> Vec<Case> {
    let set = |case: &Case| case.kernels.iter().fold(0, |set, k| set | bit(*k));
    let all = known_answers(curve);
    let probed = all.iter().fold(0, |probed, case| probed | set(case));
    let mut left = of_proof & probed & !passed;
    let mut chosen = vec![false; all.len()];
    for within in [true, false] {
        for (case, chosen) in all.iter().zip(&mut chosen) {
            let fits = !within || set(case) & !of_proof == 0;
            if fits && set(case) & left != 0 {
                *chosen = true;
                left &= !set(case);
            }
        }
    }
    let chosen = all.into_iter().zip(chosen);
    chosen
        .filter_map(|(case, chosen)| chosen.then_some(case))
        .collect()
}

/// Compares kernels with known answers, whatever is remembered, and remembers nothing. Returns the
/// kernels that passed, and the first failure.
///
/// # Errors
/// Those of [`GpuDevice::run`] that say nothing about kernels, as a lost device.
pub fn probe(
    gpu: &Arc<GpuDevice>,
    kernels: &[KernelOver],
) -> Result<(Vec<KernelOver>, Option<Failure>)> {
    probe_beside(gpu, kernels, &|_| false)
}

fn probe_beside(
    gpu: &Arc<GpuDevice>,
    kernels: &[KernelOver],
    passed_before: &dyn Fn(KernelOver) -> bool,
) -> Result<(Vec<KernelOver>, Option<Failure>)> {
    let mut passed: Vec<KernelOver> = Vec::new();
    for curve in CurveId::ALL {
        let of_curve = kernels.iter().filter(|(_, c)| *c == curve);
        let wanted = of_curve.fold(0, |set, (k, _)| set | bit(*k));
        let before = |k: &Kernel| passed_before((*k, curve));
        let known = Kernel::ALL.into_iter().filter(before);
        let known = known.fold(0, |set, k| set | bit(k));
        let cases = answers_for(curve, wanted, known);
        let failure = |case: &Case, passed: &[KernelOver], message: String| {
            let fine = |k: &Kernel| before(k) || passed.contains(&(*k, curve));
            let suspects: Vec<_> = case.kernels.iter().filter(|k| !fine(k)).collect();
            // All passed before: together they do not.
            let suspects = if suspects.is_empty() {
                case.kernels.iter().collect()
            } else {
                suspects
            };
            Failure {
                tier: gpu.tier().name().to_owned(),
                curve: curve.name().to_owned(),
                case: case.name.to_owned(),
                kernels: suspects.iter().map(|k| k.name().to_owned()).collect(),
                message,
            }
        };
        let checks: Vec<_> = cases
            .par_iter()
            .map(|case| (case.prepare)(crate::selftest::Size::Small))
            .collect();
        for (case, check) in cases.iter().zip(checks) {
            let needed: Vec<KernelOver> = case.kernels.iter().map(|k| (*k, curve)).collect();
            if let Err(refused) = gpu.precompile(&needed, &|_| Ok(())) {
                gpu.check_health()?;
                return Ok((
                    passed.clone(),
                    Some(failure(case, &passed, refused.to_string())),
                ));
            }
            let check = check.map_err(Error::Internal)?;
            match check(gpu) {
                Ok(()) => passed.extend(needed),
                Err(CaseError::Run(e)) => return Err(e),
                Err(CaseError::Wrong(message)) => {
                    return Ok((passed.clone(), Some(failure(case, &passed, message))));
                }
            }
        }
    }
    Ok((passed, None))
}

impl GpuDevice {
    /// Makes sure that kernels compute what they should: those that did not prove it yet on this
    /// adapter and driver run with known answers now. At once where they all did, and where
    /// [`DeviceOptions::first_use_probe`] is off.
    ///
    /// # Errors
    /// [`Error::DeviceFault`] that names kernel, tier and driver if one fails; those of
    /// [`Self::run`].
    pub fn verify_kernels(self: &Arc<Self>, kernels: &[KernelOver]) -> Result<()> {
        let state = &self.first_use;
        let done = |kernels: &[KernelOver]| kernels.iter().all(|k| state.has_passed(*k));
        if !self.options.first_use_probe || done(kernels) {
            return Ok(());
        }
        let mut failed = lock(&state.failed);
        if let Some(failure) = &*failed {
            return Err(refusal(self.info(), std::slice::from_ref(failure)));
        }
        if done(kernels) {
            return Ok(());
        }
        let (passed, failure) = match probe_beside(self, kernels, &|k| state.has_passed(k)) {
            Err(error @ Error::OutOfMemory { .. }) => {
                log::debug!("{}: no first-use probe: {error}", self.info());
                return Ok(());
            }
            result => result?,
        };
        // Kernels that no answer is about count as passed once those of the proof did.
        let all = passed
            .iter()
            .chain(kernels.iter().filter(|_| failure.is_none()));
        for (kernel, curve) in all.clone() {
            state.of(*curve).fetch_or(bit(*kernel), Ordering::Relaxed);
        }
        let (tier, options) = (self.tier(), &self.options);
        let genuine = |(k, c): &KernelOver| genuine(options, *k, *c, tier);
        if kernels.iter().all(genuine) {
            remember(self.info(), options, |record| {
                for (kernel, curve) in all {
                    let set = record.passed(tier, *curve) | bit(*kernel);
                    record.set_passed(tier, *curve, set);
                }
                record.failed.extend(failure.clone());
            });
        }
        match failure {
            None => Ok(()),
            Some(failure) => {
                let error = refusal(self.info(), std::slice::from_ref(&failure));
                *failed = Some(failure);
                Err(error)
            }
        }
    }

    /// Compiles the kernels that `needed` gives, on all cores, and verifies them. If one fails and
    /// the options force no tier, opens the device in the next tier and does the same there, which
    /// a warning says. `progress` is that of [`Self::precompile`], with the number of kernels.
    ///
    /// # Errors
    /// [`Error::DeviceFault`] that says what failed in each tier; those of [`Self::open`],
    /// [`Self::run`], and `progress`.
    pub fn ready_for(
        self: &Arc<Self>,
        needed: &dyn Fn(&PlanLimits) -> Vec<KernelOver>,
        progress: &(dyn Fn(usize, usize) -> Result<()> + Sync),
    ) -> Result<Arc<Self>> {
        let mut gpu = self.clone();
        let mut failures: Vec<Failure> = Vec::new();
        loop {
            let kernels = needed(&gpu.limits().plan());
            let total = kernels.len();
            progress(0, total)?;
            match gpu.precompile(&kernels, &|done| progress(done, total)) {
                // Which kernel it is and what follows from it, the probe finds out.
                Ok(()) | Err(Error::DeviceFault { .. }) => {}
                Err(other) => return Err(other),
            }
            let Err(error) = gpu.verify_kernels(&kernels) else {
                return Ok(gpu);
            };
            let Some(failure) = lock(&gpu.first_use.failed).clone() else {
                return Err(error);
            };
            failures.push(failure);
            let tried = |tier: &WordTier| failures.iter().any(|f| f.tier == tier.name());
            let next = gpu.info().tiers.iter().copied().find(|t| !tried(t));
            let Some(tier) = next.filter(|_| self.options.word_tier.is_none()) else {
                return Err(refusal(gpu.info(), &failures));
            };
            log::warn!("{error}; tier {} is tried", tier.name());
            let options = DeviceOptions {
                word_tier: Some(tier),
                ..self.options.clone()
            };
            gpu = Self::open(self.info(), &options)?;
        }
    }
}

/// Remembers what the self-test found in a tier, in the place of what was known of it: the cases
/// that gave something wrong, or else that every kernel works.
pub(crate) fn remember_selftest(
    info: &DeviceInfo,
    options: &DeviceOptions,
    tier: WordTier,
    wrong: &[(Case, String)],
) {
    if !options.first_use_probe || !all_genuine(options, tier) {
        return;
    }
    remember(info, options, |record| {
        record.failed.retain(|f| f.tier != tier.name());
        let failures = wrong.iter().map(|(case, message)| Failure {
            tier: tier.name().to_owned(),
            curve: case.curve.name().to_owned(),
            case: case.name.to_owned(),
            kernels: case.kernels.iter().map(|k| k.name().to_owned()).collect(),
            message: message.clone(),
        });
        record.failed.extend(failures);
        let all = Kernel::ALL.into_iter().fold(0, |set, k| set | bit(k));
        for curve in CurveId::ALL {
            record.set_passed(tier, curve, if wrong.is_empty() { all } else { 0 });
        }
    });
}

#[cfg(test)]
mod tests;
