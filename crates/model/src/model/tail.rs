//! What a model makes of a whole text's rows: how they are pooled, a head that says how well two texts fit, projections.

use super::{Builder, WeightInfo};
use crate::{Result, plan::Activation};

/// Bounds what a hostile file can make us hold.
const MOST_ROWS: u64 = 1 << 16;

/// How a text's rows become its embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Not at all: each row is an embedding.
    None,
    /// Their mean.
    Mean,
    /// The first row.
    Cls,
    /// The last row.
    Last,
    /// What a head says of one of them: how well two texts fit.
    Rank,
}

impl Pooling {
    /// All of them, in the order of their numbers in a file.
    pub const ALL: [Pooling; 5] = [Pooling::None, Pooling::Mean, Pooling::Cls, Pooling::Last, Pooling::Rank];

    /// As llama.cpp calls it.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::None => "none",
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::Last => "last",
            Pooling::Rank => "rank",
        }
    }

    fn read(b: &Builder, name: &str) -> Result<Option<Self>> {
        match b.i32(name)? {
            None | Some(-1) => Ok(None),
            Some(n) => match usize::try_from(n).ok().and_then(|n| Pooling::ALL.get(n)) {
                Some(&pooling) => Ok(Some(pooling)),
                None => Err(b.error(&format!("`{}` is {n}; there are 0 to 4", b.key(name)))),
            },
        }
    }
}

/// A matrix and its bias, for one row of each text.
#[derive(Clone, Debug)]
pub struct Dense {
    pub weight: WeightInfo,
    pub bias: Option<WeightInfo>,
}

impl Dense {
    /// If the file has it: of so many columns, and of any rows.
    fn read(b: &mut Builder, name: &str, cols: usize) -> Result<Option<Self>> {
        let weight = format!("{name}.weight");
        if !b.has(&weight) {
            return Ok(None);
        }
        let tensor = b.find(&weight)?;
        // Files leave a last side of 1 out.
        let rows = tensor.shape.get(1).copied().unwrap_or(1);
        if rows == 0 || rows > MOST_ROWS || tensor.shape.first() != Some(&(cols as u64)) {
            return Err(b.misshapen(&tensor, &format!("[{cols}, 1 to {MOST_ROWS}]")));
        }
        let rows = rows as usize;
        let weight = b.behind_the_plan(tensor, rows, cols)?;
        let bias = format!("{name}.bias");
        let bias = if b.has(&bias) { Some(vector(b, &bias, rows)?) } else { None };
        Ok(Some(Dense { weight, bias }))
    }
}

fn vector(b: &mut Builder, name: &str, len: usize) -> Result<WeightInfo> {
    let tensor = b.find(name)?;
    b.behind_the_plan(tensor, 1, len)
}

/// Says how well a text answers another, or which of some labels it has.
#[derive(Clone, Debug)]
pub struct Classifier {
    /// Of what it reads: the mean of the rows, or else the first of them, or the last where rows see only what was before.
    pub of_mean: bool,
    pub hidden: Option<Dense>,
    pub activation: HeadActivation,
    /// A layer norm's weight and what keeps it from dividing by zero.
    pub norm: Option<(WeightInfo, f32)>,
    pub out: Option<Dense>,
    /// What comes out are shares of one.
    pub shares: bool,
}

/// Between a classifier's products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeadActivation {
    Tanh,
    Of(Activation),
}

/// What a file has for whole texts.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    pub pooling: Option<Pooling>,
    pub classifier: Option<Classifier>,
    /// Behind the pooling, one after the other.
    pub projections: Vec<Dense>,
}

impl Tail {
    pub fn read(b: &mut Builder, arch: &str) -> Result<Self> {
        let (dim, modern) = (b.dims().dim, arch == "modern-bert");
        let hidden = Dense::read(b, "cls", dim)?;
        let out = Dense::read(b, "cls.output", hidden.as_ref().map_or(dim, |dense| dense.weight.rows))?;
        let norm = match b.has("cls.norm.weight") {
            true => Some((vector(b, "cls.norm.weight", dim)?, b.layer_eps)),
            false => None,
        };
        let of_mean = Pooling::read(b, "classifier.pooling_type")?.map_or(modern, |p| p == Pooling::Mean);
        let activation = if modern { HeadActivation::Of(Activation::Gelu) } else { HeadActivation::Tanh };
        let shares = matches!(arch, "qwen3" | "qwen3vl");
        let is_there = hidden.is_some() || out.is_some();
        let classifier = is_there.then_some(Classifier { of_mean, hidden, activation, norm, out, shares });
        let mut projections = Vec::new();
        let mut width = dim;
        for name in ["dense_2", "dense_3"] {
            if let Some(dense) = Dense::read(b, name, width)? {
                width = dense.weight.rows;
                projections.push(dense);
            }
        }
        Ok(Tail { pooling: Pooling::read(b, "pooling_type")?, classifier, projections })
    }
}
