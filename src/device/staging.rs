//! Host bytes on their way to the device and back, through mapped buffers of one size.
//!
//! The pieces of all uploads are laid out one after the other in staging buffers before anything
//! runs. As many as were reserved are filled ahead of the turn, by several threads; the rest
//! follows in the turn, in buffers that completed submissions of the same run have freed.

use crate::device::arena::BufferUse;
use crate::device::queue::request_mapping;
use crate::device::recording::{Command, Recording};
use crate::device::wgpu::GpuDevice;
use crate::error::Result;
use std::collections::VecDeque;

/// Threads that fill staging buffers, at most.
const FILL_THREADS: usize = 8;

/// A staging buffer on its way to the device.
#[derive(Clone, Debug)]
pub(super) struct UploadChunk {
    pub buffer: ::wgpu::Buffer,
    /// Holds what must be cleared before the buffer serves again.
    secret: bool,
}

/// A part of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UploadPiece {
    pub command: usize,
    /// Offset in the upload's data.
    pub source: usize,
    pub size: usize,
    /// Number of the staging buffer, and offset in it.
    pub chunk: usize,
    pub at: u64,
    secret: bool,
}

/// Lays out the uploads of a recording in staging buffers of `chunk` bytes.
fn layout(recording: &Recording, chunk: u64) -> Vec<UploadPiece> {
    let mut pieces = Vec::new();
    let (mut number, mut used) = (0, 0);
    for (command, c) in recording.commands.iter().enumerate() {
        let Command::Upload { data, dst } = c else {
            continue;
        };
        let secret = recording.buffers[dst.buffer.0 as usize].secret;
        let mut source = 0;
        while source < data.len() {
            if used == chunk {
                (number, used) = (number + 1, 0);
            }
            let size = (data.len() - source).min((chunk - used) as usize);
            pieces.push(UploadPiece {
                command,
                source,
                size,
                chunk: number,
                at: used,
                secret,
            });
            source += size;
            used += size as u64;
        }
    }
    pieces
}

/// Staging buffers of `chunk` bytes that the uploads of a recording fill.
pub(super) fn chunks(recording: &Recording, chunk: u64) -> usize {
    let bytes: u64 = recording
        .commands
        .iter()
        .map(|c| match c {
            Command::Upload { data, .. } => data.len() as u64,
            _ => 0,
        })
        .sum();
    bytes.div_ceil(chunk) as usize
}

/// The uploads of one run.
pub(super) struct Uploads<'a> {
    gpu: &'a GpuDevice,
    recording: &'a Recording,
    pieces: Vec<UploadPiece>,
    /// Next piece to be copied to the device.
    next: usize,
    /// Filled and unmapped staging buffers from the one of `next` on.
    staged: VecDeque<UploadChunk>,
    /// Number of the next staging buffer to be filled.
    to_stage: usize,
    /// Mapped and empty.
    idle: Vec<::wgpu::Buffer>,
    /// Staging buffers that this run has, wherever they are.
    taken: usize,
    share: usize,
}

impl<'a> Uploads<'a> {
    pub fn new(gpu: &'a GpuDevice, recording: &'a Recording, chunk: u64) -> Self {
        Self {
            gpu,
            recording,
            pieces: layout(recording, chunk),
            next: 0,
            staged: VecDeque::new(),
            to_stage: 0,
            idle: Vec::new(),
            taken: 0,
            share: 1,
        }
    }

    /// Staging buffers that all uploads fill.
    pub fn chunks(&self) -> usize {
        self.pieces.last().map_or(0, |p| p.chunk + 1)
    }

    /// Fills the first staging buffers, as many as were reserved.
    pub fn stage_first(&mut self, reserved: u32) -> Result<()> {
        let count = self.chunks().min(reserved as usize);
        for _ in 0..count {
            let chunk = self.gpu.arena.take_chunk(BufferUse::Upload)?;
            self.idle.push(chunk);
            self.taken += 1;
        }
        // Two submissions take turns with the buffers that there are.
        self.share = (reserved as usize / 2).max(1);
        self.stage_next().map(|_| ())
    }

    /// Staging buffers that one submission may use up, so that the others fill meanwhile.
    pub fn share(&self) -> usize {
        self.share
    }

    /// Makes sure that the next piece's staging buffer is filled; false if one must become free.
    /// Fills all that are free, by several threads: one alone does not reach the bus's speed.
    pub fn stage_next(&mut self) -> Result<bool> {
        if !self.staged.is_empty() {
            return Ok(true);
        }
        let count = self.idle.len().min(self.chunks() - self.to_stage);
        let chunks = self.idle.split_off(self.idle.len() - count);
        let first = self.to_stage;
        // Threads of its own: those of rayon may be busy with another proof for long.
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2));
        let part = count.div_ceil(threads.clamp(1, FILL_THREADS)).max(1);
        std::thread::scope(|scope| {
            let fill = |(i, part_of): (usize, &[::wgpu::Buffer])| -> Result<()> {
                let numbers = first + i * part..;
                numbers.zip(part_of).try_for_each(|(n, c)| self.fill(n, c))
            };
            let mut parts = chunks.chunks(part).enumerate();
            let own = parts.next();
            let others: Vec<_> = parts.map(|p| scope.spawn(move || fill(p))).collect();
            let mut result = own.map_or(Ok(()), fill);
            for other in others {
                let panicked = |_| Err(self.gpu.health.fault("filling a staging buffer panicked"));
                result = result.and(other.join().unwrap_or_else(panicked));
            }
            result
        })?;
        self.to_stage += count;
        for (number, buffer) in (first..).zip(chunks) {
            let secret = self.pieces_of(number).any(|p| p.secret);
            self.staged.push_back(UploadChunk { buffer, secret });
        }
        Ok(count > 0)
    }

    fn pieces_of(&self, number: usize) -> impl Iterator<Item = &UploadPiece> {
        let first = self.pieces.partition_point(|p| p.chunk < number);
        let rest = self.pieces[first..].iter();
        rest.take_while(move |p| p.chunk == number)
    }

    /// Copies the pieces of one staging buffer into it, and unmaps it.
    fn fill(&self, number: usize, chunk: &::wgpu::Buffer) -> Result<()> {
        let view = chunk.slice(..).get_mapped_range_mut();
        let mut view = view.map_err(|e| self.gpu.health.fault(format!("staging: {e}")))?;
        for piece in self.pieces_of(number) {
            let Command::Upload { data, .. } = &self.recording.commands[piece.command] else {
                continue;
            };
            let at = piece.at as usize;
            view.slice(at..at + piece.size)
                .copy_from_slice(&data[piece.source..piece.source + piece.size]);
        }
        drop(view);
        chunk.unmap();
        Ok(())
    }

    /// The next piece, if it belongs to `command`.
    pub fn next_piece(&self, command: usize) -> Option<UploadPiece> {
        let piece = self.pieces.get(self.next)?;
        (piece.command == command).then_some(*piece)
    }

    /// Staging buffer of the next piece, once [`Self::stage_next`] said so.
    pub fn front(&self) -> &::wgpu::Buffer {
        &self.staged[0].buffer
    }

    /// The next piece is recorded. Returns its staging buffer if that was the last piece in it.
    pub fn advance(&mut self) -> Option<UploadChunk> {
        let chunk = self.pieces[self.next].chunk;
        self.next += 1;
        match self.pieces.get(self.next) {
            Some(next) if next.chunk == chunk => None,
            _ => self.staged.pop_front(),
        }
    }

    /// A staging buffer has served and is mapped again.
    pub fn recycle(&mut self, chunk: UploadChunk) {
        if chunk.secret
            && let Ok(mut view) = chunk.buffer.slice(..).get_mapped_range_mut()
        {
            view.slice(..).fill(0);
        }
        self.idle.push(chunk.buffer);
    }

    /// A staging buffer was filled for nothing: the run was given up. One that holds no secret, or
    /// can not be mapped any more, is lost.
    pub fn reclaim(&mut self, chunk: UploadChunk) {
        let mapping = request_mapping(&chunk.buffer, ::wgpu::MapMode::Write);
        let timeout = self.gpu.options.timeout;
        if chunk.secret && self.gpu.submitter.wait_mapped(&mapping, timeout).is_ok() {
            self.recycle(chunk);
        }
    }

    /// Returns what is left to the arena.
    pub fn finish(&mut self) {
        while let Some(chunk) = self.staged.pop_front() {
            self.reclaim(chunk);
        }
        let idle = std::mem::take(&mut self.idle);
        let lost = std::mem::take(&mut self.taken) - idle.len();
        let arena = &self.gpu.arena;
        arena.return_chunks(BufferUse::Upload, idle, lost);
    }
}

impl Drop for Uploads<'_> {
    /// Of a run that was given up, only what is mapped goes back.
    fn drop(&mut self) {
        self.finish();
    }
}

/// A staging buffer for results.
pub(super) struct DownloadChunk {
    pub buffer: ::wgpu::Buffer,
    pub used: u64,
    pieces: Vec<DownloadPiece>,
}

/// A part of a download.
#[derive(Clone, Copy, Debug)]
struct DownloadPiece {
    /// Index of the download, and offset in it.
    id: usize,
    offset: usize,
    /// Offset in the staging buffer.
    at: usize,
    size: usize,
}

impl DownloadChunk {
    pub fn new(buffer: ::wgpu::Buffer) -> Self {
        Self {
            buffer,
            used: 0,
            pieces: Vec::new(),
        }
    }

    /// The next `size` bytes of it are for a download, at `offset` there.
    pub fn add(&mut self, id: usize, offset: u64, size: u64) {
        self.pieces.push(DownloadPiece {
            id,
            offset: offset as usize,
            at: self.used as usize,
            size: size as usize,
        });
        self.used += size;
    }

    /// Copies its pieces out and unmaps it.
    pub fn read(&self, downloads: &mut [Vec<u8>]) -> Result<(), String> {
        let view = self.buffer.slice(..self.used).get_mapped_range();
        let view = view.map_err(|e| format!("staging: {e}"))?;
        for piece in &self.pieces {
            downloads[piece.id][piece.offset..piece.offset + piece.size]
                .copy_from_slice(&view[piece.at..piece.at + piece.size]);
        }
        drop(view);
        self.buffer.unmap();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_fill_staging_buffers_without_gaps() {
        let mut recording = Recording::new();
        for size in [100u64, 4, 5000, 3088] {
            let b = recording.transient("b", size);
            let data = vec![1u8; size as usize];
            recording.upload(recording.whole(b), data.into());
        }
        let pieces = layout(&recording, 4096);
        assert_eq!(
            pieces.last().map(|p| (p.chunk, p.at + p.size as u64)),
            Some((1, 4096))
        );
        let mut expected = 0;
        for piece in &pieces {
            assert_eq!(piece.chunk as u64 * 4096 + piece.at, expected);
            expected += piece.size as u64;
        }
        let uploaded: usize = pieces
            .iter()
            .filter(|p| p.command == 2)
            .map(|p| p.size)
            .sum();
        assert_eq!(uploaded, 5000);
    }
}
