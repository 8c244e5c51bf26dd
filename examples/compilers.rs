//! What vendors' compilers make of the kernels: registers, spills, occupancy, compile times.
//!
//!     cargo run --release --example compilers -- record --out docs/compilers/CARD.json
//!
//! `--help` has the rest, `docs/compilers.md` what came out.

// The tests use the rest.
#[allow(dead_code)]
#[path = "../tests/compilers/report/mod.rs"]
mod report;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    report::main()
}
