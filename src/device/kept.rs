//! What of a key stays on the device between runs.

use crate::bytes::Bytes;
use crate::device::MemoryPlan;
use crate::device::allocator::align;
use crate::device::ledger::KeptSizes;
use crate::device::recording::{BufferSlice, Recording};
use std::sync::Arc;

/// One part: a device buffer that recordings name by its index ([`Recording::kept`]).
#[derive(Clone, Debug)]
pub struct KeptPart {
    pub label: &'static str,
    /// Bytes, a multiple of 4.
    pub size: u64,
    /// What it holds, by offset, in order; zeros elsewhere. Offsets and lengths are multiples of 4.
    pub content: Vec<(u64, Bytes)>,
}

/// A kept set with its content, brought to the device by the first run that needs it and evicted
/// when others need the room.
#[derive(Clone, Debug, Default)]
pub struct KeptParts {
    /// The same number for the same content.
    pub id: u64,
    pub parts: Vec<KeptPart>,
    /// What computes the parts that have no content, all of them, with its memory.
    pub computed: Arc<[(Recording, MemoryPlan)]>,
}

impl KeptPart {
    /// Records the upload of the part's bytes from `start` to `end` (multiples of 4) into `to`, a
    /// range of that size.
    pub fn record_upload(&self, rec: &mut Recording, to: BufferSlice, start: u64, end: u64) {
        let mut done = start;
        let slice = |from: u64, until: u64| BufferSlice {
            buffer: to.buffer,
            offset: to.offset + from - start,
            size: until - from,
        };
        for (offset, bytes) in &self.content {
            let from = (*offset).max(start);
            let until = (offset + bytes.len() as u64).min(end);
            if from >= until {
                continue;
            }
            if done < from {
                rec.clear(slice(done, from));
            }
            let piece = bytes.slice((from - offset) as usize..(until - offset) as usize);
            rec.upload(slice(from, until), piece);
            done = until;
        }
        if done < end {
            rec.clear(slice(done, end));
        }
    }
}

impl KeptParts {
    /// Device memory that it takes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| align(p.size)).sum()
    }

    /// What the arena needs to know.
    pub fn sizes(&self) -> KeptSizes {
        KeptSizes {
            id: self.id,
            sizes: self.parts.iter().map(|p| p.size).collect(),
        }
    }

    /// Recordings that upload the parts with content, each at most `piece` bytes, so that runs of
    /// others come between.
    pub(super) fn uploads(&self, piece: u64) -> Vec<Recording> {
        let mut recordings = Vec::new();
        let (mut rec, mut recorded) = (Recording::new(), 0);
        for (i, part) in self.parts.iter().enumerate() {
            if part.content.is_empty() && !self.computed.is_empty() {
                continue;
            }
            let mut start = 0;
            while start < part.size {
                let end = part.size.min(start + piece - recorded);
                let to = BufferSlice {
                    buffer: rec.kept(part.label, i as u32, part.size),
                    offset: start,
                    size: end - start,
                };
                part.record_upload(&mut rec, to, start, end);
                recorded += end - start;
                start = end;
                if recorded == piece {
                    recordings.push(std::mem::take(&mut rec));
                    recorded = 0;
                }
            }
        }
        if recorded > 0 {
            recordings.push(rec);
        }
        recordings
    }
}
