//! One recording on its way through the device: commands become launches and copies, these become
//! submissions of bounded time, and what they bring back is read.

mod abandon;
mod traced;
mod transfers;

use crate::curve::CurveId;
use crate::device::allocator::ALIGNMENT;
use crate::device::arena::{BufferUse, Reservation};
use crate::device::builtin::{GROUP_WORDS, GROUP_WORK};
use crate::device::execute::RunOptions;
use crate::device::faults::{self, Fault};
use crate::device::pipelines::Pipeline;
use crate::device::plan::MemoryPlan;
use crate::device::queue::Turn;
use crate::device::recording::{BufferDesc, BufferKind, BufferSlice, Command, Dispatch, Recording};
use crate::device::report::{RunOutput, RunReport, ms};
use crate::device::staging::{DownloadChunk, Uploads};
use crate::device::submission::{Batch, DeviceTimes, InFlight, Launch, MAX_GROUPS, Window};
use crate::device::wgpu::{GpuDevice, WgpuMemory, lock};
use crate::error::{Error, Result};
use crate::kernels::{Kernel, LAUNCH_WORDS};
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Submissions of one run that the device has at a time: enough to keep it busy, few enough that
/// cancelling takes effect soon and that memory for parameters stays bounded.
const IN_FLIGHT: usize = 4;
/// Launches in a run's first submission at most, twice as many in the next one, and so on: the device
/// begins while the rest is recorded, which takes the host milliseconds for a proof.
const FIRST_LAUNCHES: usize = 16;
/// Pages that a run has at a time: one more is being recorded, and one is waited for.
pub(super) const PAGES: u32 = IN_FLIGHT as u32 + 2;
/// What unwritten memory is filled with when `poison` is on: not zero, and no canonical value.
pub(super) const POISON: u32 = 0xdead_beef;
/// A word that [`Fault::WrongWord`] leaves.
const WRONG: u32 = 0x0bad_c0de;
/// Bytes copied in the time of one field multiplication, roughly.
const COPY_BYTES_PER_WORK: u64 = 512;

/// Compiled kernels of a recording.
pub(super) type PipelineMap = HashMap<(Kernel, CurveId), Arc<Pipeline>>;

/// One recording being run.
pub(super) struct Run<'a> {
    gpu: &'a GpuDevice,
    recording: &'a Recording,
    options: &'a RunOptions,
    started: Instant,
    plan: &'a MemoryPlan,
    pipelines: &'a PipelineMap,
    /// `None` once it is handed on.
    memory: Option<Arc<Reservation<WgpuMemory>>>,
    /// Of the recording's buffers those that are no part of the plan.
    residents: Vec<Option<Window>>,
    canary: Window,
    turn: Option<Turn<'a>>,
    batch: Option<Batch>,
    in_flight: VecDeque<InFlight>,
    uploads: Uploads<'a>,
    /// Staging for results: being filled, free for reuse, and taken from the arena so far.
    download: Option<DownloadChunk>,
    idle_downloads: Vec<::wgpu::Buffer>,
    taken_downloads: u32,
    /// Pages that this run has.
    pages: usize,
    phase: usize,
    launches: u64,
    /// Of the recording.
    dispatches: u64,
    total_work: u64,
    done_work: u64,
    fault: Option<Fault>,
    pub(super) output: RunOutput,
    finished: bool,
    /// Only its secrets are still to be cleared.
    given_up: bool,
}

impl<'a> Run<'a> {
    /// A run in memory that was reserved; stages its first uploads. `started` is when its caller
    /// began.
    pub fn new(
        gpu: &'a GpuDevice,
        (recording, plan, pipelines): (&'a Recording, &'a MemoryPlan, &'a PipelineMap),
        options: &'a RunOptions,
        memory: Arc<Reservation<WgpuMemory>>,
        started: Instant,
    ) -> Result<Self> {
        let reserved = Instant::now();
        // The last region is for the canary.
        let last = memory.slices().len() - 1;
        let canary = Window {
            buffer: memory.buffers[last].clone(),
            offset: memory.slices()[last].offset,
            size: ALIGNMENT,
        };
        let uploads = memory.uploads();
        let mut run = Self {
            gpu,
            recording,
            options,
            started,
            pipelines,
            residents: vec![None; recording.buffers.len()],
            canary,
            turn: None,
            batch: None,
            in_flight: VecDeque::new(),
            uploads: Uploads::new(gpu, recording, gpu.arena.config().chunk),
            download: None,
            idle_downloads: Vec::new(),
            taken_downloads: 0,
            pages: 0,
            phase: 0,
            launches: 0,
            dispatches: 0,
            total_work: 0,
            done_work: 0,
            fault: gpu.faults.of_run(),
            output: RunOutput::default(),
            finished: false,
            given_up: false,
            memory: Some(memory),
            plan,
        };
        for (i, buffer) in recording.buffers.iter().enumerate() {
            run.residents[i] = run.resident(buffer)?;
        }
        let work = |command: &Command| match command {
            Command::Dispatch(d) => u64::from(d.groups).saturating_mul(d.work_per_group),
            _ => 0,
        };
        let total = recording.commands.iter().map(work);
        run.total_work = total.fold(1, u64::saturating_add);
        run.uploads.stage_first(uploads)?;
        run.prepare_output(reserved);
        options.span("stage", reserved, Instant::now());
        Ok(run)
    }

    /// Where a buffer lies that is no part of the plan.
    fn resident(&self, buffer: &BufferDesc) -> Result<Option<Window>> {
        let memory = self.memory.as_ref().expect("held until the end");
        let window = match &buffer.kind {
            BufferKind::Transient => return Ok(None),
            BufferKind::Resident(resident) => {
                if resident.arena_id() != self.gpu.arena.id() {
                    let what = format!("`{}` is resident on another device", buffer.label);
                    return Err(Error::Usage(what));
                }
                Window {
                    buffer: self.gpu.arena.slab(resident.slice()),
                    offset: resident.slice().offset,
                    size: buffer.size,
                }
            }
            BufferKind::Kept(part) => {
                let part = *part as usize;
                let slice = memory.kept().get(part).filter(|s| s.size >= buffer.size);
                let slice = slice.ok_or_else(|| {
                    Error::Usage(format!("`{}` is not in the kept set", buffer.label))
                })?;
                Window {
                    buffer: memory.kept_buffers[part].clone(),
                    offset: slice.offset,
                    size: buffer.size,
                }
            }
        };
        Ok(Some(window))
    }

    /// Compiles what is not compiled yet.
    pub fn pipelines(gpu: &GpuDevice, recording: &Recording) -> Result<PipelineMap> {
        let mut pipelines = HashMap::new();
        for command in &recording.commands {
            let Command::Dispatch(d) = command else {
                continue;
            };
            let key = (d.kernel, d.curve);
            let pipeline = match pipelines.entry(key) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(gpu.pipelines.get(d.kernel, d.curve)?),
            };
            let words = LAUNCH_WORDS + d.params.len();
            if d.bindings.len() != pipeline.bindings as usize
                || words > pipeline.params_words as usize
            {
                return Err(Error::Usage(format!(
                    "`{}` takes {} bindings and {} parameter words; got {} and {words}",
                    pipeline.label,
                    pipeline.bindings,
                    pipeline.params_words,
                    d.bindings.len(),
                )));
            }
        }
        gpu.pipelines.save();
        Ok(pipelines)
    }

    fn prepare_output(&mut self, reserved: Instant) {
        let mut sizes = vec![0u64; self.recording.downloads()];
        for command in &self.recording.commands {
            if let Command::Download { src, id } = command {
                sizes[id.0 as usize] = src.size;
            }
        }
        self.output.downloads = sizes.into_iter().map(|s| vec![0; s as usize]).collect();
        self.output.report = RunReport {
            reserve_ms: ms(reserved - self.started),
            staging_ms: ms(reserved.elapsed()),
            reserved_bytes: self.plan.bytes + ALIGNMENT,
            uploaded_bytes: self.plan.uploaded,
            downloaded_bytes: self.plan.downloaded,
            ..RunReport::new(self.recording.phases.iter().map(|p| &p.0))
        };
    }

    /// Takes the turn, submits everything, gives the turn back and waits.
    pub fn execute(&mut self) -> Result<()> {
        let gpu = self.gpu;
        let options = self.options;
        let waiting = Instant::now();
        self.turn = Some(gpu.queue.turn(options.priority, &|| gpu.check(options))?);
        let taken = Instant::now();
        self.output.report.turn_wait_ms = ms(taken - waiting);
        options.span("turn wait", waiting, taken);
        if gpu.options.poison {
            self.fill_memory(POISON, false)?;
        }
        let recording = self.recording;
        let mut phases = recording.phases.iter().map(|p| p.1).peekable();
        for (i, command) in recording.commands.iter().enumerate() {
            while phases.next_if(|&first| first <= i).is_some() {
                self.phase += 1;
                if let Some(batch) = &mut self.batch {
                    batch.next_phase();
                }
            }
            self.command(i, command)?;
        }
        self.fill_memory(0, true)?;
        self.flush()?;
        // Before the next one takes it.
        let given_back = Instant::now();
        self.turn = None;
        self.output.report.turn_ms = ms(given_back - taken);
        options.span("turn", taken, given_back);
        while !self.in_flight.is_empty() {
            self.reap()?;
        }
        options.span("device wait", given_back, Instant::now());
        gpu.health.take_stray()?;
        self.finish();
        Ok(())
    }

    /// Everything went well: what was borrowed goes back.
    fn finish(&mut self) {
        let arena = &self.gpu.arena;
        self.uploads.finish();
        let idle = std::mem::take(&mut self.idle_downloads);
        arena.return_chunks(BufferUse::Download, idle, 0);
        self.memory = None;
        self.output.report.finish(self.started.elapsed());
        self.finished = true;
    }

    fn command(&mut self, index: usize, command: &Command) -> Result<()> {
        match command {
            Command::Upload { dst, .. } => self.upload(index, dst),
            Command::Clear { dst } => self.fill(&self.window(dst), 0),
            Command::Copy { src, dst } => self.copy(src, dst),
            Command::Dispatch(dispatch) => self.dispatch(dispatch),
            Command::Download { src, id } => self.download(src, id.0 as usize),
        }
    }

    /// Where a buffer's range lies.
    fn window(&self, slice: &BufferSlice) -> Window {
        let index = slice.buffer.0 as usize;
        if let Some(window) = &self.residents[index] {
            return Window {
                buffer: window.buffer.clone(),
                offset: window.offset + slice.offset,
                size: slice.size,
            };
        }
        let place = self
            .plan
            .placement(slice.buffer)
            .expect("used buffers are placed");
        let window = self.region(place.region);
        Window {
            offset: window.offset + place.offset + slice.offset,
            size: slice.size,
            ..window
        }
    }

    fn region(&self, region: usize) -> Window {
        let memory = self.memory.as_ref().expect("held until the end");
        Window {
            buffer: memory.buffers[region].clone(),
            offset: memory.slices()[region].offset,
            size: self.plan.regions[region],
        }
    }

    fn fill(&mut self, window: &Window, value: u32) -> Result<()> {
        let (window, first) = window.aligned();
        let words = (window.size / 4) as u32 - first;
        let groups = u64::from(words).div_ceil(GROUP_WORDS) as u32;
        let pipeline = self.gpu.builtins.fill.clone();
        self.launch(
            &pipeline,
            &[window],
            &[first, words, value, 0],
            groups,
            GROUP_WORK,
        )
    }

    fn copy(&mut self, src: &BufferSlice, dst: &BufferSlice) -> Result<()> {
        let (from, from_word) = self.window(src).aligned();
        let (to, to_word) = self.window(dst).aligned();
        let words = (src.size / 4) as u32;
        let groups = u64::from(words).div_ceil(GROUP_WORDS) as u32;
        let pipeline = self.gpu.builtins.copy.clone();
        let params = [from_word, to_word, words, 0];
        self.launch(&pipeline, &[from, to], &params, groups, GROUP_WORK)
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<()> {
        let pipeline = self.pipelines[&(dispatch.kernel, dispatch.curve)].clone();
        let windows: Vec<Window> = dispatch.bindings.iter().map(|b| self.window(b)).collect();
        self.launch(
            &pipeline,
            &windows,
            &dispatch.params,
            dispatch.groups,
            dispatch.work_per_group,
        )?;
        self.dispatches += 1;
        if let Some(Fault::WrongWord {
            dispatch: number,
            binding,
        }) = self.fault
            && number == self.dispatches - 1
        {
            let target = &windows[binding % windows.len()];
            let word = Window {
                size: 4,
                ..target.clone()
            };
            self.gpu.faults.note_wrong_word(pipeline.label);
            self.fill(&word, WRONG)?;
        }
        Ok(())
    }

    /// Clears the ranges that held secrets, or fills all of the run's memory.
    fn fill_memory(&mut self, value: u32, secrets_only: bool) -> Result<()> {
        let ranges: Vec<(usize, std::ops::Range<u64>)> = match secrets_only {
            true => self.plan.secrets.clone(),
            false => (0..self.plan.regions.len())
                .map(|r| (r, 0..self.plan.regions[r]))
                .collect(),
        };
        for (region, range) in ranges {
            let whole = self.region(region);
            let window = Window {
                offset: whole.offset + range.start,
                size: range.end - range.start,
                ..whole
            };
            self.fill(&window, value)?;
        }
        Ok(())
    }

    /// Records `groups` workgroups, in as many submissions as their work needs; for 0, one that has
    /// nothing to do.
    fn launch(
        &mut self,
        pipeline: &Pipeline,
        windows: &[Window],
        params: &[u32],
        groups: u32,
        work_per_group: u64,
    ) -> Result<()> {
        self.launches += 1;
        if groups == 0 {
            let launch = Launch {
                number: self.launches,
                phase: self.phase,
                pipeline,
                windows,
                params,
            };
            let (device, phase) = (&self.gpu.device, self.phase);
            let batch = self.batch()?;
            batch.record(device, &launch, 0, 0);
            batch.add_work(phase, 1);
            return self.cut_if_full();
        }
        let mut first = 0;
        while first < groups {
            let budget = self.budget();
            let work = self.batch()?.work();
            let fits = budget.saturating_sub(work) / work_per_group.max(1);
            let rest = groups - first;
            let count = u64::from(rest.min(MAX_GROUPS)).min(fits) as u32;
            // Rather a new submission than a sliver at the end of this one.
            if count < rest
                && work > 0
                && u64::from(count).saturating_mul(work_per_group) < budget / 4
            {
                self.flush()?;
                continue;
            }
            let count = count.max(1);
            let launch = Launch {
                number: self.launches,
                phase: self.phase,
                pipeline,
                windows,
                params,
            };
            let (device, batch) = (&self.gpu.device, self.batch.as_mut().expect("made above"));
            batch.record(device, &launch, first, first + count);
            batch.add_work(self.phase, work_per_group.saturating_mul(u64::from(count)));
            first += count;
            self.cut_if_full()?;
        }
        Ok(())
    }

    fn budget(&self) -> u64 {
        lock(&self.gpu.calibration).budget()
    }

    /// The batch, made if there is none.
    fn batch(&mut self) -> Result<&mut Batch> {
        if self.batch.is_none() {
            let number = self.output.report.submissions;
            match self.fault {
                Some(Fault::Panic(n)) if n == number => panic!("injected"),
                Some(Fault::LoseDevice(n)) if n == number => faults::lose(&self.gpu.device),
                _ => {}
            }
            let page = self.gpu.arena.take_page()?;
            self.pages += 1;
            let token = self.gpu.next_token.fetch_add(1, Ordering::Relaxed);
            self.batch = Some(Batch::new(&self.gpu.device, page, token));
        }
        Ok(self.batch.as_mut().expect("just made"))
    }

    /// Ends the batch if it has enough work or no room for more.
    fn cut_if_full(&mut self) -> Result<()> {
        let budget = self.budget();
        let launches = FIRST_LAUNCHES << self.output.report.submissions.min(16);
        let full = |b: &Batch| b.work() >= budget || b.is_full() || b.launches() >= launches;
        if self.batch.as_ref().is_some_and(full) {
            self.flush()?;
        }
        Ok(())
    }

    /// Submits the batch, if there is one, and waits while too much is in flight.
    fn flush(&mut self) -> Result<()> {
        self.submit()?;
        if !self.given_up {
            self.gpu.check(self.options)?;
        }
        while self.in_flight.len() > IN_FLIGHT {
            self.reap()?;
        }
        Ok(())
    }

    /// Submits the batch, if there is one.
    fn submit(&mut self) -> Result<()> {
        let Some(mut batch) = self.batch.take() else {
            return Ok(());
        };
        let gpu = self.gpu;
        self.launches += 1;
        let canary = Launch {
            number: self.launches,
            phase: self.phase,
            pipeline: &gpu.builtins.canary,
            windows: std::slice::from_ref(&self.canary),
            params: &[batch.token(), 0, 0, 0],
        };
        // Last, so that its token vouches for all before it.
        batch.record(&gpu.device, &canary, 0, 1);
        if let Some(chunk) = self.download.take() {
            batch.downloaded(chunk);
        }
        let suffers = Fault::of_submission(self.fault, self.output.report.submissions);
        let turn = self.turn.as_ref().expect("submissions happen in the turn");
        let submitted = batch.submit(&gpu.submitter, turn, &self.canary, suffers);
        let (in_flight, refused) = submitted.map_err(|e| gpu.health.fault(e))?;
        self.output.report.submissions += 1;
        self.in_flight.push_back(in_flight);
        match refused {
            None => Ok(()),
            Some(e) => Err(gpu.health.fault(format!("submission refused: {e}"))),
        }
    }

    /// Waits for the oldest submission and takes what it brought.
    fn reap(&mut self) -> Result<()> {
        let (gpu, options) = (self.gpu, self.options);
        let timeout = gpu.options.timeout;
        let Some(oldest) = self.in_flight.front() else {
            return Ok(());
        };
        let check = || gpu.check(options);
        gpu.submitter.wait(&oldest.submission, timeout, &check)?;
        let end = Instant::now();
        // Complete, whatever it brought: nothing needs to wait for it any more.
        let done = self.in_flight.pop_front().expect("seen above");
        gpu.submitter.wait_mapped(&done.readback, timeout)?;
        let read = done.read_back(gpu.submitter.timestamp_period());
        let (token, times) = read.map_err(|e| gpu.health.fault(e))?;
        if token != done.token {
            let what = "a submission was lost: its token did not come back";
            return Err(gpu.health.fault(what));
        }
        self.account(&done, end, &times);
        gpu.submitter.wait_mapped(&done.params, timeout)?;
        gpu.arena.return_page(done.page);
        self.pages -= 1;
        for (buffer, mapping) in done.uploads {
            gpu.submitter.wait_mapped(&mapping, timeout)?;
            self.uploads.recycle(buffer);
        }
        for (chunk, mapping) in done.downloads {
            gpu.submitter.wait_mapped(&mapping, timeout)?;
            let read = chunk.read(&mut self.output.downloads);
            read.map_err(|e| gpu.health.fault(e))?;
            self.idle_downloads.push(chunk.buffer);
        }
        self.done_work = self.done_work.saturating_add(done.work);
        if let Some(progress) = &self.options.progress {
            progress((self.done_work as f64 / self.total_work as f64).min(1.0));
        }
        Ok(())
    }

    /// Books the time of a completed submission, and learns from it.
    fn account(&mut self, done: &InFlight, end: Instant, times: &DeviceTimes) {
        let gpu = self.gpu;
        let mut timeline = lock(&gpu.timeline);
        let mut start = timeline.complete(done.submission.at, end);
        let mut to_host = None;
        if let Some((begin, finish)) = times.whole {
            to_host = Some(timeline.clock(finish, end));
            start = start.max(timeline.clock(finish, end).at(begin).min(end));
        }
        drop(timeline);
        let report = &mut self.output.report;
        report.book(done, self.started, start, end, times.durations());
        let device: Duration = times.durations().map(|p| p.1).sum();
        // The device's clock where there is one: the wall clock includes the host's delays.
        let time = if device.is_zero() {
            end - start
        } else {
            device
        };
        lock(&gpu.calibration).observe(done.work, time);
        if let Some(trace) = &self.options.trace {
            self.trace_device(trace, done, (start, end), times, to_host);
        }
    }
}
