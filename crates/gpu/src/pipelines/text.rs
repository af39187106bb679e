//! What a kernel is made of: one file of WGSL, with what it needs put before it, and the constants that specialise it.

use spec_run_shaders::shader;

use super::{Kernel, Mode};
use crate::{
    formats::{Description as FormatDescription, Format, HighAlone},
    stored::Stored,
    tuning::{FewRows, Tuning},
    variants::{Arith, Square, Variants},
};

/// After the parameters at binding 0, a letter for each storage buffer: read or written. Prepared rows come last.
/// Kernels that bind the same can share bind groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bindings(pub &'static str);

impl Bindings {
    /// High plane, low plane, scales, biases, rows, products.
    pub const MATMUL: Bindings = Bindings("rrrrrw");
    /// With the products prepared.
    pub const MATMUL_PREPARED: Bindings = Bindings("rrrrrww");
    /// With the weight of the next norm, and what it makes.
    pub const ADD_ROWS: Bindings = Bindings("rrrrrwrw");
    /// With queries, keys and values in the place of products, and what rotates them.
    pub const STORE_ROWS: Bindings = Bindings("rrrrrwrrww");
    /// With the choice of experts.
    pub const EXPERT_MATMUL: Bindings = Bindings("rrrrrwr");

    /// Whether the device binds so many buffers; what all kernels but a few need was asked of it when it was found.
    pub fn fits(self, limits: &wgpu::Limits) -> bool {
        self.0.len() as u32 <= limits.max_storage_buffers_per_shader_stage
    }
}

impl From<&'static str> for Bindings {
    fn from(letters: &'static str) -> Self {
        Bindings(letters)
    }
}

impl From<Kernel> for Bindings {
    fn from(kernel: Kernel) -> Self {
        kernel.bindings()
    }
}

impl Kernel {
    pub fn bindings(self) -> Bindings {
        self.description().bindings
    }

    pub fn name(self) -> String {
        self.description().name
    }
}

/// A constant of a text, or several.
enum Constant {
    Is(&'static str, f64),
    /// It follows from the device.
    Tuned(&'static str, fn(&Tuning) -> u32),
    Stored(Stored),
    /// Of the kernels for a few rows; `scales`: of rows that a norm left unscaled.
    FewRows {
        few: FewRows,
        teams: fn(&Tuning, FewRows) -> u32,
        scales: bool,
    },
}

/// A piece of a text.
enum Part {
    File(&'static str),
    /// Composed of several files.
    Made(String),
    /// The tile of a whole matrix, which cooperative matrices multiply where they are used.
    MatrixTile(Format, Arith),
}

/// All that there is to say of a kernel.
pub struct Description {
    /// In the table of `--profile`.
    pub name: String,
    pub bindings: Bindings,
    parts: Vec<Part>,
    constants: Vec<Constant>,
}

impl Description {
    pub(super) fn new(name: impl Into<String>, bindings: impl Into<Bindings>) -> Self {
        Description { name: name.into(), bindings: bindings.into(), parts: Vec::new(), constants: Vec::new() }
    }

    pub(super) fn files(mut self, names: &[&'static str]) -> Self {
        self.parts.extend(names.iter().map(|name| Part::File(name)));
        self
    }

    fn made(mut self, text: String) -> Self {
        self.parts.push(Part::Made(text));
        self
    }

    /// A format's weights as floats.
    pub(super) fn format(self, format: Format) -> Self {
        self.made(format_text(format))
    }

    /// How products with a few rows are made, and what becomes of sums.
    pub(super) fn rows(self, format: Format, arith: Arith) -> Self {
        self.rows_with(format, arith, &FINISH)
    }

    /// The same with other texts for what products are given and what becomes of sums.
    pub(super) fn rows_with(self, format: Format, arith: Arith, finish: &[&'static str]) -> Self {
        let (weights, products): (_, &[_]) = match arith {
            Arith::Int8 => (dots(format), &["common/part", "common/products_dot"]),
            _ => (format_text(format) + activations(arith), &["common/products_float"]),
        };
        self.made(weights).files(finish).files(products).files(&["common/lanes"])
    }

    pub(super) fn matrix_tile(mut self, format: Format, arith: Arith) -> Self {
        self.parts.push(Part::MatrixTile(format, arith));
        self
    }

    pub(super) fn tile(self, format: Format, arith: Arith) -> Self {
        self.made(tile_text(format, arith))
    }

    pub(super) fn wide_tile(self, format: Format) -> Self {
        self.made(dots(format))
            .files(&FINISH)
            .files(&["common/part", "common/tile_column", "common/column_scale", "common/one_matrix"])
            .files(&["matmul_tile_wide"])
    }

    pub(super) fn finish(self) -> Self {
        self.files(&FINISH)
    }

    /// It prepares what it makes for products, in a buffer behind all others.
    pub(super) fn prepares(self, arith: Arith) -> Self {
        let (ty, files): (_, &[_]) = match arith {
            Arith::Float => unreachable!("rows are used as they are"),
            Arith::Summed => ("f32", &["common/block", "common/sum_block"]),
            Arith::Int8 => ("u32", &["common/block", "common/quantize_int8", "common/round_block"]),
        };
        let binding = self.bindings.0.len();
        let prepared = "var<storage, read_write> prepared";
        self.made(format!("@group(0) @binding({binding}) {prepared}: array<vec4<{ty}>>;\n")).files(files)
    }

    /// What becomes of a head of attention's result.
    pub(super) fn head(self, arith: Arith) -> Self {
        match arith {
            Arith::Float => self.files(&["common/head_plain"]),
            _ => self.prepares(arith).files(&["common/head_prepare"]),
        }
    }

    pub(super) fn constant(mut self, name: &'static str, value: impl Into<f64>) -> Self {
        self.constants.push(Constant::Is(name, value.into()));
        self
    }

    pub(super) fn flag(self, name: &'static str, is_so: bool) -> Self {
        self.constant(name, u8::from(is_so))
    }

    pub(super) fn tuned(mut self, name: &'static str, of: fn(&Tuning) -> u32) -> Self {
        self.constants.push(Constant::Tuned(name, of));
        self
    }

    pub(super) fn threads(self, of: fn(&Tuning) -> u32) -> Self {
        self.tuned("THREADS", of)
    }

    pub(super) fn stored(mut self, stored: Stored) -> Self {
        self.constants.push(Constant::Stored(stored));
        self
    }

    /// `teams`: of threads that share rows in a workgroup.
    pub(super) fn few_rows(
        mut self,
        kernel: Kernel,
        teams: fn(&Tuning, FewRows) -> u32,
        scales: bool,
    ) -> Self {
        let few = kernel.few_rows().expect("a row kernel");
        self.constants.push(Constant::FewRows { few, teams, scales });
        self.scales(scales)
    }

    pub(super) fn coarse(self, format: Format, coarse: bool) -> Self {
        if format.has_planes() { self.flag("COARSE", coarse) } else { self }
    }

    /// Of rows that a norm left unscaled.
    pub(super) fn scales(self, scales: bool) -> Self {
        if scales { self.flag("SCALES", true) } else { self }
    }

    pub(super) fn mode(self, mode: Mode) -> Self {
        let described = self.constant("MODE", mode.number());
        match mode {
            Mode::Store | Mode::Add => described,
            Mode::Gate(curve) | Mode::Activate(curve) => described.constant("ACTIVATION", curve.number()),
        }
    }

    /// The whole text. `square`: of cooperative matrices.
    pub fn text(&self, variants: Variants, square: Square) -> String {
        let part = |part: &Part| match part {
            Part::File(name) => shader(name).to_string(),
            Part::Made(text) => text.clone(),
            Part::MatrixTile(format, Arith::Int8) if variants.coop => coop_tile_text(*format, square),
            Part::MatrixTile(format, arith) => tile_text(*format, *arith) + shader("common/one_matrix"),
        };
        self.parts.iter().map(part).collect()
    }

    /// Values of the text's overrides. `flushes_halves`: the device takes subnormal halves for zero.
    pub fn constants(&self, tuning: &Tuning, flushes_halves: bool) -> Vec<(&'static str, f64)> {
        let mut all = Vec::new();
        for constant in &self.constants {
            match constant {
                Constant::Is(name, value) => all.push((*name, *value)),
                Constant::Tuned(name, of) => all.push((*name, f64::from(of(tuning)))),
                Constant::Stored(stored) => all.extend(stored.constants(flushes_halves)),
                Constant::FewRows { few, teams, scales } => {
                    let (FewRows { lanes, columns, .. }, teams) = (*few, teams(tuning, *few));
                    let each = tuning.rows_each(*few);
                    let has_parts = *scales && columns <= tuning.norms_in_products;
                    let parts = if has_parts { columns.div_ceil(2) * lanes } else { 0 };
                    let sums = each / 2 * columns * teams * lanes + parts;
                    let numbers = [
                        ("LANES", lanes),
                        ("TEAMS", teams),
                        ("EACH", each),
                        ("COLUMNS", columns),
                        ("SUMS", sums),
                    ];
                    all.extend(numbers.map(|(name, value)| (name, f64::from(value))));
                    all.extend(has_parts.then_some(("PARTS", 1.0)));
                }
            }
        }
        all
    }
}

/// What products are given, and what becomes of sums.
const FINISH: [&str; 4] = ["common/kept", "common/product", "common/activation", "common/finish"];

fn texts(names: &[&str]) -> String {
    names.iter().map(|name| shader(name)).collect()
}

/// Texts of a folder, one after the other.
fn texts_in(folder: &str, names: &[&str]) -> String {
    names.iter().map(|name| shader(&format!("{folder}/{name}"))).collect()
}

/// How tiles of products are made.
fn tile_text(format: Format, arith: Arith) -> String {
    let sums = texts(&["common/column_scale", "common/tile_sums"]);
    let finish = texts(&FINISH);
    if arith != Arith::Int8 {
        return [&format_text(format), activations(arith), &finish, &sums, shader("matmul_tile")].concat();
    }
    let column = texts(&["common/part", "common/tile_column"]);
    [dots(format), finish, column, sums, shader("matmul_tile_dot").into()].concat()
}

/// The same by cooperative matrices.
fn coop_tile_text(format: Format, square: Square) -> String {
    let squares = match square {
        Square::Sixteen => "common/squares_16",
        Square::Eight => "common/squares_8",
    };
    let tile = ["common/column_scale", "common/tile_sums", "common/one_matrix", "matmul_tile_coop"];
    let features = "enable f16;\nenable wgpu_cooperative_matrix;\n";
    [features, &dots(format), &texts(&FINISH), shader(squares), &texts(&tile)].concat()
}

/// Where products in floats find activations.
fn activations(arith: Arith) -> &'static str {
    match arith {
        Arith::Float => shader("common/x_rows"),
        Arith::Summed => shader("common/x_summed"),
        Arith::Int8 => unreachable!("multiplied by dots"),
    }
}

/// A format's weights as whole numbers, and how sums of sixteen products are made.
fn dots(format: Format) -> String {
    let ints = texts_in("common/ints", format.description().ints);
    [shader("common/dot_int8"), &format_text(format), &ints].concat()
}

/// `load`, `numbers` and `offset` of a format with the bindings of its streams, and its scales.
fn format_text(format: Format) -> String {
    let FormatDescription { floats, constants, high_alone, .. } = format.description();
    let alone = high_alone.map_or_else(String::new, |HighAlone { low_bits, zero }| {
        let alone = shader("common/high/alone");
        format!("const LOW_BITS: u32 = {low_bits}u;\nconst ZERO: f32 = {zero}.0;\n{alone}")
    });
    texts_in("common", floats) + constants + &alone
}
