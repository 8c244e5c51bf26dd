//! Self-test: every kernel on a device against the CPU.
//!
//! [`cases`] is the one list of what is tested; the `selftest` command runs it on a user's machine
//! and the integration tests run it on every adapter of theirs. Each case makes its inputs from a
//! fixed seed and computes with arkworks what must come of them, once; on each device it then records
//! a plan, and compares.

mod canaries;
mod elsewhere;
mod field;
mod fixed_base;
mod known;
mod known_answers;
mod msm;
mod ntt;
mod points;
mod proof;
mod report;
mod rows;
mod run;
mod throughput;

pub use elsewhere::{Executor, run_elsewhere};
pub use report::{
    AdapterReport, CaseReport, CompileTime, Host, SCHEMA, SelftestReport, Throughput, TierReport,
};
pub use run::{Event, run};

use crate::bytes::Bytes;
use crate::curve::{Bls12381, Bn254, CurveId, GpuCurve};
use crate::device::recording::{BufferId, Recording};
use crate::device::{DeviceInfo, GpuDevice, RunOptions, RunOutput};
use crate::error::Error;
use crate::kernels::Kernel;
use crate::ntt::push_scalar;
use crate::with_curve;
use ark_ff::UniformRand;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rayon::prelude::*;
use serde::Serialize;
use std::sync::{Arc, OnceLock};

/// Why a case fails.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// A result is not what it should be.
    #[error("{0}")]
    Wrong(String),
    /// There was none.
    #[error(transparent)]
    Run(#[from] Error),
}

impl From<String> for CaseError {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

impl From<&str> for CaseError {
    fn from(what: &str) -> Self {
        Self::Wrong(what.to_owned())
    }
}

type Outcome = Result<(), CaseError>;

/// What a case does on a device, with its inputs and what must come of them at hand.
pub type Check = Box<dyn Fn(&Arc<GpuDevice>) -> Result<(), CaseError> + Send + Sync>;

/// A case made ready: on the CPU alone, so that it serves every device and tier.
type Prepared = Result<Check, String>;

fn check(run: impl Fn(&Arc<GpuDevice>) -> Outcome + Send + Sync + 'static) -> Prepared {
    Ok(Box::new(run))
}

/// How large the inputs of the cases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// What a software adapter does in seconds.
    Small,
    /// Several passes, levels and workgroups of everything.
    Large,
    /// Transforms and sums that fill a card; computing what must come of them takes the CPU minutes.
    Huge,
}

impl Size {
    /// The size that suits a device.
    pub fn of(info: &DeviceInfo) -> Self {
        if info.software {
            Self::Small
        } else {
            Self::Large
        }
    }

    fn pick<T>(self, small: T, large: T) -> T {
        match self {
            Self::Small => small,
            Self::Large | Self::Huge => large,
        }
    }
}

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A kernel or two by themselves.
    Kernel,
    /// A plan of many kernels.
    Plan,
}

/// One case over one curve.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub curve: CurveId,
    pub scope: Scope,
    /// The kernels whose results decide the outcome.
    pub kernels: &'static [Kernel],
    /// Makes inputs and what must come of them.
    ///
    /// # Errors
    /// Why the CPU could not.
    pub prepare: fn(Size) -> Result<Check, String>,
}

impl Case {
    /// `name/curve`
    pub fn id(&self) -> String {
        format!("{}/{}", self.name, self.curve)
    }
}

/// Every case, each prepared once.
pub struct PreparedCases {
    size: Size,
    cases: Vec<(Case, OnceLock<Prepared>)>,
}

impl PreparedCases {
    /// Prepares nothing yet.
    pub fn new(size: Size) -> Self {
        let unprepared = |case| (case, OnceLock::new());
        let cases = cases().into_iter().map(unprepared).collect();
        Self { size, cases }
    }

    /// Prepares all, on all cores.
    pub fn prepare(&self) {
        let indices = (0..self.cases.len()).into_par_iter();
        indices.with_max_len(1).for_each(|i| _ = self.prepared(i));
    }

    pub fn size(&self) -> Size {
        self.size
    }

    /// The cases, in the order of [`cases`].
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().map(|(case, _)| case)
    }

    fn prepared(&self, index: usize) -> &Prepared {
        let (case, prepared) = &self.cases[index];
        prepared.get_or_init(|| (case.prepare)(self.size))
    }

    /// Runs a case on a device, prepared before or now.
    ///
    /// # Errors
    /// What was wrong.
    pub fn run(&self, index: usize, gpu: &Arc<GpuDevice>) -> Result<(), CaseError> {
        match self.prepared(index) {
            Ok(check) => check(gpu),
            Err(why) => Err(Error::Internal(why.clone()).into()),
        }
    }
}

/// Kernels of every multi-scalar multiplication.
macro_rules! msm_kernels {
    ($($more:ident),*) => {
        &[
            Kernel::MsmDigits,
            Kernel::ScanBlock,
            Kernel::ScanAdd,
            Kernel::MsmScatter,
            Kernel::PointsImport,
            $(Kernel::$more,)*
            Kernel::PointsExport,
        ]
    };
}
const MSM_G1: &[Kernel] = msm_kernels!(MsmAccumulateG1, MsmMergeG1, MsmReduceG1);
const MSM_G2: &[Kernel] = msm_kernels!(MsmAccumulateG2, MsmMergeG2, MsmReduceG2);
const MSM_PAIRS_G1: &[Kernel] = msm_kernels!(
    MsmPairCounts,
    MsmPairSources,
    MsmPairSumsG1,
    MsmAccumulateG1,
    MsmMergeG1,
    MsmReduceG1
);
const MSM_PAIRS_G2: &[Kernel] = msm_kernels!(
    MsmPairCounts,
    MsmPairSources,
    MsmPairSumsG2,
    MsmAccumulateG2,
    MsmMergeG2,
    MsmReduceG2
);
const MSM_TABLES_G1: &[Kernel] = msm_kernels!(MsmTableG1, MsmAccumulateG1, MsmMergeG1, MsmReduceG1);
const MSM_TABLES_G2: &[Kernel] = msm_kernels!(MsmTableG2, MsmAccumulateG2, MsmMergeG2, MsmReduceG2);

/// Kernels of many multiples of one point.
macro_rules! fixed_base_kernels {
    ($sums:ident) => {
        &[
            Kernel::PointsImport,
            Kernel::FixedBaseEntries,
            Kernel::MsmPairCounts,
            Kernel::ScanBlock,
            Kernel::MsmPairSources,
            Kernel::$sums,
            Kernel::PointsExportAffine,
        ]
    };
}

/// The cases over one curve, simple ones first: where a kernel is broken, the first failure is
/// nearest to the cause.
fn cases_over<C: GpuCurve>() -> Vec<Case> {
    use Scope::{Kernel as One, Plan};
    let case = |name, scope, kernels, prepare| Case {
        name,
        curve: C::ID,
        scope,
        kernels,
        prepare,
    };
    vec![
        case(
            "scan",
            One,
            &[Kernel::ScanBlock, Kernel::ScanAdd],
            field::scan::<C>,
        ),
        case(
            "field_ops_fr",
            One,
            &[Kernel::FieldOpsFr],
            field::operations_fr::<C>,
        ),
        case(
            "field_ops_fq",
            One,
            &[Kernel::FieldOpsFq],
            field::operations_fq::<C>,
        ),
        case(
            "pointwise_mul",
            One,
            &[Kernel::PointwiseMul],
            field::pointwise_mul::<C>,
        ),
        case("quotient", One, &[Kernel::Quotient], field::quotient::<C>),
        case(
            "row_product",
            One,
            &[Kernel::RowProduct],
            rows::row_product::<C>,
        ),
        case(
            "point_ops_g1",
            One,
            &[
                Kernel::PointsImport,
                Kernel::PointOpsG1,
                Kernel::PointsExport,
            ],
            points::operations_g1::<C>,
        ),
        case(
            "point_ops_g2",
            One,
            &[
                Kernel::PointsImport,
                Kernel::PointOpsG2,
                Kernel::PointsExport,
            ],
            points::operations_g2::<C>,
        ),
        case(
            "canary_chained_scans",
            One,
            canaries::SCANS,
            canaries::chained_scans::<C>,
        ),
        case(
            "canary_contended_atomics",
            One,
            &[Kernel::MsmDigits],
            canaries::contended_atomics::<C>,
        ),
        case(
            "canary_far_end",
            One,
            canaries::SCANS,
            canaries::far_end::<C>,
        ),
        case("ntt", Plan, NTT, ntt::transforms::<C>),
        case("msm_sizes_g1", Plan, MSM_G1, msm::sizes_g1::<C>),
        case("msm_sizes_g2", Plan, MSM_G2, msm::sizes_g2::<C>),
        case("msm_skewed_g1", Plan, MSM_G1, msm::skewed_g1::<C>),
        case("msm_skewed_g2", Plan, MSM_G2, msm::skewed_g2::<C>),
        case("msm_windows", Plan, MSM_G1, msm::windows::<C>),
        case("msm_pairs_g1", Plan, MSM_PAIRS_G1, msm::pairs_g1::<C>),
        case("msm_pairs_g2", Plan, MSM_PAIRS_G2, msm::pairs_g2::<C>),
        case("msm_tables_g1", Plan, MSM_TABLES_G1, msm::tables_g1::<C>),
        case("msm_tables_g2", Plan, MSM_TABLES_G2, msm::tables_g2::<C>),
        case(
            "fixed_base_entries",
            One,
            &[Kernel::FixedBaseEntries],
            fixed_base::entries_of::<C>,
        ),
        case(
            "fixed_base_g1",
            Plan,
            fixed_base_kernels!(MsmPairSumsG1),
            fixed_base::multiples_g1::<C>,
        ),
        case(
            "fixed_base_g2",
            Plan,
            fixed_base_kernels!(MsmPairSumsG2),
            fixed_base::multiples_g2::<C>,
        ),
        case("msm_large", Plan, MSM_G1, msm::large::<C>),
        case("proof_circom", Plan, PROOF, proof::circom::<C>),
        case("proof_libsnark", Plan, PROOF, proof::libsnark::<C>),
    ]
}

const NTT: &[Kernel] = &[
    Kernel::NttRoots,
    Kernel::NttSplit,
    Kernel::NttReverse,
    Kernel::NttDif,
    Kernel::NttDit,
];

/// Kernels that a proof runs besides those of the multi-scalar multiplications, which their own
/// cases test harder.
const PROOF: &[Kernel] = &[
    Kernel::RowProduct,
    Kernel::PointwiseMul,
    Kernel::NttDif,
    Kernel::Quotient,
];

/// Every case over every curve.
pub fn cases() -> Vec<Case> {
    let known = CurveId::ALL.map(known_answers).concat();
    [known, cases_over::<Bn254>(), cases_over::<Bls12381>()].concat()
}

/// Those of [`cases`] over one curve that compare with answers in the source. Each lists every kernel
/// that it runs; those of one stage come before those of a stage that builds on it.
pub fn known_answers(curve: CurveId) -> Vec<Case> {
    with_curve!(curve, C => known::cases_over::<C>())
}

/// Fails with a message unless a condition holds.
macro_rules! ensure {
    ($cond:expr, $($message:tt)+) => {
        if !$cond {
            return Err(format!($($message)+).into());
        }
    };
}
use ensure;

fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// Uploads bytes into a new buffer.
fn upload(rec: &mut Recording, label: &'static str, bytes: &Bytes) -> BufferId {
    crate::ntt::upload(rec, label, bytes)
}

fn run_recording(gpu: &GpuDevice, rec: &Recording) -> Result<RunOutput, CaseError> {
    if let Some(executor) = elsewhere::executor() {
        let downloads = executor(rec).map_err(CaseError::Wrong)?;
        return Ok(RunOutput {
            downloads,
            ..RunOutput::default()
        });
    }
    Ok(gpu.run(rec, &RunOptions::default())?)
}

/// Random scalars.
fn random<C: GpuCurve>(n: usize, rng: &mut StdRng) -> Vec<C::Fr> {
    (0..n).map(|_| C::Fr::rand(rng)).collect()
}

/// Scalars in the form at rest.
fn at_rest<C: GpuCurve>(v: &[C::Fr]) -> Bytes {
    let mut out = Vec::with_capacity(32 * v.len());
    v.iter().for_each(|x| push_scalar::<C>(x, &mut out));
    out.into()
}

/// Compares scalars that the device gave, in the form at rest, with what they should be.
fn expect_scalars<C: GpuCurve>(got: &[u8], expected: &[C::Fr], what: &str) -> Outcome {
    ensure!(
        got.len() == 32 * expected.len(),
        "{what}: {} bytes",
        got.len()
    );
    let n = expected.len();
    for (i, (bytes, expected)) in got.chunks_exact(32).zip(expected).enumerate() {
        let got = C::fr_from_montgomery(bytes)
            .ok_or_else(|| format!("{what}: element {i} of {n} is not below the modulus"))?;
        ensure!(got == *expected, "{what}: element {i} of {n}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_covered_over_every_curve() {
        for curve in CurveId::ALL {
            for kernel in Kernel::ALL {
                let covers = |c: &Case| c.curve == curve && c.kernels.contains(&kernel);
                assert!(cases().iter().any(covers), "{} {curve}", kernel.name());
            }
        }
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<_> = cases().iter().map(Case::id).collect();
        ids.sort();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    }
}
