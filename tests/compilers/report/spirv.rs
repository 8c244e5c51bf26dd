//! The SPIR-V that wgpu gives a Vulkan driver for a kernel.

use ash::vk;
use groth16_gpu::kernels::{KernelSource, WordTier};
use naga::back::{pipeline_constants, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Translates as wgpu-hal 30 does (`vulkan::Device::compile_stage`) for a device of this API
/// version and a module that is opened as `src/device/pipelines.rs` opens it: without run-time
/// checks, workgroup memory not zeroed.
///
/// # Errors
/// naga's message.
pub fn translate(source: &KernelSource, api_version: u32) -> Result<Vec<u32>, String> {
    let wgsl = source.wgsl;
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|e| e.emit_to_string(wgsl))?;
    let capabilities = match source.tier {
        WordTier::U64 => Capabilities::SHADER_INT64,
        WordTier::U32 => Capabilities::empty(),
    };
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|e| e.emit_to_string(wgsl))?;
    let entry = Some((naga::ShaderStage::Compute, "main"));
    let (module, info) =
        pipeline_constants::process_overrides(&module, &info, entry, &Default::default())
            .map_err(|e| e.to_string())?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = spv::Options {
        lang_version: match api_version {
            vk::API_VERSION_1_3.. => (1, 6),
            vk::API_VERSION_1_2.. => (1, 5),
            vk::API_VERSION_1_1.. => (1, 3),
            _ => (1, 0),
        },
        flags: spv::WriterFlags::LABEL_VARYINGS | spv::WriterFlags::FORCE_POINT_SIZE,
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        ray_query_initialization_tracking: false,
        emit_int_div_checks: false,
        task_dispatch_limits: None,
        mesh_shader_primitive_indices_clamp: false,
        ..Default::default()
    };
    let pipeline = spv::PipelineOptions {
        entry_point: "main".to_owned(),
        shader_stage: naga::ShaderStage::Compute,
    };
    spv::write_vec(&module, &info, &options, Some(&pipeline)).map_err(|e| e.to_string())
}
