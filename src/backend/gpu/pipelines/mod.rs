//! The kernels and the pipelines made of them: a text for each, specialised by override constants. Pipelines are made
//! when first used and kept.

mod text;

use std::collections::HashMap;

use super::{
    device::Gpu,
    formats::Format,
    variants::{Arith, Square, Variants},
    work::Stored,
};
use crate::{Result, kv_type::KvType};

/// What becomes of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    Store = 0,
    Add = 1,
    /// Even rows are a gate, odd ones what it lets through.
    Gate = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    Embed(Format),
    /// Rows as products of this kind want them.
    Norm(Arith),
    /// `coarse`: from the high planes alone.
    MatmulRows {
        format: Format,
        mode: Mode,
        lanes: u32,
        columns: u32,
        coarse: bool,
        arith: Arith,
    },
    /// A gate and what it lets through, by products that are not in floats, and rounded for another.
    GateRows {
        format: Format,
        lanes: u32,
        columns: u32,
        coarse: bool,
        arith: Arith,
    },
    MatmulTile {
        format: Format,
        mode: Mode,
        lanes: u32,
        coarse: bool,
        arith: Arith,
    },
    /// Activations for products that are not in floats.
    Quantize(Arith),
    SiluMul,
    RopeStore(Stored),
    /// `split`: each workgroup makes one chunk. `shared`: for up to four heads that share keys and values. `arith`:
    /// rows as products of this kind want them; chunks are always in floats.
    Attend {
        split: bool,
        shared: bool,
        stored: Stored,
        arith: Arith,
    },
    AttendJoin(Arith),
    Best,
    BestJoin,
    Shift {
        keys: KvType,
    },
    /// Reads a buffer, to be timed.
    Read,
}

/// Sets of bindings; kernels of one family can share bind groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    Embed,
    Norm,
    NormRounded,
    Matmul,
    MatmulRounded,
    Quantize,
    SiluMul,
    RopeStore,
    Attend,
    AttendRounded,
    AttendJoin,
    AttendJoinRounded,
    Best,
    BestJoin,
    Shift,
    Read,
}

impl Family {
    const ALL: [Family; 16] = {
        use Family::*;
        [
            Embed,
            Norm,
            NormRounded,
            Matmul,
            MatmulRounded,
            Quantize,
            SiluMul,
            RopeStore,
            Attend,
            AttendRounded,
            AttendJoin,
            AttendJoinRounded,
            Best,
            BestJoin,
            Shift,
            Read,
        ]
    };

    /// After the parameters at binding 0, a letter for each storage buffer: read or written. Rounded rows come last.
    fn storage(self) -> &'static str {
        match self {
            Family::Embed => "rrrrw",
            Family::Norm => "rrrw",
            Family::NormRounded => "rrrww",
            Family::Matmul => "rrrrrw",
            Family::MatmulRounded => "rrrrrww",
            Family::Quantize | Family::SiluMul | Family::Best | Family::Read => "rw",
            Family::RopeStore => "rrrrrwww",
            Family::Attend => "rrrrrw",
            Family::AttendRounded => "rrrrrww",
            Family::AttendJoin | Family::BestJoin => "rrw",
            Family::AttendJoinRounded => "rrww",
            Family::Shift => "rrww",
        }
    }
}

impl Arith {
    /// The family of a kernel that may round what it makes.
    fn family(self, in_floats: Family, rounded: Family) -> Family {
        if self == Arith::Float { in_floats } else { rounded }
    }
}

/// How wide the kernels are on a device. It fixes the order of sums, so the bits too, and never changes while a
/// device is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Threads of a workgroup of `matmul_rows`.
    pub matmul: u32,
    /// Threads of a workgroup of `gate_rows` for up to four columns; half as many for more.
    pub gate: u32,
    /// Threads of a workgroup of norms.
    pub norm: u32,
    /// Threads of a workgroup of rotations.
    pub rope: u32,
    /// Threads of a workgroup of attention.
    pub attend: u32,
    /// Workgroups that keep the device busy: where there are as many, heads share what they read.
    pub crowd: u32,
}

impl Tuning {
    /// A card.
    pub const HARDWARE: Tuning =
        Tuning { matmul: 64, gate: 256, norm: 256, rope: 64, attend: 64, crowd: 512 };
    /// A processor that plays a GPU: barriers are dear and threads run eight at a time.
    pub const SOFTWARE: Tuning = Tuning { matmul: 8, gate: 8, norm: 8, rope: 8, attend: 8, crowd: 1 };

    /// Lanes that share a row of so many blocks: enough to keep many loads under way, not more than have work.
    pub fn lanes(&self, blocks: usize) -> u32 {
        let wanted = match blocks {
            0..=32 => 8,
            33..=128 => 16,
            _ => 32,
        };
        wanted.min(self.matmul)
    }

    /// Pairs of rows that a workgroup of `gate_rows` makes at once.
    fn gate_pairs(&self, lanes: u32, columns: u32) -> u32 {
        let threads = if columns > 4 { self.gate / 2 } else { self.gate };
        (threads / lanes).max(1)
    }
}

impl Kernel {
    pub fn family(self) -> Family {
        match self {
            Kernel::Embed(_) => Family::Embed,
            Kernel::Norm(arith) => arith.family(Family::Norm, Family::NormRounded),
            Kernel::GateRows { .. } => Family::MatmulRounded,
            Kernel::MatmulRows { .. } | Kernel::MatmulTile { .. } => Family::Matmul,
            Kernel::Quantize(_) => Family::Quantize,
            Kernel::SiluMul => Family::SiluMul,
            Kernel::RopeStore(_) => Family::RopeStore,
            Kernel::Attend { arith, .. } => arith.family(Family::Attend, Family::AttendRounded),
            Kernel::AttendJoin(arith) => arith.family(Family::AttendJoin, Family::AttendJoinRounded),
            Kernel::Best => Family::Best,
            Kernel::BestJoin => Family::BestJoin,
            Kernel::Shift { .. } => Family::Shift,
            Kernel::Read => Family::Read,
        }
    }

    pub fn name(self) -> String {
        match self {
            Kernel::Embed(format) => format!("embed {}", format.name()),
            Kernel::Norm(_) => "norm".into(),
            Kernel::MatmulRows { format, columns, coarse, arith, .. }
            | Kernel::GateRows { format, columns, coarse, arith, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("matmul {}{high} x{columns}{}", format.name(), arith.suffix())
            }
            Kernel::MatmulTile { format, coarse, arith, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("matmul {}{high} tile{}", format.name(), arith.suffix())
            }
            Kernel::Quantize(arith) => format!("quantize{}", arith.suffix()),
            Kernel::SiluMul => "silu mul".into(),
            Kernel::RopeStore(_) => "rope store".into(),
            Kernel::Attend { split, shared, .. } => {
                let split = if split { " split" } else { "" };
                format!("attend{split}{}", if shared { " shared" } else { "" })
            }
            Kernel::AttendJoin(_) => "attend join".into(),
            Kernel::Best => "best".into(),
            Kernel::BestJoin => "best join".into(),
            Kernel::Shift { .. } => "shift".into(),
            Kernel::Read => "read".into(),
        }
    }

    /// Values of the text's overrides. `subgroup`: the least threads in one.
    pub fn constants(self, tuning: &Tuning, variants: Variants, subgroup: u32) -> Vec<(&'static str, f64)> {
        let width = |threads: u32| {
            let alone = ("ALONE", f64::from(u8::from(threads <= subgroup)));
            variants.subgroups.then_some(alone).into_iter().chain([("THREADS", f64::from(threads))])
        };
        let coarse_of = |format: Format, coarse| {
            format.has_planes().then_some(("COARSE", f64::from(u8::from(coarse)))).into_iter()
        };
        match self {
            Kernel::MatmulRows { format, mode, lanes, columns, coarse, .. } => [
                ("LANES", f64::from(lanes)),
                ("PAIRS", f64::from(tuning.matmul / lanes)),
                ("COLUMNS", f64::from(columns)),
                ("SUMS", f64::from(columns * tuning.matmul)),
                ("MODE", f64::from(mode as u32)),
            ]
            .into_iter()
            .chain(coarse_of(format, coarse))
            .collect(),
            Kernel::GateRows { format, lanes, columns, coarse, .. } => {
                let pairs = tuning.gate_pairs(lanes, columns);
                [
                    ("LANES", f64::from(lanes)),
                    ("PAIRS", f64::from(pairs)),
                    ("COLUMNS", f64::from(columns)),
                    ("SUMS", f64::from(columns * pairs * lanes)),
                ]
                .into_iter()
                .chain(coarse_of(format, coarse))
                .collect()
            }
            Kernel::MatmulTile { format, mode, lanes, coarse, arith } => {
                let apart = variants.coop && arith == Arith::Int8;
                let apart = apart.then_some(("APART", f64::from(u8::from(format.has_half_scales()))));
                [("LANES", f64::from(lanes)), ("MODE", f64::from(mode as u32))]
                    .into_iter()
                    .chain(apart)
                    .chain(coarse_of(format, coarse))
                    .collect()
            }
            Kernel::Norm(_) => width(tuning.norm).collect(),
            Kernel::Best | Kernel::BestJoin => vec![("THREADS", f64::from(tuning.norm))],
            Kernel::RopeStore(stored) => width(tuning.rope).chain(stored.constants()).collect(),
            Kernel::Attend { split, stored, .. } => width(tuning.attend)
                .chain([("SPLIT", f64::from(u8::from(split)))])
                .chain(stored.constants())
                .collect(),
            Kernel::AttendJoin(_) => vec![("THREADS", f64::from(tuning.attend))],
            Kernel::Shift { keys } => vec![("KEYS", storage_number(keys))],
            Kernel::Embed(_) | Kernel::Quantize(_) | Kernel::SiluMul | Kernel::Read => Vec::new(),
        }
    }

    /// One of each kernel for every format and shape.
    #[cfg(test)]
    pub fn all() -> Vec<Kernel> {
        let mut all = vec![Kernel::SiluMul, Kernel::Best, Kernel::BestJoin, Kernel::Read];
        all.extend(Arith::ALL.map(Kernel::Norm));
        all.extend(Arith::ALL.map(Kernel::AttendJoin));
        all.extend(KvType::ALL.map(|keys| Kernel::Shift { keys }));
        for stored in Stored::all() {
            all.push(Kernel::RopeStore(stored));
            for shared in [false, true] {
                let arith = Arith::Float;
                all.push(Kernel::Attend { split: true, shared, stored, arith });
                all.extend(Arith::ALL.map(|arith| Kernel::Attend { split: false, shared, stored, arith }));
            }
        }
        all.extend([Arith::Int8, Arith::Half].map(Kernel::Quantize));
        for format in Format::ALL {
            all.push(Kernel::Embed(format));
            for arith in Arith::ALL.into_iter().filter(|arith| arith.of(format) == *arith) {
                for mode in [Mode::Store, Mode::Add, Mode::Gate] {
                    for coarse in [false, format.has_planes()] {
                        all.push(Kernel::MatmulTile { format, mode, lanes: 16, coarse, arith });
                        let rows =
                            |columns| Kernel::MatmulRows { format, mode, lanes: 32, columns, coarse, arith };
                        all.extend((1..=8).map(rows));
                    }
                }
                if arith != Arith::Float {
                    let gate =
                        |columns| Kernel::GateRows { format, lanes: 32, columns, coarse: false, arith };
                    all.extend((1..=8).map(gate));
                }
            }
        }
        all
    }

    /// The feature without which the text is not even valid.
    #[cfg(test)]
    pub fn needs(self) -> wgpu::Features {
        match self {
            Kernel::MatmulRows { arith: Arith::Half, .. }
            | Kernel::GateRows { arith: Arith::Half, .. }
            | Kernel::MatmulTile { arith: Arith::Half, .. } => wgpu::Features::SHADER_F16,
            _ => wgpu::Features::empty(),
        }
    }
}

/// What a type of keys or values is called in `stored.wgsl`.
fn storage_number(ty: KvType) -> f64 {
    match ty {
        KvType::F32 => 0.0,
        KvType::F16 => 1.0,
        KvType::Q8_0 => 2.0,
    }
}

impl Stored {
    fn constants(self) -> [(&'static str, f64); 2] {
        [("KEYS", storage_number(self.keys)), ("VALUES", storage_number(self.values))]
    }

    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = Stored> {
        let with = |keys| KvType::ALL.map(|values| Stored { keys, values });
        KvType::ALL.into_iter().flat_map(with)
    }
}

impl Arith {
    fn suffix(self) -> &'static str {
        match self {
            Arith::Float => "",
            Arith::Int8 => " dot4",
            Arith::Half => " f16",
        }
    }
}

pub struct Pipelines {
    layouts: HashMap<Family, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    made: HashMap<Kernel, wgpu::ComputePipeline>,
    variants: Variants,
}

impl Pipelines {
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu, gpu.variants)
    }

    pub fn with(gpu: &Gpu, variants: Variants) -> Self {
        let layouts = Family::ALL.map(|family| (family, layout(&gpu.device, family)));
        Pipelines { layouts: layouts.into(), made: HashMap::new(), variants }
    }

    pub fn get(&mut self, gpu: &Gpu, kernel: Kernel) -> Result<&wgpu::ComputePipeline> {
        if !self.made.contains_key(&kernel) {
            let layout = &self.layouts[&kernel.family()].1;
            let made = gpu.checked(&kernel.name(), || make(gpu, kernel, self.variants, layout))?;
            self.made.insert(kernel, made);
        }
        Ok(&self.made[&kernel])
    }

    /// `storage` in the order of the family's bindings; parameters lie in slots of `params`.
    pub fn bind(
        &self,
        gpu: &Gpu,
        family: Family,
        params: &wgpu::Buffer,
        storage: &[wgpu::BufferBinding],
    ) -> wgpu::BindGroup {
        assert_eq!(storage.len(), family.storage().len(), "{family:?}");
        let params = wgpu::BufferBinding {
            buffer: params,
            offset: 0,
            size: wgpu::BufferSize::new(super::params::SLOT_BYTES),
        };
        let all = std::iter::once(&params).chain(storage);
        let entries: Vec<_> = (0..)
            .zip(all)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(buffer.clone()),
            })
            .collect();
        gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.layouts[&family].0,
            entries: &entries,
        })
    }
}

fn layout(device: &wgpu::Device, family: Family) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
    let entry = |binding, ty, has_dynamic_offset| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
        count: None,
    };
    let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform, true)];
    entries.extend((1..).zip(family.storage().bytes()).map(|(binding, letter)| {
        entry(binding, wgpu::BufferBindingType::Storage { read_only: letter == b'r' }, false)
    }));
    let bind_group =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
    let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&bind_group)],
        immediate_size: 0,
    });
    (bind_group, pipeline)
}

fn make(
    gpu: &Gpu,
    kernel: Kernel,
    variants: Variants,
    layout: &wgpu::PipelineLayout,
) -> wgpu::ComputePipeline {
    let name = kernel.name();
    let module = gpu.shader(&name, kernel.text(variants, gpu.square));
    gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&name),
        layout: Some(layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &kernel.constants(&gpu.tuning, variants, gpu.info.subgroup_min_size),
            // The kernels write what they read.
            zero_initialize_workgroup_memory: false,
        },
        cache: gpu.kernels.as_ref().map(|kept| &kept.cache),
    })
}

#[cfg(test)]
mod tests {
    use wgpu::naga::{
        back::pipeline_constants::process_overrides,
        front::wgsl,
        valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator},
    };

    use super::*;

    /// Halves in words are part of WebGPU, though not of what wgpu calls the lowest level.
    const BASE: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;

    /// No device needed: what is plain validates without any optional feature, the rest under the one it is for.
    #[test]
    fn every_shader_is_valid_under_the_features_it_is_for() {
        let all = Kernel::all().into_iter();
        let subgroups = Variants { subgroups: true, ..Variants::PLAIN };
        let coop = Variants { arith: Arith::Int8, coop: true, ..Variants::PLAIN };
        let [sixteen, eight] = Square::ALL;
        let ways = [(Variants::PLAIN, sixteen), (subgroups, sixteen), (coop, sixteen), (coop, eight)];
        let each = |kernel| ways.map(|(variants, square)| (kernel, variants, square));
        for (kernel, variants, square) in all.flat_map(each) {
            let mut capabilities = BASE;
            let is_half = kernel.needs() == wgpu::Features::SHADER_F16;
            capabilities.set(Capabilities::SHADER_FLOAT16, is_half || variants.coop);
            capabilities.set(Capabilities::SUBGROUP, variants.subgroups || variants.coop);
            capabilities.set(Capabilities::COOPERATIVE_MATRIX, variants.coop);
            let text = kernel.text(variants, square);
            if variants != Variants::PLAIN && text == kernel.text(Variants::PLAIN, square) {
                continue;
            }
            let module = wgsl::parse_str(&text)
                .unwrap_or_else(|e| panic!("{}: {}", kernel.name(), e.emit_to_string(&text)));
            let info = Validator::new(ValidationFlags::all(), capabilities)
                .subgroup_stages(ShaderStages::COMPUTE)
                .subgroup_operations(SubgroupOperationSet::all())
                .validate(&module)
                .unwrap_or_else(|e| panic!("{}: {}", kernel.name(), e.emit_to_string(&text)));
            for tuning in [Tuning::HARDWARE, Tuning::SOFTWARE] {
                let lanes = match kernel {
                    Kernel::MatmulRows { lanes, .. } | Kernel::GateRows { lanes, .. } => lanes,
                    _ => 8,
                };
                if lanes > tuning.matmul {
                    continue;
                }
                let constants = kernel.constants(&tuning, variants, 32);
                let constants = constants.into_iter().map(|(name, x)| (name.to_string(), x)).collect();
                process_overrides(&module, &info, None, &constants)
                    .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
            }
        }
    }

    /// No device here may have cooperative matrices; what a driver would be given can be made all the same.
    #[cfg(not(target_vendor = "apple"))]
    #[test]
    fn tiles_by_cooperative_matrices_become_spirv() {
        use wgpu::naga::{ShaderStage, back::spv};
        let coop = Variants { arith: Arith::Int8, coop: true, ..Variants::PLAIN };
        let tiles = Kernel::all().into_iter().filter(|kernel| {
            matches!(kernel, Kernel::MatmulTile { arith: Arith::Int8, mode: Mode::Add, .. })
        });
        for (kernel, square) in tiles.flat_map(|kernel| Square::ALL.map(|square| (kernel, square))) {
            let module = wgsl::parse_str(&kernel.text(coop, square)).unwrap();
            let info = Validator::new(ValidationFlags::all(), Capabilities::all())
                .subgroup_stages(ShaderStages::COMPUTE)
                .subgroup_operations(SubgroupOperationSet::all())
                .validate(&module)
                .unwrap_or_else(|e| panic!("{}: {e:?}", kernel.name()));
            let constants = kernel.constants(&Tuning::HARDWARE, coop, 32);
            let constants = constants.into_iter().map(|(name, x)| (name.to_string(), x)).collect();
            let (module, info) = process_overrides(&module, &info, None, &constants).unwrap();
            let options = spv::Options { lang_version: (1, 4), ..spv::Options::default() };
            let entry =
                spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".into() };
            let words = spv::write_vec(&module, &info, &options, Some(&entry))
                .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
            // OpCooperativeMatrixMulAddKHR
            assert!(words.iter().any(|word| word & 0xffff == 4459), "{}", kernel.name());
        }
    }

    #[test]
    fn every_shader_writes_only_what_its_layout_lets_it() {
        use wgpu::naga::{AddressSpace, StorageAccess};
        for kernel in Kernel::all() {
            let text = kernel.text(Variants::PLAIN, Square::default());
            let module = wgsl::parse_str(&text).unwrap();
            for (_, variable) in module.global_variables.iter() {
                let Some(binding) = variable.binding else { continue };
                let written = match variable.space {
                    AddressSpace::Storage { access } => access.contains(StorageAccess::STORE),
                    _ => {
                        assert_eq!(binding.binding, 0, "{}: parameters come first", kernel.name());
                        continue;
                    }
                };
                let letter = kernel.family().storage().as_bytes()[binding.binding as usize - 1];
                assert_eq!(written, letter == b'w', "{}: binding {}", kernel.name(), binding.binding);
            }
        }
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
}
