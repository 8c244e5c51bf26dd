//! The adapters that wgpu finds, as rows to choose from.

use crate::device::allocator::ALIGNMENT;
use crate::device::selector::{
    Backend, DeviceInfo, DeviceSelector, DeviceType, Selected, one_row_per_card, same_card, select,
};
use crate::device::wgpu::{GpuDevice, device_memory};
use crate::device::{Device, DeviceOptions};
use crate::error::Result;
use crate::kernels::WordTier;
use serde::Serialize;
use std::collections::BTreeMap;

/// Storage bindings that every kernel may rely on.
const MIN_STORAGE_BUFFERS: u32 = 8;
/// Workgroup memory that every kernel may rely on.
const MIN_WORKGROUP_BYTES: u32 = 16 << 10;
/// Bindings from here on up are silently wrong on some drivers (wgpu#6221, #10305).
const MAX_BINDING: u64 = (1 << 31) - ALIGNMENT;
/// One adapter with its row.
#[derive(Clone)]
pub(super) struct Candidate {
    pub info: DeviceInfo,
    pub adapter: ::wgpu::Adapter,
}

/// The adapters of this machine as found at one time. Looking for them loads every driver, which can
/// take tenths of a second, so that who lists devices and opens some looks once.
#[derive(Default)]
pub struct Adapters(Vec<Candidate>);

impl Adapters {
    /// Looks for them.
    pub fn find() -> Self {
        Self(candidates())
    }

    /// One row per physical card, software adapters included.
    pub fn list(&self) -> Vec<DeviceInfo> {
        self.0.iter().map(|c| c.info.clone()).collect()
    }

    /// As [`Device::open_with`], among these.
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, selector: &DeviceSelector, options: &DeviceOptions) -> Result<Device> {
        if *selector == DeviceSelector::Cpu {
            return Ok(Device::Cpu);
        }
        match select(selector, &self.list())? {
            Selected::Cpu { note } => {
                if let Some(note) = note {
                    log::warn!("{note}");
                }
                Ok(Device::Cpu)
            }
            Selected::Gpu(row) => {
                let candidate = self.0[row].clone();
                GpuDevice::open_candidate(candidate, options).map(Device::Gpu)
            }
        }
    }
}

impl std::fmt::Debug for Adapters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|c| &c.info))
            .finish()
    }
}

/// What an adapter says of itself that no kernel depends on, for reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AdapterDetails {
    /// wgpu's names of optional features.
    pub features: Vec<String>,
    /// wgpu's names of limits; sizes in bytes.
    pub limits: BTreeMap<&'static str, u64>,
    /// Invocations of a subgroup, at least and at most.
    pub subgroup: [u32; 2],
}

impl AdapterDetails {
    pub(super) fn of(adapter: &::wgpu::Adapter) -> Self {
        let (info, limits) = (adapter.get_info(), adapter.limits());
        macro_rules! named {
            ($($limit:ident),*) => { [$((stringify!($limit), u64::from(limits.$limit))),*] };
        }
        let limits = named!(
            max_storage_buffer_binding_size,
            max_buffer_size,
            max_storage_buffers_per_shader_stage,
            max_uniform_buffer_binding_size,
            min_storage_buffer_offset_alignment,
            min_uniform_buffer_offset_alignment,
            max_compute_workgroup_storage_size,
            max_compute_invocations_per_workgroup,
            max_compute_workgroup_size_x,
            max_compute_workgroups_per_dimension
        );
        let names = adapter.features().iter_names();
        Self {
            features: names.map(|(name, _)| name.to_owned()).collect(),
            limits: limits.into(),
            subgroup: [info.subgroup_min_size, info.subgroup_max_size],
        }
    }
}

/// What one back end has on this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackendSurvey {
    pub backend: Backend,
    /// Adapters that can run the kernels.
    pub adapters: usize,
    /// Others, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<String>,
    /// Why it has no adapter at all, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Every adapter through every back end.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The rows of [`Device::list`], then the others, through which one of those cards is reached
    /// in another way: they have the index of its row.
    pub adapters: Vec<DeviceInfo>,
    /// How many of them are rows of the list.
    pub listed: usize,
    pub backends: Vec<BackendSurvey>,
}

impl Survey {
    /// Looks for all of them.
    pub fn new() -> Self {
        let mut unfit = Vec::new();
        let all = enumerate(::wgpu::Backends::PRIMARY | ::wgpu::Backends::GL, &mut unfit);
        let all: Vec<DeviceInfo> = all.into_iter().map(|c| c.info).collect();
        let listed: Vec<DeviceInfo> = candidates().into_iter().map(|c| c.info).collect();
        let of_list = |info: &DeviceInfo| listed.iter().any(|l| same_but_index(l, info));
        let others: Vec<_> = all.iter().filter(|info| !of_list(info)).cloned().collect();
        let others = others.into_iter().map(|mut other| {
            let row = listed.iter().find(|l| same_card(l, &other));
            other.index = row.map_or(0, |l| l.index);
            other
        });
        let enabled = ::wgpu::Instance::enabled_backend_features();
        let backends = Backend::ALL.map(|backend| {
            let adapters = all.iter().filter(|info| info.backend == backend).count();
            let unfit = unfit.iter().filter(|(b, _)| *b == backend);
            let unfit: Vec<String> = unfit.map(|(_, why)| why.clone()).collect();
            let reason = match enabled.contains(backend.into()) {
                _ if adapters > 0 => None,
                false => Some("not built for this platform"),
                true if unfit.is_empty() => Some("no driver, or no adapter"),
                true => Some("no adapter that can run the kernels"),
            };
            BackendSurvey {
                backend,
                adapters,
                unfit,
                reason: reason.map(str::to_owned),
            }
        });
        Self {
            listed: listed.len(),
            adapters: listed.iter().cloned().chain(others).collect(),
            backends: backends.into(),
        }
    }
}

impl Default for Survey {
    fn default() -> Self {
        Self::new()
    }
}

fn same_but_index(a: &DeviceInfo, b: &DeviceInfo) -> bool {
    let index = a.index;
    *a == DeviceInfo { index, ..b.clone() }
}

impl From<Backend> for ::wgpu::Backends {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Vulkan => Self::VULKAN,
            Backend::Metal => Self::METAL,
            Backend::Dx12 => Self::DX12,
            Backend::Gl => Self::GL,
        }
    }
}

/// All adapters that can run the kernels, one per physical card.
pub(super) fn candidates() -> Vec<Candidate> {
    let mut found = enumerate(::wgpu::Backends::PRIMARY, &mut Vec::new());
    if found.is_empty() {
        // Every card worth proving on has a modern interface too, and looking for GL where there
        // is no display makes its loader complain on stderr.
        found = enumerate(::wgpu::Backends::GL, &mut Vec::new());
    }
    let rows: Vec<DeviceInfo> = found.iter().map(|c| c.info.clone()).collect();
    let keep = one_row_per_card(&rows);
    let mut row = 0;
    found.retain(|_| {
        row += 1;
        keep.contains(&(row - 1))
    });
    for (index, candidate) in found.iter_mut().enumerate() {
        candidate.info.index = index;
    }
    found
}

/// The adapter of a row, of the list or of a [`Survey`].
pub(super) fn candidate(info: &DeviceInfo) -> Option<Candidate> {
    let listed = candidates().into_iter().find(|c| c.info == *info);
    listed.or_else(|| {
        let found = enumerate(info.backend.into(), &mut Vec::new());
        let mut found = found.into_iter().find(|c| same_but_index(info, &c.info))?;
        found.info.index = info.index;
        Some(found)
    })
}

/// `unfit` gets the adapters that can not run the kernels, and why.
fn enumerate(backends: ::wgpu::Backends, unfit: &mut Vec<(Backend, String)>) -> Vec<Candidate> {
    let mut descriptor = ::wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    // Conformance tests are mostly about graphics; the self-test is what decides here.
    descriptor.flags = ::wgpu::InstanceFlags::ALLOW_UNDERLYING_NONCOMPLIANT_ADAPTER;
    let instance = ::wgpu::Instance::new(descriptor);
    let adapters = pollster::block_on(instance.enumerate_adapters(backends));
    let candidate = |adapter: ::wgpu::Adapter| {
        let backend = match adapter.get_info().backend {
            ::wgpu::Backend::Vulkan => Backend::Vulkan,
            ::wgpu::Backend::Metal => Backend::Metal,
            ::wgpu::Backend::Dx12 => Backend::Dx12,
            ::wgpu::Backend::Gl => Backend::Gl,
            _ => return None,
        };
        match describe(&adapter, backend) {
            Ok(info) => Some(Candidate { info, adapter }),
            Err(why) => {
                log::debug!("{} adapter {why}", backend.name());
                unfit.push((backend, why));
                None
            }
        }
    };
    adapters.into_iter().filter_map(candidate).collect()
}

/// # Errors
/// Why it can not run the kernels.
fn describe(adapter: &::wgpu::Adapter, backend: Backend) -> Result<DeviceInfo, String> {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let compute = ::wgpu::DownlevelFlags::COMPUTE_SHADERS;
    let buffers = limits.max_storage_buffers_per_shader_stage;
    let workgroup = limits.max_compute_workgroup_storage_size;
    let lacks = match () {
        () if !adapter.get_downlevel_capabilities().flags.contains(compute) => {
            Some("no compute shaders".to_owned())
        }
        () if buffers < MIN_STORAGE_BUFFERS => Some(format!(
            "{buffers} storage buffers of {MIN_STORAGE_BUFFERS}"
        )),
        () if workgroup < MIN_WORKGROUP_BYTES => Some(format!(
            "{workgroup} bytes of workgroup memory of {MIN_WORKGROUP_BYTES}"
        )),
        () => None,
    };
    if let Some(lacks) = lacks {
        return Err(format!("{}: {lacks}", info.name));
    }
    let name = info.name.to_lowercase();
    let rasterisers = [
        "llvmpipe",
        "lavapipe",
        "softpipe",
        "swiftshader",
        "basic render",
        "warp",
    ];
    let software =
        info.device_type == ::wgpu::DeviceType::Cpu || rasterisers.iter().any(|r| name.contains(r));
    let device_type = match info.device_type {
        _ if software => DeviceType::Software,
        ::wgpu::DeviceType::DiscreteGpu => DeviceType::Discrete,
        ::wgpu::DeviceType::IntegratedGpu => DeviceType::Integrated,
        ::wgpu::DeviceType::VirtualGpu => DeviceType::Virtual,
        _ => DeviceType::Other,
    };
    let wide = adapter.features().contains(::wgpu::Features::SHADER_INT64);
    let max_buffer = limits.max_buffer_size;
    Ok(DeviceInfo {
        index: 0,
        name: info.name,
        backend,
        driver: format!("{} {}", info.driver, info.driver_info)
            .trim()
            .to_owned(),
        pci_bus: info.device_pci_bus_id,
        device_type,
        software,
        vendor_id: info.vendor,
        device_id: info.device,
        tiers: match wide {
            true => vec![WordTier::U64, WordTier::U32],
            false => vec![WordTier::U32],
        },
        max_binding: limits
            .max_storage_buffer_binding_size
            .min(max_buffer)
            .min(MAX_BINDING)
            & !(ALIGNMENT - 1),
        max_buffer,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        memory: match software {
            true => host_memory(),
            false => device_memory(adapter),
        },
    })
}

/// Memory of this machine, where it is easily found.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// What slabs may take when the user does not say: a share of what there is.
pub(super) fn default_budget(info: &DeviceInfo) -> u64 {
    const GIB: u64 = 1 << 30;
    match (info.software, info.memory) {
        (true, memory) => memory.map_or(2 * GIB, |m| (m / 2).min(4 * GIB)),
        // Leave room for the desktop and for other programs' working sets.
        (false, Some(memory)) => memory / 5 * 4,
        (false, None) => 4 * GIB,
    }
}
