//! Uploads and downloads of a run: pieces of staging buffers, within what was reserved of them.

use super::{COPY_BYTES_PER_WORK, Run};
use crate::device::arena::BufferUse;
use crate::device::recording::BufferSlice;
use crate::device::staging::DownloadChunk;
use crate::error::Result;

impl Run<'_> {
    pub(super) fn upload(&mut self, index: usize, dst: &BufferSlice) -> Result<()> {
        let (window, share) = (self.window(dst), self.uploads.share());
        while let Some(piece) = self.uploads.next_piece(index) {
            while !self.uploads.stage_next()? {
                self.free_staging("upload")?;
            }
            let from = (self.uploads.front().clone(), piece.at);
            let to = (&window.buffer, window.offset + piece.source as u64);
            let size = piece.size as u64;
            let (phase, filled) = (self.phase, self.uploads.advance());
            let batch = self.batch()?;
            batch.copy((&from.0, from.1), to, size);
            batch.add_work(phase, size / COPY_BYTES_PER_WORK);
            if let Some(chunk) = filled
                && batch.uploaded(chunk) >= share
            {
                self.flush()?;
            }
            self.cut_if_full()?;
        }
        Ok(())
    }

    pub(super) fn download(&mut self, src: &BufferSlice, id: usize) -> Result<()> {
        let chunk_size = self.gpu.arena.config().chunk;
        let window = self.window(src);
        let mut done = 0;
        while done < window.size {
            let mut chunk = match self.download.take() {
                Some(chunk) => chunk,
                None => DownloadChunk::new(self.download_chunk()?),
            };
            let size = (window.size - done).min(chunk_size - chunk.used);
            let (phase, batch) = (self.phase, self.batch()?);
            let from = (&window.buffer, window.offset + done);
            batch.copy(from, (&chunk.buffer, chunk.used), size);
            batch.add_work(phase, size / COPY_BYTES_PER_WORK);
            chunk.add(id, done, size);
            match chunk.used == chunk_size {
                true => batch.downloaded(chunk),
                false => self.download = Some(chunk),
            }
            done += size;
            self.cut_if_full()?;
        }
        Ok(())
    }

    /// An empty staging buffer for results, within what was reserved.
    fn download_chunk(&mut self) -> Result<::wgpu::Buffer> {
        let reserved = self.memory.as_ref().map_or(0, |m| m.downloads());
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
}
