//! Transforms, multi-scalar multiplications and small proofs against the CPU, on every adapter and
//! tier: the cases of the self-test.

mod common;

use groth16_gpu::selftest::Scope;

fn main() {
    common::run_selftest(Scope::Plan)
}
