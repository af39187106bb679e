//! What one attention of a model is.

use super::{Buf, Norm, WeightId};

/// Index into [`super::Plan::attentions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttnId(pub u32);

/// Index into [`super::Plan::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeId(pub u32);

/// Index into [`super::Plan::slopes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlopesId(pub u32);

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
    /// A score loses so much for each place between a row and a cell, by head, instead of being told positions (ALiBi).
    pub slopes: Option<SlopesId>,
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
