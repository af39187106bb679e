//! LoRA adapters: for some matrices `W` of a model two thin ones, `B` and `A`, so that a text which has the adapter is
//! multiplied with `W + s·B·A`. The product with `W` is made as ever, and `B·(s·A·x)` is added to it, for each row by the
//! scales of its own text. So rows with different adapters share a pass.

mod file;
mod in_plan;

use std::{ops::Range, path::PathBuf, sync::Arc};

use spec_run_kernels::matmul::Weight;

use crate::{Error, Model, Result, plan::WeightId, quant::GgmlType, words::count};

/// A file with an adapter, and how much of it texts have of which nothing else is said.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraFile {
    /// The GGUF.
    pub path: PathBuf,
    /// What its products are multiplied with; 0 leaves it out.
    pub scale: f32,
}

/// How much of each of a context's adapters a text has, in their order: at least of one some.
#[derive(Clone, Debug, PartialEq)]
pub struct Scales(Arc<[f32]>);

impl Scales {
    /// `None` where there is nothing of any.
    pub fn new(scales: &[f32]) -> Option<Self> {
        scales.iter().any(|&scale| scale != 0.0).then(|| Scales(scales.into()))
    }

    /// Of the adapter of this number.
    pub fn of(&self, adapter: usize) -> f32 {
        self.0.get(adapter).copied().unwrap_or(0.0)
    }

    /// How many have one.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// An adapter of a model.
pub struct Lora {
    /// Its file.
    pub path: String,
    /// How much of it texts have of which nothing else is said.
    pub scale: f32,
    /// What the file says that it is for.
    pub task_name: String,
    /// What the file says that prompts begin with.
    pub prompt_prefix: String,
    /// Tells it from others.
    pub fingerprint: String,
    /// Vectors of norms that the file has and that are not applied.
    pub left_out: usize,
    /// By the model's weights, what belongs to their matrices.
    parts: Vec<Option<Thin>>,
    /// What belongs to the rows that tokens become.
    table: Option<Thin>,
}

/// The two thin matrices beside one of the model's.
pub struct Thin {
    a: Part,
    b: Part,
    rank: usize,
    /// What products are multiplied with beside the text's scale.
    times: f32,
}

/// Some rows of a matrix.
struct Part {
    of: Arc<Numbers>,
    rows: Range<usize>,
}

/// A matrix of floats, as products read it.
struct Numbers {
    ty: GgmlType,
    bytes: Vec<u8>,
    cols: usize,
}

impl Part {
    fn weight(&self) -> Weight<'_> {
        let Numbers { ty, bytes, cols } = &*self.of;
        let row = ty.row_bytes(*cols).expect("a float is a block");
        Weight::new(*ty, &bytes[self.rows.start * row..self.rows.end * row], self.rows.len(), *cols)
    }
}

impl Thin {
    /// `[rank, columns of the model's matrix]`; of the table `[tokens, rank]`.
    pub fn a(&self) -> Weight<'_> {
        self.a.weight()
    }

    /// `[rows of the model's matrix, rank]`; of the table `[width, rank]`.
    pub fn b(&self) -> Weight<'_> {
        self.b.weight()
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    /// By what a text's scale is multiplied.
    pub fn times(&self) -> f32 {
        self.times
    }

    /// What `A` has for a token, where this belongs to the table.
    pub fn of_token(&self, token: u32, out: &mut [f32]) {
        crate::quant::dequantize(self.a.of.ty, self.a().row(token as usize), out);
    }
}

/// The adapters of a context, in their order.
#[derive(Default)]
pub struct Loras {
    all: Vec<Lora>,
    /// By the model's weights, whether any of them has something for it.
    adapted: Vec<bool>,
}

impl Loras {
    /// Reads the files, each of which has to be for this model.
    pub fn open(files: &[LoraFile], model: &Model) -> Result<Self> {
        let all = files.iter().map(|file| Lora::open(file, model)).collect::<Result<Vec<_>>>()?;
        let has = |id: usize| all.iter().any(|lora: &Lora| lora.parts[id].is_some());
        let adapted = if all.is_empty() { Vec::new() } else { (0..model.weights.len()).map(has).collect() };
        Ok(Loras { all, adapted })
    }

    /// What there is to say of them.
    pub fn notes(&self) -> Vec<String> {
        let left_out = self.all.iter().filter(|lora| lora.left_out > 0);
        let note = |lora: &Lora| {
            format!("{}: {} of norms left out, as llama.cpp does", lora.path, count(lora.left_out, "vector"))
        };
        left_out.map(note).collect()
    }

    pub fn all(&self) -> &[Lora] {
        &self.all
    }

    /// What texts have of which nothing else is said.
    pub fn default_scales(&self) -> Option<Scales> {
        let scales: Vec<f32> = self.all.iter().map(|lora| lora.scale).collect();
        Scales::new(&scales)
    }

    /// By weight; empty where there are no adapters.
    pub fn adapted(&self) -> &[bool] {
        &self.adapted
    }

    pub fn adapts(&self, id: WeightId) -> bool {
        self.adapted.get(id.0 as usize) == Some(&true)
    }

    /// What there is for a matrix, and which adapter's it is.
    pub fn of(&self, id: WeightId) -> impl Iterator<Item = (usize, &Thin)> {
        self.all.iter().map(move |lora| &lora.parts[id.0 as usize]).enumerate().filter_map(numbered)
    }

    /// What there is for the rows that tokens become.
    pub fn of_table(&self) -> impl Iterator<Item = (usize, &Thin)> {
        self.all.iter().enumerate().filter_map(|(number, lora)| Some((number, lora.table.as_ref()?)))
    }

    /// Of a matrix, all together.
    pub fn ranks(&self, id: WeightId) -> usize {
        self.of(id).map(|(_, thin)| thin.rank).sum()
    }
}

fn numbered((number, thin): (usize, &Option<Thin>)) -> Option<(usize, &Thin)> {
    Some((number, thin.as_ref()?))
}

/// A scale has to be a number.
pub fn check_scale(path: &str, scale: f32) -> Result<()> {
    match scale.is_finite() {
        true => Ok(()),
        false => Err(Error::Usage(format!("{path}: its scale is {scale}; it must be a number, as 1 or 0.5"))),
    }
}
