//! The buffer arena.

use std::sync::Arc;

/// Memory that stays on the device between proofs; freed when the last clone goes.
#[derive(Clone, Debug)]
pub struct ResidentBuffer {
    size: Arc<u64>,
}

impl ResidentBuffer {
    pub fn size(&self) -> u64 {
        *self.size
    }
}
