//! Shader texts and the pipelines made of them: one kernel a file, the text of a weight format put before it, the
//! rest specialised by override constants. Pipelines are made when first used and kept.

use std::collections::HashMap;

use super::{
    device::Gpu,
    formats::Format,
    variants::{Arith, Variants},
    work::Stored,
};
use crate::{Result, context::KvType};

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
    Shift,
}

impl Family {
    const ALL: [Family; 14] = {
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
            Shift,
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
            Family::Quantize | Family::SiluMul | Family::Best => "rw",
            Family::RopeStore => "rrrrrwww",
            Family::Attend => "rrrrrw",
            Family::AttendRounded => "rrrrrww",
            Family::AttendJoin => "rrw",
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
    pub norm: u32,
    pub rope: u32,
    pub attend: u32,
    /// Workgroups that keep the device busy: where there are as many, heads share what they read.
    pub crowd: u32,
}

impl Tuning {
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
            Kernel::Best | Kernel::BestJoin => Family::Best,
            Kernel::Shift { .. } => Family::Shift,
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
        }
    }

    /// The whole WGSL text.
    pub fn text(self, variants: Variants) -> String {
        macro_rules! shader {
            ($name:literal) => {
                include_str!(concat!("../../../shaders/", $name, ".wgsl"))
            };
        }
        let reduce = if variants.subgroups {
            shader!("common/reduce_subgroups")
        } else {
            shader!("common/reduce_shared")
        };
        match self {
            Kernel::Embed(format) => format_text(format) + shader!("embed"),
            Kernel::Norm(Arith::Float) => {
                [shader!("common/one"), reduce, shader!("common/norm_plain"), shader!("norm")].concat()
            }
            Kernel::Norm(arith) => [
                shader!("common/one"),
                reduce,
                &self.rounding(arith),
                shader!("common/norm_round"),
                shader!("norm"),
            ]
            .concat(),
            Kernel::MatmulRows { format, arith: Arith::Float, .. } => [
                &format_text(format),
                shader!("common/finish"),
                shader!("common/products_float"),
                shader!("common/lanes"),
                shader!("matmul_rows"),
            ]
            .concat(),
            Kernel::MatmulTile { format, arith: Arith::Float, .. } => {
                [&format_text(format), shader!("common/finish"), shader!("matmul_tile")].concat()
            }
            Kernel::MatmulRows { format, arith, .. } => [
                dot_text(arith),
                &format_text(format),
                &ints_text(format),
                shader!("common/part"),
                shader!("common/finish"),
                shader!("common/products_dot"),
                shader!("common/lanes"),
                shader!("matmul_rows"),
            ]
            .concat(),
            Kernel::GateRows { format, arith, .. } => [
                dot_text(arith),
                &format_text(format),
                &ints_text(format),
                shader!("common/part"),
                shader!("common/finish"),
                shader!("common/products_dot"),
                shader!("common/lanes"),
                &self.rounding(arith),
                shader!("gate_rows"),
            ]
            .concat(),
            Kernel::MatmulTile { format, arith: Arith::Int8, .. } if variants.coop => [
                "enable f16;\nenable wgpu_cooperative_matrix;\n",
                dot_text(Arith::Int8),
                &format_text(format),
                &ints_text(format),
                shader!("common/finish"),
                shader!("matmul_tile_coop"),
            ]
            .concat(),
            Kernel::MatmulTile { format, arith, .. } => [
                dot_text(arith),
                &format_text(format),
                &ints_text(format),
                shader!("common/part"),
                shader!("common/finish"),
                shader!("matmul_tile_dot"),
            ]
            .concat(),
            Kernel::Quantize(arith) => self.rounding(arith) + shader!("quantize"),
            Kernel::SiluMul => shader!("silu_mul").into(),
            Kernel::RopeStore(_) => [
                shader!("common/one"),
                reduce,
                shader!("common/stored"),
                shader!("common/stored_head"),
                shader!("rope_store"),
            ]
            .concat(),
            Kernel::Attend { shared, arith, .. } => [
                self.head(arith).as_str(),
                if shared { shader!("common/head_four") } else { shader!("common/head_one") },
                reduce,
                shader!("common/attention"),
                shader!("common/joint"),
                shader!("common/stored"),
                shader!("attend"),
            ]
            .concat(),
            Kernel::AttendJoin(arith) => [
                self.head(arith).as_str(),
                shader!("common/one"),
                shader!("common/attention"),
                shader!("common/joint"),
                shader!("attend_join"),
            ]
            .concat(),
            Kernel::Best => [shader!("common/rank"), shader!("best")].concat(),
            Kernel::BestJoin => [shader!("common/rank"), shader!("best_join")].concat(),
            Kernel::Shift { .. } => {
                [shader!("common/stored"), shader!("common/stored_head"), shader!("shift")].concat()
            }
        }
    }

    /// How this kernel rounds what it makes for products.
    fn rounding(self, arith: Arith) -> String {
        let numbers = match arith {
            Arith::Half => include_str!("../../../shaders/common/quantize_half.wgsl"),
            _ => include_str!("../../../shaders/common/quantize_int8.wgsl"),
        };
        let binding = self.family().storage().len();
        let rounded =
            format!("@group(0) @binding({binding}) var<storage, read_write> rounded: array<vec4<u32>>;\n");
        [&rounded, numbers, include_str!("../../../shaders/common/round_block.wgsl")].concat()
    }

    /// What becomes of a head of attention's result.
    fn head(self, arith: Arith) -> String {
        match arith {
            Arith::Float => include_str!("../../../shaders/common/head_plain.wgsl").into(),
            _ => self.rounding(arith) + include_str!("../../../shaders/common/head_round.wgsl"),
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
            Kernel::Embed(_) | Kernel::Quantize(_) | Kernel::SiluMul => Vec::new(),
        }
    }

    /// One of each kernel for every format and shape, for tests.
    pub fn all() -> Vec<Kernel> {
        let mut all = vec![Kernel::SiluMul, Kernel::Best, Kernel::BestJoin];
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

/// How sums of sixteen products are made. It comes first.
fn dot_text(arith: Arith) -> &'static str {
    match arith {
        Arith::Half => include_str!("../../../shaders/common/dot_half.wgsl"),
        _ => include_str!("../../../shaders/common/dot_int8.wgsl"),
    }
}

/// `ints`, `factors` and `value` of a format.
fn ints_text(format: Format) -> String {
    macro_rules! texts {
        ($($name:literal),*) => {
            [$(include_str!(concat!("../../../shaders/common/ints/", $name, ".wgsl"))),*].concat()
        };
    }
    match format {
        Format::Q4_0 => texts!("planes", "q4_0"),
        Format::Q4_1 | Format::Q4_K => texts!("planes", "q4_affine"),
        Format::Q5_0 => texts!("planes", "five_bits", "q5_0"),
        Format::Q5_1 | Format::Q5_K => texts!("planes", "five_bits", "q5_affine"),
        Format::Q8_0 => texts!("planes", "q8_0"),
        Format::Q2_K => texts!("planes", "q2_k"),
        Format::Q6_K => texts!("planes", "q6_k"),
        Format::Iq4Nl | Format::Iq4Xs | Format::Mxfp4 => texts!("planes", "levels"),
        Format::F16 | Format::Bf16 | Format::F32 => unreachable!("multiplied as floats"),
    }
}

/// `load` and `quad` of a format, with the bindings of its streams.
fn format_text(format: Format) -> String {
    macro_rules! texts {
        ($($name:literal),*) => {
            [$(include_str!(concat!("../../../shaders/common/", $name, ".wgsl"))),*].concat()
        };
    }
    let plus = "const SIGN: f32 = 1.0;\n";
    let minus = "const SIGN: f32 = -1.0;\n";
    match format {
        Format::Q4_0 => texts!("nibbles", "half_scale", "q4_0"),
        Format::Q4_1 => texts!("nibbles", "scale_min", "q4_affine") + plus,
        Format::Q5_0 => texts!("nibbles", "half_scale", "fifth_bits", "q5_0"),
        Format::Q5_1 => texts!("nibbles", "scale_min", "fifth_bits", "q5_affine") + plus,
        Format::Q8_0 => texts!("nibbles", "half_scale", "q8_0"),
        Format::Q2_K => texts!("nibbles", "q2_k"),
        Format::Q4_K => texts!("nibbles", "scale_min_k", "q4_affine") + minus,
        Format::Q5_K => texts!("nibbles", "scale_min_k", "fifth_bits", "q5_affine") + minus,
        Format::Q6_K => texts!("nibbles", "q6_k"),
        Format::Iq4Nl => texts!("nibbles", "levels", "half_scale", "iq4_nl"),
        Format::Iq4Xs => texts!("nibbles", "levels", "float_scale", "iq4_nl"),
        Format::Mxfp4 => texts!("nibbles", "mxfp4"),
        Format::F16 => texts!("f16"),
        Format::Bf16 => texts!("bf16"),
        Format::F32 => texts!("f32"),
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
    let module = gpu.shader(&name, kernel.text(variants));
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
        let each = |kernel| [Variants::PLAIN, subgroups, coop].map(|variants| (kernel, variants));
        for (kernel, variants) in all.flat_map(each) {
            let mut capabilities = BASE;
            let is_half = kernel.needs() == wgpu::Features::SHADER_F16;
            capabilities.set(Capabilities::SHADER_FLOAT16, is_half || variants.coop);
            capabilities.set(Capabilities::SUBGROUP, variants.subgroups || variants.coop);
            capabilities.set(Capabilities::COOPERATIVE_MATRIX, variants.coop);
            let text = kernel.text(variants);
            if variants != Variants::PLAIN && text == kernel.text(Variants::PLAIN) {
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
        for kernel in tiles {
            let module = wgsl::parse_str(&kernel.text(coop)).unwrap();
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
            let module = wgsl::parse_str(&kernel.text(Variants::PLAIN)).unwrap();
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
