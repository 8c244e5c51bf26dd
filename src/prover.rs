//! The prover: sums from a backend, blinding and the last few additions on the host,
//! self-verification, report ([Groth 2016](https://eprint.iacr.org/2016/260), §3.2).

use crate::control::{CancelToken, Control, Priority, Progress};
use crate::cpu;
use crate::curve::{G1, G2, GpuCurve};
use crate::device::{Device, PlanLimits};
use crate::error::{Error, InputClass, InputError, Result};
use crate::host::{HostBudget, HostReport, HostReservation, JobPlace, job_bytes};
use crate::key_layout::KeyLayout;
use crate::lane::{BackendSums, Lane, Lanes, WGPU, cpu_sums};
use crate::proof::{CurveProof, Proof, ProofSums};
use crate::proving_key::{ProvingKey, g1_from_raw, g2_from_raw};
use crate::report::{PhaseClock, ProofReport, peak_host_bytes};
use crate::trace::Trace;
use crate::verify::verify;
use crate::verifying_key::VerifyingKey;
use crate::with_curve;
use crate::witness::Witness;
use ark_ec::CurveGroup;
use ark_ff::UniformRand;
use rand::rngs::OsRng;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use zeroize::Zeroizing;

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
    /// A clock that runs already: the report begins with its phases, as those of reading the key.
    pub since: Option<PhaseClock>,
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
            since: None,
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
    fn clock(&self) -> PhaseClock {
        let new = || PhaseClock::traced(self.trace.clone());
        self.since.clone().unwrap_or_else(new)
    }

    pub(crate) fn control(&self) -> Control {
        Control {
            cancel: self.cancel.clone(),
            progress: self.progress.clone(),
            priority: self.priority,
            deadline: self.deadline,
        }
    }
}

/// How a prover is made.
#[derive(Clone, Debug, Default)]
pub struct ProverOptions {
    /// Host memory that its proofs may take together, in bytes; otherwise there is no limit.
    pub host_limit: Option<u64>,
    /// It is for a single proof: device memory that first has to come from the driver counts in the
    /// choice of how much of it the proof takes.
    pub single_proof: bool,
}

/// Proves on one device or several. May be shared between threads.
#[derive(Debug)]
pub struct Prover {
    lanes: Lanes,
    host: Arc<HostBudget>,
}

/// The blinding scalars r and s, wiped when dropped.
type Blinding<C> = Zeroizing<[<C as GpuCurve>::Fr; 2]>;

impl Prover {
    pub fn new(device: Device) -> Self {
        Self::with_options(vec![device], ProverOptions::default())
    }

    /// A prover on several devices; on the CPU if there is none. Each proof goes to the device that
    /// is expected to finish it first. One that is lost gets no new proofs as long as others work.
    pub fn with_options(devices: Vec<Device>, options: ProverOptions) -> Self {
        Self {
            lanes: Lanes::new(devices, options.single_proof),
            host: HostBudget::new(options.host_limit),
        }
    }

    /// The device that this prover computes on; the first of several.
    pub fn device(&self) -> &Device {
        self.devices().next().expect("there is at least one lane")
    }

    /// The devices that this prover computes on.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.lanes.devices()
    }

    /// Use of the budget of host memory.
    pub fn host_memory(&self) -> HostReport {
        self.host.report()
    }

    /// Host memory that [`Self::prove`] reserves for a proof; without a witness, for one that is
    /// not mapped from a file. See [`crate::host::job_bytes`].
    pub fn job_bytes(&self, key: &ProvingKey, witness: Option<&Witness>) -> u64 {
        self.lanes.job_bytes(key, witness)
    }

    /// Puts a key on the devices now rather than at its first proof, and hands it back.
    ///
    /// # Errors
    /// As [`Self::preload`].
    pub fn load_key(&self, key: ProvingKey) -> Result<ProvingKey> {
        self.preload(&key)?;
        Ok(key)
    }

    /// Puts a key on the devices now rather than at its first proof.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if it does not fit, and device faults.
    pub fn preload(&self, key: &ProvingKey) -> Result<()> {
        self.lanes.preload(key)
    }

    /// Takes a key in parts ([`KeyLayout::cut`]) for the devices with these limits, so that they do
    /// not cut it themselves: who opens a device and reads a key at the same time can cut the key
    /// before the device is there.
    pub fn adopt(&self, key: &ProvingKey, limits: &PlanLimits, layout: &Arc<KeyLayout>) {
        self.lanes.adopt(key, limits, layout);
    }

    /// Removes a key from the devices; returns whether it was on one. Its memory is free once the
    /// last proof that uses it has ended. A later proof puts it there again.
    pub fn evict(&self, key: &ProvingKey) -> bool {
        self.lanes.evict(key)
    }

    /// The keys on the devices, those of a device in the order of their last use.
    pub fn resident_keys(&self) -> Vec<(Device, ProvingKey)> {
        self.lanes.resident_keys()
    }

    /// Proves that `witness` satisfies the circuit of `key`.
    ///
    /// r and s are uniform, from the operating system's generator. Host memory for the call is
    /// reserved first; if others hold it, the call waits.
    ///
    /// # Errors
    /// * input errors: `curve_mismatch` and `count_mismatch` where key and witness do not belong
    ///   together, `bad_scalar`, `bad_coefficient` and `invalid_point` for values out of range;
    /// * [`Error::Unsatisfied`] if the proof does not verify because of the witness;
    /// * [`Error::SelfVerification`] if it does not verify because the device computed wrongly;
    /// * [`Error::Cancelled`], and [`Error::Timeout`] after the deadline;
    /// * [`Error::OutOfMemory`] for more host memory than the limit or device memory than there is;
    /// * `missing_section` if `options.self_verify` and the key has no verifying part.
    pub fn prove(
        &self,
        key: &ProvingKey,
        witness: &Witness,
        options: &ProveOptions,
    ) -> Result<(Proof, ProofReport)> {
        let mut clock = options.clock();
        let mut host = self.reserve_host(key, Some(witness), &options.control())?;
        clock.end_phase("host_wait", cpu::BACKEND, 0);
        self.prove_reserved(key, witness, options, &mut host, clock)
    }

    /// Reserves the host memory of a proof.
    pub(crate) fn reserve_host(
        &self,
        key: &ProvingKey,
        witness: Option<&Witness>,
        control: &Control,
    ) -> Result<HostReservation> {
        let bytes = self.job_bytes(key, witness);
        self.host
            .reserve(bytes, control.priority, &|| control.check())
    }

    /// As [`Self::prove`], with host memory that is reserved already.
    pub(crate) fn prove_reserved(
        &self,
        key: &ProvingKey,
        witness: &Witness,
        options: &ProveOptions,
        host: &mut HostReservation,
        clock: PhaseClock,
    ) -> Result<(Proof, ProofReport)> {
        with_curve!(key.curve, C => {
            let blinding = random_blinding::<C>();
            self.prove_over::<C>(key, witness, options, blinding, host, clock)
        })
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
            let mut host = self.reserve_host(key, Some(witness), &options.control())?;
            let (blinding, clock) = (Zeroizing::new(blinding), options.clock());
            self.prove_over::<C>(key, witness, options, blinding, &mut host, clock)
        })
    }

    fn prove_over<C: GpuCurve>(
        &self,
        key: &ProvingKey,
        witness: &Witness,
        options: &ProveOptions,
        blinding: Blinding<C>,
        host: &mut HostReservation,
        mut clock: PhaseClock,
    ) -> Result<(Proof, ProofReport)> {
        let control = options.control();
        key.check_witness(witness)?;
        let vk = options
            .self_verify
            .then(|| key.verifying_key())
            .transpose()?;
        let public_inputs = public_inputs(key, witness)?;
        clock.end_phase("check", cpu::BACKEND, 0);

        let assigned = self.lanes.assign(key);
        let lane = assigned.lane;
        let computed = sums::<C>(lane, key, witness, options, host, &mut clock)?;
        drop(assigned);
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
                    reserve_for_cpu(host, key, witness, &control)?;
                    let sums = cpu::proof_sums::<C>(key, witness, &control, &mut clock)?;
                    holds(vk, &finish(&sums)?)?
                };
                if device_is_wrong {
                    lane.distrust(key);
                }
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
        let gpu = lane.device().gpu().filter(|_| computed.by_device);
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
            startup: None,
            peak_host_bytes: peak_host_bytes(),
            peak_host_budget_bytes: self.host_memory().peak,
            self_verified: vk.is_some(),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        Ok((proof, report))
    }
}

/// The sums of a proof on a lane, or on the CPU if its device fails and the options allow that.
fn sums<C: GpuCurve>(
    lane: &Lane,
    key: &ProvingKey,
    witness: &Witness,
    options: &ProveOptions,
    host: &mut HostReservation,
    clock: &mut PhaseClock,
) -> Result<BackendSums<C>> {
    let control = options.control();
    match lane.sums::<C>(key, witness, &control, clock) {
        Err(
            e @ (Error::OutOfMemory { .. } | Error::DeviceFault { .. } | Error::Timeout { .. }),
        ) if options.fallback == Fallback::Cpu
            && lane.device().gpu().is_some()
            && control.check().is_ok() =>
        {
            log::warn!("{e}; proving on the CPU instead");
            clock.end_phase("failed_device", WGPU, 0);
            reserve_for_cpu(host, key, witness, &control)?;
            clock.end_phase("host_wait", cpu::BACKEND, 0);
            cpu_sums::<C>(key, witness, &control, clock, Some(e.to_string()))
        }
        result => result,
    }
}

/// Exchanges what a proof on a device reserved for what the CPU path takes.
fn reserve_for_cpu(
    host: &mut HostReservation,
    key: &ProvingKey,
    witness: &Witness,
    control: &Control,
) -> Result<()> {
    let bytes = job_bytes(key, JobPlace::Cpu, Some(witness));
    host.replace(bytes, control.priority, &|| control.check())
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
         or was made for another version of the circuit than {key}; --check-key subgroup tells \
         whether it is the key that is wrong"
    ))
}

/// A = A₀ + r·δ and B = B₀ + s·δ with A₀ = α + Σa, B₀ = β + Σb;
/// C = Σl + Σh + s·A + r·B₁ − r·s·δ = Σl + Σh + s·A₀ + r·B₀ + r·s·δ, in which all products are
/// independent of each other.
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
    let rs = Zeroizing::new(r * s);
    let delta = g1(&key.delta_g1, "delta (G1)")?;
    let a0 = g1(&key.alpha_g1, "alpha (G1)")? + sums.a;
    let b0 = g1(&key.beta_g1, "beta (G1)")? + sums.b_g1;
    let delta_g2 = g2(&key.delta_g2, "delta (G2)")?;
    let b = g2(&key.beta_g2, "beta (G2)")? + sums.b_g2;
    let (b, ((a, a0_s), (b0_r, delta_rs))) = rayon::join(
        || (b + delta_g2 * s).into_affine(),
        || {
            rayon::join(
                || rayon::join(|| (a0 + delta * r).into_affine(), || a0 * s),
                || rayon::join(|| b0 * r, || delta * *rs),
            )
        },
    );
    let c = sums.l + sums.h + a0_s + b0_r + delta_rs;
    Ok(CurveProof {
        a,
        b,
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
