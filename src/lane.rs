//! The devices of a prover, a lane each: the keys on it, the work that is on its way to it, and the
//! sums that it computes.

use crate::control::Control;
use crate::cpu;
use crate::curve::GpuCurve;
use crate::device::{Device, GpuDevice, PlanLimits, RunOptions, RunReport};
use crate::error::{Error, Result};
use crate::host::{JobPlace, job_bytes};
use crate::key_layout::KeyLayout;
use crate::proof::ProofSums;
use crate::proof_plan::MemoryBudget;
use crate::proving_key::ProvingKey;
use crate::report::{MemoryUse, Phase, PhaseClock};
use crate::with_curve;
use crate::witness::Witness;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes a second at which keys go to a device, roughly: PCIe 3 or 4 with 16 lanes.
const UPLOAD_RATE: f64 = 10e9;
/// Field multiplications a second of one thread of the CPU path (39 ns each in BLS12-381's Fq).
const CPU_THREAD_RATE: f64 = 2.5e7;
/// Name of the wgpu executor in reports.
pub(crate) const WGPU: &str = "wgpu";

/// Sums, and who computed them.
pub(crate) struct BackendSums<C: GpuCurve> {
    pub sums: ProofSums<C>,
    pub backend: &'static str,
    pub device: String,
    pub fallback: Option<String>,
    pub device_ms: Option<f64>,
    pub memory: Option<MemoryUse>,
    /// Whether the CPU path would be an independent second computation.
    pub by_device: bool,
}

/// The work of a proof in field multiplications, which is what devices count in
/// ([`GpuDevice::work_per_second`]). A dense scalar has some 16 digits, each an addition of 10
/// multiplications, 30 in G2: 160 a wire for each of a, b_g1 and l, 480 for b_g2, and 160 an
/// element of the domain for h. Each of the six or seven transforms takes half a multiplication an
/// element and stage; a matrix entry takes one.
pub fn proof_work(key: &ProvingKey) -> u64 {
    let stages = u64::from(key.domain_size.max(1).ilog2());
    let entries = (key.a.n_entries() + key.b.n_entries()) as u64;
    (3 * 160 + 480) * key.n_vars as u64 + (160 + 3 * stages) * key.domain_size as u64 + entries
}

/// Bytes of a key that go to a device.
pub(crate) fn upload_bytes(key: &ProvingKey) -> u64 {
    let rows = key.a.bytes() + key.b.bytes();
    let queries = [
        &key.a_query,
        &key.b_g1_query,
        &key.b_g2_query,
        &key.l_query,
        &key.h_query,
    ];
    rows + queries.iter().map(|q| q.len() as u64).sum::<u64>()
}

/// Keys whose parts a lane remembers; with more, the one not used for longest is forgotten.
const MAX_KEYS: usize = 16;

/// A key in parts for a device. Holds the host's key, so that its address identifies it.
#[derive(Debug)]
struct KnownKey {
    host: ProvingKey,
    layout: Arc<KeyLayout>,
}

impl KnownKey {
    /// Whether `key` is this key, or a clone of it.
    fn is(&self, key: &ProvingKey) -> bool {
        let same = |a: &[u8], b: &[u8]| std::ptr::eq(a.as_ptr(), b.as_ptr()) && a.len() == b.len();
        Arc::ptr_eq(&self.host.a, &key.a)
            && Arc::ptr_eq(&self.host.b, &key.b)
            && (self.host.reduction, self.host.roots) == (key.reduction, key.roots)
            && [
                (&self.host.a_query, &key.a_query),
                (&self.host.b_g1_query, &key.b_g1_query),
                (&self.host.b_g2_query, &key.b_g2_query),
                (&self.host.l_query, &key.l_query),
                (&self.host.h_query, &key.h_query),
            ]
            .iter()
            .all(|(a, b)| same(a, b))
    }
}

/// One device of a prover.
#[derive(Debug)]
pub(crate) struct Lane {
    device: Device,
    /// Keys that were used here, the most recently used last. Locked for moments only.
    known: Mutex<Vec<KnownKey>>,
    /// Held while a key is cut, so that it is cut once.
    cutting: Mutex<()>,
    budget: MemoryBudget,
    /// Work of the proofs that were given to this lane and have not ended.
    pending: AtomicU64,
}

impl Lane {
    fn new(device: Device, single_proof: bool) -> Self {
        Self {
            device,
            known: Mutex::default(),
            cutting: Mutex::default(),
            budget: MemoryBudget::new(single_proof),
            pending: AtomicU64::new(0),
        }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    fn known(&self) -> MutexGuard<'_, Vec<KnownKey>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_known(&self, key: &ProvingKey) -> bool {
        self.known().iter().any(|k| k.is(key))
    }

    /// Whether parts of the key are on the device.
    fn is_resident(&self, key: &ProvingKey) -> bool {
        let known = self.known();
        let found = known.iter().find(|k| k.is(key));
        found.is_some_and(|k| self.has(k))
    }

    fn has(&self, key: &KnownKey) -> bool {
        let gpu = self.device.gpu();
        gpu.is_some_and(|gpu| gpu.has_kept(key.layout.id()))
    }

    /// Host memory that a proof takes here.
    fn job_bytes(&self, key: &ProvingKey, witness: Option<&Witness>) -> u64 {
        let place = match self.device {
            Device::Cpu => JobPlace::Cpu,
            Device::Gpu(_) => JobPlace::Device {
                load_key: !self.is_known(key),
            },
        };
        job_bytes(key, place, witness)
    }

    fn is_lost(&self) -> bool {
        self.device.gpu().is_some_and(|g| g.check_health().is_err())
    }

    /// Seconds until a proof would be finished that is given to this lane now.
    fn estimate(&self, key: &ProvingKey) -> f64 {
        let work = self.pending.load(Ordering::Relaxed) as f64 + proof_work(key) as f64;
        match &self.device {
            Device::Cpu => work / (CPU_THREAD_RATE * rayon::current_num_threads() as f64),
            Device::Gpu(gpu) => {
                let bytes = match self.is_resident(key) {
                    true => 0,
                    false => upload_bytes(key),
                };
                work / gpu.work_per_second().max(1.0) + bytes as f64 / UPLOAD_RATE
            }
        }
    }

    /// Puts a key on the device, if it is not there.
    fn preload(&self, key: &ProvingKey) -> Result<()> {
        if let Device::Gpu(gpu) = &self.device {
            with_curve!(key.curve, C => {
                let layout = self.layout::<C>(gpu, key)?;
                self.budget.preload::<C>(&layout, gpu, &RunOptions::default())
            })?;
        }
        Ok(())
    }

    /// Forgets a key; its memory is free once the last proof that uses it has ended.
    fn evict(&self, key: &ProvingKey) -> bool {
        let known = self.known().extract_if(.., |k| k.is(key)).next();
        known.is_some_and(|k| self.forget(&k))
    }

    /// The device has shown that it may be wrong: what it holds of the key is not used again. The next
    /// proof brings the key anew.
    pub fn distrust(&self, key: &ProvingKey) {
        let known = self.known();
        if let (Some(gpu), Some(k)) = (self.device.gpu(), known.iter().find(|k| k.is(key))) {
            gpu.evict(k.layout.id());
        }
    }

    fn forget(&self, key: &KnownKey) -> bool {
        self.budget.forget(&key.layout);
        let gpu = self.device.gpu();
        gpu.is_some_and(|gpu| gpu.evict(key.layout.id()))
    }

    /// The key in parts for the device.
    fn layout<C: GpuCurve>(&self, gpu: &GpuDevice, key: &ProvingKey) -> Result<Arc<KeyLayout>> {
        let find = || {
            let mut known = self.known();
            let at = known.iter().position(|k| k.is(key))?;
            let found = known.remove(at);
            let layout = found.layout.clone();
            known.push(found);
            Some(layout)
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        let _cutting = self.cutting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = find() {
            return Ok(found);
        }
        let limits = gpu.limits().plan();
        let layout = Arc::new(KeyLayout::new::<C>(key, &limits, &gpu.info().to_string())?);
        let mut known = self.known();
        known.push(KnownKey {
            host: key.clone(),
            layout: layout.clone(),
        });
        let oldest = (known.len() > MAX_KEYS).then(|| known.remove(0));
        drop(known);
        oldest.iter().for_each(|k| _ = self.forget(k));
        Ok(layout)
    }

    /// Takes a key that was cut for a device with such limits, if this one is such.
    fn adopt(&self, key: &ProvingKey, limits: &PlanLimits, layout: &Arc<KeyLayout>) {
        let gpu = self.device.gpu();
        if gpu.is_some_and(|gpu| gpu.limits().plan() == *limits) && !self.is_known(key) {
            self.known().push(KnownKey {
                host: key.clone(),
                layout: layout.clone(),
            });
        }
    }

    /// The sums of a proof on this lane's device.
    pub fn sums<C: GpuCurve>(
        &self,
        key: &ProvingKey,
        witness: &Witness,
        control: &Control,
        clock: &mut PhaseClock,
    ) -> Result<BackendSums<C>> {
        match &self.device {
            Device::Cpu => cpu_sums(key, witness, control, clock, None),
            Device::Gpu(gpu) => self.device_sums(gpu, key, witness, control, clock),
        }
    }

    fn device_sums<C: GpuCurve>(
        &self,
        gpu: &Arc<GpuDevice>,
        key: &ProvingKey,
        witness: &Witness,
        control: &Control,
        clock: &mut PhaseClock,
    ) -> Result<BackendSums<C>> {
        let progress = control.progress.clone();
        let options = RunOptions {
            progress: progress.map(|p| -> crate::device::Progress {
                Arc::new(move |done| p("device", 0.1 + 0.8 * done as f32))
            }),
            cancel: control.cancel.clone(),
            priority: control.priority,
            deadline: control.deadline,
            trace: clock.trace().cloned(),
        };
        control.step("key", 0.0)?;
        let layout = self.layout::<C>(gpu, key)?;
        clock.end_phase("load_key", WGPU, 0);
        control.step("device", 0.1)?;
        let sums = layout.proof_sums::<C>(gpu, &self.budget, witness, &options);
        if matches!(sums, Err(Error::DeviceFault { .. })) {
            self.distrust(key);
        }
        let (sums, output, variant) = sums?;
        let device_ms = record_phases(&output.report, clock);
        Ok(BackendSums {
            sums,
            backend: WGPU,
            device: gpu.info().name.clone(),
            fallback: None,
            device_ms,
            memory: Some(MemoryUse {
                plan: variant.name(),
                max_buffer_bytes: variant.max_buffer,
                resident_bytes: layout.kept(&variant).bytes(),
                reserved_bytes: output.report.reserved_bytes,
                uploaded_bytes: output.report.uploaded_bytes,
            }),
            by_device: true,
        })
    }
}

/// The sums of a proof on the CPU; `fallback` says why, if a device was to compute them.
pub(crate) fn cpu_sums<C: GpuCurve>(
    key: &ProvingKey,
    witness: &Witness,
    control: &Control,
    clock: &mut PhaseClock,
    fallback: Option<String>,
) -> Result<BackendSums<C>> {
    Ok(BackendSums {
        sums: cpu::proof_sums::<C>(key, witness, control, clock)?,
        backend: cpu::BACKEND,
        device: "cpu".into(),
        fallback,
        device_ms: None,
        memory: None,
        by_device: false,
    })
}

/// Adds the device's phases to the clock, those of one name as one; returns the time on the
/// device's own clock.
fn record_phases(report: &RunReport, clock: &mut PhaseClock) -> Option<f64> {
    let phase = |name: &str, wall_ms, device_ms| Phase {
        name: name.replace(' ', "_"),
        backend: WGPU.into(),
        wall_ms,
        device_ms,
        bytes: 0,
    };
    let mut parts = vec![
        phase("compile", report.compile_ms, None),
        phase("reserve_wait", report.reserve_ms, None),
        phase("key_to_device", report.fill_ms, None),
        phase("staging", report.staging_ms, None),
        phase("turn_wait", report.turn_wait_ms, None),
    ];
    let waits = parts.len();
    for p in &report.phases {
        let new = phase(p.name, p.wall_ms, p.device_ms);
        match parts[waits..].iter_mut().find(|old| old.name == new.name) {
            Some(old) => {
                old.wall_ms += new.wall_ms;
                old.device_ms = match (old.device_ms, new.device_ms) {
                    (Some(a), Some(b)) => Some(a + b),
                    (a, b) => a.or(b),
                };
            }
            None => parts.push(new),
        }
    }
    // Phases of copies alone have no time of their own on the device's clock.
    let times = parts[waits..].iter().filter_map(|p| p.device_ms);
    let device_ms = times.fold(None, |sum, ms| Some(sum.unwrap_or(0.0) + ms));
    clock.end_phases(parts, "host_tail", WGPU);
    device_ms
}

/// All lanes of a prover; there is at least one.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// Held while a lane is chosen, so that two proofs do not both take the one that is free.
    choosing: Mutex<()>,
}

impl Lanes {
    /// A lane for each device; the CPU's if there is none. For one proof in all, if `single_proof`.
    pub fn new(devices: Vec<Device>, single_proof: bool) -> Self {
        let lane = |device| Lane::new(device, single_proof);
        let mut lanes: Vec<Lane> = devices.into_iter().map(lane).collect();
        if lanes.is_empty() {
            lanes.push(lane(Device::Cpu));
        }
        Self {
            lanes,
            choosing: Mutex::default(),
        }
    }

    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.lanes.iter().map(|lane| &lane.device)
    }

    /// Those whose device works; all if none does, so that its error reaches the caller.
    fn usable(&self) -> Vec<&Lane> {
        let works: Vec<&Lane> = self.lanes.iter().filter(|l| !l.is_lost()).collect();
        match works.is_empty() {
            true => self.lanes.iter().collect(),
            false => works,
        }
    }

    /// Gives a proof to the lane that is expected to finish it first.
    pub fn assign(&self, key: &ProvingKey) -> Assigned<'_> {
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let first = |a: &&Lane, b: &&Lane| a.estimate(key).total_cmp(&b.estimate(key));
        let lane = self.usable().into_iter().min_by(first);
        let lane = lane.expect("there is at least one lane");
        let work = proof_work(key);
        lane.pending.fetch_add(work, Ordering::Relaxed);
        Assigned { lane, work }
    }

    /// Host memory that a proof takes, on whichever lane.
    pub fn job_bytes(&self, key: &ProvingKey, witness: Option<&Witness>) -> u64 {
        let bytes = |lane: &Lane| lane.job_bytes(key, witness);
        self.usable().into_iter().map(bytes).max().unwrap_or(0)
    }

    /// As [`Lane::adopt`], on each that it fits.
    pub fn adopt(&self, key: &ProvingKey, limits: &PlanLimits, layout: &Arc<KeyLayout>) {
        self.lanes.iter().for_each(|l| l.adopt(key, limits, layout));
    }

    pub fn preload(&self, key: &ProvingKey) -> Result<()> {
        self.usable().into_iter().try_for_each(|l| l.preload(key))
    }

    /// Forgets a key everywhere; returns whether it was on a device.
    pub fn evict(&self, key: &ProvingKey) -> bool {
        let evicted = self.lanes.iter().map(|lane| lane.evict(key));
        evicted.fold(false, |any, this| any | this)
    }

    /// Every key on every device, the most recently used last.
    pub fn resident_keys(&self) -> Vec<(Device, ProvingKey)> {
        let of_lane = |lane: &Lane| -> Vec<_> {
            let known = lane.known();
            let there = known.iter().filter(|k| lane.has(k));
            there
                .map(|k| (lane.device.clone(), k.host.clone()))
                .collect()
        };
        self.lanes.iter().flat_map(of_lane).collect()
    }
}

/// A proof's claim on a lane, until it ends.
#[derive(Debug)]
pub(crate) struct Assigned<'a> {
    pub lane: &'a Lane,
    work: u64,
}

impl Drop for Assigned<'_> {
    fn drop(&mut self) {
        self.lane.pending.fetch_sub(self.work, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Bn254;
    use crate::setup::setup_insecure;
    use crate::synthetic::circuit;

    #[test]
    fn the_lane_with_the_least_to_do_gets_the_next_proof() {
        let keys = [20, 100].map(|n| setup_insecure(&circuit::<Bn254>(n, 0.5, 1).0).unwrap());
        let lanes = Lanes::new(vec![Device::Cpu, Device::Cpu], false);
        let index = |a: &Assigned| lanes.lanes.iter().position(|l| std::ptr::eq(l, a.lane));
        let large = lanes.assign(&keys[1]);
        let small = [(); 3].map(|()| lanes.assign(&keys[0]));
        assert_eq!(index(&large), Some(0));
        assert!(small.iter().all(|a| index(a) == Some(1)));
        drop(large);
        assert_eq!(index(&lanes.assign(&keys[1])), Some(0));
        drop(small);
        let pending = |lane: &Lane| lane.pending.load(Ordering::Relaxed);
        assert!(lanes.lanes.iter().all(|lane| pending(lane) == 0));
    }

    #[test]
    fn no_device_is_the_cpu() {
        let lanes = Lanes::new(Vec::new(), false);
        assert!(matches!(lanes.devices().next(), Some(Device::Cpu)));
    }
}
