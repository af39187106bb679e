//! The kernels and the pipelines made of them: a text for each, specialised by override constants. Pipelines are made
//! when first used, or before that in the background, and kept.

mod background;
#[cfg(test)]
mod every;
mod kernel;
mod make;
mod table;
mod text;
#[cfg(any(test, windows))]
mod translated;

use std::{collections::HashMap, sync::Arc};

use background::{Background, Turn};
pub use kernel::{Curve, Kernel, MOST_PREPARED_HEAD, Mode, numbers_of};
pub use make::Layout;
use make::Maker;
pub use text::Bindings;
#[cfg(any(test, windows))]
pub use translated::Final;

use super::{device::Gpu, variants::Variants};
use crate::Result;

pub struct Pipelines {
    maker: Arc<Maker>,
    made: HashMap<Kernel, wgpu::ComputePipeline>,
    background: Option<Background>,
    with_other_columns: bool,
}

impl Pipelines {
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu.variants)
    }

    pub fn with(variants: Variants) -> Self {
        Self::of(Maker::new(variants))
    }

    /// Of kernels whose texts a test has changed.
    #[cfg(test)]
    pub fn edited(variants: Variants, edit: Option<fn(Kernel, String) -> String>) -> Self {
        Self::of(Maker::new(variants).editing(edit))
    }

    fn of(maker: Maker) -> Self {
        Pipelines {
            maker: Arc::new(maker),
            made: HashMap::new(),
            background: None,
            with_other_columns: false,
        }
    }

    /// Has kernels made on several threads.
    pub fn in_background(mut self, gpu: &Arc<Gpu>) -> Self {
        self.background = Some(Background::new(gpu, &self.maker));
        self
    }

    /// Has a kernel's other numbers of columns made too, when the first of them is asked for.
    pub fn with_other_columns(mut self) -> Self {
        self.with_other_columns = true;
        self
    }

    /// Says that a kernel is needed soon, so that it can be compiled meanwhile.
    pub fn foresee(&self, kernel: Kernel) {
        if let Some(background) = self.background.as_ref().filter(|_| !self.made.contains_key(&kernel)) {
            background.want([kernel], Turn::Next);
        }
    }

    pub fn variants(&self) -> Variants {
        self.maker.variants()
    }

    pub fn get(&mut self, gpu: &Gpu, kernel: Kernel) -> Result<&wgpu::ComputePipeline> {
        if !self.made.contains_key(&kernel) {
            let made = match self.background.as_ref().and_then(|background| background.take(kernel)) {
                Some(made) => made,
                None => self.maker.make(gpu, kernel)?,
            };
            self.want_other_columns(kernel);
            self.made.insert(kernel, made);
        }
        Ok(&self.made[&kernel])
    }

    fn want_other_columns(&self, kernel: Kernel) {
        let is_first = || !kernel.with_other_columns().any(|other| self.made.contains_key(&other));
        if let Some(background) = self.background.as_ref().filter(|_| self.with_other_columns && is_first()) {
            background.want(kernel.with_other_columns(), Turn::Last);
        }
    }

    /// Waits until the background has nothing to do.
    #[cfg(test)]
    pub fn settle(&self) {
        self.background.iter().for_each(Background::settle);
    }

    #[cfg(test)]
    pub fn made(&self) -> usize {
        self.made.len()
    }

    /// Pipelines that the background has made, and nobody has asked for.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.background.as_ref().map_or(0, Background::waiting)
    }

    /// `storage` in the order of a kernel's bindings; parameters lie in slots of `params`.
    pub fn bind(
        &self,
        gpu: &Gpu,
        bindings: impl Into<Bindings>,
        params: &wgpu::Buffer,
        storage: &[wgpu::BufferBinding],
    ) -> wgpu::BindGroup {
        let bindings = bindings.into();
        assert_eq!(storage.len(), bindings.0.len(), "{bindings:?}");
        self.maker.layout(gpu, bindings).bind(&gpu.device, params, storage)
    }
}

#[cfg(test)]
mod tests {
    use wgpu::naga::{
        AddressSpace, Module, StorageAccess,
        back::pipeline_constants::process_overrides,
        front::wgsl,
        valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator},
    };

    use super::*;
    use crate::{
        tuning::{MOST_SHARED, Tuning},
        variants::Square,
    };

    /// Halves in words are part of WebGPU, though not of what wgpu calls the lowest level.
    const BASE: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;

    /// Goes over all kernels, with what parsing and validating gave. Most differ from others in constants only, and what
    /// has the same text is parsed once.
    fn with_each_module(ways: &[(Variants, Square)], mut check: impl FnMut(Kernel, &Module, &ModuleInfo)) {
        for &(variants, square) in ways {
            let mut capabilities = BASE;
            capabilities.set(Capabilities::SHADER_FLOAT16, variants.coop);
            capabilities.set(Capabilities::SUBGROUP, variants.coop);
            capabilities.set(Capabilities::COOPERATIVE_MATRIX, variants.coop);
            let all = Kernel::asked_for(variants).into_iter();
            let texts = all.map(|kernel| (kernel.description().text(variants, square), kernel));
            let is_own = |(text, kernel): &(String, Kernel)| {
                variants == Variants::PLAIN || *text != kernel.description().text(Variants::PLAIN, square)
            };
            let mut texts: Vec<_> = texts.filter(is_own).collect();
            texts.sort_by(|(one, _), (other, _)| one.cmp(other));
            for kernels in texts.chunk_by(|(one, _), (other, _)| one == other) {
                let (text, first) = &kernels[0];
                let module = wgsl::parse_str(text)
                    .unwrap_or_else(|e| panic!("{}: {}", first.name(), e.emit_to_string(text)));
                let info = Validator::new(ValidationFlags::all(), capabilities)
                    .subgroup_stages(ShaderStages::COMPUTE)
                    .subgroup_operations(SubgroupOperationSet::all())
                    .validate(&module)
                    .unwrap_or_else(|e| panic!("{}: {}", first.name(), e.emit_to_string(text)));
                kernels.iter().for_each(|&(_, kernel)| check(kernel, &module, &info));
            }
        }
    }

    fn with_constants<'m>(
        kernel: Kernel,
        (module, info): (&'m Module, &'m ModuleInfo),
        tuning: &Tuning,
        flushes_halves: bool,
    ) -> std::borrow::Cow<'m, Module> {
        let constants = kernel.description().constants(tuning, flushes_halves);
        let constants = constants.into_iter().map(|(name, x)| (name.to_string(), x)).collect();
        let made = process_overrides(module, info, None, &constants);
        made.unwrap_or_else(|e| panic!("{}: {e}", kernel.name())).0
    }

    /// No device needed: what is plain validates without any optional feature, the rest under the one it is for.
    #[test]
    fn every_shader_is_valid_under_the_features_it_is_for() {
        let [sixteen, eight] = Square::ALL;
        let ways = [(Variants::PLAIN, sixteen), (Variants::COOP, sixteen), (Variants::COOP, eight)];
        with_each_module(&ways, |kernel, module, info| {
            for tuning in [Tuning::HARDWARE, Tuning::SOFTWARE] {
                if kernel.few_rows().is_none_or(|few| few.lanes <= tuning.matmul) {
                    with_constants(kernel, (module, info), &tuning, true);
                }
            }
        });
    }

    #[test]
    fn every_shader_writes_only_what_its_layout_lets_it() {
        with_each_module(&[(Variants::PLAIN, Square::default())], |kernel, module, _| {
            for (_, variable) in module.global_variables.iter() {
                let Some(binding) = variable.binding else { continue };
                let written = match variable.space {
                    AddressSpace::Storage { access } => access.contains(StorageAccess::STORE),
                    _ => {
                        assert_eq!(binding.binding, 0, "{}: parameters come first", kernel.name());
                        continue;
                    }
                };
                let letter = kernel.bindings().0.as_bytes()[binding.binding as usize - 1];
                assert_eq!(written, letter == b'w', "{}: binding {}", kernel.name(), binding.binding);
            }
        });
    }

    #[test]
    fn a_workgroup_has_enough_lanes_for_its_columns() {
        for tuning in [Tuning::HARDWARE, Tuning::SOFTWARE] {
            for blocks in [1, 32, 33, 128, 129, 896] {
                let lanes = tuning.lanes(blocks);
                assert!(lanes >= 8 && tuning.matmul.is_multiple_of(lanes) && tuning.matmul <= 64);
            }
        }
    }

    /// The least that WebGPU promises is enough; the widest kernels are for devices with more.
    #[test]
    fn no_workgroup_shares_more_than_devices_have() {
        let least = wgpu::Limits { max_compute_invocations_per_workgroup: 256, ..wgpu::Limits::default() };
        let narrow = (Tuning::HARDWARE.within(&least), least.max_compute_workgroup_storage_size);
        for (tuning, most) in [(Tuning::HARDWARE, MOST_SHARED), narrow] {
            with_each_module(&[(Variants::PLAIN, Square::default())], |kernel, module, info| {
                let module = with_constants(kernel, (module, info), &tuning, false);
                let shared =
                    module.global_variables.iter().filter(|(_, v)| v.space == AddressSpace::WorkGroup);
                // Each may begin at a multiple of 16.
                let size = |ty| module.types[ty].inner.size(module.to_ctx()).next_multiple_of(16);
                let bytes: u32 = shared.map(|(_, variable)| size(variable.ty)).sum();
                assert!(bytes <= most, "{}: {bytes} bytes", kernel.name());
            });
        }
    }
}
