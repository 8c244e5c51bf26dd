//! Devices: selection, memory, queue, and the executors that replay recordings.

pub mod arena;
pub mod recording;
