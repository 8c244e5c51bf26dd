//! Devices on their way while the key is read: finding and opening them, and compiling the kernels
//! that the proof will need.

use super::args::DeviceChoice;
use super::tune::{self, Tuned};
use super::{Output, engine};
use groth16_gpu::control::CancelToken;
use groth16_gpu::device::selector::select;
use groth16_gpu::device::{Adapters, Device, PlanLimits, Selected};
use groth16_gpu::proof_kernels::kernels_of_proof;
use groth16_gpu::proving_key::KeyShape;
use groth16_gpu::report::Startup;
use groth16_gpu::{Error, Result, Trace};
use indicatif::ProgressBar;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What the devices are for.
#[derive(Clone)]
pub struct Purpose {
    pub choice: DeviceChoice,
    pub shape: KeyShape,
    /// Values of the witness that are neither 0 nor 1.
    pub dense: usize,
    pub deadline: Option<Instant>,
    pub trace: Option<Trace>,
    /// Says which kernel is being compiled.
    pub bar: ProgressBar,
}

/// Devices being opened by a thread of their own. Dropped, it ends after the kernels that are being
/// compiled: a process must not end while a driver works.
pub struct Opening {
    purpose: Purpose,
    thread: Option<JoinHandle<(Adapters, Option<Result<Opened>>)>>,
    limits: Receiver<PlanLimits>,
    stop: CancelToken,
}

/// Devices, and how long they took.
pub struct Opened {
    pub devices: Vec<Device>,
    /// When measuring them ended, if that was due.
    pub measured: Option<Instant>,
    /// When they were open, and compiling began.
    pub at: Instant,
    pub startup: Startup,
}

impl Purpose {
    /// The domain as a power of two, for what is measured before a proof. Nothing that was not asked
    /// for is done under a time limit.
    fn proof_log2(&self) -> Option<u32> {
        let log2 = self.shape.domain_size.max(1).ilog2();
        self.deadline.is_none().then_some(log2)
    }

    fn limits(&self, adapters: &Adapters) -> Option<PlanLimits> {
        let found = adapters.list();
        match select(self.choice.selectors.first()?, &found) {
            Ok(Selected::Gpu(row)) => {
                Some(found[row].plan_limits(&engine::device_options(&self.choice)))
            }
            // What is wrong shows when it is opened.
            _ => None,
        }
    }

    /// Opens the devices and compiles. `searched` is the time that finding them took.
    fn open(&self, adapters: &Adapters, searched: Duration, stop: &CancelToken) -> Result<Opened> {
        let opening = Instant::now();
        let mut devices = engine::open_all(&self.choice, adapters)?;
        let compiling = Instant::now();
        let mut kernels = 0;
        for device in &mut devices {
            let Device::Gpu(gpu) = device else {
                continue;
            };
            let needed = |limits: &PlanLimits| kernels_of_proof(&self.shape, self.dense, limits);
            kernels += needed(&gpu.limits().plan()).len();
            let progress = |done, total| {
                self.bar
                    .set_message(format!("compiling kernels, {done} of {total}"));
                match self.deadline {
                    Some(at) if Instant::now() >= at => Err(Error::Cancelled),
                    _ => stop.check(),
                }
            };
            // A kernel that the driver refuses or makes something else of fails the proof, which
            // says so, unless the other tier has it right.
            if let Ok(ready) = gpu.ready_for(&needed, &progress) {
                *device = Device::Gpu(ready);
            }
        }
        let done = Instant::now();
        if let Some(trace) = &self.trace {
            trace.host("open device", opening, compiling);
            trace.host("compile", compiling, done);
        }
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        Ok(Opened {
            devices,
            measured: None,
            at: compiling,
            startup: Startup {
                open_device_ms: ms(searched + (compiling - opening)),
                compile_ms: ms(done - compiling),
                kernels,
            },
        })
    }
}

impl Opening {
    /// Begins; if a device is to be measured first, finds the devices only, since the machine should
    /// do nothing else meanwhile.
    pub fn begin(purpose: Purpose) -> Self {
        let stop = CancelToken::new();
        let (own, token) = (purpose.clone(), stop.clone());
        let (sender, limits) = channel();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            if let Some(trace) = &own.trace {
                trace.name_thread("devices");
            }
            let adapters = engine::find(&own.choice);
            let found = Instant::now();
            if let Some(trace) = &own.trace {
                trace.host("find devices", start, found);
            }
            let (curve, log2) = (own.shape.curve, own.proof_log2());
            if own.choice.retune || !tune::due(&own.choice, curve, log2, &adapters).is_empty() {
                return (adapters, None);
            }
            if let Some(limits) = own.limits(&adapters) {
                // Nobody may wait for them.
                let _ = sender.send(limits);
            }
            drop(sender);
            let opened = own.open(&adapters, found - start, &token);
            (adapters, Some(opened))
        });
        Self {
            purpose,
            thread: Some(thread),
            limits,
            stop,
        }
    }

    /// What plans for the first device keep to, once it is found; `None` on the CPU, and if it is
    /// measured first, which may change that.
    pub fn limits(&self) -> Option<PlanLimits> {
        self.limits.recv().ok()
    }

    /// Waits until the devices are ready, and measures what is to be measured.
    ///
    /// # Errors
    /// Those of opening a device, and of measuring it if that was asked for.
    pub fn finish(mut self, out: &Output) -> Result<(Opened, Tuned)> {
        let thread = self.thread.take().expect("joined once");
        let (adapters, opened) = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        let purpose = &mut self.purpose;
        if let Some(opened) = opened {
            return Ok((opened?, Tuned::nothing(&purpose.choice)));
        }
        let (curve, log2) = (purpose.shape.curve, purpose.proof_log2());
        let tuned = tune::tune(&purpose.choice, curve, log2, &adapters, out)?;
        let measured = Some(Instant::now());
        purpose.choice = tuned.choice.clone();
        let opened = purpose.open(&adapters, Duration::ZERO, &self.stop)?;
        Ok((Opened { measured, ..opened }, tuned))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // What it came to does not matter any more.
            let _ = thread.join();
        }
    }
}
