//! A Vulkan driver as a compiler: pipelines are made, and their statistics read; nothing runs.

use ash::{Entry, Instance, khr, vk};
use groth16_gpu::kernels::KernelSource;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::time::Instant;

/// Who compiles, and for what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compiler {
    /// The adapter, as the driver names it.
    pub adapter: String,
    pub driver: String,
    /// Its version.
    pub driver_info: String,
    /// `VkDriverId`, which tells drivers apart whatever they call themselves.
    pub driver_id: i32,
    pub vendor_id: u32,
    pub device_id: u32,
    /// Of the device, such as `1.3.230`.
    pub vulkan: String,
}

/// One program that a driver made of a kernel. Some make one for each subgroup size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Executable {
    pub name: String,
    pub subgroup_size: u32,
    /// Under the driver's own names, which `VK_KHR_pipeline_executable_properties` leaves to it.
    pub statistics: BTreeMap<String, Number>,
}

/// An adapter that can tell about its pipelines.
pub struct Adapter {
    /// Keeps the loader's library open.
    _entry: Entry,
    instance: Instance,
    physical: vk::PhysicalDevice,
    pub compiler: Compiler,
    pub api_version: u32,
    /// Whether it has 64-bit integers.
    pub wide: bool,
}

/// A device on it.
pub struct Device<'a> {
    device: ash::Device,
    executables: khr::pipeline_executable_properties::Device,
    /// Goes after the device.
    _adapter: PhantomData<&'a Adapter>,
}

fn text(name: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = name
        .iter()
        .map(|c| c.cast_unsigned())
        .take_while(|c| *c != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first adapter with `VK_KHR_pipeline_executable_properties` whose name has `wanted` in it, in
/// whatever case. `None` if there is no such adapter, or no Vulkan at all.
///
/// # Errors
/// What Vulkan says if it cannot list adapters.
pub fn find(wanted: &str) -> Result<Option<Adapter>, Box<dyn Error>> {
    // SAFETY: the loader's library runs no code of ours while it loads.
    let Ok(entry) = (unsafe { Entry::load() }) else {
        return Ok(None);
    };
    let application = vk::ApplicationInfo::default()
        .application_name(c"groth16-gpu compilers")
        .api_version(vk::API_VERSION_1_3);
    let create = vk::InstanceCreateInfo::default().application_info(&application);
    // SAFETY: everything that `create` points to is alive; the instance goes with the adapter.
    let instance = match unsafe { entry.create_instance(&create, None) } {
        Ok(instance) => instance,
        Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let wanted = wanted.to_lowercase();
    // SAFETY: the handle is alive.
    let all = match unsafe { instance.enumerate_physical_devices() } {
        // What the loader says if no driver finds a card.
        Err(vk::Result::ERROR_INITIALIZATION_FAILED) => Vec::new(),
        other => other?,
    };
    // SAFETY: the handles are this instance's, which is alive.
    let found = unsafe {
        all.into_iter().find(|physical| {
            let name = text(
                &instance
                    .get_physical_device_properties(*physical)
                    .device_name,
            );
            let extensions = instance.enumerate_device_extension_properties(*physical);
            name.to_lowercase().contains(&wanted)
                && extensions.is_ok_and(|all| {
                    all.iter().any(|e| {
                        e.extension_name_as_c_str() == Ok(khr::pipeline_executable_properties::NAME)
                    })
                })
        })
    };
    let Some(physical) = found else {
        // SAFETY: nothing made from it is left.
        unsafe { instance.destroy_instance(None) };
        return Ok(None);
    };
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
    // SAFETY: as above; the chain is alive.
    let features = unsafe {
        instance.get_physical_device_properties2(physical, &mut properties);
        instance.get_physical_device_features(physical)
    };
    let p = properties.properties;
    let version = p.api_version;
    let compiler = Compiler {
        adapter: text(&p.device_name),
        driver: text(&driver.driver_name),
        driver_info: text(&driver.driver_info),
        driver_id: driver.driver_id.as_raw(),
        vendor_id: p.vendor_id,
        device_id: p.device_id,
        vulkan: format!(
            "{}.{}.{}",
            vk::api_version_major(version),
            vk::api_version_minor(version),
            vk::api_version_patch(version)
        ),
    };
    Ok(Some(Adapter {
        _entry: entry,
        instance,
        physical,
        compiler,
        api_version: version,
        wide: features.shader_int64 != 0,
    }))
}

impl Adapter {
    fn has(&self, extension: &CStr) -> bool {
        // SAFETY: the handles are alive.
        let all = unsafe {
            self.instance
                .enumerate_device_extension_properties(self.physical)
        };
        all.is_ok_and(|all| {
            all.iter()
                .any(|e| e.extension_name_as_c_str() == Ok(extension))
        })
    }

    /// Opens it with what wgpu opens it with, as far as it changes the code of a kernel: robust
    /// access to buffers where there is such, for modules without checks of their own too.
    ///
    /// # Errors
    /// What Vulkan says.
    pub fn open(&self) -> Result<Device<'_>, vk::Result> {
        let mut extensions = vec![khr::pipeline_executable_properties::NAME.as_ptr()];
        let robust = self.has(ash::ext::robustness2::NAME);
        if robust {
            extensions.push(ash::ext::robustness2::NAME.as_ptr());
        }
        let mut has_robust = vk::PhysicalDeviceRobustness2FeaturesEXT::default();
        let mut has = vk::PhysicalDeviceFeatures2::default();
        if robust {
            has = has.push_next(&mut has_robust);
        }
        // SAFETY: the chain is alive, and the device knows the extension in it.
        unsafe {
            self.instance
                .get_physical_device_features2(self.physical, &mut has);
        }
        let core = vk::PhysicalDeviceFeatures::default()
            .shader_int64(self.wide)
            .robust_buffer_access(has.features.robust_buffer_access != 0);
        let mut robustness2 = vk::PhysicalDeviceRobustness2FeaturesEXT::default()
            .robust_buffer_access2(has_robust.robust_buffer_access2 != 0)
            .robust_image_access2(has_robust.robust_image_access2 != 0);
        let mut statistics = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default()
            .pipeline_executable_info(true);
        // SAFETY: the handles are alive.
        let families = unsafe {
            self.instance
                .get_physical_device_queue_family_properties(self.physical)
        };
        let family = families
            .iter()
            .position(|f| f.queue_flags.contains(vk::QueueFlags::COMPUTE))
            .ok_or(vk::Result::ERROR_FEATURE_NOT_PRESENT)?;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(u32::try_from(family).expect("a few families"))
            .queue_priorities(&[1.0])];
        let mut create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .enabled_features(&core)
            .push_next(&mut statistics);
        if robust {
            create = create.push_next(&mut robustness2);
        }
        // SAFETY: everything that `create` points to is alive, and the device has the extensions.
        let device = unsafe { self.instance.create_device(self.physical, &create, None)? };
        let executables = khr::pipeline_executable_properties::Device::new(&self.instance, &device);
        Ok(Device {
            device,
            executables,
            _adapter: PhantomData,
        })
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // SAFETY: devices borrow the adapter, so none is left.
        unsafe { self.instance.destroy_instance(None) };
    }
}

impl Device<'_> {
    /// Compiles a kernel, of which `spirv` is the translation: its programs, and the milliseconds
    /// that the driver took. May be called by many threads.
    ///
    /// # Errors
    /// What Vulkan says.
    pub fn compile(
        &self,
        source: &KernelSource,
        spirv: &[u32],
    ) -> Result<(Vec<Executable>, f64), vk::Result> {
        let device = &self.device;
        let bindings: Vec<_> = (0..=source.bindings)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
                    .descriptor_type(match binding {
                        0 => vk::DescriptorType::UNIFORM_BUFFER_DYNAMIC,
                        _ => vk::DescriptorType::STORAGE_BUFFER,
                    })
            })
            .collect();
        // SAFETY: all that is pointed to lives to the end of each call, handles are destroyed once,
        // and nothing is ever submitted that could use them.
        unsafe {
            let set = device.create_descriptor_set_layout(
                &vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings),
                None,
            )?;
            let layout = device.create_pipeline_layout(
                &vk::PipelineLayoutCreateInfo::default().set_layouts(&[set]),
                None,
            );
            let module = device
                .create_shader_module(&vk::ShaderModuleCreateInfo::default().code(spirv), None);
            let compiled = match (&layout, &module) {
                (Ok(layout), Ok(module)) => self.pipeline(*layout, *module),
                (Err(error), _) | (_, Err(error)) => Err(*error),
            };
            if let Ok(module) = module {
                device.destroy_shader_module(module, None);
            }
            if let Ok(layout) = layout {
                device.destroy_pipeline_layout(layout, None);
            }
            device.destroy_descriptor_set_layout(set, None);
            compiled
        }
    }

    /// # Safety
    /// The handles are this device's.
    unsafe fn pipeline(
        &self,
        layout: vk::PipelineLayout,
        module: vk::ShaderModule,
    ) -> Result<(Vec<Executable>, f64), vk::Result> {
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(c"main");
        let create = vk::ComputePipelineCreateInfo::default()
            .flags(vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR)
            .stage(stage)
            .layout(layout);
        let start = Instant::now();
        // SAFETY: the caller's handles are valid; the pipeline is destroyed below, unused.
        unsafe {
            let made =
                self.device
                    .create_compute_pipelines(vk::PipelineCache::null(), &[create], None);
            let ms = start.elapsed().as_secs_f64() * 1e3;
            let pipeline = made.map_err(|(_, error)| error)?[0];
            let executables = self.read(pipeline);
            self.device.destroy_pipeline(pipeline, None);
            Ok((executables?, ms))
        }
    }

    /// # Safety
    /// The pipeline is this device's, made to capture statistics.
    unsafe fn read(&self, pipeline: vk::Pipeline) -> Result<Vec<Executable>, vk::Result> {
        let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
        use vk::PipelineExecutableStatisticFormatKHR as Format;
        // SAFETY: as the caller promises.
        let programs = unsafe { self.executables.get_pipeline_executable_properties(&info)? };
        let mut all = Vec::new();
        for (index, program) in (0..).zip(programs) {
            let info = vk::PipelineExecutableInfoKHR::default()
                .pipeline(pipeline)
                .executable_index(index);
            // SAFETY: as the caller promises; the index is below the count.
            let statistics = unsafe { self.executables.get_pipeline_executable_statistics(&info)? };
            let statistics = statistics.iter().map(|s| {
                // SAFETY: the format says which field the driver has set.
                let value = unsafe {
                    match s.format {
                        Format::BOOL32 => s.value.b32.into(),
                        Format::INT64 => s.value.i64.into(),
                        Format::UINT64 => s.value.u64.into(),
                        // No number in JSON is infinite.
                        _ => Number::from_f64(s.value.f64).unwrap_or_else(|| 0.into()),
                    }
                };
                (text(&s.name), value)
            });
            all.push(Executable {
                name: text(&program.name),
                subgroup_size: program.subgroup_size,
                // Hashes tell the same program from another, and nothing about it.
                statistics: statistics
                    .filter(|(name, _)| !name.to_lowercase().contains("hash"))
                    .collect(),
            });
        }
        Ok(all)
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing made from it is left, and nothing was submitted.
        unsafe { self.device.destroy_device(None) };
    }
}
