//! What needs no adapter: files, the prover on the CPU path, batches, the command line. One binary,
//! because each links the whole library.

mod batch;
#[path = "../circuits/mod.rs"]
mod circuits;
mod cli;
#[path = "../corpus/mod.rs"]
mod corpus;
mod formats;
mod libsnark_keys;
mod prepared;
mod prover;
mod selftest_report;
