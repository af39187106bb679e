//! How much memory a GPU has, and how much of it may be taken. wgpu has no such question, so each system is asked in its
//! own way.

/// Of the memory that the driver reports; other programs get the rest.
const SHARE: f64 = 0.9;

/// In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// All that the device has.
    pub bytes: u64,
    /// What the system says this program may take now, next to other programs, if it says so.
    pub free: Option<u64>,
}

impl DeviceMemory {
    /// How much of it to take by default. It is the same from run to run, as the placement ought to be, unless others have
    /// taken so much that this would not fit.
    pub fn share(self) -> u64 {
        let share = (self.bytes as f64 * SHARE) as u64;
        self.free.map_or(share, |free| free.min(share))
    }
}

/// `None` where the driver does not tell.
pub fn of(adapter: &wgpu::Adapter) -> Option<DeviceMemory> {
    system::vulkan(adapter).or_else(|| system::native(adapter))
}

#[cfg(not(target_vendor = "apple"))]
mod system {
    use ash::{ext, vk};

    use super::DeviceMemory;

    /// The largest heap of the device's own memory.
    pub fn vulkan(adapter: &wgpu::Adapter) -> Option<DeviceMemory> {
        // SAFETY: nothing is made or destroyed, one property is read.
        let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
        let instance = adapter.shared_instance();
        // The question is a part of Vulkan since 1.1.
        let tells = instance.instance_api_version() >= vk::API_VERSION_1_1
            && adapter.physical_device_capabilities().supports_extension(ext::memory_budget::NAME);
        let (raw, physical) = (instance.raw_instance(), adapter.raw_physical_device());
        let mut free = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        // SAFETY: as above; the answer's parts live here.
        let memory = unsafe {
            if tells {
                let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut free);
                raw.get_physical_device_memory_properties2(physical, &mut memory);
                memory.memory_properties
            } else {
                raw.get_physical_device_memory_properties(physical)
            }
        };
        let heaps = memory.memory_heaps[..memory.memory_heap_count as usize].iter().enumerate();
        let own = heaps.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let (at, heap) = own.max_by_key(|(_, heap)| heap.size)?;
        let budget = free.heap_budget[at].checked_sub(free.heap_usage[at]);
        Some(DeviceMemory { bytes: heap.size, free: budget.filter(|&bytes| tells && bytes > 0) })
    }

    #[cfg(windows)]
    pub fn native(adapter: &wgpu::Adapter) -> Option<DeviceMemory> {
        // SAFETY: nothing is made or destroyed, two properties are read.
        let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Dx12>() }?;
        // By default of the memory that is quickest for the device.
        let told = adapter.raw_adapter().query_video_memory_info(Default::default()).ok()?;
        // SAFETY: as above.
        let about = unsafe { adapter.raw_adapter().GetDesc1() }.ok()?;
        // A part of the processor's memory is not its own.
        let bytes = (about.DedicatedVideoMemory as u64).max(told.Budget);
        Some(DeviceMemory { bytes, free: Some(told.Budget.saturating_sub(told.CurrentUsage)) })
    }

    #[cfg(not(windows))]
    pub fn native(_: &wgpu::Adapter) -> Option<DeviceMemory> {
        None
    }
}

#[cfg(target_vendor = "apple")]
mod system {
    use objc2_metal::MTLDevice;

    use super::DeviceMemory;

    pub fn vulkan(_: &wgpu::Adapter) -> Option<DeviceMemory> {
        None
    }

    /// What Metal recommends to stay below: beyond it buffers are moved out and in.
    pub fn native(adapter: &wgpu::Adapter) -> Option<DeviceMemory> {
        // SAFETY: nothing is made or destroyed, one property is read.
        let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Metal>() }?;
        Some(DeviceMemory { bytes: adapter.raw_device().recommendedMaxWorkingSetSize(), free: None })
    }
}

#[test]
fn a_share_is_the_same_from_run_to_run_unless_others_have_taken_it() {
    let gib = |n: u64| n << 30;
    let share = |free| DeviceMemory { bytes: gib(20), free }.share();
    assert_eq!(share(None), gib(18));
    assert_eq!(share(Some(gib(19))), gib(18));
    assert_eq!(share(Some(gib(7))), gib(7));
}
