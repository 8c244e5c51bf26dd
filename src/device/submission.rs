//! One submission: its commands while they are recorded, and what it holds while it runs.

use crate::device::allocator::ALIGNMENT;
use crate::device::faults::Suffers;
use crate::device::pipelines::Pipeline;
use crate::device::queue::{Mapping, Submission, Submitter, Turn, request_mapping};
use crate::device::staging::{DownloadChunk, UploadChunk};
use crate::device::wgpu::{MAX_PASSES, PAGE_BLOCKS, Page, Scopes, TIMESTAMPS_AT};
use std::num::NonZeroU64;
use std::time::Duration;

/// Workgroups in x; the rest folds into y, since a dimension is limited to 65,535.
const MAX_GROUPS_X: u32 = 32_768;
/// Workgroups of one dispatch.
pub(super) const MAX_GROUPS: u32 = MAX_GROUPS_X * 65_535;

/// Workgroup counts (x, y) of at least `groups` workgroups, with fewer than `y` too many.
fn fold(groups: u32) -> (u32, u32) {
    let y = groups.div_ceil(MAX_GROUPS_X);
    (groups.div_ceil(y), y)
}

/// A range of a slab.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub buffer: ::wgpu::Buffer,
    pub offset: u64,
    pub size: u64,
}

impl Window {
    /// The window extended down to where a binding may start, and the words that this adds.
    pub fn aligned(&self) -> (Self, u32) {
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
pub(super) struct Batch {
    /// Dropped before the encoder that it belongs to.
    pass: Option<::wgpu::ComputePass<'static>>,
    encoder: ::wgpu::CommandEncoder,
    scopes: Scopes,
    page: Page,
    /// Content of the page's parameter blocks so far.
    params: Vec<u8>,
    token: u32,
    launches: usize,
    /// Estimated field multiplications, all and by phase.
    work: u64,
    phase_work: Vec<(usize, u64)>,
    /// Phase of each compute pass.
    passes: Vec<usize>,
    uploads: Vec<UploadChunk>,
    downloads: Vec<DownloadChunk>,
    /// Number of the launch that the last bind group is for.
    bound: Option<(u64, ::wgpu::BindGroup)>,
}

/// A submission on the device.
pub(super) struct InFlight {
    pub submission: Submission,
    pub page: Page,
    pub token: u32,
    pub work: u64,
    pub phase_work: Vec<(usize, u64)>,
    passes: Vec<usize>,
    pub uploads: Vec<(UploadChunk, Mapping)>,
    pub downloads: Vec<(DownloadChunk, Mapping)>,
    pub readback: Mapping,
    pub params: Mapping,
}

/// One dispatch to be recorded.
pub(super) struct Launch<'a> {
    /// Pieces of the same launch share it, and with it their bind group.
    pub number: u64,
    pub phase: usize,
    pub pipeline: &'a Pipeline,
    pub windows: &'a [Window],
    /// After the launch header.
    pub params: &'a [u32],
}

impl Batch {
    /// An empty submission. `token` is what its canary brings back.
    pub fn new(device: &::wgpu::Device, page: Page, token: u32) -> Self {
        let scopes = Scopes::push(device);
        let mut encoder = device.create_command_encoder(&Default::default());
        // The content of `params` is decided when the batch ends, just before it is submitted.
        let size = PAGE_BLOCKS * ALIGNMENT;
        if let Some(t) = page.timestamps.as_ref().filter(|t| t.ends) {
            encoder.write_timestamp(&t.set, 0);
        }
        encoder.copy_buffer_to_buffer(&page.params, 0, &page.uniform, 0, size);
        Self {
            pass: None,
            encoder,
            scopes,
            page,
            params: Vec::with_capacity(4096),
            token,
            launches: 0,
            work: 0,
            phase_work: Vec::new(),
            passes: Vec::new(),
            uploads: Vec::new(),
            downloads: Vec::new(),
            bound: None,
        }
    }

    /// Estimated work so far.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Dispatches so far.
    pub fn launches(&self) -> usize {
        self.launches
    }

    pub fn token(&self) -> u32 {
        self.token
    }

    pub fn add_work(&mut self, phase: usize, work: u64) {
        // Nothing is free: phases without any work would not show in reports.
        let work = work.max(1);
        self.work = self.work.saturating_add(work);
        match self.phase_work.last_mut() {
            Some((last, sum)) if *last == phase => *sum += work,
            _ => self.phase_work.push((phase, work)),
        }
    }

    /// No room for another dispatch and the canary.
    pub fn is_full(&self) -> bool {
        let blocks = self.params.len() as u64 / ALIGNMENT;
        blocks + 4 > PAGE_BLOCKS || self.passes.len() as u32 + 2 > MAX_PASSES
    }

    /// Passes, and so timestamps, belong to one phase each.
    pub fn next_phase(&mut self) {
        if self.page.timestamps.is_some() {
            self.pass = None;
        }
    }

    /// Copies between a slab and a staging buffer.
    pub fn copy(
        &mut self,
        (from, from_offset): (&::wgpu::Buffer, u64),
        (to, to_offset): (&::wgpu::Buffer, u64),
        size: u64,
    ) {
        self.pass = None;
        self.encoder
            .copy_buffer_to_buffer(from, from_offset, to, to_offset, size);
    }

    /// An upload's staging buffer, with its last piece recorded. Returns how many there are.
    pub fn uploaded(&mut self, chunk: UploadChunk) -> usize {
        self.uploads.push(chunk);
        self.uploads.len()
    }

    /// The staging buffers of its uploads, if it is not to be submitted.
    pub fn take_uploads(&mut self) -> Vec<UploadChunk> {
        std::mem::take(&mut self.uploads)
    }

    /// A staging buffer of results that gets nothing after this submission.
    pub fn downloaded(&mut self, chunk: DownloadChunk) {
        self.downloads.push(chunk);
    }

    /// Records workgroups `first..end` of a launch; if there are none, one that finds that it is
    /// beyond the end.
    pub fn record(&mut self, device: &::wgpu::Device, launch: &Launch<'_>, first: u32, end: u32) {
        let pipeline = launch.pipeline;
        let at = self.params.len();
        self.launches += 1;
        let header = [first, end, 0, 0];
        let words = header.iter().chain(launch.params);
        self.params.extend(words.flat_map(|w| w.to_le_bytes()));
        self.params.resize(at + pipeline.stride as usize, 0);
        if self.bound.as_ref().is_none_or(|b| b.0 != launch.number) {
            self.bound = Some((launch.number, self.bind(device, launch)));
        }
        if self.pass.is_none() {
            let index = 2 + 2 * self.passes.len() as u32;
            let timestamps = self.page.timestamps.as_ref();
            let pass = self
                .encoder
                .begin_compute_pass(&::wgpu::ComputePassDescriptor {
                    label: None,
                    timestamp_writes: timestamps.map(|t| ::wgpu::ComputePassTimestampWrites {
                        query_set: &t.set,
                        beginning_of_pass_write_index: Some(index),
                        end_of_pass_write_index: Some(index + 1),
                    }),
                });
            self.pass = Some(pass.forget_lifetime());
            self.passes.push(launch.phase);
        }
        if let (Some(pass), Some((_, group))) = (&mut self.pass, &self.bound) {
            let (x, y) = fold((end - first).max(1));
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, group, &[at as u32]);
            pass.dispatch_workgroups(x, y, 1);
        }
    }

    fn bind(&self, device: &::wgpu::Device, launch: &Launch<'_>) -> ::wgpu::BindGroup {
        let block = u64::from(launch.pipeline.params_words * 4).next_multiple_of(16);
        let uniform = ::wgpu::BufferBinding {
            buffer: &self.page.uniform,
            offset: 0,
            size: NonZeroU64::new(block),
        };
        let storage = launch.windows.iter().map(|w| ::wgpu::BufferBinding {
            buffer: &w.buffer,
            offset: w.offset,
            size: NonZeroU64::new(w.size),
        });
        let entries: Vec<_> = std::iter::once(uniform)
            .chain(storage)
            .zip(0..)
            .map(|(binding, number)| ::wgpu::BindGroupEntry {
                binding: number,
                resource: ::wgpu::BindingResource::Buffer(binding),
            })
            .collect();
        device.create_bind_group(&::wgpu::BindGroupDescriptor {
            label: Some(launch.pipeline.label),
            layout: &launch.pipeline.layout,
            entries: &entries,
        })
    }

    /// Ends the recording, with the canary (already recorded, its token in `canary`) and the
    /// timestamps on their way back, and submits it, unless it `suffers` something.
    ///
    /// The second result is what wgpu had to say against any of it.
    pub fn submit(
        mut self,
        submitter: &Submitter,
        turn: &Turn<'_>,
        canary: &Window,
        suffers: Suffers,
    ) -> Result<(InFlight, Option<String>), String> {
        drop(self.pass.take());
        let page = self.page;
        let back = &page.readback;
        self.encoder
            .copy_buffer_to_buffer(&canary.buffer, canary.offset, back, 0, 4);
        if let Some(t) = &page.timestamps {
            // Queries that were not written must not be resolved.
            let first = if t.ends { 0 } else { 2 };
            let count = 2 + 2 * self.passes.len() as u32;
            if t.ends {
                self.encoder.write_timestamp(&t.set, 1);
            }
            let size = u64::from(count - first) * 8;
            let resolved = &t.resolved;
            self.encoder
                .resolve_query_set(&t.set, first..count, resolved, 0);
            let at = TIMESTAMPS_AT + u64::from(first) * 8;
            self.encoder
                .copy_buffer_to_buffer(resolved, 0, back, at, size);
        }
        let view = page.params.slice(..).get_mapped_range_mut();
        let mut view = view.map_err(|e| format!("parameters: {e}"))?;
        view.slice(..self.params.len())
            .copy_from_slice(&self.params);
        drop(view);
        page.params.unmap();
        let commands = self.encoder.finish();
        let submission = match suffers {
            Suffers::Nothing => submitter.submit(turn, Some(commands)),
            Suffers::Loss => submitter.submit(turn, None),
            Suffers::Hang => submitter.hang(),
        };
        let write = |chunk: UploadChunk| {
            let mapping = request_mapping(&chunk.buffer, ::wgpu::MapMode::Write);
            (chunk, mapping)
        };
        let read = |chunk: DownloadChunk| {
            let mapping = request_mapping(&chunk.buffer, ::wgpu::MapMode::Read);
            (chunk, mapping)
        };
        let in_flight = InFlight {
            submission,
            token: self.token,
            work: self.work,
            phase_work: self.phase_work,
            passes: self.passes,
            uploads: self.uploads.into_iter().map(write).collect(),
            downloads: self.downloads.into_iter().map(read).collect(),
            readback: request_mapping(&page.readback, ::wgpu::MapMode::Read),
            params: request_mapping(&page.params, ::wgpu::MapMode::Write),
            page,
        };
        Ok((in_flight, self.scopes.pop().map(|e| e.to_string())))
    }
}

impl InFlight {
    /// The token, and the device's times, once `readback` is mapped; unmaps it.
    pub fn read_back(&self, period: f32) -> Result<(u32, DeviceTimes), String> {
        let view = self.page.readback.slice(..).get_mapped_range();
        let view = view.map_err(|e| format!("token: {e}"))?;
        let token = u32::from_le_bytes([view[0], view[1], view[2], view[3]]);
        let mut times = DeviceTimes::default();
        if let Some(t) = &self.page.timestamps {
            let nanoseconds = |b: &[u8]| {
                let ticks = u64::from_le_bytes(b.try_into().expect("8 bytes"));
                ticks as f64 * f64::from(period)
            };
            let mut spans = view[TIMESTAMPS_AT as usize..]
                .chunks_exact(16)
                .map(|stamp| (nanoseconds(&stamp[..8]), nanoseconds(&stamp[8..])));
            let ends = spans.next().filter(|_| t.ends);
            times.passes = self.passes.iter().copied().zip(spans).collect();
            let first = times.passes.first().map(|p| p.1.0);
            let last = times.passes.last().map(|p| p.1.1);
            times.whole = ends.or(first.zip(last));
        }
        drop(view);
        self.page.readback.unmap();
        Ok((token, times))
    }
}

/// What a device's clock says about a submission, in nanoseconds of that clock.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceTimes {
    /// Begin and end of all of it; `None` without a clock.
    pub whole: Option<(f64, f64)>,
    /// Phase, begin and end of each pass.
    pub passes: Vec<(usize, (f64, f64))>,
}

impl DeviceTimes {
    /// Time of each pass with its phase.
    pub fn durations(&self) -> impl Iterator<Item = (usize, Duration)> {
        let time = |&(phase, (begin, end)): &(usize, (f64, f64))| {
            (phase, Duration::from_nanos((end - begin).max(0.0) as u64))
        };
        self.passes.iter().map(time)
    }
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
            MAX_GROUPS,
        ] {
            let (x, y) = fold(groups);
            assert!(x <= MAX_GROUPS_X && y <= 65_535);
            let launched = u64::from(x) * u64::from(y);
            assert!(launched >= u64::from(groups) && launched < u64::from(groups) + u64::from(y));
        }
    }
}
