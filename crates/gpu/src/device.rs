//! Adapters: which there are, which one to take, what it must have; and an open device with its memory counted.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use wgpu::{Backends, BufferUsages, DeviceType, Features, Limits};

#[cfg(windows)]
use super::fxc::Fxc;
use super::{
    cache::{DiskCache, KernelCache},
    memory::{self, DeviceMemory},
    tuning::{MOST_SHARED, Tuning},
    variants::{Square, Variants},
};
use crate::{Error, Result, backend::gpu::GpuVariant, quoted::squeezed};

/// What cooperative matrices take; asked for only where these are.
const COOPERATIVE: Features =
    Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(Features::SHADER_F16).union(Features::SUBGROUP);

/// Used where the adapter has them; nothing needs them.
const OPTIONAL: Features = Features::TIMESTAMP_QUERY.union(Features::PIPELINE_CACHE);

/// The most that one buffer of weights takes; larger matrices have a buffer of their own.
pub const ARENA_BYTES: u64 = 256 << 20;

/// A submission takes less than a second, even on a slow GPU (see `record::MOST_WORK`); on a processor that plays one
/// and has other things to do it may take minutes.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_SOFTWARE: Duration = Duration::from_secs(1800);

/// An adapter and what one would want to know of it.
#[derive(Clone)]
pub struct Found {
    /// In the list of all.
    pub number: usize,
    pub adapter: wgpu::Adapter,
    pub info: wgpu::AdapterInfo,
    pub limits: Limits,
    pub features: Features,
    /// Where the driver tells.
    pub memory: Option<DeviceMemory>,
}

/// Whether a hardware GPU could be there: quick, and without loading a driver. Where it is not known, it could.
pub fn may_have_hardware() -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    let nodes = ["dri", "nvidiactl", "nvidia0", "dxg", "kgsl-3d0", "mali0"];
    nodes.iter().any(|node| std::path::Path::new("/dev").join(node).exists())
}

/// All adapters, the likeliest first: of several of a kind the one with the most memory.
pub fn adapters() -> Vec<Found> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: Backends::VULKAN | Backends::METAL | Backends::DX12,
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut found: Vec<Found> = pollster::block_on(instance.enumerate_adapters(Backends::all()))
        .into_iter()
        .map(|adapter| Found {
            number: 0,
            info: adapter.get_info(),
            limits: adapter.limits(),
            features: adapter.features(),
            memory: memory::of(&adapter),
            adapter,
        })
        .collect();
    // One GPU may be there through several interfaces.
    found.sort_by_key(|f| {
        let kind = match f.info.device_type {
            DeviceType::DiscreteGpu => 0,
            DeviceType::IntegratedGpu => 1,
            DeviceType::VirtualGpu => 2,
            DeviceType::Other => 3,
            DeviceType::Cpu => 4,
        };
        // Vulkan's drivers keep compiled kernels, and have what DX12 has not: cooperative matrices.
        let interface = f.info.backend == wgpu::Backend::Dx12;
        (kind, interface, std::cmp::Reverse(f.memory.map(|memory| memory.bytes)))
    });
    found.iter_mut().enumerate().for_each(|(number, f)| f.number = number);
    found
}

impl Found {
    /// How wide the kernels are on it.
    fn tuning(&self) -> Tuning {
        const INTEL: u32 = 0x8086;
        const AMD: u32 = 0x1002;
        match (self.info.vendor, self.info.subgroup_min_size) {
            _ if !self.is_hardware() => Tuning::SOFTWARE,
            (INTEL, _) => Tuning::INTEL,
            (AMD, 64) => Tuning::GCN,
            _ => Tuning::HARDWARE,
        }
        .within(&self.limits)
    }

    pub fn is_hardware(&self) -> bool {
        self.info.device_type != DeviceType::Cpu
    }

    /// The same hardware through another interface or driver. Two cards of a kind are two of one interface and driver, and
    /// DX12 may give both of them one slot.
    pub fn is_the_gpu_of(&self, other: &Found) -> bool {
        is_one_gpu(&self.info, &other.info)
    }

    /// Its memory is the processor's.
    pub fn shares_memory(&self) -> bool {
        self.info.device_type == DeviceType::IntegratedGpu
    }

    pub fn describe(&self) -> String {
        let wgpu::AdapterInfo { name, driver, driver_info, backend, .. } = &self.info;
        let driver = [driver.as_str(), driver_info].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>();
        format!("{name} ({backend}{}{})", if driver.is_empty() { "" } else { ", " }, driver.join(" "))
    }

    /// The largest squares of halves that can be multiplied at once, with sums in f32.
    pub fn squares(&self) -> Option<Square> {
        use wgpu::CooperativeScalarType as Scalar;
        let offered = self.adapter.cooperative_matrix_properties();
        let suits = |side: u32| {
            offered.iter().any(|p| {
                (p.m_size, p.n_size, p.k_size) == (side, side, side)
                    && (p.ab_type, p.cr_type) == (Scalar::F16, Scalar::F32)
            })
        };
        let has_room = self.limits.max_compute_workgroup_storage_size >= MOST_SHARED;
        let fits = has_room && self.features.contains(COOPERATIVE);
        Square::ALL.into_iter().find(|square| fits && suits(square.side()))
    }

    /// DX12 with the compiler that Windows brings along: the newer one has subgroups.
    fn is_compiled_by_fxc(&self) -> bool {
        self.info.backend == wgpu::Backend::Dx12 && !self.features.contains(Features::SUBGROUP)
    }

    /// Why it has not these kernels, if it has not.
    pub fn offers(&self, variant: GpuVariant) -> Result<()> {
        Variants::of(variant).check(self)
    }

    /// Why this adapter cannot be used, if it cannot.
    pub fn check(&self) -> Result<()> {
        check_limits(&self.info.name, &self.limits)
    }
}

fn is_one_gpu(one: &wgpu::AdapterInfo, other: &wgpu::AdapterInfo) -> bool {
    let way = |info: &wgpu::AdapterInfo| (info.backend, info.driver.clone());
    let kind = |info: &wgpu::AdapterInfo| (info.vendor, info.device);
    let slots = [&one.device_pci_bus_id, &other.device_pci_bus_id];
    let told = slots.iter().all(|slot| !slot.is_empty());
    way(one) != way(other) && if told { slots[0] == slots[1] } else { kind(one) == kind(other) }
}

fn check_limits(name: &str, limits: &Limits) -> Result<()> {
    let needs: [(&str, u64, u64); 5] = [
        ("storage buffers in a shader", limits.max_storage_buffers_per_shader_stage.into(), 8),
        ("threads in a workgroup", limits.max_compute_invocations_per_workgroup.into(), 256),
        ("bytes shared by a workgroup", limits.max_compute_workgroup_storage_size.into(), 16 << 10),
        ("bytes in a binding", limits.max_storage_buffer_binding_size, 64 << 20),
        ("workgroups in a row", limits.max_compute_workgroups_per_dimension.into(), 65535),
    ];
    match needs.into_iter().find(|(_, has, needed)| has < needed) {
        None => Ok(()),
        Some((what, has, needed)) => Err(Error::Device(format!(
            "{name}: it allows {has} {what}, {needed} are needed: another `device`, or `device` cpu"
        ))),
    }
}

/// The hardware adapters that can be used, the likeliest first. Where there are some and none can, why the first cannot.
pub fn hardware() -> Result<Vec<Found>> {
    let all: Vec<Found> = adapters().into_iter().filter(Found::is_hardware).collect();
    let usable: Vec<Found> = all.iter().filter(|found| found.check().is_ok()).cloned().collect();
    match (all.first(), usable.is_empty()) {
        (Some(first), true) => Err(first.check().expect_err("none of them can be used")),
        _ => Ok(usable),
    }
}

/// Which device was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AdapterChoice {
    /// A hardware adapter if there is one.
    #[default]
    Any,
    /// By its number in the list, or a part of its name.
    Named(String),
}

/// Takes the adapter asked for. With `Any` software adapters do not count.
pub fn choose(choice: &AdapterChoice) -> Result<Found> {
    let mut all = adapters();
    let names: Vec<_> = all.iter().map(|f| f.info.name.as_str()).collect();
    let picked = match choice {
        AdapterChoice::Any => all.iter().position(Found::is_hardware),
        AdapterChoice::Named(name) => pick(name, &names),
    };
    let Some(picked) = picked else {
        return Err(match choice {
            AdapterChoice::Any if !all.is_empty() => Error::Device(format!(
                "no hardware GPU was found, only {}: `device` NAME takes one of these",
                names.join(", ")
            )),
            AdapterChoice::Any => none_called("", &all),
            AdapterChoice::Named(name) => none_called(name, &all),
        });
    };
    let found = all.swap_remove(picked);
    found.check()?;
    Ok(found)
}

/// Takes these, by their numbers in the list.
pub fn choose_all(numbers: &[usize]) -> Result<Vec<Found>> {
    let all = adapters();
    let one = |&number: &usize| {
        let found = all.get(number).ok_or_else(|| none_called(&number.to_string(), &all))?;
        found.check().map(|()| found.clone())
    };
    let found: Vec<Found> = numbers.iter().map(one).collect::<Result<_>>()?;
    for (i, one) in found.iter().enumerate() {
        if let Some(other) = found[..i].iter().find(|other| one.is_the_gpu_of(other)) {
            return Err(Error::Device(format!(
                "`device`: {} and {} are one GPU ({}) through two drivers: leave one of them out",
                other.number, one.number, one.info.name
            )));
        }
    }
    Ok(found)
}

/// Says what there is to choose from.
fn none_called(name: &str, all: &[Found]) -> Error {
    const NONE_FOUND: &str =
        "no GPU was found: there is no Vulkan, Metal or DX12 driver; `device` cpu runs without";
    let names: Vec<_> = all.iter().map(|f| format!("{} {}", f.number, f.info.name)).collect();
    Error::Device(match names.is_empty() {
        true => NONE_FOUND.into(),
        false => format!("`device` {name}: there are {}, and cpu", names.join(", ")),
    })
}

fn pick(wanted: &str, names: &[&str]) -> Option<usize> {
    if let Ok(number) = wanted.parse::<usize>() {
        return (number < names.len()).then_some(number);
    }
    // The empty name is part of every name, and nobody's.
    let wanted = Some(wanted.trim().to_lowercase()).filter(|name| !name.is_empty())?;
    names.iter().position(|name| name.to_lowercase().contains(&wanted))
}

/// An open device.
pub struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub info: wgpu::AdapterInfo,
    pub limits: Limits,
    pub tuning: Tuning,
    pub variants: Variants,
    /// Of cooperative matrices, where these were asked for.
    pub square: Square,
    /// Subnormal halves are zero to it, unless they are read by whole numbers.
    pub flushes_halves: bool,
    /// Norms leave nothing to products: it would be other bits.
    pub norms_apart: bool,
    /// Compiled kernels of earlier runs.
    pub kernels: Option<KernelCache>,
    /// For DX12, whose drivers have no such cache.
    #[cfg(windows)]
    pub fxc: Option<Fxc>,
    /// The first thing that went wrong outside of any call that could have reported it.
    trouble: Arc<Mutex<Option<String>>>,
    /// Submissions that have ended.
    finished: Arc<AtomicU64>,
    /// How long a submission may take; one that takes longer never ends.
    pub(super) patience: Duration,
    used: AtomicU64,
    budget: u64,
    checked: bool,
}

impl Gpu {
    /// `budget`: bytes of device memory that may be taken. `checked`: shaders check every index, as tests want it.
    pub fn open(found: &Found, budget: u64, checked: bool) -> Result<Self> {
        Self::open_for(found, budget, checked, Variants::PLAIN)
    }

    /// For variants that take features which are not asked for unless they are wanted by name.
    pub fn open_for(found: &Found, budget: u64, checked: bool, variants: Variants) -> Result<Self> {
        let name = &found.info.name;
        let mut features = OPTIONAL;
        if variants.coop {
            features |= COOPERATIVE;
        }
        if found.is_compiled_by_fxc() {
            features |= Features::PASSTHROUGH_SHADERS;
        }
        let (device, queue) = pollster::block_on(found.adapter.request_device(&wgpu::DeviceDescriptor {
            label: None,
            required_features: found.features & features,
            required_limits: found.limits.clone(),
            experimental_features: match features.intersects(Features::all_experimental_mask()) {
                // SAFETY: matrices are asked for by name only, and the results are compared before they are used; what is
                // passed through is what wgpu would have compiled.
                true => unsafe { wgpu::ExperimentalFeatures::enabled() },
                false => wgpu::ExperimentalFeatures::disabled(),
            },
            ..Default::default()
        }))
        .map_err(|e| {
            Error::Device(format!("{name}: the driver refused to open it: {}", squeezed(&e.to_string())))
        })?;
        let trouble = Arc::new(Mutex::new(None));
        let keep = |trouble: &Mutex<Option<String>>, what: String| {
            trouble.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(what);
        };
        let uncaptured = trouble.clone();
        device.on_uncaptured_error(Arc::new(move |e| keep(&uncaptured, squeezed(&e.to_string()))));
        let lost = trouble.clone();
        device.set_device_lost_callback(move |_, message| {
            keep(&lost, format!("the device was lost ({})", squeezed(&message)));
        });
        Ok(Gpu {
            device,
            queue,
            info: found.info.clone(),
            limits: found.limits.clone(),
            tuning: found.tuning(),
            variants: Variants::PLAIN,
            square: found.squares().unwrap_or_default(),
            flushes_halves: false,
            norms_apart: false,
            kernels: None,
            #[cfg(windows)]
            fxc: None,
            trouble,
            finished: Arc::default(),
            patience: if found.is_hardware() { PATIENCE } else { PATIENCE_SOFTWARE },
            used: AtomicU64::new(0),
            budget,
            checked,
        })
    }

    /// Takes the kernels that earlier runs compiled, and keeps those of this one.
    pub fn keep_kernels(&mut self, shelf: &DiskCache) {
        self.kernels = KernelCache::open(&self.device, shelf);
        #[cfg(windows)]
        if self.has(Features::PASSTHROUGH_SHADERS) && !self.checked {
            self.fxc = Fxc::open(shelf);
        }
    }

    /// For later runs. What cannot be kept is compiled again.
    pub fn keep_compiled(&self) {
        if let Some(kernels) = &self.kernels {
            let _ = kernels.keep();
        }
        #[cfg(windows)]
        if let Some(fxc) = &self.fxc {
            let _ = fxc.keep();
        }
    }

    /// A module of one of our own shaders.
    pub fn shader(&self, name: &str, text: String) -> wgpu::ShaderModule {
        let descriptor =
            wgpu::ShaderModuleDescriptor { label: Some(name), source: wgpu::ShaderSource::Wgsl(text.into()) };
        let checks = if self.checked {
            wgpu::ShaderRuntimeChecks::checked()
        } else {
            wgpu::ShaderRuntimeChecks::unchecked()
        };
        // SAFETY: indices come from tokens, cells and sizes that were checked before, loops end, and the tests run
        // the same kernels with all checks.
        unsafe { self.device.create_shader_module_trusted(descriptor, checks) }
    }

    pub fn has(&self, feature: Features) -> bool {
        self.device.features().contains(feature)
    }

    /// Room for so many times, where the device has a clock.
    pub fn timestamps(&self, count: u32) -> Option<wgpu::QuerySet> {
        let ty = wgpu::QueryType::Timestamp;
        let described = wgpu::QuerySetDescriptor { label: None, ty, count };
        self.has(Features::TIMESTAMP_QUERY).then(|| self.device.create_query_set(&described))
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// What may still be taken.
    pub fn left(&self) -> u64 {
        self.budget.saturating_sub(self.used())
    }

    /// The most bytes that a kernel can see of one buffer.
    pub fn binding_bytes(&self) -> u64 {
        self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size)
    }

    /// A buffer within the budget. It is zeroed.
    pub fn buffer(&self, label: &str, bytes: u64, usage: BufferUsages) -> Result<wgpu::Buffer> {
        let bytes = bytes.max(16).next_multiple_of(16);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        if bytes > self.limits.max_buffer_size {
            return Err(Error::Memory(format!(
                "{}: {label} takes {:.0} MiB, the device's limit is {:.0} MiB for a buffer: a smaller `n_ctx` or `n_ubatch`",
                self.info.name,
                mib(bytes),
                mib(self.limits.max_buffer_size)
            )));
        }
        if self.used() + bytes > self.budget {
            return Err(Error::Memory(format!(
                "{}: {label} takes {:.1} MiB, {:.1} of {:.1} MiB are left: a larger `vram`, fewer `gpu_layers`, or a smaller `n_ctx`",
                self.info.name,
                mib(bytes),
                mib(self.budget.saturating_sub(self.used())),
                mib(self.budget)
            )));
        }
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes,
            usage,
            mapped_at_creation: false,
        });
        if let Some(e) = pollster::block_on(scope.pop()) {
            return Err(Error::Memory(format!(
                "{}: no memory for {label}, {:.0} MiB ({}): a smaller `vram`, fewer `gpu_layers`, or a smaller `n_ctx`",
                self.info.name,
                mib(bytes),
                squeezed(&e.to_string())
            )));
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Ok(buffer)
    }

    /// Gives back what a buffer counted for.
    pub fn release(&self, buffer: wgpu::Buffer) {
        self.used.fetch_sub(buffer.size(), Ordering::Relaxed);
    }

    /// Runs `make`, whose mistakes become an error that names `what`.
    pub fn checked<T>(&self, what: &str, make: impl FnOnce() -> T) -> Result<T> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let made = make();
        match pollster::block_on(scope.pop()) {
            None => Ok(made),
            Some(e) => Err(Error::Device(format!(
                "{}: kernel {what} was refused: {}",
                self.info.name,
                squeezed(&e.to_string())
            ))),
        }
    }

    /// Keeps an error of a call that could not report it.
    pub fn fail(&self, e: &Error) {
        self.keep_trouble(e.to_string());
    }

    fn keep_trouble(&self, what: String) {
        self.trouble.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(what);
    }

    /// What went wrong since the device was opened.
    pub fn check(&self) -> Result<()> {
        match &*self.trouble.lock().unwrap_or_else(|e| e.into_inner()) {
            None => Ok(()),
            Some(what) => Err(Error::Device(format!(
                "{}: {what}; a smaller `n_ubatch` or `vram` may help, `device` cpu runs without it",
                self.info.name
            ))),
        }
    }

    /// Hands commands to the device.
    pub fn submit(&self, commands: Option<wgpu::CommandBuffer>) -> wgpu::SubmissionIndex {
        let submission = self.queue.submit(commands);
        let finished = self.finished.clone();
        self.queue.on_submitted_work_done(move || {
            finished.fetch_add(1, Ordering::Relaxed);
        });
        submission
    }

    /// Waits until a submission has run.
    pub fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.wait_until(Some(submission))
    }

    /// Waits until everything submitted has run.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(None)
    }

    /// Waits for as long as one submission after the other ends.
    fn wait_until(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<()> {
        loop {
            let finished = self.finished.load(Ordering::Relaxed);
            let submission_index = submission_index.clone();
            let wait = wgpu::PollType::Wait { submission_index, timeout: Some(self.patience) };
            let waited = self.device.poll(wait);
            self.check()?;
            match waited {
                Ok(_) => return Ok(()),
                Err(wgpu::PollError::Timeout) if self.finished.load(Ordering::Relaxed) > finished => {}
                Err(wgpu::PollError::Timeout) => {
                    // The queue would wait for its end when it goes.
                    std::mem::forget(self.queue.clone());
                    let seconds = self.patience.as_secs_f64();
                    self.keep_trouble(format!("it did not end what it was given within {seconds} s"));
                    return self.check();
                }
                Err(e) => {
                    return Err(Error::Device(format!("{}: waiting for it failed: {e}", self.info.name)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_picked_by_number_or_part_of_the_name() {
        let names = ["NVIDIA GeForce RTX 4090", "llvmpipe (LLVM 15.0.6, 256 bits)"];
        assert_eq!(pick("1", &names), Some(1));
        assert_eq!(pick("LLVMpipe", &names), Some(1));
        assert_eq!(pick("geforce", &names), Some(0));
        assert_eq!(pick("2", &names), None);
        assert_eq!(pick("radeon", &names), None);
        assert_eq!(pick("", &names), None);
        assert_eq!(pick(" ", &names), None);
    }

    #[test]
    fn one_gpu_through_two_interfaces_is_told_from_two_cards_of_a_kind() {
        let info = |backend, slot: &str| wgpu::AdapterInfo {
            vendor: 0x10de,
            device: 0x2684,
            device_pci_bus_id: slot.into(),
            driver: format!("{backend:?}"),
            ..wgpu::AdapterInfo::new(DeviceType::DiscreteGpu, backend)
        };
        use wgpu::Backend::{Dx12, Vulkan};
        let [first, second] = ["0000:01:00.0", "0000:02:00.0"];
        assert!(is_one_gpu(&info(Vulkan, first), &info(Dx12, first)));
        assert!(!is_one_gpu(&info(Vulkan, second), &info(Dx12, first)));
        assert!(!is_one_gpu(&info(Dx12, first), &info(Dx12, first)), "DX12 gives cards of a kind one slot");
        assert!(is_one_gpu(&info(Vulkan, ""), &info(Dx12, first)), "a driver that does not tell the slot");
        let other = wgpu::AdapterInfo { device: 0x2204, ..info(Dx12, "") };
        assert!(!is_one_gpu(&info(Vulkan, ""), &other));
    }

    #[test]
    fn tiny_limits_are_refused_by_name() {
        assert!(check_limits("good", &Limits::default()).is_ok());
        let tiny = Limits { max_compute_workgroup_storage_size: 4096, ..Limits::default() };
        let error = check_limits("toy", &tiny).unwrap_err().to_string();
        assert!(error.contains("toy") && error.contains("4096") && error.contains("16384"), "{error}");
        assert!(check_limits("gl", &Limits::downlevel_webgl2_defaults()).is_err());
    }
}
