//! GPUs through wgpu: adapters, opening a device, its memory. Running recordings is in
//! [`super::execute`].

use crate::bytes::Bytes;
use crate::control::check_deadline;
use crate::curve::CurveId;
use crate::device::DeviceOptions;
use crate::device::adapters::{AdapterDetails, Candidate, candidate};
use crate::device::allocator::ALIGNMENT;
use crate::device::arena::{
    ArenaReport, BufferArena, BufferUse, Memory, Reservation, ResidentBuffer,
};
use crate::device::builtin::{CANARY, COPY, FILL};
use crate::device::deny;
use crate::device::execute::RunOptions;
use crate::device::faults::Faults;
use crate::device::limits::{GpuLimits, memory_limits};
use crate::device::pipelines::{Pipeline, Pipelines, cache_file};
use crate::device::queue::{Calibration, DeviceQueue, Health, Submission, Submitter, Timeline};
use crate::device::recording::Recording;
use crate::device::selector::{Backend, DeviceInfo};
use crate::error::{Error, Result};
use crate::first_use::{self, FirstUse};
use crate::kernels::{Kernel, WordTier};
use crate::tuning;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Uniform blocks of one submission, 256 bytes each.
pub(super) const PAGE_BLOCKS: u64 = 256;
/// Compute passes of one submission: many of them in one encoder freeze macOS (wgpu#8047).
pub(super) const MAX_PASSES: u32 = 128;
/// Where timestamps start in a page's readback buffer; the canary is before.
pub(super) const TIMESTAMPS_AT: u64 = 256;

/// Size of the largest device-local heap. wgpu has no query for it, Vulkan has.
#[cfg(any(windows, all(unix, not(target_vendor = "apple"))))]
pub(super) fn device_memory(adapter: &::wgpu::Adapter) -> Option<u64> {
    // SAFETY: the handles are used for one query, while the adapter lives, and not kept.
    unsafe {
        let vulkan = adapter.as_hal::<::wgpu::hal::api::Vulkan>()?;
        let instance = vulkan.shared_instance().raw_instance();
        let memory = instance.get_physical_device_memory_properties(vulkan.raw_physical_device());
        let heaps = memory
            .memory_heaps
            .iter()
            .take(memory.memory_heap_count as usize);
        const DEVICE_LOCAL: u32 = 1;
        heaps
            .filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0)
            .map(|heap| heap.size)
            .max()
    }
}

/// Metal's largest buffer is a fixed share of the memory that a GPU may use.
#[cfg(target_vendor = "apple")]
pub(super) fn device_memory(adapter: &::wgpu::Adapter) -> Option<u64> {
    Some(adapter.limits().max_buffer_size)
}

/// Locks what no panic can leave half-changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` and returns the first error that wgpu reports meanwhile on this thread.
pub(super) fn scoped<T>(device: &::wgpu::Device, f: impl FnOnce() -> T) -> Result<T, String> {
    let scopes = Scopes::push(device);
    let value = catch_unwind(AssertUnwindSafe(f));
    let error = scopes.pop();
    match (value, error) {
        (_, Some(error)) => Err(match error {
            ::wgpu::Error::OutOfMemory { .. } => OUT_OF_MEMORY.to_owned(),
            other => other.to_string(),
        }),
        (Ok(value), None) => Ok(value),
        (Err(_), None) => Err("wgpu panicked".to_owned()),
    }
}

const OUT_OF_MEMORY: &str = "out of memory";

/// Error scopes of this thread for all kinds of error, the innermost first: they end in this order,
/// also when they are dropped.
pub(super) struct Scopes([::wgpu::ErrorScopeGuard; 3]);

impl Scopes {
    pub fn push(device: &::wgpu::Device) -> Self {
        use ::wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
        let mut scopes =
            [Validation, OutOfMemory, Internal].map(|filter| device.push_error_scope(filter));
        scopes.reverse();
        Self(scopes)
    }
    /// The first error, innermost scope first.
    pub fn pop(self) -> Option<::wgpu::Error> {
        let errors = self.0.map(|scope| pollster::block_on(scope.pop()));
        errors.into_iter().flatten().next()
    }
}

/// A shader module, with run-time checks (of bounds and loops) or as written.
pub(super) fn shader_module(
    device: &::wgpu::Device,
    label: &str,
    wgsl: &str,
    checked: bool,
) -> ::wgpu::ShaderModule {
    let descriptor = ::wgpu::ShaderModuleDescriptor {
        label: Some(label),
        source: ::wgpu::ShaderSource::Wgsl(wgsl.into()),
    };
    if checked {
        return device.create_shader_module(descriptor);
    }
    let checks = ::wgpu::ShaderRuntimeChecks::unchecked();
    // SAFETY: the shaders are this crate's own. Their indices stay inside the bindings that a
    // plan gives them and their loops end; the tests run them in checked mode and compare.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}

/// The driver's pipeline cache, started from `data`.
pub(super) fn new_pipeline_cache(
    device: &::wgpu::Device,
    data: Option<&[u8]>,
) -> ::wgpu::PipelineCache {
    let descriptor = ::wgpu::PipelineCacheDescriptor {
        label: None,
        data,
        fallback: true,
    };
    // SAFETY: `data` came from `PipelineCache::get_data`, which the digest in its file shows; the
    // driver checks that it is its own.
    unsafe { device.create_pipeline_cache(&descriptor) }
}

/// Device memory through wgpu.
pub(super) struct WgpuMemory {
    device: ::wgpu::Device,
    name: String,
    features: ::wgpu::Features,
    faults: Arc<Faults>,
}

/// What a submission needs besides slabs and staging.
pub(super) struct Page {
    /// Kernel parameters on their way to `uniform`; mapped.
    pub params: ::wgpu::Buffer,
    pub uniform: ::wgpu::Buffer,
    /// Canary and timestamps on their way back.
    pub readback: ::wgpu::Buffer,
    pub timestamps: Option<Timestamps>,
}

/// Queries 0 and 1 are for the ends of a submission, the rest for those of its passes.
pub(super) struct Timestamps {
    pub set: ::wgpu::QuerySet,
    pub resolved: ::wgpu::Buffer,
    /// Whether the device can write queries 0 and 1.
    pub ends: bool,
}

impl WgpuMemory {
    fn create(
        &self,
        size: u64,
        usage: ::wgpu::BufferUsages,
        mapped: bool,
    ) -> Result<::wgpu::Buffer> {
        if self.faults.refuses_allocation() {
            return Err(Error::OutOfMemory {
                device: self.name.clone(),
                needed: size,
                available: 0,
            });
        }
        let buffer = scoped(&self.device, || {
            self.device.create_buffer(&::wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: mapped,
            })
        });
        buffer.map_err(|message| match message.as_str() {
            OUT_OF_MEMORY => Error::OutOfMemory {
                device: self.name.clone(),
                needed: size,
                available: 0,
            },
            _ => Error::DeviceFault {
                device: self.name.clone(),
                message: format!("a buffer of {size} bytes was refused: {message}"),
            },
        })
    }
}

impl Memory for WgpuMemory {
    type Buffer = ::wgpu::Buffer;
    type Page = Page;
    /// Parameters twice, and what comes back, rounded up.
    const PAGE_BYTES: u64 = 2 * PAGE_BLOCKS * ALIGNMENT + (8 << 10);

    fn free(&self, slab: ::wgpu::Buffer) {
        // Not when the last handle drops, which may be later than the next slab is made.
        slab.destroy();
        let _ = self.device.poll(::wgpu::PollType::Poll);
    }

    fn buffer(&self, usage: BufferUse, size: u64) -> Result<::wgpu::Buffer> {
        use ::wgpu::BufferUsages as U;
        match usage {
            BufferUse::Slab => self.create(size, U::STORAGE | U::COPY_SRC | U::COPY_DST, false),
            BufferUse::Upload => self.create(size, U::MAP_WRITE | U::COPY_SRC, true),
            BufferUse::Download => self.create(size, U::MAP_READ | U::COPY_DST, false),
        }
    }

    fn page(&self) -> Result<Page> {
        use ::wgpu::BufferUsages as U;
        let params = PAGE_BLOCKS * ALIGNMENT;
        let stamps = u64::from(2 + 2 * MAX_PASSES) * 8;
        let timestamps = match self.features.contains(::wgpu::Features::TIMESTAMP_QUERY) {
            false => None,
            true => {
                let set = scoped(&self.device, || {
                    self.device.create_query_set(&::wgpu::QuerySetDescriptor {
                        label: None,
                        ty: ::wgpu::QueryType::Timestamp,
                        count: 2 + 2 * MAX_PASSES,
                    })
                });
                let set = set.map_err(|message| Error::DeviceFault {
                    device: self.name.clone(),
                    message,
                })?;
                let inside = ::wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
                Some(Timestamps {
                    set,
                    resolved: self.create(stamps, U::QUERY_RESOLVE | U::COPY_SRC, false)?,
                    ends: self.features.contains(inside),
                })
            }
        };
        Ok(Page {
            params: self.create(params, U::MAP_WRITE | U::COPY_SRC, true)?,
            uniform: self.create(params, U::UNIFORM | U::COPY_DST, false)?,
            readback: self.create(TIMESTAMPS_AT + stamps, U::MAP_READ | U::COPY_DST, false)?,
            timestamps,
        })
    }
}

/// A run that was given up while the device still worked on it; its memory waits here.
pub(super) struct Zombie {
    pub last: Submission,
    pub since: Instant,
    pub _memory: Arc<Reservation<WgpuMemory>>,
    /// Keeps resident buffers that it uses.
    pub _recording: Recording,
}

/// The executor's own kernels.
pub(super) struct Builtins {
    pub fill: Arc<Pipeline>,
    pub copy: Arc<Pipeline>,
    pub canary: Arc<Pipeline>,
}

/// A GPU (or a software adapter) that runs recordings. Shared freely between threads.
pub struct GpuDevice {
    info: DeviceInfo,
    details: AdapterDetails,
    tier: WordTier,
    limits: GpuLimits,
    pub(crate) options: DeviceOptions,
    pub(crate) first_use: FirstUse,
    pub(super) device: ::wgpu::Device,
    pub(super) arena: Arc<BufferArena<WgpuMemory>>,
    pub(super) pipelines: Pipelines,
    pub(super) builtins: Builtins,
    pub(super) queue: DeviceQueue,
    pub(super) submitter: Submitter,
    pub(super) health: Arc<Health>,
    pub(super) calibration: Mutex<Calibration>,
    pub(super) timeline: Mutex<Timeline>,
    pub(super) zombies: Mutex<Vec<Zombie>>,
    pub(super) faults: Arc<Faults>,
    pub(super) next_token: AtomicU32,
}

impl GpuDevice {
    /// Opens the device of a row of [`super::Device::list`].
    ///
    /// # Errors
    /// [`Error::NoDevice`] if it is gone, refuses, or is denied ([`super::deny`]), [`Error::Usage`]
    /// for a tier that it lacks, [`Error::DeviceFault`] if it failed the first-use probe in all tiers
    /// that the options allow.
    pub fn open(info: &DeviceInfo, options: &DeviceOptions) -> Result<Arc<Self>> {
        let found = candidate(info);
        let found =
            found.ok_or_else(|| Error::NoDevice(format!("{info} is not there any more")))?;
        Self::open_candidate(found, options)
    }

    pub(super) fn open_candidate(
        candidate: Candidate,
        options: &DeviceOptions,
    ) -> Result<Arc<Self>> {
        use ::wgpu::Features as F;
        let Candidate { mut info, adapter } = candidate;
        if let Some(profile) = &options.profile {
            info = profile.restrict(&info);
        }
        let (tier, mut msm) = tuning::resolve(&info, options);
        if !info.tiers.contains(&tier) {
            return Err(Error::Usage(format!(
                "{info} has no 64-bit integers in shaders; tier {} can not be used",
                tier.name()
            )));
        }
        let preferred = tier;
        let forced = options.word_tier.is_some();
        let tier = match options.allow_denied {
            true => preferred,
            false => deny::choose_tier(&info, preferred, forced)?,
        };
        let tier = first_use::choose_tier(&info, options, tier)?;
        if tier != preferred {
            let options = DeviceOptions {
                word_tier: Some(tier),
                ..options.clone()
            };
            msm = tuning::resolve(&info, &options).1;
        }
        let mut wanted = F::SHADER_INT64 | F::PIPELINE_CACHE;
        // Timestamps hang or vanish on Metal (wgpu-native#624).
        if info.backend != Backend::Metal && options.timestamps {
            wanted |= F::TIMESTAMP_QUERY | F::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        }
        let details = AdapterDetails::of(&adapter);
        let mut features = adapter.features() & wanted;
        let mut limits = adapter.limits();
        if let Some(profile) = &options.profile {
            (features, limits) = (profile.features(features), profile.limits(&limits));
        }
        let request = adapter.request_device(&::wgpu::DeviceDescriptor {
            label: Some("groth16-gpu"),
            required_features: features,
            required_limits: limits.clone(),
            // Slabs are allocations of their own; only small buffers are affected.
            memory_hints: ::wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        });
        let (device, queue) = pollster::block_on(request)
            .map_err(|error| Error::NoDevice(format!("{info} can not be opened: {error}")))?;
        let name = info.to_string();
        let health = Arc::new(Health::new(name.clone()));
        let stray = health.clone();
        device.on_uncaptured_error(Arc::new(move |error: ::wgpu::Error| {
            stray.add_stray(error.to_string());
        }));
        let lost = health.clone();
        device.set_device_lost_callback(move |reason, message| {
            lost.set_lost(format!("{reason:?} {message}"));
        });
        let (config, plan) = memory_limits(&info, options, msm);
        let limits = GpuLimits {
            max_binding: plan.max_binding,
            tables: plan.tables,
            max_storage_buffers: plan.max_storage_buffers,
            msm,
            workgroup_bytes: info.workgroup_bytes,
            workgroup_invocations: limits.max_compute_invocations_per_workgroup,
            memory_budget: config.limits.budget,
        };
        let faults = Arc::new(Faults::default());
        let memory = WgpuMemory {
            device: device.clone(),
            name: name.clone(),
            features,
            faults: faults.clone(),
        };
        let arena = BufferArena::new(memory, config);
        let cache = options.cache.path();
        let cache = cache.filter(|_| features.contains(F::PIPELINE_CACHE));
        let cache = cache.and_then(|folder| cache_file(&folder, &adapter.get_info()));
        let pipelines = Pipelines::new(
            device.clone(),
            name,
            options.kernels,
            tier,
            options.checked_shaders,
            cache,
        );
        let builtin = |program| {
            let compiled = pipelines.compile(program);
            compiled
                .map(Arc::new)
                .map_err(|message| health.fault(message))
        };
        let builtins = Builtins {
            fill: builtin(&FILL)?,
            copy: builtin(&COPY)?,
            canary: builtin(&CANARY)?,
        };
        let guess = if info.software { 2e7 } else { 2e9 };
        let gpu = Self {
            first_use: FirstUse::new(&info, options, tier),
            details,
            tier,
            limits,
            arena,
            builtins,
            pipelines,
            queue: DeviceQueue::new(),
            submitter: Submitter::new(device.clone(), queue, health.clone()),
            calibration: Mutex::new(Calibration::new(guess, options.submission)),
            timeline: Mutex::default(),
            zombies: Mutex::default(),
            faults,
            next_token: AtomicU32::new(1),
            options: options.clone(),
            info,
            device,
            health,
        };
        Ok(Arc::new(gpu))
    }

    /// Its row in the list.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }
    /// What its adapter can do beyond what the kernels need.
    pub fn details(&self) -> &AdapterDetails {
        &self.details
    }
    /// The shader tier in use.
    pub fn tier(&self) -> WordTier {
        self.tier
    }
    /// What plans need to know.
    pub fn limits(&self) -> &GpuLimits {
        &self.limits
    }
    /// Use of device memory.
    pub fn memory(&self) -> ArenaReport {
        self.arena.report()
    }
    /// Work units a second, as learnt so far.
    pub fn work_per_second(&self) -> f64 {
        lock(&self.calibration).per_second()
    }
    /// Frees the kept sets of an id, at once or when the last run that uses one ends. Whether there
    /// was one.
    pub fn evict(&self, id: u64) -> bool {
        self.arena.evict(id)
    }
    /// Whether a kept set of an id is on the device.
    pub fn has_kept(&self, id: u64) -> bool {
        self.arena.has(id)
    }
    /// # Errors
    /// [`Error::DeviceFault`] once the device is lost; it must then be opened again.
    pub fn check_health(&self) -> Result<()> {
        self.health.check()
    }

    /// Compiles kernels ahead of their first use, on all cores; `progress` gets the number done.
    /// Its error ends the call after what is being compiled.
    ///
    /// # Errors
    /// [`Error::DeviceFault`] if the driver refuses one, else what `progress` returned.
    pub fn precompile(
        &self,
        kernels: &[(Kernel, CurveId)],
        progress: &(dyn Fn(usize) -> Result<()> + Sync),
    ) -> Result<()> {
        self.pipelines.precompile(kernels, progress)
    }

    /// As [`Self::precompile`], of every kernel: `each` gets the position of one that is done, what
    /// came of it, and the time that it took beside the others.
    pub fn compile_each(
        &self,
        kernels: &[(Kernel, CurveId)],
        each: &(dyn Fn(usize, Result<()>, Duration) + Sync),
    ) {
        self.pipelines.compile_each(kernels, &|at, compiled, time| {
            each(at, compiled, time);
            true
        });
    }

    /// Puts data on the device to stay there. Sizes are rounded up to 4 bytes, with zeros.
    ///
    /// The upload is known to be complete when this returns: the token at the end of each of its
    /// submissions was read back. It shares the device with proofs in pieces.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the budget has no room even without other users, and those of
    /// [`Self::run`]. Nothing stays on the device then.
    pub fn upload_resident(
        &self,
        data: &[(&'static str, Bytes)],
        options: &RunOptions,
    ) -> Result<Vec<ResidentBuffer>> {
        const PIECE: usize = 256 << 20;
        let check = || self.check(options);
        let mut buffers = Vec::with_capacity(data.len());
        for (_, bytes) in data {
            let size = (bytes.len() as u64).next_multiple_of(4).max(4);
            buffers.push(self.arena.resident(size, &check)?);
        }
        let mut recording = Recording::new();
        let mut recorded = 0;
        for ((label, bytes), buffer) in data.iter().zip(&buffers) {
            let mut start = 0;
            while start < bytes.len() {
                let end = bytes.len().min(start + PIECE - recorded);
                let mut piece = bytes.slice(start..end);
                if !piece.len().is_multiple_of(4) {
                    let mut padded = piece.to_vec();
                    padded.resize(padded.len().next_multiple_of(4), 0);
                    piece = padded.into();
                }
                let id = recording.resident(label, buffer);
                let mut dst = recording.whole(id);
                (dst.offset, dst.size) = (start as u64, piece.len() as u64);
                recording.upload(dst, piece);
                recorded += end - start;
                start = end;
                if recorded >= PIECE {
                    self.run(&std::mem::take(&mut recording), options)?;
                    recorded = 0;
                }
            }
        }
        if recorded > 0 {
            self.run(&recording, options)?;
        }
        Ok(buffers)
    }

    /// Resident memory whose content a run will write.
    ///
    /// # Errors
    /// As [`Self::upload_resident`].
    pub fn reserve_resident(&self, size: u64, options: &RunOptions) -> Result<ResidentBuffer> {
        self.arena.resident(size, &|| self.check(options))
    }

    /// What ends a wait: cancellation, the deadline, or the loss of the device. Also looks whether runs that
    /// were given up have completed meanwhile, since a waiter may need their memory.
    pub(super) fn check(&self, options: &RunOptions) -> Result<()> {
        self.reap_zombies();
        self.health.check()?;
        options.cancel.as_ref().map_or(Ok(()), |c| c.check())?;
        check_deadline(options.deadline, format_args!("work on {}", self.info))
    }

    fn reap_zombies(&self) {
        let mut zombies = lock(&self.zombies);
        let timeout = self.options.timeout;
        if zombies.iter().any(|z| z.since.elapsed() > timeout) {
            // Its memory will not come back: waiting for it would have no end.
            self.health.set_lost("a submission never completed".into());
        }
        // An error means that the device is gone, and its memory with it.
        let done: Vec<Zombie> = zombies
            .extract_if(.., |z| self.submitter.is_complete(&z.last).unwrap_or(true))
            .collect();
        drop(zombies);
        drop(done);
    }
}

impl fmt::Debug for GpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuDevice({}, {})", self.info, self.tier.name())
    }
}

/// Time limit of one submission unless options say otherwise.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
