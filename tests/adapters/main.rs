//! Everything that compiles kernels by the dozen, in one process: drivers that do not remember what
//! they compiled compile it once, and while one test waits for that, another runs.
//!
//! Test ids are `adapter/tier/module/case`.

mod cases;
#[path = "../circuits/mod.rs"]
mod circuits;
#[path = "../common/mod.rs"]
mod common;
#[path = "../corpus/mod.rs"]
mod corpus;
mod dawn;
mod faults;
mod groth16;
mod profiles;
mod regression;
mod reports;
mod selftest;
mod setup;
mod tables;
mod tuning;

use common::TestDevice;
use libtest_mimic::Trial;

fn main() {
    let (adapters, devices) = (common::adapters(), common::devices());
    let slow: Vec<&TestDevice> = devices.iter().filter(|d| d.is_slow()).collect();
    let (slow, rest): (Vec<Trial>, Vec<Trial>) = [
        regression::trials(&devices),
        tuning::trials(&adapters),
        tables::trials(&adapters),
        profiles::trials(&devices),
        reports::trials(&adapters),
        faults::trials(&devices),
        setup::trials(&devices, &adapters),
        cases::trials(&devices),
        groth16::trials(&devices),
        dawn::trials(&devices),
    ]
    .into_iter()
    .flatten()
    .partition(|t| slow.iter().any(|d| t.name().starts_with(&d.label)));
    // The self-test compiles everything for lavapipe, on one core and as nobody before it. Meanwhile
    // slow adapters compile; then the others find in the driver's cache what the self-test left.
    let first = selftest::trials(&adapters);
    common::run(first.into_iter().chain(slow).chain(rest).collect())
}
