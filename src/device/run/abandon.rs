//! The end of a run that did not go well.

use super::Run;
use crate::device::arena::BufferUse;
use crate::device::faults::Fault;
use crate::device::submission::Batch;
use crate::device::wgpu::{Zombie, lock};
use crate::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

impl Run<'_> {
    /// The run failed, was cancelled, or panicked: nothing of it may stay behind, and its memory
    /// goes back only when the device is done with it.
    fn abandon(&mut self) {
        let gpu = self.gpu;
        let arena = &gpu.arena;
        for chunk in self.batch.take().iter_mut().flat_map(Batch::take_uploads) {
            self.uploads.reclaim(chunk);
        }
        self.download = None;
        // A device that hangs does so for the submission that clears memory, too.
        self.fault = self.fault.filter(|f| matches!(f, Fault::HangSubmission(_)));
        self.given_up = true;
        let clears = !self.plan.secrets.is_empty() && self.output.report.submissions > 0;
        if clears && self.turn.is_some() && gpu.health.check().is_ok() {
            // Best effort; if the device refuses, its memory is gone or will be written over.
            let _ = self.fill_memory(0, true).and_then(|()| self.submit());
            self.batch = None;
        }
        self.turn = None;
        // Submissions complete in order, so the last one stands for all.
        let mut stuck = None;
        if let Some(last) = self.in_flight.back().map(|f| f.submission.clone()) {
            let timeout = gpu.options.timeout;
            let waited = gpu.submitter.wait(&last, timeout, &|| gpu.health.check());
            stuck = matches!(waited, Err(Error::Timeout { .. })).then_some(last);
        }
        for done in self.in_flight.drain(..).filter(|_| stuck.is_none()) {
            for (chunk, mapping) in done.uploads {
                if gpu
                    .submitter
                    .wait_mapped(&mapping, gpu.options.timeout)
                    .is_ok()
                {
                    self.uploads.recycle(chunk);
                }
            }
        }
        let idle = std::mem::take(&mut self.idle_downloads);
        let lost = self.taken_downloads as usize - idle.len();
        arena.return_chunks(BufferUse::Download, idle, lost);
        arena.lose_pages(self.pages);
        if let (Some(last), Some(memory)) = (stuck, self.memory.take()) {
            let mut zombies = lock(&gpu.zombies);
            zombies.push(Zombie {
                last,
                since: Instant::now(),
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
