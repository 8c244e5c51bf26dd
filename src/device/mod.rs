//! Devices: selection, memory, queue, and the executors that replay recordings.

pub mod arena;
pub mod recording;

/// What computes proofs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// The native CPU path.
    Cpu,
}
