//! Runs recordings on a [`GpuDevice`].
//!
//! A run goes through these steps, of which only the one with the turn has the device to itself:
//! compile what is not compiled yet; plan and reserve the memory; bring the kept set if it is not
//! there; fill staging buffers; take the turn and submit; give the turn back and wait; return the
//! memory.

use crate::control::Priority;
use crate::device::allocator::ALIGNMENT;
use crate::device::arena::Request;
use crate::device::kept::KeptParts;
use crate::device::plan::MemoryPlan;
use crate::device::queue::CancelToken;
use crate::device::recording::Recording;
use crate::device::report::{RunOutput, ms};
use crate::device::run::{PAGES, Run};
use crate::device::staging::chunks;
use crate::device::wgpu::GpuDevice;
use crate::error::Result;
use crate::trace::Trace;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A kept set is brought in pieces of this many bytes, each in a turn of its own.
const FILL_PIECE: u64 = 128 << 20;

/// Receives the share of work done, 0 to 1.
pub type Progress = Arc<dyn Fn(f64) + Send + Sync>;

/// How to run a recording.
#[derive(Clone, Default)]
pub struct RunOptions {
    pub cancel: Option<CancelToken>,
    pub progress: Option<Progress>,
    /// Who goes first where runs wait for each other.
    pub priority: Priority,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Where to record what happens when.
    pub trace: Option<Trace>,
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("cancel", &self.cancel)
            .field("priority", &self.priority)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl RunOptions {
    /// Records what this thread did, if there is a trace.
    pub(crate) fn span(&self, name: &'static str, start: Instant, end: Instant) {
        if let Some(trace) = &self.trace {
            trace.host(name, start, end);
        }
    }
}

impl GpuDevice {
    /// Runs a recording and returns its downloads. May be called from many threads.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the plan can not fit the budget, [`Error::DeviceFault`] if the
    /// device fails or a submission comes back without its token, [`Error::Timeout`],
    /// [`Error::Cancelled`], and [`Error::Usage`] for a recording that contradicts itself. The
    /// device remains usable unless [`Self::check_health`] says otherwise.
    ///
    /// [`Error::OutOfMemory`]: crate::Error::OutOfMemory
    /// [`Error::DeviceFault`]: crate::Error::DeviceFault
    /// [`Error::Timeout`]: crate::Error::Timeout
    /// [`Error::Cancelled`]: crate::Error::Cancelled
    /// [`Error::Usage`]: crate::Error::Usage
    pub fn run(&self, recording: &Recording, options: &RunOptions) -> Result<RunOutput> {
        self.run_with(recording, self.plan(recording)?, None, options)
    }

    /// Where the recording's buffers go.
    ///
    /// # Errors
    /// As [`MemoryPlan::new`].
    pub fn plan(&self, recording: &Recording) -> Result<MemoryPlan> {
        MemoryPlan::new(recording, &self.limits().plan(), &self.info().to_string())
    }

    /// As [`Self::run`], with the plan of the recording, and with a kept set. The memory of both
    /// is reserved at once.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_with(
        &self,
        recording: &Recording,
        plan: MemoryPlan,
        kept: Option<&KeptParts>,
        options: &RunOptions,
    ) -> Result<RunOutput> {
        let started = Instant::now();
        let check = || self.check(options);
        check()?;
        let pipelines = Run::pipelines(self, recording)?;
        let compiled = Instant::now();
        options.span("compile", started, compiled);
        let config = self.arena.config();
        let fills = kept.map(|k| k.uploads(FILL_PIECE)).unwrap_or_default();
        let computed = kept.map(|k| k.computed.clone()).unwrap_or_default();
        let uploads = fills.iter().chain([recording]);
        let uploads = uploads.chain(computed.iter().map(|(r, _)| r));
        let uploads = uploads.map(|r| chunks(r, config.chunk)).max().unwrap_or(0);
        let downloads = plan.downloaded.div_ceil(config.chunk) + recording.downloads() as u64;
        // Half for each of two runs, one on the device and one getting ready. Whatever is filled
        // while the device computes need not be waited for when it is done. Results are small.
        let share = |all: u32, runs: u32| u64::from((all / runs).max(1));
        let request = Request {
            regions: plan.regions_with(&computed).chain([ALIGNMENT]).collect(),
            uploads: (uploads as u64).min(share(config.limits.uploads, 2)) as u32,
            downloads: downloads.min(share(config.limits.downloads, 4)) as u32,
            pages: PAGES,
            kept: kept.map(KeptParts::sizes),
        };
        let memory = self.arena.reserve(&request, options.priority, &check)?;
        let memory = Arc::new(memory);
        let reserved = Instant::now();
        options.span("reserve wait", compiled, reserved);
        if memory.fills() {
            let planned = |f| -> Result<(&Recording, MemoryPlan)> { Ok((f, self.plan(f)?)) };
            let uploads = fills.iter().map(planned);
            let rest = computed.iter().map(|(f, plan)| Ok((f, plan.clone())));
            for fill in uploads.chain(rest) {
                let (fill, plan) = fill?;
                let pipelines = Run::pipelines(self, fill)?;
                let parts = (fill, &plan, &pipelines);
                Run::new(self, parts, options, memory.clone(), Instant::now())?.execute()?;
            }
            memory.filled();
        }
        let filled = Instant::now();
        options.span("key to device", reserved, filled);
        let parts = (recording, &plan, &pipelines);
        let mut run = Run::new(self, parts, options, memory, started)?;
        run.output.report.compile_ms = ms(compiled - started);
        run.output.report.reserve_ms = ms(reserved - compiled);
        run.output.report.fill_ms = ms(filled - reserved);
        run.execute()?;
        Ok(std::mem::take(&mut run.output))
    }
}
