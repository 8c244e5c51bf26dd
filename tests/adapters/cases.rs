//! The cases of the self-test on every adapter and tier, against the CPU: every kernel by itself, then
//! transforms, multi-scalar multiplications and small proofs.

use crate::common::{TestDevice, expectations, on_each};
use groth16_gpu::selftest::{self, PreparedCases, Scope, Size};
use libtest_mimic::{Failed, Trial};
use std::sync::LazyLock;

/// The cases of a size, each prepared by the first test that needs it.
pub fn prepared(size: Size) -> &'static PreparedCases {
    static SMALL: LazyLock<PreparedCases> = LazyLock::new(|| PreparedCases::new(Size::Small));
    static LARGE: LazyLock<PreparedCases> = LazyLock::new(|| PreparedCases::new(Size::Large));
    static HUGE: LazyLock<PreparedCases> = LazyLock::new(|| PreparedCases::new(Size::Huge));
    match size {
        Size::Small => &SMALL,
        Size::Large => &LARGE,
        Size::Huge => &HUGE,
    }
}

pub fn trials(devices: &[TestDevice]) -> Vec<Trial> {
    let cases = selftest::cases().into_iter().enumerate();
    let trials = cases.flat_map(|(index, case)| {
        let module = match case.scope {
            Scope::Kernel => "kernels",
            Scope::Plan => "primitives",
        };
        on_each(devices, &format!("{module}/{}", case.id()), move |d| {
            if case.scope == Scope::Plan {
                d.prepare();
            }
            prepared(d.size).run(index, &d.gpu).map_err(Failed::from)
        })
    });
    let rules = on_each(devices, "expectations", expectations::rules_hold);
    trials.chain(rules).collect()
}
