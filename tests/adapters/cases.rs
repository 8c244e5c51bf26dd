//! The cases of the self-test on every adapter and tier, against the CPU: every kernel by itself, then
//! transforms, multi-scalar multiplications and small proofs.

use crate::common::{TestDevice, on_each};
use groth16_gpu::selftest::{self, Scope};
use libtest_mimic::{Failed, Trial};

pub fn trials(devices: &[TestDevice]) -> Vec<Trial> {
    let cases = selftest::cases().into_iter();
    let trials = cases.flat_map(|case| {
        let module = match case.scope {
            Scope::Kernel => "kernels",
            Scope::Plan => "primitives",
        };
        on_each(devices, &format!("{module}/{}", case.id()), move |d| {
            if case.scope == Scope::Plan {
                d.prepare();
            }
            (case.run)(&d.gpu, d.size).map_err(Failed::from)
        })
    });
    trials.collect()
}
