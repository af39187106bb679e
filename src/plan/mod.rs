//! The plan of a model: a short list of fused operations, all that a backend ever sees of an architecture.
//!
//! A pass keeps one row per token in a few named buffers. Each sublayer (attention or MLP of a layer) is a
//! run of operations that reads the residual stream `X` and adds to it, so a mask only leaves runs out.

mod operands;
mod unit;

use crate::mask::RunLayers;

pub use operands::{CacheUse, Operands};
pub use unit::{Unit, UnitSet};

/// Work buffers; every shape is `[rows, width]`, f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buf {
    /// The residual stream, `dim` wide.
    X,
    /// The normed input of a sublayer, `dim` wide.
    H,
    /// Queries, keys and values: `n_head·head_dim`, and twice `n_kv_head·head_dim`.
    Q,
    K,
    V,
    /// Attention's output, `n_head·head_dim` wide.
    A,
    /// The gated product inside the MLP, `ffn` wide.
    G,
}

impl Buf {
    pub const ALL: [Buf; 7] = [Buf::X, Buf::H, Buf::Q, Buf::K, Buf::V, Buf::A, Buf::G];
}

/// Index into [`crate::Model::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WeightId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// `X = table[token]`
    Embed { table: WeightId },
    /// `H = X / rms(X) · weight`
    Norm { weight: WeightId, eps: f32 },
    /// `dst = src · weightᵀ (+ bias)`, or `dst += …` with `add`.
    MatMul { weight: WeightId, bias: Option<WeightId>, src: Buf, dst: Buf, add: bool },
    /// Norms `Q` and `K` per head if asked to, rotates both by position, stores `K` and `V` in the cache.
    RopeStore { q_norm: Option<WeightId>, k_norm: Option<WeightId>, eps: f32 },
    /// `A = softmax(Q · cached Kᵀ · scale) · cached V`, each row over the cells that it may see.
    Attend { scale: f32 },
    /// `G = silu(H · gateᵀ) ⊙ (H · upᵀ)`
    GateUp { gate: WeightId, up: WeightId },
    /// For the rows that ask: `logits = norm(X) · weightᵀ`.
    Head { norm: WeightId, eps: f32, weight: WeightId },
}

/// Which elements of a head turn together: neighbours (llama) or the two halves (neox).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    Neighbours,
    Halves,
}

/// Rotary positions: pair `i` turns by `pos · freqs[i]`; cosine and sine are scaled by `magnitude`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub pairs: RopePairs,
    pub freqs: Vec<f64>,
    pub magnitude: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    pub n_layer: usize,
    pub n_vocab: usize,
    pub dim: usize,
    pub n_head: usize,
    pub n_kv_head: usize,
    pub head_dim: usize,
    pub ffn: usize,
}

impl Dims {
    pub fn width(&self, buf: Buf) -> usize {
        match buf {
            Buf::X | Buf::H => self.dim,
            Buf::Q | Buf::A => self.n_head * self.head_dim,
            Buf::K | Buf::V => self.kv_width(),
            Buf::G => self.ffn,
        }
    }

    pub fn kv_width(&self) -> usize {
        self.n_kv_head * self.head_dim
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub dims: Dims,
    pub rope: Rope,
    pub embed: Op,
    pub layers: Vec<LayerOps>,
    pub head: Op,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerOps {
    pub attn: Vec<Op>,
    pub mlp: Vec<Op>,
}

/// An operation of a pass and, for attention, the K/V slot that it works on.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub op: &'a Op,
    /// What of the model the operation is a part of.
    pub unit: Unit,
    pub slot: usize,
    pub visit: Visit,
    /// From the high bits of the weights alone, where they lie apart.
    pub coarse: bool,
}

/// Which run of which layer's attention a slot holds keys of: another list of steps may put another layer's
/// repetition into the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    pub layer: u32,
    pub repetition: u32,
}

impl Visit {
    pub fn first(layer: usize) -> Self {
        Visit { layer: layer as u32, repetition: 0 }
    }
}

impl Plan {
    /// Every operation once, in order.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        let layers = self.layers.iter().flat_map(|l| l.attn.iter().chain(&l.mlp));
        std::iter::once(&self.embed).chain(layers).chain([&self.head])
    }

    /// How many steps a pass that runs the first `layers` layers in full takes before it comes to the next.
    pub fn steps_before(&self, layers: usize) -> usize {
        let in_layers = self.layers[..layers].iter().map(|l| l.attn.len() + l.mlp.len());
        1 + in_layers.sum::<usize>()
    }

    fn embed_step(&self) -> Step<'_> {
        Step { op: &self.embed, unit: Unit::Embed, slot: 0, visit: Visit::first(0), coarse: false }
    }

    /// The last step of a pass that gives logits.
    pub fn head_step(&self) -> Step<'_> {
        Step { op: &self.head, unit: Unit::Head, slot: 0, visit: Visit::first(0), coarse: false }
    }

    /// All steps of one pass under a mask. Layer `l` keeps its K/V in slot `l`; each repetition of a layer
    /// has a slot of its own after those, in the order in which they come.
    pub fn steps(&self, mask: Option<&RunLayers>) -> Vec<Step<'_>> {
        let mut out = Vec::with_capacity(self.ops().count());
        out.push(self.embed_step());
        match mask {
            None => {
                for (slot, layer) in self.layers.iter().enumerate() {
                    let visit = Visit::first(slot);
                    let step = |op, unit| Step { op, unit, slot, visit, coarse: false };
                    out.extend(layer.attn.iter().map(|op| step(op, Unit::Attn(slot))));
                    out.extend(layer.mlp.iter().map(|op| step(op, Unit::Mlp(slot))));
                }
            }
            Some(mask) => {
                let mut next_slot = self.layers.len();
                for step in mask.steps() {
                    let layer = &self.layers[step.layer];
                    let mut slot = step.layer;
                    if step.repetition > 0 && step.attn {
                        slot = next_slot;
                        next_slot += 1;
                    }
                    let visit = Visit { layer: step.layer as u32, repetition: step.repetition as u32 };
                    let (attn, mlp) = (Unit::Attn(step.layer), Unit::Mlp(step.layer));
                    let attn = layer.attn.iter().filter(|_| step.attn).map(|op| (op, attn, step.coarse_attn));
                    let mlp = layer.mlp.iter().filter(|_| step.mlp).map(|op| (op, mlp, step.coarse_mlp));
                    let all = attn.chain(mlp);
                    out.extend(all.map(|(op, unit, coarse)| Step { op, unit, slot, visit, coarse }));
                }
            }
        }
        out.push(self.head_step());
        out
    }
}
