//! Final texts as drivers get them: constants put in, and translated as wgpu does it for kernels of ours.

use naga::{
    Module, ShaderStage,
    back::{hlsl, pipeline_constants::process_overrides},
    front::wgsl,
    valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator},
};
#[cfg(test)]
use naga::{
    back::{msl, spv},
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
};

#[cfg(test)]
use super::{
    super::{
        tuning::Tuning,
        variants::{Square, Variants},
    },
    Kernel,
};

/// Where wgpu puts the sizes of buffers for Metal.
#[cfg(test)]
const SIZES_SLOT: u8 = 30;

#[cfg(test)]
const UNCHECKED: BoundsCheckPolicies = BoundsCheckPolicies {
    index: BoundsCheckPolicy::Unchecked,
    buffer: BoundsCheckPolicy::Unchecked,
    image_load: BoundsCheckPolicy::Unchecked,
    binding_array: BoundsCheckPolicy::Unchecked,
};

/// A kernel with its constants.
pub struct Final {
    module: Module,
    info: ModuleInfo,
}

impl Final {
    /// As a card would have it.
    #[cfg(test)]
    pub fn of(kernel: Kernel, tuning: &Tuning, variants: Variants, square: Square) -> Self {
        let constants = kernel.description().constants(tuning, false);
        let constants = constants.into_iter().map(|(name, x)| (name.to_string(), x));
        Self::of_text(&kernel.description().text(variants, square), constants)
            .unwrap_or_else(|e| panic!("{kernel:?}: {e}"))
    }

    pub fn of_text(text: &str, constants: impl IntoIterator<Item = (String, f64)>) -> Result<Self, String> {
        let module = wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
        let info = Validator::new(ValidationFlags::all(), Capabilities::all())
            .subgroup_stages(ShaderStages::COMPUTE)
            .subgroup_operations(SubgroupOperationSet::all())
            .validate(&module)
            .map_err(|e| e.emit_to_string(text))?;
        let entry = Some((ShaderStage::Compute, "main"));
        let (module, info) = process_overrides(&module, &info, entry, &constants.into_iter().collect())
            .map_err(|e| e.to_string())?;
        Ok(Final { module: module.into_owned(), info: info.into_owned() })
    }

    /// For Vulkan 1.3.
    #[cfg(test)]
    pub fn spirv(&self) -> Result<Vec<u32>, String> {
        let options = spv::Options {
            lang_version: (1, 6),
            flags: spv::WriterFlags::empty(),
            bounds_check_policies: UNCHECKED,
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: false,
            emit_int_div_checks: false,
            ..spv::Options::default()
        };
        let entry = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".into() };
        spv::write_vec(&self.module, &self.info, &options, Some(&entry)).map_err(|e| e.to_string())
    }

    /// For Metal 3.1.
    #[cfg(test)]
    pub fn msl(&self) -> Result<String, String> {
        let bindings = self.module.global_variables.iter().filter_map(|(_, variable)| variable.binding);
        let slot = |slot| msl::BindTarget { buffer: Some(slot), mutable: true, ..msl::BindTarget::default() };
        let resources = msl::EntryPointResources {
            resources: bindings.zip(0..).map(|(binding, at)| (binding, slot(at))).collect(),
            sizes_buffer: Some(SIZES_SLOT),
            ..msl::EntryPointResources::default()
        };
        let options = msl::Options {
            lang_version: (3, 1),
            per_entry_point_map: [("main".to_string(), resources)].into_iter().collect(),
            fake_missing_bindings: false,
            bounds_check_policies: UNCHECKED,
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: false,
            emit_int_div_checks: false,
            ..msl::Options::default()
        };
        let entry = msl::PipelineOptions {
            entry_point: Some((ShaderStage::Compute, "main".into())),
            ..msl::PipelineOptions::default()
        };
        let written = msl::write_string(&self.module, &self.info, &options, &entry);
        let (text, about) = written.map_err(|e| e.to_string())?;
        // A module may be written although its entry point is not.
        about.entry_point_names[0].as_ref().map_err(|e| e.to_string())?;
        Ok(text)
    }

    /// For DX12: by the compiler that Windows has (5.1), and by the newer one (6.6). `storage` has a letter for each storage
    /// buffer, as [`Bindings`](super::Bindings); registers are those that wgpu gives them.
    pub fn hlsl(&self, shader_model: hlsl::ShaderModel, storage: &str) -> Result<String, String> {
        let register = |register| hlsl::BindTarget { register, ..hlsl::BindTarget::default() };
        let (mut read, mut written) = (0.., 0..);
        let of_buffer = |letter| if letter == b'r' { read.next() } else { written.next() };
        let buffers = storage.bytes().map(of_buffer).map(|at| register(at.expect("there is no last one")));
        let all = std::iter::once(register(0)).chain(buffers);
        let options = hlsl::Options {
            shader_model,
            binding_map: (0..).map(|binding| naga::ResourceBinding { group: 0, binding }).zip(all).collect(),
            fake_missing_bindings: false,
            // Behind the parameters: how many workgroups there are.
            special_constants_binding: Some(register(1)),
            zero_initialize_workgroup_memory: false,
            restrict_indexing: false,
            force_loop_bounding: false,
            ..hlsl::Options::default()
        };
        let entry = hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, "main".into())) };
        let mut text = String::new();
        let written = hlsl::Writer::new(&mut text, &options, &entry).write(&self.module, &self.info, None);
        let about = written.map_err(|e| e.to_string())?;
        about.entry_point_names[0].as_ref().map_err(|e| e.to_string())?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, env, fs, path::PathBuf};

    use super::*;
    use rayon::prelude::*;

    /// Each kernel under each way that makes another text of it.
    fn every_final_text() -> impl Iterator<Item = (Kernel, Variants, Square)> {
        let [sixteen, eight] = Square::ALL;
        let ways = [(Variants::PLAIN, sixteen), (Variants::COOP, sixteen), (Variants::COOP, eight)];
        let each = |(variants, square): (Variants, Square)| {
            let differs = move |kernel: &Kernel| {
                let plain = || kernel.description().text(Variants::PLAIN, Square::default());
                variants == Variants::PLAIN || kernel.description().text(variants, square) != plain()
            };
            let kernels = Kernel::asked_for(variants).into_iter().filter(differs);
            kernels.map(move |kernel| (kernel, variants, square))
        };
        ways.into_iter().flat_map(each)
    }

    /// No driver for Metal or DX12 is here; what they would be given can be made all the same.
    #[test]
    fn every_final_text_is_translated_for_vulkan_metal_and_dx12() {
        let all: Vec<_> = every_final_text().collect();
        let refused: Vec<String> = all
            .into_par_iter()
            .flat_map_iter(|(kernel, variants, square)| {
                let ready = Final::of(kernel, &Tuning::HARDWARE, variants, square);
                let of = |what: &str, made: Result<usize, String>| {
                    made.err().map(|e| format!("{kernel:?} {variants}, for {what}: {e}"))
                };
                let spirv = of("Vulkan", ready.spirv().map(|words| words.len()));
                let msl = of("Metal", ready.msl().map(|text| text.len()));
                let hlsl = [hlsl::ShaderModel::V5_1, hlsl::ShaderModel::V6_6].map(|shader_model| {
                    let made = ready.hlsl(shader_model, kernel.bindings().0);
                    match variants.coop && made.is_err() {
                        // HLSL has none before a version that naga does not write.
                        true => None,
                        false => of("DX12", made.map(|text| text.len())),
                    }
                });
                [spirv, msl].into_iter().chain(hlsl).flatten()
            })
            .collect();
        assert!(refused.is_empty(), "{} refused:\n{}", refused.len(), refused.join("\n"));
    }

    /// For Microsoft's compilers, which `.ci/windows` has: `SPEC_RUN_HLSL` names a folder, which gets a file for each text that
    /// differs and a list of them.
    #[test]
    #[ignore = "writes files for .ci/windows"]
    fn every_text_for_dx12_is_written() {
        let folder = PathBuf::from(env::var_os("SPEC_RUN_HLSL").expect("SPEC_RUN_HLSL names a folder"));
        for (name, shader_model) in [("5_1", hlsl::ShaderModel::V5_1), ("6_6", hlsl::ShaderModel::V6_6)] {
            let folder = folder.join(name);
            fs::create_dir_all(&folder).unwrap();
            let all: Vec<_> = every_final_text().filter(|(_, variants, _)| !variants.coop).collect();
            let texts: Vec<_> = all
                .into_par_iter()
                .map(|(kernel, variants, square)| {
                    let ready = Final::of(kernel, &Tuning::HARDWARE, variants, square);
                    (kernel, ready.hlsl(shader_model, kernel.bindings().0).unwrap())
                })
                .collect();
            let mut seen = HashSet::new();
            let mut list = String::new();
            for (kernel, text) in texts {
                if seen.insert(text.clone()) {
                    let file = format!("{}.hlsl", seen.len());
                    list += &format!("{file}\t{kernel:?}\n");
                    fs::write(folder.join(file), text).unwrap();
                }
            }
            fs::write(folder.join("list.tsv"), list).unwrap();
        }
    }

    #[test]
    fn dx12_has_no_cooperative_matrices() {
        let kernel = Kernel::all()
            .into_iter()
            .find(|kernel| kernel.description().text(Variants::COOP, Square::Eight).contains("coop_"));
        let kernel = kernel.expect("coop has tiles");
        let ready = Final::of(kernel, &Tuning::HARDWARE, Variants::COOP, Square::Eight);
        let said = ready.hlsl(hlsl::ShaderModel::V6_6, kernel.bindings().0).unwrap_err();
        assert!(said.to_lowercase().contains("cooperative"), "{said}");
    }

    #[test]
    fn tiles_by_cooperative_matrices_become_spirv() {
        let multiplies = |(kernel, variants, square)| {
            let words = Final::of(kernel, &Tuning::HARDWARE, variants, square).spirv().unwrap();
            // OpCooperativeMatrixMulAddKHR
            assert!(words.iter().any(|word| word & 0xffff == 4459), "{kernel:?}");
        };
        let tiles: Vec<_> = every_final_text().filter(|(_, variants, _)| variants.coop).collect();
        assert!(!tiles.is_empty());
        tiles.into_par_iter().for_each(multiplies);
    }
}
