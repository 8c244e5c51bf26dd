//! The prover: sums from a backend, blinding and the last few additions on the host,
//! self-verification, report ([Groth 2016](https://eprint.iacr.org/2016/260), §3.2).

use crate::control::{CancelToken, Control, Priority, Progress};
use crate::cpu;
use crate::curve::{G1, G2, GpuCurve};
use crate::device::{Device, GpuDevice, RunOptions, RunReport};
use crate::error::{Error, InputClass, InputError, Result};
use crate::key_layout::KeyLayout;
use crate::proof::{CurveProof, Proof, ProofSums};
use crate::proof_plan::MemoryBudget;
use crate::proving_key::{ProvingKey, g1_from_raw, g2_from_raw};
use crate::report::{MemoryUse, Phase, PhaseClock, ProofReport, peak_host_bytes};
use crate::trace::Trace;
use crate::verify::verify;
use crate::verifying_key::VerifyingKey;
use crate::with_curve;
use crate::witness::Witness;
use ark_ec::CurveGroup;
use ark_ff::UniformRand;
use rand::rngs::OsRng;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use zeroize::{Zeroize, Zeroizing};

/// How to prove.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProveOptions {
    /// Verify the proof before it is returned; on by default.
    pub self_verify: bool,
    /// Stops the call from another thread.
    pub cancel: Option<CancelToken>,
    /// Told about every step.
    pub progress: Option<Progress>,
    /// What to do when the device fails.
    pub fallback: Fallback,
    /// Where to record what the proof does when.
    pub trace: Option<Trace>,
    /// Who goes first where calls wait for each other: for memory, and for the device.
    pub priority: Priority,
    /// When the call is to give up, with [`Error::Timeout`].
    pub deadline: Option<Instant>,
}

/// What to do when a device fails or has too little memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Return the error.
    #[default]
    Never,
    /// Prove on the CPU; the report says so, and why.
    Cpu,
}

impl Default for ProveOptions {
    fn default() -> Self {
        Self {
            self_verify: true,
            cancel: None,
            progress: None,
            fallback: Fallback::Never,
            trace: None,
            priority: Priority::Normal,
            deadline: None,
        }
    }
}

impl fmt::Debug for ProveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProveOptions")
            .field("self_verify", &self.self_verify)
            .field("control", &self.control())
            .finish()
    }
}

impl ProveOptions {
    fn control(&self) -> Control {
        Control {
            cancel: self.cancel.clone(),
            progress: self.progress.clone(),
            priority: self.priority,
            deadline: self.deadline,
        }
    }
}

/// Proves on one device. May be shared between threads.
#[derive(Debug)]
pub struct Prover {
    device: Device,
    /// Keys on the device, the most recently used last.
    resident: Mutex<Vec<ResidentKey>>,
    budget: MemoryBudget,
}

/// A key on the device. Holds the host's key, so that its address identifies it.
#[derive(Debug)]
struct ResidentKey {
    host: ProvingKey,
    layout: Arc<KeyLayout>,
}

impl ResidentKey {
    /// Whether `key` is the key, or a clone of the key, that was uploaded.
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

/// Sums, and who computed them.
struct BackendSums<C: GpuCurve> {
    sums: ProofSums<C>,
    backend: &'static str,
    device: String,
    fallback: Option<String>,
    device_ms: Option<f64>,
    memory: Option<MemoryUse>,
    /// Whether the CPU path would be an independent second computation.
    by_device: bool,
}

/// The blinding scalars r and s, wiped when dropped.
type Blinding<C> = Zeroizing<[<C as GpuCurve>::Fr; 2]>;

impl Prover {
    pub fn new(device: Device) -> Self {
        Self {
            device,
            resident: Mutex::default(),
            budget: MemoryBudget::default(),
        }
    }

    /// The device that this prover computes on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Puts a key on the device now rather than at its first proof, and hands it back.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if it does not fit, and device faults.
    pub fn load_key(&self, key: ProvingKey) -> Result<ProvingKey> {
        if let Device::Gpu(gpu) = &self.device {
            with_curve!(key.curve, C => {
                let layout = self.key_layout::<C>(gpu, &key)?;
                self.budget.preload::<C>(&layout, gpu, &RunOptions::default())
            })?;
        }
        Ok(key)
    }

    /// The key cut into parts for the device; remembered, the most recently used last.
    fn key_layout<C: GpuCurve>(&self, gpu: &GpuDevice, key: &ProvingKey) -> Result<Arc<KeyLayout>> {
        let mut resident = self.resident.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = resident.iter().position(|k| k.is(key)) {
            let found = resident.remove(at);
            let layout = found.layout.clone();
            resident.push(found);
            return Ok(layout);
        }
        let limits = gpu.limits().plan();
        let layout = KeyLayout::new::<C>(key, &limits, &gpu.info().to_string())?;
        let layout = Arc::new(layout);
        if resident.len() >= MAX_LAYOUTS {
            let oldest = resident.remove(0);
            gpu.evict(oldest.layout.id());
        }
        resident.push(ResidentKey {
            host: key.clone(),
            layout: layout.clone(),
        });
        Ok(layout)
    }

    /// Proves that `witness` satisfies the circuit of `key`.
    ///
    /// r and s are uniform, from the operating system's generator.
    ///
    /// # Errors
    /// * input errors: `curve_mismatch` and `count_mismatch` where key and witness do not belong
    ///   together, `bad_scalar`, `bad_coefficient` and `invalid_point` for values out of range;
    /// * [`Error::Unsatisfied`] if the proof does not verify because of the witness;
    /// * [`Error::SelfVerification`] if it does not verify because the device computed wrongly;
    /// * [`Error::Cancelled`], and [`Error::Timeout`] after the deadline;
    /// * `missing_section` if `options.self_verify` and the key has no verifying part.
    pub fn prove(
        &self,
        key: &ProvingKey,
        witness: &Witness,
        options: &ProveOptions,
    ) -> Result<(Proof, ProofReport)> {
        with_curve!(key.curve, C => self.prove_over::<C>(key, witness, options, random_blinding::<C>()))
    }

    /// For tests: proves with r and s given as canonical little-endian numbers, reduced mod r.
    /// Such a proof is not zero-knowledge.
    #[doc(hidden)]
    pub fn prove_with_blinding(
        &self,
        key: &ProvingKey,
        witness: &Witness,
        options: &ProveOptions,
        r: &[u8; 32],
        s: &[u8; 32],
    ) -> Result<(Proof, ProofReport)> {
        use ark_ff::PrimeField;
        with_curve!(key.curve, C => {
            let blinding = [r, s].map(|x| <C as GpuCurve>::Fr::from_le_bytes_mod_order(x));
            self.prove_over::<C>(key, witness, options, Zeroizing::new(blinding))
        })
    }

    fn prove_over<C: GpuCurve>(
        &self,
        key: &ProvingKey,
        witness: &Witness,
        options: &ProveOptions,
        blinding: Blinding<C>,
    ) -> Result<(Proof, ProofReport)> {
        let mut clock = PhaseClock::traced(options.trace.clone());
        let control = options.control();
        key.check_witness(witness)?;
        let vk = options
            .self_verify
            .then(|| key.verifying_key())
            .transpose()?;
        let public_inputs = public_inputs(key, witness)?;
        clock.end_phase("check", cpu::BACKEND, 0);

        let computed = self.sums::<C>(key, witness, options, &control, &mut clock)?;
        let finish = |sums: &ProofSums<C>| -> Result<Proof> {
            let points = finish_proof::<C>(key, sums, &blinding)?;
            Ok(Proof::new(&points, public_inputs.clone()))
        };
        let proof = finish(&computed.sums)?;
        clock.end_phase("finish", cpu::BACKEND, 0);

        if let Some(vk) = &vk {
            control.step("self-verification", 0.95)?;
            if !holds(vk, &proof)? {
                // A correct second computation tells a bad witness from a bad device.
                let device_is_wrong = computed.by_device && {
                    let sums = cpu::proof_sums::<C>(key, witness, &control, &mut clock)?;
                    holds(vk, &finish(&sums)?)?
                };
                return Err(if device_is_wrong {
                    Error::SelfVerification {
                        device: computed.device,
                    }
                } else {
                    unsatisfied(key)
                });
            }
            clock.end_phase("self_verify", cpu::BACKEND, 0);
        }
        control.step("done", 1.0)?;

        let (wall_ms, phases) = clock.finish();
        let gpu = self.device.gpu().filter(|_| computed.by_device);
        let report = ProofReport {
            curve: C::ID.name().into(),
            n_vars: key.n_vars as u64,
            n_public: key.n_public as u64,
            domain_size: key.domain_size as u64,
            backend: computed.backend.into(),
            driver: gpu.map(|g| g.info().driver.clone()),
            tier: gpu.map(|g| g.tier().name().into()),
            device: computed.device,
            fallback: computed.fallback,
            device_ms: computed.device_ms,
            memory: computed.memory,
            peak_arena_bytes: gpu.map(|g| g.memory().peak_in_use),
            wall_ms,
            phases,
            peak_host_bytes: peak_host_bytes(),
            self_verified: vk.is_some(),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        Ok((proof, report))
    }

    fn sums<C: GpuCurve>(
        &self,
        key: &ProvingKey,
        witness: &Witness,
        options: &ProveOptions,
        control: &Control,
        clock: &mut PhaseClock,
    ) -> Result<BackendSums<C>> {
        let mut reason = None;
        if let Device::Gpu(gpu) = &self.device {
            match self.device_sums::<C>(gpu, key, witness, control, clock) {
                Ok(sums) => return Ok(sums),
                Err(
                    e @ (Error::OutOfMemory { .. }
                    | Error::DeviceFault { .. }
                    | Error::Timeout { .. }),
                ) if options.fallback == Fallback::Cpu && control.check().is_ok() => {
                    log::warn!("{e}; proving on the CPU instead");
                    clock.end_phase("failed_device", WGPU, 0);
                    reason = Some(e.to_string());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(BackendSums {
            sums: cpu::proof_sums::<C>(key, witness, control, clock)?,
            backend: cpu::BACKEND,
            device: "cpu".into(),
            fallback: reason,
            device_ms: None,
            memory: None,
            by_device: false,
        })
    }

    fn device_sums<C: GpuCurve>(
        &self,
        gpu: &GpuDevice,
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
        let layout = self.key_layout::<C>(gpu, key)?;
        clock.end_phase("load_key", WGPU, 0);
        control.step("device", 0.1)?;
        let (sums, output, variant) =
            layout.proof_sums::<C>(gpu, &self.budget, witness, &options)?;
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
                resident_bytes: layout
                    .kept(variant.level)
                    .parts
                    .iter()
                    .map(|p| p.size)
                    .sum(),
                reserved_bytes: output.report.reserved_bytes,
                uploaded_bytes: output.report.uploaded_bytes,
            }),
            by_device: true,
        })
    }
}

/// Keys whose parts are remembered; with more, the one not used for longest is forgotten.
const MAX_LAYOUTS: usize = 16;
/// Name of the wgpu executor in reports.
const WGPU: &str = "wgpu";

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
                old.device_ms = old.device_ms.zip(new.device_ms).map(|(a, b)| a + b);
            }
            None => parts.push(new),
        }
    }
    let device_ms = parts[waits..].iter().map(|p| p.device_ms).sum();
    clock.end_phases(parts, "host_tail", WGPU);
    device_ms
}

/// r and s, uniform. Rejection sampling over the operating system's bytes: no bias (p12).
fn random_blinding<C: GpuCurve>() -> Blinding<C> {
    Zeroizing::new([C::Fr::rand(&mut OsRng), C::Fr::rand(&mut OsRng)])
}

fn public_inputs(key: &ProvingKey, witness: &Witness) -> Result<Vec<[u8; 32]>> {
    let (values, _) = witness.values.as_chunks::<32>();
    match values.get(1..=key.n_public) {
        Some(values) => Ok(values.to_vec()),
        None => Err(InputError::new(
            InputClass::CountMismatch,
            format!(
                "{} public inputs, but only {} wires",
                key.n_public,
                values.len()
            ),
        )
        .into()),
    }
}

/// Whether a proof that this prover made verifies. Points of it that are not on the curve are no
/// input error but a wrong result, as long as the verifying key is sound.
fn holds(vk: &VerifyingKey, proof: &Proof) -> Result<bool> {
    match verify(vk, proof) {
        Err(e) if e.class() == InputClass::InvalidPoint.name() => vk.check().map(|()| false),
        result => result,
    }
}

/// The key's matrices do not include C, so that an unsatisfied constraint cannot be named.
fn unsatisfied(key: &ProvingKey) -> Error {
    let key = match &key.source {
        Some(path) => format!("the key {}", path.display()),
        None => "the key".into(),
    };
    Error::Unsatisfied(format!(
        "the finished proof does not verify, and was discarded. Most likely the witness is wrong, \
         or was made for another version of the circuit than {key}"
    ))
}

/// A = α + Σa + r·δ, B = β + Σb + s·δ, C = Σl + Σh + s·A + r·B₁ − r·s·δ.
fn finish_proof<C: GpuCurve>(
    key: &ProvingKey,
    sums: &ProofSums<C>,
    blinding: &Blinding<C>,
) -> Result<CurveProof<C>> {
    let g1 = |bytes: &[u8], what| -> Result<G1<C>> {
        let right_size = bytes.len() == C::ID.g1_bytes();
        let point = right_size.then(|| g1_from_raw::<C>(bytes)).flatten();
        Ok(point.ok_or_else(|| invalid_point(key, what))?.into())
    };
    let g2 = |bytes: &[u8], what| -> Result<G2<C>> {
        let right_size = bytes.len() == C::ID.g2_bytes();
        let point = right_size.then(|| g2_from_raw::<C>(bytes)).flatten();
        Ok(point.ok_or_else(|| invalid_point(key, what))?.into())
    };
    let [r, s] = **blinding;
    let delta_g1 = g1(&key.delta_g1, "delta (G1)")?;
    let a = g1(&key.alpha_g1, "alpha (G1)")? + sums.a + delta_g1 * r;
    let b_g1 = g1(&key.beta_g1, "beta (G1)")? + sums.b_g1 + delta_g1 * s;
    let b = g2(&key.beta_g2, "beta (G2)")? + sums.b_g2 + g2(&key.delta_g2, "delta (G2)")? * s;
    let mut rs = r * s;
    let c = sums.l + sums.h + a * s + b_g1 * r - delta_g1 * rs;
    rs.zeroize();
    Ok(CurveProof {
        a: a.into_affine(),
        b: b.into_affine(),
        c: c.into_affine(),
    })
}

fn invalid_point(key: &ProvingKey, what: &str) -> Error {
    let mut e = InputError::new(
        InputClass::InvalidPoint,
        format!("{what} of the key is no point of {}", key.curve),
    );
    e.file.clone_from(&key.source);
    e.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Bn254;
    use ark_ff::{BigInteger, PrimeField};

    /// p12: the top byte of the blinding scalars covers its range.
    #[test]
    fn p12_blinding_covers_its_range() {
        let top = ark_bn254::Fr::MODULUS.to_bytes_le()[31];
        let mut seen = [0usize; 256];
        for _ in 0..1000 {
            for x in *random_blinding::<Bn254>() {
                seen[x.into_bigint().to_bytes_le()[31] as usize] += 1;
            }
        }
        let values = seen.iter().filter(|n| **n > 0).count();
        assert_eq!(values, usize::from(top) + 1);
        assert!(
            seen[..usize::from(top)]
                .iter()
                .all(|n| (10..100).contains(n))
        );
    }
}
