//! What a Vulkan driver makes of a kernel, asked without wgpu: drivers without hardware compile, and run nothing.

use std::ffi::CStr;

use ash::{khr::pipeline_executable_properties as executable, vk};

/// A driver's compiler.
pub struct Driver {
    device: ash::Device,
    executables: executable::Device,
    /// What is compiled for, and by which version.
    pub name: String,
    // It must outlive the device.
    _entry: ash::Entry,
}

/// A compiled kernel.
pub struct Compiled {
    /// Threads that run together.
    pub together: u32,
    /// As the driver calls them.
    pub statistics: Vec<(String, u64)>,
    pub listing: String,
}

impl Driver {
    /// The first that the loader finds.
    pub fn open() -> Result<Self, String> {
        let said = |what: &'static str| move |e: vk::Result| format!("{what}: {e}");
        // SAFETY: the loader is the system's.
        let entry = unsafe { ash::Entry::load() }.map_err(|e| format!("no Vulkan loader: {e}"))?;
        let about = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let wanted = vk::InstanceCreateInfo::default().application_info(&about);
        // SAFETY: here and below, all that structures point to lives as long as the call.
        let instance = unsafe { entry.create_instance(&wanted, None) }.map_err(said("no instance"))?;
        // SAFETY: as above.
        let found = unsafe { instance.enumerate_physical_devices() }.map_err(said("no devices"))?;
        let &physical = found.first().ok_or("no device")?;
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
        // SAFETY: as above.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let device_name = text(&properties.properties.device_name);
        let name = format!("{device_name}, {}", text(&driver.driver_info));

        // All that the driver has, so that no kernel lacks anything.
        let mut reports = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
        let mut of_11 = vk::PhysicalDeviceVulkan11Features::default();
        let mut of_12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut of_13 = vk::PhysicalDeviceVulkan13Features::default();
        let mut features = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut reports)
            .push_next(&mut of_11)
            .push_next(&mut of_12)
            .push_next(&mut of_13);
        // SAFETY: as above.
        unsafe { instance.get_physical_device_features2(physical, &mut features) };
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
        let extensions = [executable::NAME.as_ptr()];
        let wanted = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut features);
        // SAFETY: as above.
        let device =
            unsafe { instance.create_device(physical, &wanted, None) }.map_err(said("no device opens"))?;
        let executables = executable::Device::new(&instance, &device);
        Ok(Driver { device, executables, name, _entry: entry })
    }

    /// `storage`: how many buffers follow the parameters.
    pub fn compile(&self, words: &[u32], storage: usize) -> Result<Compiled, String> {
        let (device, said) = (&self.device, |e: vk::Result| e.to_string());
        let bindings: Vec<_> = (0..=storage as u32)
            .map(|binding| {
                let ty = match binding {
                    0 => vk::DescriptorType::UNIFORM_BUFFER_DYNAMIC,
                    _ => vk::DescriptorType::STORAGE_BUFFER,
                };
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(ty)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        // SAFETY: what is made is destroyed below, once, when nothing uses it any more; as for the rest, see `open`.
        unsafe {
            let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let sets = [device.create_descriptor_set_layout(&set, None).map_err(said)?];
            let layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
            let layout = device.create_pipeline_layout(&layout, None).map_err(said)?;
            let module = vk::ShaderModuleCreateInfo::default().code(words);
            let module = device.create_shader_module(&module, None).map_err(said)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .flags(vk::PipelineShaderStageCreateFlags::ALLOW_VARYING_SUBGROUP_SIZE)
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let wanted = vk::ComputePipelineCreateInfo::default()
                .flags(
                    vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
                        | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR,
                )
                .stage(stage)
                .layout(layout);
            let made = device.create_compute_pipelines(vk::PipelineCache::null(), &[wanted], None);
            let compiled = made.map_err(|(_, e)| e.to_string()).and_then(|made| {
                let compiled = self.read(made[0]);
                device.destroy_pipeline(made[0], None);
                compiled
            });
            device.destroy_shader_module(module, None);
            device.destroy_pipeline_layout(layout, None);
            device.destroy_descriptor_set_layout(sets[0], None);
            compiled
        }
    }

    /// # Safety
    ///
    /// A pipeline of this device.
    unsafe fn read(&self, pipeline: vk::Pipeline) -> Result<Compiled, String> {
        let (called, said) = (&self.executables, |e: vk::Result| e.to_string());
        let about = vk::PipelineInfoKHR::default().pipeline(pipeline);
        // SAFETY: the caller's promise.
        let all = unsafe { called.get_pipeline_executable_properties(&about) }.map_err(said)?;
        let one = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(0);
        // SAFETY: the same.
        let statistics = unsafe { called.get_pipeline_executable_statistics(&one) }.map_err(said)?;
        let statistics = statistics.iter().map(|statistic| {
            // SAFETY: `format` says which it is; all are as long.
            let value = unsafe {
                match statistic.format {
                    vk::PipelineExecutableStatisticFormatKHR::FLOAT64 => statistic.value.f64 as u64,
                    vk::PipelineExecutableStatisticFormatKHR::BOOL32 => u64::from(statistic.value.b32),
                    _ => statistic.value.u64,
                }
            };
            (text(&statistic.name), value)
        });
        Ok(Compiled {
            together: all.first().map_or(0, |executable| executable.subgroup_size),
            statistics: statistics.collect(),
            // SAFETY: the same.
            listing: unsafe { self.listing(&one) }.map_err(said)?,
        })
    }

    /// The last of what the driver shows of its work: the machine's instructions.
    ///
    /// # Safety
    ///
    /// `one` is of a pipeline of this device.
    unsafe fn listing(&self, one: &vk::PipelineExecutableInfoKHR) -> Result<String, vk::Result> {
        let get = self.executables.fp().get_pipeline_executable_internal_representations_khr;
        let device = self.device.handle();
        let mut count = 0;
        // SAFETY: asked for their number, then for their sizes, then for the texts, into room for all.
        unsafe {
            get(device, one, &mut count, std::ptr::null_mut()).result()?;
            let mut shown = vec![vk::PipelineExecutableInternalRepresentationKHR::default(); count as usize];
            get(device, one, &mut count, shown.as_mut_ptr()).result()?;
            let mut texts: Vec<Vec<u8>> = shown.iter().map(|one| vec![0; one.data_size]).collect();
            for (one, text) in shown.iter_mut().zip(&mut texts) {
                one.p_data = text.as_mut_ptr().cast();
            }
            get(device, one, &mut count, shown.as_mut_ptr()).result()?;
            let last = texts.pop().unwrap_or_default();
            Ok(String::from_utf8_lossy(last.split(|&byte| byte == 0).next().unwrap_or(&[])).into_owned())
        }
    }
}

fn text(letters: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = letters.iter().map(|&letter| letter as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or(String::new(), |text| text.to_string_lossy().into_owned())
}
