//! Runs recordings on a [`GpuDevice`].
//!
//! A run goes through these steps, of which only the fourth has the device to itself:
//! compile what is not compiled yet; plan and reserve the memory; fill staging buffers; take the
//! turn and submit; give the turn back and wait; return the memory.

use crate::curve::CurveId;
use crate::device::allocator::ALIGNMENT;
use crate::device::arena::{BufferUse, Request, Reservation};
use crate::device::builtin::{GROUP_WORDS, GROUP_WORK};
use crate::device::pipelines::Pipeline;
use crate::device::plan::MemoryPlan;
use crate::device::queue::{CancelToken, Mapping, Submission, Turn, request_mapping};
use crate::device::recording::{BufferKind, BufferSlice, Command, Dispatch, Recording};
use crate::device::staging::{DownloadChunk, DownloadPiece, Uploads};
use crate::device::wgpu::{
    Fault, GpuDevice, MAX_PASSES, PAGE_BLOCKS, Page, Scopes, TIMESTAMPS_AT, WgpuMemory, Zombie,
};
use crate::error::{Error, Result};
use crate::kernels::{Kernel, LAUNCH_WORDS};
use serde::Serialize;
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Submissions of one run that the device has at a time: enough to keep it busy, few enough that
/// cancelling takes effect soon and that memory for parameters stays bounded.
const IN_FLIGHT: usize = 4;
/// What unwritten memory is filled with when `poison` is on: not zero, and no canonical value.
pub(super) const POISON: u32 = 0xdead_beef;
/// Bytes copied in the time of one field multiplication, roughly.
const COPY_BYTES_PER_WORK: u64 = 512;
/// Workgroups in x; the rest folds into y, since a dimension is limited to 65,535.
const MAX_GROUPS_X: u32 = 32_768;

/// Receives the share of work done, 0 to 1.
pub type Progress = Arc<dyn Fn(f64) + Send + Sync>;

/// How to run a recording.
#[derive(Clone, Default)]
pub struct RunOptions {
    pub cancel: Option<CancelToken>,
    pub progress: Option<Progress>,
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunOptions {{ cancel: {:?} }}", self.cancel)
    }
}

/// What a recording gave.
#[derive(Clone, Debug, Default)]
pub struct RunOutput {
    /// By [`super::recording::DownloadId`].
    pub downloads: Vec<Vec<u8>>,
    pub report: RunReport,
}

/// Times of one phase of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseTime {
    pub name: &'static str,
    /// First and last moment of its work on the device, from the start of the run, as seen from
    /// the host.
    pub start_ms: f64,
    pub end_ms: f64,
    /// Its share of the time between, by estimated work where phases share a submission.
    pub wall_ms: f64,
    /// Time on the device's own clock, where it has one.
    pub device_ms: Option<f64>,
    /// Estimated field multiplications.
    pub work: u64,
}

/// Figures of one run. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunReport {
    pub phases: Vec<PhaseTime>,
    /// Waiting for memory, filling staging buffers, waiting for the turn, having it.
    pub reserve_ms: f64,
    pub staging_ms: f64,
    pub turn_wait_ms: f64,
    pub turn_ms: f64,
    pub total_ms: f64,
    pub submissions: u32,
    pub slowest_submission_ms: f64,
    /// Device memory reserved, and bytes copied there and back.
    pub reserved_bytes: u64,
    pub uploaded_bytes: u64,
    pub downloaded_bytes: u64,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A range of a slab.
#[derive(Clone, Debug)]
struct Window {
    buffer: ::wgpu::Buffer,
    offset: u64,
    size: u64,
}

impl Window {
    /// The window extended down to where a binding may start, and the words that this adds.
    fn aligned(&self) -> (Self, u32) {
        let offset = self.offset & !(ALIGNMENT - 1);
        let extra = self.offset - offset;
        let window = Self {
            buffer: self.buffer.clone(),
            offset,
            size: self.size + extra,
        };
        (window, (extra / 4) as u32)
    }
}

/// A submission in the making.
struct Batch {
    /// Dropped before the encoder that it belongs to.
    pass: Option<::wgpu::ComputePass<'static>>,
    encoder: ::wgpu::CommandEncoder,
    scopes: Scopes,
    page: Page,
    /// Content of the page's parameter blocks so far.
    params: Vec<u8>,
    token: u32,
    work: u64,
    phase_work: Vec<(usize, u64)>,
    /// Phase of each pass that has timestamps.
    passes: Vec<usize>,
    uploads: Vec<::wgpu::Buffer>,
    downloads: Vec<DownloadChunk>,
    /// Number of the launch that the last bind group is for.
    bound: Option<(u64, ::wgpu::BindGroup)>,
}

/// A submission on the device.
struct InFlight {
    submission: Submission,
    page: Page,
    token: u32,
    work: u64,
    phase_work: Vec<(usize, u64)>,
    passes: Vec<usize>,
    uploads: Vec<(::wgpu::Buffer, Mapping)>,
    downloads: Vec<(DownloadChunk, Mapping)>,
    readback: Mapping,
    params: Mapping,
}

/// One recording being run.
struct Run<'a> {
    gpu: &'a GpuDevice,
    recording: &'a Recording,
    options: &'a RunOptions,
    started: Instant,
    plan: MemoryPlan,
    pipelines: HashMap<(Kernel, CurveId), Arc<Pipeline>>,
    /// `None` once it is handed on.
    memory: Option<Reservation<WgpuMemory>>,
    residents: Vec<Option<::wgpu::Buffer>>,
    canary: Window,
    turn: Option<Turn<'a>>,
    batch: Option<Batch>,
    in_flight: VecDeque<InFlight>,
    uploads: Uploads<'a>,
    /// Staging for results: being filled, free for reuse, and taken from the arena so far.
    download: Option<DownloadChunk>,
    idle_downloads: Vec<::wgpu::Buffer>,
    taken_downloads: u32,
    phase: usize,
    launches: u64,
    total_work: u64,
    done_work: u64,
    fault: Option<Fault>,
    output: RunOutput,
    finished: bool,
}

impl GpuDevice {
    /// Runs a recording and returns its downloads. May be called from many threads.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the plan can not fit the budget, [`Error::DeviceFault`] if the
    /// device fails or a submission comes back without its token, [`Error::Timeout`],
    /// [`Error::Cancelled`], and [`Error::Usage`] for a recording that contradicts itself. The
    /// device remains usable unless [`Self::check_health`] says otherwise.
    pub fn run(&self, recording: &Recording, options: &RunOptions) -> Result<RunOutput> {
        let mut run = Run::prepare(self, recording, options)?;
        run.execute()?;
        Ok(std::mem::take(&mut run.output))
    }
}

impl<'a> Run<'a> {
    /// All that happens before the turn.
    fn prepare(
        gpu: &'a GpuDevice,
        recording: &'a Recording,
        options: &'a RunOptions,
    ) -> Result<Self> {
        let started = Instant::now();
        let check = || gpu.check(options);
        check()?;
        let plan = MemoryPlan::new(recording, &gpu.limits().plan(), &gpu.info().to_string())?;
        let pipelines = Self::pipelines(gpu, recording)?;
        let chunk = gpu.arena.config().chunk;
        let uploads = Uploads::new(gpu, recording, chunk);
        let downloads = recording.downloads() as u64;
        // The last region is for the canary.
        let request = Request {
            regions: plan.regions.iter().copied().chain([ALIGNMENT]).collect(),
            uploads: uploads.chunks() as u32,
            downloads: (plan.downloaded.div_ceil(chunk) + downloads).min(u64::from(u32::MAX))
                as u32,
        };
        let memory = gpu.arena.reserve(&request, &check)?;
        let reserved = Instant::now();
        let last = memory.slices.len() - 1;
        let canary = Window {
            buffer: memory.buffers[last].clone(),
            offset: memory.slices[last].offset,
            size: ALIGNMENT,
        };
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
            uploads,
            download: None,
            idle_downloads: Vec::new(),
            taken_downloads: 0,
            phase: 0,
            launches: 0,
            total_work: 0,
            done_work: 0,
            fault: gpu
                .fault
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
            output: RunOutput::default(),
            finished: false,
            memory: Some(memory),
            plan,
        };
        for (i, buffer) in recording.buffers.iter().enumerate() {
            if let BufferKind::Resident(resident) = &buffer.kind {
                if resident.arena_id() != gpu.arena.id() {
                    let what = format!("`{}` is resident on another device", buffer.label);
                    return Err(Error::Usage(what));
                }
                run.residents[i] = Some(gpu.arena.slab(resident.slice()));
            }
        }
        let work = |command: &Command| match command {
            Command::Dispatch(d) => u64::from(d.groups).saturating_mul(d.work_per_group),
            _ => 0,
        };
        let total = recording.commands.iter().map(work);
        run.total_work = total.fold(1, u64::saturating_add);
        run.uploads
            .stage_first(run.memory.as_ref().map_or(0, |m| m.uploads))?;
        run.prepare_output(reserved);
        Ok(run)
    }

    fn pipelines(
        gpu: &GpuDevice,
        recording: &Recording,
    ) -> Result<HashMap<(Kernel, CurveId), Arc<Pipeline>>> {
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
        let report = &mut self.output.report;
        report.reserve_ms = ms(reserved - self.started);
        report.staging_ms = ms(reserved.elapsed());
        report.reserved_bytes = self.plan.bytes + ALIGNMENT;
        report.uploaded_bytes = self.plan.uploaded;
        report.downloaded_bytes = self.plan.downloaded;
        let names = self.recording.phases.iter().map(|p| p.0);
        // What comes before the first named phase.
        report.phases = std::iter::once("start")
            .chain(names)
            .map(|name| PhaseTime {
                name,
                start_ms: f64::INFINITY,
                end_ms: 0.0,
                wall_ms: 0.0,
                device_ms: None,
                work: 0,
            })
            .collect();
    }

    fn execute(&mut self) -> Result<()> {
        let gpu = self.gpu;
        let options = self.options;
        let waiting = Instant::now();
        self.turn = Some(gpu.queue.turn(&|| gpu.check(options))?);
        let taken = Instant::now();
        self.output.report.turn_wait_ms = ms(taken - waiting);
        if gpu.options.poison {
            self.fill_memory(POISON, false)?;
        }
        let recording = self.recording;
        let mut phases = recording.phases.iter().map(|p| p.1).peekable();
        for (i, command) in recording.commands.iter().enumerate() {
            while phases.next_if(|&first| first <= i).is_some() {
                self.phase += 1;
                // Passes, and so timestamps, belong to one phase each.
                if let Some(batch) = &mut self.batch
                    && batch.page.timestamps.is_some()
                {
                    batch.pass = None;
                }
            }
            self.command(i, command)?;
        }
        self.fill_memory(0, true)?;
        self.flush()?;
        self.turn = None;
        self.output.report.turn_ms = ms(taken.elapsed());
        while !self.in_flight.is_empty() {
            self.reap()?;
        }
        gpu.health.take_stray()?;
        self.finish();
        Ok(())
    }

    /// Everything went well: what was borrowed goes back.
    fn finish(&mut self) {
        let arena = &self.gpu.arena;
        self.uploads.finish();
        for chunk in self.idle_downloads.drain(..) {
            arena.return_chunk(BufferUse::Download, chunk);
        }
        self.memory = None;
        let report = &mut self.output.report;
        report.total_ms = ms(self.started.elapsed());
        report.phases.retain(|p| p.work > 0 || p.wall_ms > 0.0);
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
        if let (BufferKind::Resident(resident), Some(buffer)) =
            (&self.recording.buffers[index].kind, &self.residents[index])
        {
            return Window {
                buffer: buffer.clone(),
                offset: resident.slice().offset + slice.offset,
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
            offset: memory.slices[region].offset,
            size: self.plan.regions[region],
        }
    }

    fn upload(&mut self, index: usize, dst: &BufferSlice) -> Result<()> {
        let window = self.window(dst);
        while let Some(piece) = self.uploads.next_piece(index) {
            while !self.uploads.stage_next()? {
                self.free_staging("upload")?;
            }
            self.batch()?;
            let batch = self.batch.as_mut().expect("just made");
            batch.pass = None;
            batch.encoder.copy_buffer_to_buffer(
                self.uploads.front(),
                piece.at,
                &window.buffer,
                window.offset + piece.source as u64,
                piece.size as u64,
            );
            let work = piece.size as u64 / COPY_BYTES_PER_WORK;
            batch.add_work(self.phase, work);
            if let Some(chunk) = self.uploads.advance() {
                batch.uploads.push(chunk);
            }
            self.cut_if_full()?;
        }
        Ok(())
    }

    fn download(&mut self, src: &BufferSlice, id: usize) -> Result<()> {
        let chunk_size = self.gpu.arena.config().chunk;
        let window = self.window(src);
        let mut done = 0;
        while done < window.size {
            if self.download.is_none() {
                self.download = Some(DownloadChunk::new(self.download_chunk()?));
            }
            self.batch()?;
            // Making a batch may have flushed, which takes the chunk.
            let (Some(chunk), Some(batch)) = (&mut self.download, &mut self.batch) else {
                continue;
            };
            let size = (window.size - done).min(chunk_size - chunk.used);
            batch.pass = None;
            batch.encoder.copy_buffer_to_buffer(
                &window.buffer,
                window.offset + done,
                &chunk.buffer,
                chunk.used,
                size,
            );
            batch.add_work(self.phase, size / COPY_BYTES_PER_WORK);
            chunk.pieces.push(DownloadPiece {
                id,
                offset: done as usize,
                at: chunk.used as usize,
                size: size as usize,
            });
            chunk.used += size;
            done += size;
            if chunk.used == chunk_size {
                batch.downloads.extend(self.download.take());
            }
            self.cut_if_full()?;
        }
        Ok(())
    }

    /// An empty staging buffer for results, within what was reserved.
    fn download_chunk(&mut self) -> Result<::wgpu::Buffer> {
        let reserved = self.memory.as_ref().map_or(0, |m| m.downloads);
        loop {
            if let Some(chunk) = self.idle_downloads.pop() {
                return Ok(chunk);
            }
            if self.taken_downloads < reserved {
                self.taken_downloads += 1;
                return self.gpu.arena.take_chunk(BufferUse::Download);
            }
            self.free_staging("download")?;
        }
    }

    /// Waits for a submission of this run, so that its staging buffers become free.
    fn free_staging(&mut self, what: &str) -> Result<()> {
        self.flush()?;
        if self.in_flight.is_empty() {
            // Can not happen: a reservation has a staging buffer if the recording needs any.
            return Err(self
                .gpu
                .health
                .fault(format!("no staging buffer for an {what}")));
        }
        self.reap()
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
        )
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

    /// Records `groups` workgroups, in as many submissions as their work needs.
    fn launch(
        &mut self,
        pipeline: &Pipeline,
        windows: &[Window],
        params: &[u32],
        groups: u32,
        work_per_group: u64,
    ) -> Result<()> {
        self.launches += 1;
        let mut first = 0;
        while first < groups {
            self.batch()?;
            let budget = self.budget();
            let work = self.batch.as_ref().map_or(0, |b| b.work);
            let left = budget.saturating_sub(work);
            let rest = groups - first;
            let fits = left / work_per_group.max(1);
            let count = u64::from(rest).min(fits) as u32;
            // Rather a new submission than a sliver at the end of this one.
            if count < rest && work > 0 && u64::from(count) * work_per_group < budget / 4 {
                self.flush()?;
                continue;
            }
            let count = count.max(1);
            self.record(pipeline, windows, params, first, first + count);
            let batch = self.batch.as_mut().expect("made above");
            batch.add_work(self.phase, work_per_group.saturating_mul(u64::from(count)));
            first += count;
            self.cut_if_full()?;
        }
        Ok(())
    }

    /// Records one dispatch in the current batch, which has room for it.
    fn record(
        &mut self,
        pipeline: &Pipeline,
        windows: &[Window],
        params: &[u32],
        first: u32,
        end: u32,
    ) {
        let (phase, launch, device) = (self.phase, self.launches, &self.gpu.device);
        let batch = self.batch.as_mut().expect("callers made one");
        let at = batch.params.len();
        let header = [first, end, 0, 0];
        batch
            .params
            .extend_from_slice(bytemuck::cast_slice(&header));
        batch.params.extend_from_slice(bytemuck::cast_slice(params));
        batch.params.resize(at + pipeline.stride as usize, 0);
        if batch
            .bound
            .as_ref()
            .is_none_or(|(for_launch, _)| *for_launch != launch)
        {
            let uniform = ::wgpu::BufferBinding {
                buffer: &batch.page.uniform,
                offset: 0,
                size: std::num::NonZeroU64::new(u64::from(pipeline.params_words) * 4),
            };
            let storage = windows.iter().map(|w| ::wgpu::BufferBinding {
                buffer: &w.buffer,
                offset: w.offset,
                size: std::num::NonZeroU64::new(w.size),
            });
            let entries: Vec<_> = std::iter::once(uniform)
                .chain(storage)
                .enumerate()
                .map(|(i, binding)| ::wgpu::BindGroupEntry {
                    binding: i as u32,
                    resource: ::wgpu::BindingResource::Buffer(binding),
                })
                .collect();
            let group = device.create_bind_group(&::wgpu::BindGroupDescriptor {
                label: Some(pipeline.label),
                layout: &pipeline.layout,
                entries: &entries,
            });
            batch.bound = Some((launch, group));
        }
        let (_, group) = batch.bound.as_ref().expect("just bound");
        if batch.pass.is_none() {
            let writes = batch.page.timestamps.as_ref().map(|(set, _)| {
                let index = 2 * batch.passes.len() as u32;
                ::wgpu::ComputePassTimestampWrites {
                    query_set: set,
                    beginning_of_pass_write_index: Some(index),
                    end_of_pass_write_index: Some(index + 1),
                }
            });
            let descriptor = ::wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: writes,
            };
            let pass = batch.encoder.begin_compute_pass(&descriptor);
            batch.pass = Some(pass.forget_lifetime());
            batch.passes.push(phase);
        }
        let pass = batch.pass.as_mut().expect("just begun");
        let (x, y) = fold(end - first);
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, group, &[at as u32]);
        pass.dispatch_workgroups(x, y, 1);
    }

    fn budget(&self) -> u64 {
        let calibration = self.gpu.calibration.lock();
        calibration.unwrap_or_else(PoisonError::into_inner).budget()
    }

    /// Makes sure that there is a batch.
    fn batch(&mut self) -> Result<()> {
        if self.batch.is_some() {
            return Ok(());
        }
        if self.fault == Some(Fault::Panic(self.output.report.submissions)) {
            panic!("injected");
        }
        let page = self.gpu.arena.take_page()?;
        let scopes = Scopes::push(&self.gpu.device);
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        // The content of `params` is decided when the batch ends, just before it is submitted.
        let size = PAGE_BLOCKS * ALIGNMENT;
        encoder.copy_buffer_to_buffer(&page.params, 0, &page.uniform, 0, size);
        self.batch = Some(Batch {
            pass: None,
            encoder,
            scopes,
            page,
            params: Vec::with_capacity(4096),
            token: self.gpu.next_token.fetch_add(1, Ordering::Relaxed),
            work: 0,
            phase_work: Vec::new(),
            passes: Vec::new(),
            uploads: Vec::new(),
            downloads: Vec::new(),
            bound: None,
        });
        Ok(())
    }

    /// Ends the batch if it has enough work, or no room for another dispatch and the canary.
    fn cut_if_full(&mut self) -> Result<()> {
        let budget = self.budget();
        let full = self.batch.as_ref().is_some_and(|b| {
            let blocks = b.params.len() as u64 / ALIGNMENT;
            b.work >= budget || blocks + 4 > PAGE_BLOCKS || b.passes.len() as u32 + 2 > MAX_PASSES
        });
        if full { self.flush() } else { Ok(()) }
    }

    /// Submits the batch, if there is one.
    fn flush(&mut self) -> Result<()> {
        if self.batch.is_none() {
            return Ok(());
        }
        let gpu = self.gpu;
        // Last, so that its token vouches for all before it.
        self.launches += 1;
        let (canary, token) = (
            self.canary.clone(),
            self.batch.as_ref().map_or(0, |b| b.token),
        );
        let pipeline = gpu.builtins.canary.clone();
        self.record(
            &pipeline,
            std::slice::from_ref(&canary),
            &[token, 0, 0, 0],
            0,
            1,
        );
        let mut batch = self.batch.take().expect("checked above");
        batch.downloads.extend(self.download.take());
        drop(batch.pass.take());
        let Page {
            params,
            readback,
            timestamps,
            ..
        } = &batch.page;
        batch
            .encoder
            .copy_buffer_to_buffer(&canary.buffer, canary.offset, readback, 0, 4);
        if let Some((set, resolved)) = timestamps {
            let count = 2 * batch.passes.len() as u32;
            batch.encoder.resolve_query_set(set, 0..count, resolved, 0);
            let size = u64::from(count) * 8;
            batch
                .encoder
                .copy_buffer_to_buffer(resolved, 0, readback, TIMESTAMPS_AT, size);
        }
        let written = params.slice(..).get_mapped_range_mut().map(|mut view| {
            view.slice(..batch.params.len())
                .copy_from_slice(&batch.params);
        });
        written.map_err(|e| gpu.health.fault(format!("parameters: {e}")))?;
        params.unmap();
        let number = self.output.report.submissions;
        self.output.report.submissions += 1;
        let commands = batch.encoder.finish();
        let lost = self.fault == Some(Fault::LoseSubmission(number));
        let turn = self.turn.as_ref().expect("submissions happen in the turn");
        let submission = gpu.submitter.submit(turn, (!lost).then_some(commands));
        let write = |buffer: ::wgpu::Buffer| {
            let mapping = request_mapping(&buffer, ::wgpu::MapMode::Write);
            (buffer, mapping)
        };
        let read = |chunk: DownloadChunk| {
            let mapping = request_mapping(&chunk.buffer, ::wgpu::MapMode::Read);
            (chunk, mapping)
        };
        self.in_flight.push_back(InFlight {
            submission,
            token: batch.token,
            work: batch.work,
            phase_work: batch.phase_work,
            passes: batch.passes,
            uploads: batch.uploads.into_iter().map(write).collect(),
            downloads: batch.downloads.into_iter().map(read).collect(),
            readback: request_mapping(&batch.page.readback, ::wgpu::MapMode::Read),
            params: request_mapping(&batch.page.params, ::wgpu::MapMode::Write),
            page: batch.page,
        });
        if let Some(error) = batch.scopes.pop() {
            return Err(gpu.health.fault(format!("submission refused: {error}")));
        }
        gpu.check(self.options)?;
        while self.in_flight.len() > IN_FLIGHT {
            self.reap()?;
        }
        Ok(())
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
        let now = Instant::now();
        gpu.submitter.wait_mapped(&oldest.readback, timeout)?;
        let (token, stamps) = oldest.read_back(gpu.submitter.timestamp_period())?;
        if token != oldest.token {
            return Err(gpu
                .health
                .fault("a submission was lost: its token did not come back"));
        }
        let done = self.in_flight.pop_front().expect("seen above");
        self.account(&done, now, &stamps);
        done.page.readback.unmap();
        gpu.submitter.wait_mapped(&done.params, timeout)?;
        gpu.arena.return_page(done.page);
        for (buffer, mapping) in done.uploads {
            gpu.submitter.wait_mapped(&mapping, timeout)?;
            self.uploads.recycle(buffer);
        }
        for (chunk, mapping) in done.downloads {
            gpu.submitter.wait_mapped(&mapping, timeout)?;
            chunk
                .read(&mut self.output.downloads)
                .map_err(|e| gpu.health.fault(e))?;
            self.idle_downloads.push(chunk.buffer);
        }
        self.done_work = self.done_work.saturating_add(done.work);
        if let Some(progress) = &self.options.progress {
            progress((self.done_work as f64 / self.total_work as f64).min(1.0));
        }
        Ok(())
    }

    /// Books the time of a completed submission.
    fn account(&mut self, done: &InFlight, now: Instant, stamps: &[(usize, Duration)]) {
        let lock = self.gpu.timeline.lock();
        let start = lock
            .unwrap_or_else(PoisonError::into_inner)
            .complete(done.submission.at, now);
        let wall = now - start;
        let device: Duration = stamps.iter().map(|s| s.1).sum();
        let report = &mut self.output.report;
        report.slowest_submission_ms = report.slowest_submission_ms.max(ms(wall));
        // The device's clock where there is one: the wall clock includes the host's delays.
        let time = if device.is_zero() { wall } else { device };
        let mut calibration = self
            .gpu
            .calibration
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        calibration.observe(done.work, time);
        drop(calibration);
        for &(phase, time) in stamps {
            *report.phases[phase].device_ms.get_or_insert(0.0) += ms(time);
        }
        let mut at = ms(start.saturating_duration_since(self.started));
        let all: u64 = done.phase_work.iter().map(|p| p.1).sum();
        for &(phase, work) in &done.phase_work {
            let share = ms(wall) * work as f64 / all.max(1) as f64;
            let phase = &mut report.phases[phase];
            phase.start_ms = phase.start_ms.min(at);
            at += share;
            phase.end_ms = phase.end_ms.max(at);
            phase.wall_ms += share;
            phase.work += work;
        }
    }

    /// The run failed, was cancelled, or panicked: nothing of it may stay behind, and its memory
    /// goes back only when the device is done with it.
    fn abandon(&mut self) {
        let gpu = self.gpu;
        let arena = &gpu.arena;
        self.batch = None;
        self.download = None;
        self.fault = None;
        let clears = !self.plan.secrets.is_empty() && self.output.report.submissions > 0;
        if clears && self.turn.is_some() && gpu.health.check().is_ok() {
            // Best effort; if the device refuses, its memory is gone or will be written over.
            let _ = self.fill_memory(0, true).and_then(|()| self.flush());
            self.batch = None;
        }
        self.turn = None;
        let mut stuck = None;
        for flight in self.in_flight.drain(..) {
            let go = || gpu.health.check();
            let waited = gpu
                .submitter
                .wait(&flight.submission, gpu.options.timeout, &go);
            if matches!(waited, Err(Error::Timeout { .. })) {
                stuck = Some(flight.submission.clone());
                break;
            }
        }
        for chunk in self.idle_downloads.drain(..) {
            arena.return_chunk(BufferUse::Download, chunk);
        }
        if let (Some(last), Some(memory)) = (stuck, self.memory.take()) {
            let mut zombies = gpu.zombies.lock().unwrap_or_else(PoisonError::into_inner);
            zombies.push(Zombie {
                last,
                _memory: memory,
                _recording: self.recording.clone(),
            });
        }
        self.memory = None;
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // Possibly in a panic already; a second one would abort the process.
            let _ = catch_unwind(AssertUnwindSafe(|| self.abandon()));
        }
    }
}

impl Batch {
    fn add_work(&mut self, phase: usize, work: u64) {
        // Nothing is free: phases without any work would not show in reports.
        let work = work.max(1);
        self.work = self.work.saturating_add(work);
        match self.phase_work.last_mut() {
            Some((last, sum)) if *last == phase => *sum += work,
            _ => self.phase_work.push((phase, work)),
        }
    }
}

impl InFlight {
    /// The token, and the time of each pass with its phase.
    fn read_back(&self, period: f32) -> Result<(u32, Vec<(usize, Duration)>)> {
        let view = self.page.readback.slice(..).get_mapped_range();
        let view = view.map_err(|e| Error::DeviceFault {
            device: String::new(),
            message: e.to_string(),
        })?;
        let token = u32::from_le_bytes([view[0], view[1], view[2], view[3]]);
        if self.page.timestamps.is_none() {
            return Ok((token, Vec::new()));
        }
        let stamps = &view[TIMESTAMPS_AT as usize..];
        let ticks: Vec<u64> = stamps
            .chunks_exact(8)
            .take(2 * self.passes.len())
            .map(|b| u64::from_le_bytes(b.try_into().expect("chunks of 8")))
            .collect();
        let times = ticks.chunks_exact(2).map(|t| {
            let nanoseconds = t[1].saturating_sub(t[0]) as f64 * f64::from(period);
            Duration::from_nanos(nanoseconds as u64)
        });
        Ok((token, self.passes.iter().copied().zip(times).collect()))
    }
}

/// Workgroup counts (x, y) of at least `groups` workgroups, with fewer than `y` too many.
fn fold(groups: u32) -> (u32, u32) {
    let y = groups.div_ceil(MAX_GROUPS_X);
    (groups.div_ceil(y), y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p42_groups_fold() {
        for groups in [
            1,
            2,
            32_768,
            32_769,
            65_535,
            65_536,
            65_537,
            1 << 24,
            (1 << 31) - 1,
        ] {
            let (x, y) = fold(groups);
            assert!(x <= MAX_GROUPS_X && y <= 65_535);
            let launched = u64::from(x) * u64::from(y);
            assert!(launched >= u64::from(groups) && launched < u64::from(groups) + u64::from(y));
        }
    }
}
