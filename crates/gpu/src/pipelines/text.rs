//! Shader texts: one kernel a file, with what it needs put before it, as the text of a weight format.

use spec_run_shaders::shader;

use super::Kernel;
use crate::{
    formats::{Description, Format, HighAlone},
    variants::{Arith, Square, Variants},
};

/// Texts of a folder, one after the other.
fn texts(folder: &str, names: &[&str]) -> String {
    names.iter().map(|name| shader(&format!("{folder}/{name}"))).collect()
}

impl Kernel {
    /// The whole WGSL text. `square`: of cooperative matrices.
    pub fn text(self, variants: Variants, square: Square) -> String {
        let reduce = shader("common/reduce_shared");
        match self {
            Kernel::Embed(format) => format_text(format) + shader("embed"),
            Kernel::Norm(Arith::Float) => {
                [shader("common/one"), reduce, shader("common/norm_plain"), shader("norm")].concat()
            }
            Kernel::Norm(arith) => [
                shader("common/one"),
                reduce,
                &self.preparing(arith),
                shader("common/kept"),
                shader("common/norm_prepare"),
                shader("norm"),
            ]
            .concat(),
            Kernel::NormUnscaled { arith, .. } => [
                &self.preparing(arith),
                shader("common/kept"),
                shader("common/mean_part"),
                shader("norm_unscaled"),
            ]
            .concat(),
            Kernel::MatmulRows { format, arith, .. } => {
                rows_text(format, arith) + shader("common/one_matrix_in_turns") + shader("matmul_rows")
            }
            Kernel::StoreRows { format, arith, .. } => [
                &rows_with(format, arith, &product()),
                shader("common/halves"),
                shader("common/stored"),
                shader("common/finish_heads"),
                shader("common/one_matrix"),
                shader("matmul_rows"),
            ]
            .concat(),
            Kernel::ExpertRows { format, arith, .. } => {
                rows_text(format, arith) + shader("common/expert_of_pair") + shader("matmul_rows")
            }
            Kernel::HeadRows { format, arith, .. } => {
                rows_text(format, arith) + shader("common/matrix_of_head") + shader("matmul_rows")
            }
            Kernel::GateRows { format, arith, .. } => [
                &rows_text(format, arith),
                shader("common/one_matrix"),
                &self.preparing(arith),
                shader("gate_rows"),
            ]
            .concat(),
            Kernel::AddRows { format, arith, .. } => [
                &rows_text(format, arith),
                shader("common/one_matrix"),
                &self.preparing(arith),
                shader("common/mean_part"),
                shader("add_rows"),
            ]
            .concat(),
            Kernel::MatmulTile { format, arith: Arith::Int8, .. } if variants.coop => [
                "enable f16;\nenable wgpu_cooperative_matrix;\n",
                &dots(format),
                &finish(),
                match square {
                    Square::Sixteen => shader("common/squares_16"),
                    Square::Eight => shader("common/squares_8"),
                },
                shader("common/column_scale"),
                shader("common/tile_sums"),
                shader("common/one_matrix"),
                shader("matmul_tile_coop"),
            ]
            .concat(),
            Kernel::MatmulTile { format, arith, .. } => {
                tile_text(format, arith) + shader("common/one_matrix")
            }
            Kernel::MatmulWide { format, .. } => [
                &dots(format),
                &finish(),
                shader("common/part"),
                shader("common/tile_column"),
                shader("common/column_scale"),
                shader("common/one_matrix"),
                shader("matmul_tile_wide"),
            ]
            .concat(),
            Kernel::MatmulJoin { .. } => {
                [&finish(), shader("common/one_matrix"), shader("matmul_join")].concat()
            }
            Kernel::HeadTile { format, arith, .. } => {
                tile_text(format, arith) + shader("common/matrix_of_head")
            }
            Kernel::ExpertTile { format, arith, .. } => {
                tile_text(format, arith) + shader("common/expert_of_tile")
            }
            Kernel::Choose => [shader("common/one"), reduce, shader("choose")].concat(),
            Kernel::ExpertsSort => shader("experts_sort").into(),
            Kernel::ExpertsSum => shader("experts_sum").into(),
            Kernel::Prepare(arith) => self.preparing(arith) + shader("prepare"),
            Kernel::Activate(_) => [shader("common/activation"), shader("activate")].concat(),
            Kernel::NormGroups { inside } => [
                shader("common/one"),
                reduce,
                if inside { shader("common/rows_inside") } else { shader("common/rows_apart") },
                shader("norm_groups"),
            ]
            .concat(),
            Kernel::Multiply { .. } => [shader("common/activation"), shader("multiply")].concat(),
            Kernel::Add => shader("add").into(),
            Kernel::Take => shader("take").into(),
            Kernel::Scale => shader("scale").into(),
            Kernel::Cap => [shader("common/capped"), shader("cap")].concat(),
            Kernel::RopeStore(_) => [
                shader("common/one"),
                reduce,
                shader("common/halves"),
                shader("common/level_iq4"),
                shader("common/stored"),
                shader("common/stored_head"),
                shader("rope_store"),
            ]
            .concat(),
            Kernel::Attend { shared, arith, .. } => [
                self.head(arith).as_str(),
                if shared { shader("common/head_four") } else { shader("common/head_one") },
                reduce,
                shader("common/attention"),
                shader("common/joint"),
                shader("common/capped"),
                shader("common/halves"),
                shader("common/level_iq4"),
                shader("common/levels"),
                shader("common/stored"),
                shader("common/stored_read"),
                shader("common/scores"),
                shader("common/weighted"),
                shader("attend"),
            ]
            .concat(),
            Kernel::AttendJoin(arith) => [
                self.head(arith).as_str(),
                shader("common/one"),
                shader("common/attention"),
                shader("common/joint"),
                shader("attend_join"),
            ]
            .concat(),
            Kernel::Convolve { .. } => [shader("common/states"), shader("convolve")].concat(),
            Kernel::Scan { .. } => [shader("common/states"), shader("scan")].concat(),
            Kernel::Best => [shader("common/rank"), shader("common/one"), reduce, shader("best")].concat(),
            Kernel::BestJoin => [shader("common/rank"), shader("best_join")].concat(),
            Kernel::Shift { .. } => [
                shader("common/halves"),
                shader("common/level_iq4"),
                shader("common/levels"),
                shader("common/stored"),
                shader("common/stored_read"),
                shader("common/stored_head"),
                shader("shift"),
            ]
            .concat(),
            Kernel::Read => shader("read").into(),
        }
    }

    /// How this kernel prepares what it makes for products.
    fn preparing(self, arith: Arith) -> String {
        let (ty, text) = match arith {
            Arith::Float => unreachable!("rows are used as they are"),
            Arith::Summed => ("f32", texts("common", &["block", "sum_block"])),
            Arith::Int8 => ("u32", texts("common", &["block", "quantize_int8", "round_block"])),
        };
        let binding = self.family().storage().len();
        let prepared = "var<storage, read_write> prepared";
        format!("@group(0) @binding({binding}) {prepared}: array<vec4<{ty}>>;\n{text}")
    }

    /// What becomes of a head of attention's result.
    fn head(self, arith: Arith) -> String {
        match arith {
            Arith::Float => shader("common/head_plain").into(),
            _ => self.preparing(arith) + shader("common/head_prepare"),
        }
    }
}

/// A format, how its products with a few columns are made, and what becomes of sums.
fn rows_text(format: Format, arith: Arith) -> String {
    rows_with(format, arith, &finish())
}

/// The same with another text for what products are given and what becomes of sums.
fn rows_with(format: Format, arith: Arith, finish: &str) -> String {
    let lanes = shader("common/lanes");
    if arith != Arith::Int8 {
        let products = shader("common/products_float");
        return [&format_text(format), activations(arith), finish, products, lanes].concat();
    }
    let part = shader("common/part");
    let products = shader("common/products_dot");
    [&dots(format), finish, part, products, lanes].concat()
}

/// The same for tiles, with the tile's kernel.
fn tile_text(format: Format, arith: Arith) -> String {
    let sums = texts("common", &["column_scale", "tile_sums"]);
    if arith != Arith::Int8 {
        let tile = shader("matmul_tile");
        return [&format_text(format), activations(arith), &finish(), &sums, tile].concat();
    }
    let part = shader("common/part");
    let column = shader("common/tile_column");
    let tile = shader("matmul_tile_dot");
    [&dots(format), &finish(), part, column, &sums, tile].concat()
}

/// Where products in floats find activations.
fn activations(arith: Arith) -> &'static str {
    match arith {
        Arith::Float => shader("common/x_rows"),
        Arith::Summed => shader("common/x_summed"),
        Arith::Int8 => unreachable!("multiplied by dots"),
    }
}

/// What products are given.
fn product() -> String {
    let product = shader("common/product");
    [shader("common/kept"), product].concat()
}

/// What products are given, and what becomes of sums.
fn finish() -> String {
    [&product(), shader("common/activation"), shader("common/finish")].concat()
}

/// A format's weights as whole numbers, and how sums of sixteen products are made.
fn dots(format: Format) -> String {
    let dot = shader("common/dot_int8");
    [dot, &format_text(format), &texts("common/ints", format.description().ints)].concat()
}

/// `load`, `numbers` and `offset` of a format with the bindings of its streams, and its scales.
fn format_text(format: Format) -> String {
    let Description { floats, constants, high_alone, .. } = format.description();
    let alone = high_alone.map_or_else(String::new, |HighAlone { low_bits, zero }| {
        let alone = shader("common/high/alone");
        format!("const LOW_BITS: u32 = {low_bits}u;\nconst ZERO: f32 = {zero}.0;\n{alone}")
    });
    texts("common", floats) + constants + &alone
}
