//! Kinds of devices: a device opened as one of them offers no more than that kind does, so that plans
//! and kernels for cards that are not there can be run on one that is.

use crate::device::selector::DeviceInfo;
use crate::kernels::WordTier;

/// Limits and features of a kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProfile {
    pub name: &'static str,
    /// Largest buffer, and largest part of one that a kernel sees, in bytes.
    pub max_buffer: u64,
    pub max_binding: u64,
    pub max_storage_buffers: u32,
    /// Workgroup memory, in bytes.
    pub workgroup_bytes: u32,
    pub workgroup_invocations: u32,
    /// Invocations of a workgroup in x, y and z.
    pub workgroup_size: [u32; 3],
    pub word_tier: WordTier,
    pub timestamps: bool,
    pub pipeline_cache: bool,
    /// Device memory, in bytes.
    pub memory: u64,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl DeviceProfile {
    /// What every implementation of WebGPU has, and no more
    /// ([WebGPU, limits](https://www.w3.org/TR/webgpu/#limits)).
    pub const WEBGPU: Self = Self {
        name: "webgpu",
        max_buffer: 256 * MIB,
        max_binding: 128 * MIB,
        max_storage_buffers: 8,
        workgroup_bytes: 16 << 10,
        workgroup_invocations: 256,
        workgroup_size: [256, 256, 64],
        word_tier: WordTier::U32,
        timestamps: false,
        pipeline_cache: false,
        memory: GIB,
    };

    /// A small Apple M, through Metal: argument buffers of tier 1 leave few bindings, there is no
    /// pipeline cache, and timestamps are not used
    /// ([feature set tables](https://developer.apple.com/metal/Metal-Feature-Set-Tables.pdf)).
    pub const APPLE: Self = Self {
        name: "apple",
        max_buffer: 4 * GIB,
        max_binding: 4 * GIB,
        max_storage_buffers: 9,
        workgroup_bytes: 32 << 10,
        workgroup_invocations: 1024,
        workgroup_size: [1024, 1024, 1024],
        word_tier: WordTier::U64,
        timestamps: false,
        pipeline_cache: false,
        memory: 5 * GIB,
    };

    /// A Radeon, as its drivers for Windows describe it: the least workgroup memory of any
    /// ([reports](https://vulkan.gpuinfo.org)).
    pub const AMD: Self = Self {
        name: "amd",
        max_buffer: 2 * GIB,
        max_binding: 2 * GIB,
        max_storage_buffers: 64,
        workgroup_bytes: 32 << 10,
        workgroup_invocations: 1024,
        workgroup_size: [1024, 1024, 1024],
        word_tier: WordTier::U64,
        timestamps: true,
        pipeline_cache: true,
        memory: 8 * GIB,
    };

    /// An Arc, or graphics in a processor: no integers of 64 bits worth using, bindings of 1 GiB
    /// ([reports](https://vulkan.gpuinfo.org)).
    pub const INTEL: Self = Self {
        name: "intel",
        max_buffer: GIB,
        max_binding: GIB,
        max_storage_buffers: 64,
        workgroup_bytes: 32 << 10,
        workgroup_invocations: 1024,
        workgroup_size: [1024, 1024, 64],
        word_tier: WordTier::U32,
        timestamps: true,
        pipeline_cache: true,
        memory: 3 * GIB,
    };

    /// All of them.
    pub const ALL: [Self; 4] = [Self::WEBGPU, Self::APPLE, Self::AMD, Self::INTEL];

    /// Of a device's row what this kind has, too.
    pub(super) fn restrict(&self, info: &DeviceInfo) -> DeviceInfo {
        let has = |tier: &WordTier| *tier == WordTier::U32 || self.word_tier == WordTier::U64;
        DeviceInfo {
            tiers: info.tiers.iter().copied().filter(has).collect(),
            max_binding: info.max_binding.min(self.max_binding),
            max_buffer: info.max_buffer.min(self.max_buffer),
            max_storage_buffers: info.max_storage_buffers.min(self.max_storage_buffers),
            workgroup_bytes: info.workgroup_bytes.min(self.workgroup_bytes),
            memory: Some(info.memory.map_or(self.memory, |m| m.min(self.memory))),
            ..info.clone()
        }
    }

    /// Of an adapter's limits what this kind has, too. wgpu holds the device to them.
    pub(super) fn limits(&self, of: &::wgpu::Limits) -> ::wgpu::Limits {
        let webgpu = ::wgpu::Limits::default();
        let [x, y, z] = self.workgroup_size;
        ::wgpu::Limits {
            max_buffer_size: of.max_buffer_size.min(self.max_buffer),
            max_storage_buffer_binding_size: of
                .max_storage_buffer_binding_size
                .min(self.max_binding),
            max_storage_buffers_per_shader_stage: of
                .max_storage_buffers_per_shader_stage
                .min(self.max_storage_buffers),
            max_compute_workgroup_storage_size: of
                .max_compute_workgroup_storage_size
                .min(self.workgroup_bytes),
            max_compute_invocations_per_workgroup: of
                .max_compute_invocations_per_workgroup
                .min(self.workgroup_invocations),
            max_compute_workgroup_size_x: of.max_compute_workgroup_size_x.min(x),
            max_compute_workgroup_size_y: of.max_compute_workgroup_size_y.min(y),
            max_compute_workgroup_size_z: of.max_compute_workgroup_size_z.min(z),
            // Of these every kind has what WebGPU has, and nothing here needs more.
            max_bindings_per_bind_group: webgpu.max_bindings_per_bind_group,
            max_dynamic_uniform_buffers_per_pipeline_layout: webgpu
                .max_dynamic_uniform_buffers_per_pipeline_layout,
            max_uniform_buffer_binding_size: webgpu.max_uniform_buffer_binding_size,
            max_compute_workgroups_per_dimension: webgpu.max_compute_workgroups_per_dimension,
            min_uniform_buffer_offset_alignment: webgpu.min_uniform_buffer_offset_alignment,
            min_storage_buffer_offset_alignment: webgpu.min_storage_buffer_offset_alignment,
            ..of.clone()
        }
    }

    /// Of an adapter's features what this kind has, too.
    pub(super) fn features(&self, of: ::wgpu::Features) -> ::wgpu::Features {
        use ::wgpu::Features as F;
        let mut features = of;
        let timestamps = F::TIMESTAMP_QUERY | F::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        for (has, feature) in [
            (self.word_tier == WordTier::U64, F::SHADER_INT64),
            (self.timestamps, timestamps),
            (self.pipeline_cache, F::PIPELINE_CACHE),
        ] {
            features.set(feature, has && features.contains(feature));
        }
        features
    }
}
