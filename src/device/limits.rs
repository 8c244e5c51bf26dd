//! What plans may ask of a device.

use crate::device::DeviceOptions;
use crate::device::adapters::default_budget;
use crate::device::allocator::ALIGNMENT;
use crate::device::arena::{ArenaConfig, Memory};
use crate::device::plan::PlanLimits;
use crate::device::selector::DeviceInfo;
use crate::device::wgpu::WgpuMemory;
use crate::tuning::{self, MsmTunings};
use serde::Serialize;

/// What plans need to know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuLimits {
    /// Largest buffer of a recording, in bytes.
    pub max_binding: u64,
    /// Storage bindings of one dispatch.
    pub max_storage_buffers: u32,
    /// See [`PlanLimits::msm`].
    pub msm: MsmTunings,
    /// See [`PlanLimits::tables`].
    pub tables: u32,
    /// Workgroup memory, in bytes.
    pub workgroup_bytes: u32,
    /// Invocations of one workgroup.
    pub workgroup_invocations: u32,
    /// What reservations and resident buffers may take together.
    pub memory_budget: u64,
}

impl GpuLimits {
    /// The part that memory plans depend on.
    pub fn plan(&self) -> PlanLimits {
        PlanLimits {
            max_binding: self.max_binding,
            memory: self.memory_budget,
            max_storage_buffers: self.max_storage_buffers,
            msm: self.msm,
            tables: self.tables,
        }
    }
}

/// Bytes of a device's budget that are set aside for moving data: of `plan.memory` the rest is left.
pub(crate) fn set_aside(limit: u64) -> u64 {
    let config = ArenaConfig::new(String::new(), limit, (0, 0), WgpuMemory::PAGE_BYTES);
    limit - config.limits.budget.min(limit)
}

/// What an arena on a device may take under these options, and what plans for it keep to.
pub(super) fn memory_limits(
    info: &DeviceInfo,
    options: &DeviceOptions,
    msm: MsmTunings,
) -> (ArenaConfig, PlanLimits) {
    let budget = options.vram_limit.unwrap_or_else(|| default_budget(info)) & !(ALIGNMENT - 1);
    let min_slab = if info.software { 16 << 20 } else { 256 << 20 };
    let slabs = (info.max_binding.min(min_slab), info.max_binding);
    let config = ArenaConfig::new(info.to_string(), budget, slabs, WgpuMemory::PAGE_BYTES);
    let plan = PlanLimits {
        max_binding: options.max_binding.map_or(info.max_binding, |max| {
            info.max_binding.min(max) & !(ALIGNMENT - 1)
        }),
        memory: config.limits.budget,
        max_storage_buffers: info.max_storage_buffers,
        msm,
        tables: options.tables,
    };
    (config, plan)
}

impl DeviceInfo {
    /// What memory plans for this device keep to, without opening it.
    pub fn plan_limits(&self, options: &DeviceOptions) -> PlanLimits {
        let info = match &options.profile {
            Some(profile) => &profile.restrict(self),
            None => self,
        };
        let (_, msm) = tuning::resolve(info, options);
        memory_limits(info, options, msm).1
    }
}
