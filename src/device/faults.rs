//! Faults for tests to inject: what drivers and cards do wrong, made to order. Without the feature
//! `fault-injection` none of it is there.

#[cfg(feature = "fault-injection")]
use crate::device::wgpu::{GpuDevice, lock};
#[cfg(feature = "fault-injection")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// What is to go wrong, once.
#[cfg_attr(
    not(feature = "fault-injection"),
    expect(dead_code, reason = "nobody injects one")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next run loses this submission: nothing of it is done, and the driver says that it is.
    LoseSubmission(u32),
    /// The next run's submission of this number never ends, nor does any after it.
    HangSubmission(u32),
    /// The device is lost before the next run's submission of this number, as by a driver's reset.
    LoseDevice(u32),
    /// The next run panics in its turn, before this submission.
    Panic(u32),
    /// The driver refuses this allocation, counted from now, as if it had no more memory.
    Allocation(u32),
    /// In the next run, after the dispatch of this number, one word is not what it was: the first of
    /// this buffer of its bindings, counted around.
    WrongWord { dispatch: u64, binding: usize },
}

/// What a submission suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffers {
    Nothing,
    Loss,
    Hang,
}

impl Fault {
    /// What the submission of this number suffers.
    pub(super) fn of_submission(fault: Option<Self>, number: u32) -> Suffers {
        match fault {
            Some(Self::LoseSubmission(n)) if n == number => Suffers::Loss,
            Some(Self::HangSubmission(n)) if n <= number => Suffers::Hang,
            _ => Suffers::Nothing,
        }
    }
}

/// Faults that a device is to meet.
#[derive(Debug)]
pub(super) struct Faults {
    #[cfg(feature = "fault-injection")]
    run: Mutex<Option<Fault>>,
    /// The kernel after which the last wrong word was left.
    #[cfg(feature = "fault-injection")]
    wronged: Mutex<Option<&'static str>>,
    /// Allocations until one is refused. Beyond 2^31 none is.
    until_refusal: AtomicU32,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            #[cfg(feature = "fault-injection")]
            run: Mutex::default(),
            #[cfg(feature = "fault-injection")]
            wronged: Mutex::default(),
            until_refusal: AtomicU32::new(u32::MAX),
        }
    }
}

impl Faults {
    /// What the run that begins is to meet.
    pub fn of_run(&self) -> Option<Fault> {
        #[cfg(feature = "fault-injection")]
        return lock(&self.run).take();
        #[cfg(not(feature = "fault-injection"))]
        None
    }

    /// A wrong word is left after a dispatch of this kernel.
    #[cfg_attr(
        not(feature = "fault-injection"),
        expect(unused_variables, reason = "nobody asks")
    )]
    pub fn note_wrong_word(&self, kernel: &'static str) {
        #[cfg(feature = "fault-injection")]
        lock(&self.wronged).replace(kernel);
    }

    /// Whether the allocation that begins is refused.
    pub fn refuses_allocation(&self) -> bool {
        cfg!(feature = "fault-injection")
            && self.until_refusal.load(Ordering::Relaxed) < u32::MAX / 2
            && self.until_refusal.fetch_sub(1, Ordering::Relaxed) == 0
    }
}

#[cfg(feature = "fault-injection")]
impl GpuDevice {
    /// The next run, or an allocation to come, meets this fault.
    pub fn inject_fault(&self, fault: Fault) {
        match fault {
            Fault::Allocation(count) => self.faults.until_refusal.store(count, Ordering::Relaxed),
            other => *lock(&self.faults.run) = Some(other),
        }
    }

    /// The kernel after which a wrong word was left since the last call.
    pub fn wronged_kernel(&self) -> Option<&'static str> {
        lock(&self.faults.wronged).take()
    }

    /// Loses the device, as a driver's reset would.
    pub fn lose_device(&self) {
        lose(&self.device);
    }
}

/// Loses a device, as a driver's reset would.
pub(super) fn lose(device: &::wgpu::Device) {
    device.destroy();
    let _ = device.poll(::wgpu::PollType::Poll);
}
