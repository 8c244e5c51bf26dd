//! Multiples of a generator by many scalars, at rest, on the CPU or on a device.

use crate::bytes::Bytes;
use crate::cpu::fixed_base::FixedBase;
use crate::cpu::msm::limbs_of;
use crate::curve::CurveId;
use crate::device::recording::{DownloadId, Recording};
use crate::device::{Device, GpuDevice, ResidentBuffer, RunOptions};
use crate::error::{Error, Result};
use crate::msm::{FixedBaseWindows, Group, record_fixed_base_table, record_multiples};
use crate::prover::Fallback;
use ark_ec::CurveGroup;
use ark_ec::models::short_weierstrass::{Affine, Projective, SWCurveConfig};
use rayon::prelude::*;
use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use zeroize::Zeroizing;

/// Largest buffer of a chunk: enough multiples to fill a large device, and few enough that copying
/// the results of one chunk goes on beside the next.
const MAX_BUFFER: u64 = 1 << 30;
/// Multiples of a chunk that are still worth a run.
const MIN_CHUNK: u64 = 64;
/// Chunks that are on their way at a time, at most: most of a chunk's time is that of the host, which
/// gets memory for its results and fills it.
const MAX_WORKERS: usize = 8;

/// A point's form at rest.
pub(super) struct Form<P: SWCurveConfig> {
    pub curve: CurveId,
    pub group: Group,
    pub push: fn(&Affine<P>, &mut Vec<u8>),
}

impl<P: SWCurveConfig> Form<P> {
    fn size(&self) -> usize {
        self.group.affine_bytes(self.curve) as usize
    }
}

/// The multiples of a generator.
pub(super) struct Multiples<P: SWCurveConfig> {
    base: Projective<P>,
    form: Form<P>,
    /// About how many there will be.
    expected: usize,
    device: Option<DeviceTable>,
    cpu: OnceCell<FixedBase<P>>,
    fallback: Fallback,
}

impl<P: SWCurveConfig> Multiples<P> {
    /// For about `expected` multiples in all.
    ///
    /// # Errors
    /// Those of the device, unless the CPU may take over.
    pub fn new(
        base: Projective<P>,
        form: Form<P>,
        expected: usize,
        (device, fallback): (&Device, Fallback),
    ) -> Result<Self> {
        let mut multiples = Self {
            base,
            form,
            expected,
            device: None,
            cpu: OnceCell::new(),
            fallback,
        };
        if let Device::Gpu(gpu) = device {
            let table = DeviceTable::new(gpu, base, &multiples.form, expected);
            multiples.device = multiples.or_cpu(table)?;
        }
        Ok(multiples)
    }

    /// What a device gave, or `None` if it failed and the CPU takes over.
    fn or_cpu<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(
                e @ (Error::OutOfMemory { .. } | Error::DeviceFault { .. } | Error::Timeout { .. }),
            ) if self.fallback == Fallback::Cpu => {
                log::warn!("{e}; computing the key on the CPU instead");
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Whether the CPU computes, or has taken over.
    pub fn on_cpu(&self) -> bool {
        self.device.is_none()
    }

    /// One multiple, on the CPU.
    pub fn one(&self, scalar: &P::ScalarField) -> Bytes {
        one(self.base, scalar, self.form.push).into()
    }

    /// scalar·base for every scalar.
    ///
    /// # Errors
    /// Those of the device, unless the CPU may take over.
    pub fn of(&mut self, scalars: &[P::ScalarField]) -> Result<Bytes> {
        if let Some(table) = &self.device {
            match self.or_cpu(self.on_device(table, scalars))? {
                Some(bytes) => return Ok(bytes.into()),
                None => self.device = None,
            }
        }
        let table = self
            .cpu
            .get_or_init(|| FixedBase::new(self.base, self.expected));
        Ok(table
            .multiples(scalars, self.form.size(), self.form.push)
            .into())
    }

    /// Chunk by chunk straight into the result.
    fn on_device(&self, table: &DeviceTable, scalars: &[P::ScalarField]) -> Result<Vec<u8>> {
        let size = self.form.size();
        let mut out = vec![0; scalars.len() * size];
        let jobs = scalars
            .chunks(table.chunk)
            .zip(out.chunks_mut(table.chunk * size));
        let workers = thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2));
        let workers = workers.min(MAX_WORKERS).min(jobs.len());
        let jobs = Mutex::new(jobs);
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        // Of the generator alone: nothing else of this is shared.
        let (base, push) = (self.base, self.form.push);
        let work = || -> Result<()> {
            while let Some((scalars, out)) = next() {
                table.multiples::<P>(scalars, out)?;
                // A device that computes wrong points would show only when proofs fail.
                let (Some(last), Some(got)) = (scalars.last(), out.chunks_exact(size).last())
                else {
                    continue;
                };
                if one(base, last, push) != got {
                    return Err(table.wrong());
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            // All of them end before the first error is told.
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            results.into_iter().try_for_each(|result| match result {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        Ok(out)
    }
}

fn one<P: SWCurveConfig>(
    base: Projective<P>,
    scalar: &P::ScalarField,
    push: fn(&Affine<P>, &mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    push(&(base * scalar).into_affine(), &mut bytes);
    bytes
}

/// A table of a generator's multiples on a device.
struct DeviceTable {
    gpu: Arc<GpuDevice>,
    curve: CurveId,
    group: Group,
    windows: FixedBaseWindows,
    table: ResidentBuffer,
    /// Multiples at a time.
    chunk: usize,
}

impl DeviceTable {
    fn new<P: SWCurveConfig>(
        gpu: &Arc<GpuDevice>,
        base: Projective<P>,
        form: &Form<P>,
        expected: usize,
    ) -> Result<Self> {
        let (curve, group) = (form.curve, form.group);
        let limits = gpu.limits().plan();
        let most = limits.largest().min(limits.memory / 8);
        let windows = FixedBaseWindows::new(expected, curve, group, most);
        let points = windows.table(base);
        let mut bytes = Vec::with_capacity(points.len() * form.size());
        points.iter().for_each(|p| (form.push)(p, &mut bytes));
        let options = RunOptions::default();
        let table = gpu.reserve_resident(bytes.len() as u64, &options)?;
        let mut rec = Recording::new();
        let at_rest = crate::ntt::upload(&mut rec, "table at rest", &bytes.into());
        let working = rec.resident("table", &table);
        let (from, to) = (rec.whole(at_rest), rec.whole(working));
        record_fixed_base_table(&mut rec, curve, group, from, to);
        gpu.run(&rec, &options)?;
        let largest = limits.largest().min(MAX_BUFFER);
        let most = largest / windows.bytes_each(curve, group);
        let mut table = Self {
            gpu: gpu.clone(),
            curve,
            group,
            windows,
            table,
            chunk: most.checked_ilog2().map_or(1, |log2| 1 << log2),
        };
        table.fit(limits.memory)?;
        Ok(table)
    }

    /// Halves the chunks until one has room beside the table.
    fn fit(&mut self, memory: u64) -> Result<()> {
        let room = memory.saturating_sub(self.table.size());
        loop {
            let scalars = Bytes::from(vec![0; 32 * self.chunk]);
            let plan = self.gpu.plan(&self.record(scalars).0);
            match plan {
                Ok(plan) if plan.bytes <= room => return Ok(()),
                Err(e) if !matches!(e, Error::OutOfMemory { .. }) => return Err(e),
                _ if self.chunk as u64 > MIN_CHUNK => self.chunk /= 2,
                plan => {
                    return Err(Error::OutOfMemory {
                        device: self.gpu.info().to_string(),
                        needed: plan?.bytes + self.table.size(),
                        available: memory,
                    });
                }
            }
        }
    }

    fn record(&self, scalars: Bytes) -> (Recording, DownloadId) {
        let mut rec = Recording::new();
        rec.phase("multiples");
        let table = rec.resident("table", &self.table);
        let id = rec.secret("scalars", scalars.len() as u64);
        let (table, to) = (rec.whole(table), rec.whole(id));
        rec.upload(to, scalars);
        let multiples = record_multiples(&mut rec, self.curve, self.group, self.windows, table, to);
        let download = rec.download(multiples);
        (rec, download)
    }

    /// The multiples of one chunk, into `out`.
    fn multiples<P: SWCurveConfig>(
        &self,
        scalars: &[P::ScalarField],
        out: &mut [u8],
    ) -> Result<()> {
        let mut canonical = Zeroizing::new(vec![0; 32 * scalars.len()]);
        canonical
            .par_chunks_exact_mut(32)
            .zip(scalars)
            .with_min_len(1024)
            .for_each(|(out, scalar)| {
                for (out, limb) in out.chunks_exact_mut(8).zip(limbs_of(scalar)) {
                    out.copy_from_slice(&limb.to_le_bytes());
                }
            });
        let (rec, download) = self.record(Bytes::secret(canonical));
        let output = self.gpu.run(&rec, &RunOptions::default())?;
        out.copy_from_slice(&output.downloads[download.0 as usize]);
        Ok(())
    }

    fn wrong(&self) -> Error {
        Error::DeviceFault {
            device: self.gpu.info().to_string(),
            message: "a multiple of the generator differs from the CPU's".into(),
        }
    }
}
