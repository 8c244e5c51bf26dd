//! The cases of the self-test on every adapter and tier, against the CPU: every kernel by itself, then
//! transforms, multi-scalar multiplications and small proofs.

use crate::common::{self, TestDevice, expectations, on_each};
use groth16_gpu::curve::CurveId;
use groth16_gpu::selftest::{self, Case, PreparedCases, Scope, Size};
use libtest_mimic::{Failed, Trial};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

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

/// What ids have for a case's scope.
pub fn module(case: &Case) -> &'static str {
    match case.scope {
        Scope::Kernel => "kernels",
        Scope::Plan => "primitives",
    }
}

pub fn trials(devices: &[TestDevice]) -> Vec<Trial> {
    let cases = selftest::cases().into_iter().enumerate();
    let trials = cases.flat_map(|(index, case)| {
        let name = format!("{}/{}", module(&case), case.id());
        on_each(devices, &name, move |d| {
            if case.scope == Scope::Plan {
                d.prepare();
            }
            prepared(d.size).run(index, &d.gpu).map_err(Failed::from)
        })
    });
    let rules = on_each(devices, "expectations", expectations::rules_hold);
    trials.chain(rules).chain(gl_trials()).collect()
}

/// As [`trials`] through GL, which compiles for minutes: over one curve, unless it is to be wide.
fn gl_trials() -> Vec<Trial> {
    let device = common::gl_device().map(|d| Arc::new(Mutex::new(d)));
    let cases = selftest::cases().into_iter().enumerate();
    let cases = cases.filter(|(_, case)| common::wide() || case.curve == CurveId::Bn254);
    let trials = cases.map(|(index, case)| {
        let id = format!("{}/{}/{}", common::GL_LABEL, module(&case), case.id());
        let Some(device) = device.clone() else {
            return common::ignored(id);
        };
        common::trial(id, move || {
            let device = device.lock().unwrap_or_else(PoisonError::into_inner);
            let run = prepared(device.size).run(index, &device.gpu);
            run.map_err(Failed::from)
        })
    });
    trials.collect()
}
