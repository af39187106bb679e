//! What one attention of a model is.

use super::{Buf, Norm, WeightId};

/// Index into [`super::Plan::attentions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttnId(pub u32);

/// Index into [`super::Plan::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeId(pub u32);

/// Which elements of a head turn together: neighbours (llama) or the two halves (neox).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    Neighbours,
    Halves,
}

/// Rotary positions: pair `i` turns by `pos · freqs[i]`; cosine and sine are scaled by `magnitude`. What a head has beyond
/// its pairs stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub pairs: RopePairs,
    pub freqs: Vec<f64>,
    pub magnitude: f32,
    /// The frequencies in their place for contexts of more than so many tokens. Keys that are cached cannot turn again, so
    /// what counts is how long a context can become.
    pub beyond: Option<(usize, Vec<f64>)>,
}

impl Rope {
    pub fn is_beyond(&self, n_ctx: usize) -> bool {
        self.beyond.as_ref().is_some_and(|&(length, _)| n_ctx > length)
    }
}

/// Queries grow with the position: by `1 + scale · ln(1 + floor(position / length))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    pub length: f32,
    pub scale: f32,
}

impl Temperature {
    pub fn at(self, position: u32) -> f32 {
        let steps = (position as f32 / self.length).floor();
        1.0 + self.scale * (steps + 1.0).ln()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttnSpec {
    pub q: Buf,
    pub k: Buf,
    pub v: Buf,
    pub out: Buf,
    pub n_head: usize,
    pub n_kv_head: usize,
    /// Of keys and of values.
    pub head_dim: usize,
    /// `None`: positions are not told.
    pub rope: Option<RopeId>,
    /// Of each head by itself, before it is rotated or after.
    pub q_norm: Option<Norm>,
    pub k_norm: Option<Norm>,
    pub norm_after_rope: bool,
    /// Of a query's product with a key.
    pub scale: f32,
    pub temperature: Option<Temperature>,
    /// Scores are `cap · tanh(score / cap)`.
    pub cap: Option<f32>,
    /// A row sees cells whose positions are less than this before its own.
    pub window: Option<u32>,
    /// A score for each head that takes its share of the weights and gives nothing.
    pub sinks: Option<WeightId>,
    /// The earlier layer whose keys and values it reads; it then stores none.
    pub keys_of: Option<usize>,
    /// Its values are its keys, and `v` is not looked at.
    pub values_are_keys: bool,
}

impl AttnSpec {
    /// Query heads of a K/V head.
    pub fn group(&self) -> usize {
        self.n_head / self.n_kv_head
    }

    pub fn q_width(&self) -> usize {
        self.n_head * self.head_dim
    }

    pub fn kv_width(&self) -> usize {
        self.n_kv_head * self.head_dim
    }
}
