//! Devices: selection, memory, queue, and the executors that replay recordings.
//!
//! A plan appends commands to a [`recording::Recording`]. [`GpuDevice::run`] decides where its
//! buffers go ([`plan`]), reserves all of that memory in the [`arena`], takes its turn at the
//! [`queue`], submits the commands in pieces of bounded time, and waits for them outside the turn.

mod adapters;
pub mod allocator;
pub mod arena;
mod builtin;
pub mod deny;
mod execute;
mod faults;
pub mod kept;
pub mod ledger;
mod limits;
pub mod line;
pub mod pipelines;
pub mod plan;
mod profile;
pub mod queue;
pub mod recording;
mod report;
mod run;
pub mod selector;
mod staging;
mod submission;
mod wgpu;

pub use adapters::{AdapterDetails, Adapters, BackendSurvey, Survey};
pub use arena::{ArenaReport, ResidentBuffer};
pub use execute::{Progress, RunOptions};
#[cfg(feature = "fault-injection")]
pub use faults::Fault;
pub use kept::{KeptPart, KeptParts};
pub use limits::GpuLimits;
pub(crate) use limits::set_aside;
pub use plan::{MemoryPlan, PlanLimits};
pub use profile::DeviceProfile;
pub use queue::CancelToken;
pub use report::{PhaseTime, RunOutput, RunReport};
pub use selector::{Backend, DeviceInfo, DeviceSelector, DeviceType, Selected};
pub use wgpu::GpuDevice;

use crate::error::Result;
use crate::kernels::{Kernel, WordTier};
use crate::tuning::TuningSource;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to open a device.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// What the arena may take, in bytes; otherwise a share of what the device has.
    pub vram_limit: Option<u64>,
    /// Forces a shader tier.
    pub word_tier: Option<WordTier>,
    /// Where choices come from that were measured on the adapter: the tier, unless it is forced,
    /// and how multi-scalar multiplications go.
    pub tuning: TuningSource,
    /// Most tables of multiples for each query of a key, the query itself among them: 1, 2, 4, 8
    /// or 16. Proofs get faster (`benches/RESULTS.md`), a key takes that many times its size of the
    /// device's memory, if there is room, and longer to bring there. Worth it for many proofs of one
    /// key. 1 by default.
    pub tables: u32,
    /// Compiles shaders with checks of bounds and loops: for tests.
    pub checked_shaders: bool,
    /// How long one submission is to take.
    pub submission: Duration,
    /// How long one submission may take before the run fails.
    pub timeout: Duration,
    /// Measures device time where the device can.
    pub timestamps: bool,
    /// Where compiled pipelines are remembered, if the driver can do that, and measurements.
    pub cache: CacheFolder,
    /// Whether kernels must give known answers before a proof runs them for the first time on this
    /// adapter and driver ([`crate::first_use`]). On unless turned off.
    pub first_use_probe: bool,
    /// Whether a device may be used that is known to compute wrongly ([`deny`]).
    pub allow_denied: bool,
    /// Fills a run's memory with a pattern first, so that a read of what was never written shows:
    /// for tests.
    pub poison: bool,
    /// Lowers the largest binding, as on adapters with a smaller one: for tests.
    #[doc(hidden)]
    pub max_binding: Option<u64>,
    /// Opens the device as one of another kind: for tests.
    pub profile: Option<DeviceProfile>,
    /// Where kernels come from: for tests.
    #[doc(hidden)]
    pub kernels: pipelines::KernelLookup,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            vram_limit: None,
            word_tier: None,
            tuning: TuningSource::Cached,
            tables: 1,
            checked_shaders: false,
            submission: Duration::from_millis(100),
            timeout: wgpu::DEFAULT_TIMEOUT,
            timestamps: true,
            cache: CacheFolder::User,
            first_use_probe: true,
            allow_denied: false,
            poison: false,
            max_binding: None,
            profile: None,
            kernels: Kernel::source,
        }
    }
}

/// A folder for what can be computed again. Trouble with it costs time and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CacheFolder {
    /// `groth16-gpu` in the user's cache folder.
    #[default]
    User,
    At(PathBuf),
    None,
}

impl CacheFolder {
    /// The folder, which may not exist yet.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::User => pipelines::user_cache_folder(),
            Self::At(folder) => Some(folder.clone()),
            Self::None => None,
        }
    }
}

/// What proofs are computed on.
#[derive(Clone, Debug)]
pub enum Device {
    /// The native CPU path.
    Cpu,
    /// A GPU, or a software adapter that was asked for.
    Gpu(Arc<GpuDevice>),
}

impl Device {
    /// Opens what `selector` names. [`DeviceSelector::Auto`] without a GPU gives [`Self::Cpu`] and
    /// logs why.
    ///
    /// # Errors
    /// [`crate::Error::NoDevice`] if there is none such.
    pub fn open(selector: &DeviceSelector) -> Result<Self> {
        Self::open_with(selector, &DeviceOptions::default())
    }

    /// As [`Self::open`], with options.
    ///
    /// # Errors
    /// [`crate::Error::NoDevice`] if there is none such, [`crate::Error::Usage`] for options that
    /// it can not meet.
    pub fn open_with(selector: &DeviceSelector, options: &DeviceOptions) -> Result<Self> {
        if *selector == DeviceSelector::Cpu {
            return Ok(Self::Cpu);
        }
        Adapters::find().open(selector, options)
    }

    /// The devices of this machine, one row per physical card, software adapters included.
    pub fn list() -> Vec<DeviceInfo> {
        Adapters::find().list()
    }

    /// The GPU, if it is one.
    pub fn gpu(&self) -> Option<&Arc<GpuDevice>> {
        match self {
            Self::Cpu => None,
            Self::Gpu(gpu) => Some(gpu),
        }
    }

    /// Name of the executor, as in reports: `cpu` or `wgpu`.
    pub fn backend(&self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu(_) => "wgpu",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(gpu) => write!(f, "{}", gpu.info()),
        }
    }
}
