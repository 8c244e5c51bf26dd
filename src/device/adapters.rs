//! The adapters that wgpu finds, as rows to choose from.

use crate::device::allocator::ALIGNMENT;
use crate::device::selector::{
    Backend, DeviceInfo, DeviceSelector, DeviceType, Selected, one_row_per_card, select,
};
use crate::device::wgpu::{GpuDevice, device_memory};
use crate::device::{Device, DeviceOptions};
use crate::error::Result;
use crate::kernels::WordTier;

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

/// All adapters that can run the kernels, one per physical card.
pub(super) fn candidates() -> Vec<Candidate> {
    let mut found = enumerate(::wgpu::Backends::PRIMARY);
    if found.is_empty() {
        // Every card worth proving on has a modern interface too, and looking for GL where there
        // is no display makes its loader complain on stderr.
        found = enumerate(::wgpu::Backends::GL);
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

fn enumerate(backends: ::wgpu::Backends) -> Vec<Candidate> {
    let mut descriptor = ::wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    // Conformance tests are mostly about graphics; the self-test is what decides here.
    descriptor.flags = ::wgpu::InstanceFlags::ALLOW_UNDERLYING_NONCOMPLIANT_ADAPTER;
    let instance = ::wgpu::Instance::new(descriptor);
    let adapters = pollster::block_on(instance.enumerate_adapters(backends));
    let candidate = |adapter| {
        let info = describe(&adapter)?;
        Some(Candidate { info, adapter })
    };
    adapters.into_iter().filter_map(candidate).collect()
}

/// `None` for adapters that can not run the kernels.
fn describe(adapter: &::wgpu::Adapter) -> Option<DeviceInfo> {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let backend = match info.backend {
        ::wgpu::Backend::Vulkan => Backend::Vulkan,
        ::wgpu::Backend::Metal => Backend::Metal,
        ::wgpu::Backend::Dx12 => Backend::Dx12,
        ::wgpu::Backend::Gl => Backend::Gl,
        _ => return None,
    };
    let compute = ::wgpu::DownlevelFlags::COMPUTE_SHADERS;
    if !adapter.get_downlevel_capabilities().flags.contains(compute)
        || limits.max_storage_buffers_per_shader_stage < MIN_STORAGE_BUFFERS
        || limits.max_compute_workgroup_storage_size < MIN_WORKGROUP_BYTES
    {
        log::debug!("{} ({}): limits too low", info.name, backend.name());
        return None;
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
    Some(DeviceInfo {
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
