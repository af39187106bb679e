//! The plan of a model: a short list of fused operations, all that a backend ever sees of an architecture.
//!
//! A pass keeps one row per token in numbered buffers. Each sublayer (attention or MLP of a layer) is a run of
//! operations that reads the residual stream `X` and adds to it, so a mask only leaves runs out. What is too wide for an
//! operation itself stands in a table of the plan, which the operation names by number.

mod attention;
mod experts;
mod inject;
mod mixer;
mod mtp;
mod op_id;
mod operands;
mod unit;

use std::ops::Range;

use crate::mask::RunLayers;

pub use attention::{AttnId, AttnSpec, RopeId, SlopesId, Temperature};
pub use experts::{Choice, Gating, Groups, MoeId, MoeSpec};
pub use inject::Inject;
pub use mixer::ScanColumns;
pub use mixer::{Conv, MixerId, MixerSpec, Scan, ScanKind};
pub use mtp::Mtp;
pub use op_id::{MtpList, OpId, OpList, PlanOp};
pub use operands::{BufSet, CacheUse, ExpertMatrices, Operands};
pub use spec_run_kernels::ops::{Activation, Rope, RopePairs};
pub use unit::{Unit, UnitSet};

/// A work buffer, `[rows, width]` in f32: an index into [`Plan::widths`]. The named ones are in every plan; an
/// architecture adds what it needs beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buf(u8);

impl Buf {
    /// The residual stream, `dim` wide.
    pub const X: Buf = Buf(0);
    /// The normed input of a sublayer, `dim` wide.
    pub const H: Buf = Buf(1);
    /// Queries, keys and values, all heads side by side.
    pub const Q: Buf = Buf(2);
    pub const K: Buf = Buf(3);
    pub const V: Buf = Buf(4);
    /// Attention's output, as wide as its queries.
    pub const A: Buf = Buf(5);
    /// What an MLP's activation lets through.
    pub const G: Buf = Buf(6);
    /// So many have a name.
    pub const NAMED: usize = 7;
    /// A plan has no more: sets of buffers are bits.
    pub const MOST: usize = 60;

    /// # Panics
    /// If there can be no such buffer.
    pub const fn new(index: usize) -> Self {
        assert!(index < Self::MOST);
        Buf(index as u8)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index into [`crate::Model::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightId(pub u32);

impl WeightId {
    /// The one that is `n` after this one, where weights were added in a row.
    pub fn after(self, n: usize) -> Self {
        WeightId(self.0 + n as u32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormKind {
    /// `x / rms(x)`
    Rms,
    /// `(x - mean(x)) / deviation(x)`
    Layer,
}

/// `normed · weight + bias`, of a whole row or of each group of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    pub kind: NormKind,
    /// As long as a group, or as the row.
    pub weight: Option<WeightId>,
    pub bias: Option<WeightId>,
    pub eps: f32,
}

/// What picks a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbedBy {
    Token,
    Position,
    /// The first one, whatever the row.
    First,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// `dst = table[token] · scale`, or `dst += …` with `add`.
    Embed { table: WeightId, by: EmbedBy, dst: Buf, scale: f32, add: bool },
    /// `dst = norm(src)`, or `dst += …` with `add`; of each `group` of the row by itself, or (0) of all of it.
    Norm { norm: Norm, group: usize, src: Buf, dst: Buf, add: bool },
    /// `dst = src · weightᵀ (+ bias)`, or `dst += …` with `add`.
    MatMul { weight: WeightId, bias: Option<WeightId>, src: Buf, dst: Buf, add: bool },
    /// `dst = activation(src · gateᵀ + bias) ⊙ (src · upᵀ + bias)`; without `up` there is no second factor.
    Gate { gate: Linear, up: Option<Linear>, activation: Activation, src: Buf, dst: Buf },
    /// `dst = f(dst) ⊙ g(by[column..])`
    Multiply { dst: Buf, f: Option<Activation>, by: Buf, g: Option<Activation>, column: usize },
    /// `dst += src · scale`; with `gate`, times the sigmoid of that buffer's only number.
    Add { src: Buf, dst: Buf, scale: f32, gate: Option<Buf> },
    /// Each part of `src`, of which the first `group` numbers are taken, into the same part of `dst`.
    Take { src: Buf, from: Parts, group: usize, dst: Buf, to: Parts },
    /// The product of each head's part of `src` with a matrix of its own, into its part of `dst`.
    PerHead { first: WeightId, heads: usize, src: Buf, from: Parts, dst: Buf, to: Parts },
    /// `buf = buf · by`
    Scale { buf: Buf, by: f32 },
    /// `buf = buf · what the row has of an adapter`; zeros where that is nothing.
    Weigh { buf: Buf, adapter: usize },
    /// Norms queries and keys per head if asked to, rotates both by position, stores keys and values in the cache.
    Store(AttnId),
    /// `out = softmax(q · cached kᵀ · scale) · cached v`, each row over the cells that it may see.
    Attend(AttnId),
    /// A mixer's convolution, which also sees the last inputs of the rows before.
    Convolve(MixerId),
    /// A mixer's recurrence, row by row.
    Scan(MixerId),
    /// Each row's experts and their weights, from the router's scores.
    Choose(MoeId),
    /// What each chosen expert's activation lets through.
    ExpertsGate(MoeId),
    /// What comes out of each chosen expert.
    ExpertsDown(MoeId),
    /// The weighted sum of it, in the order in which the row chose them.
    ExpertsSum(MoeId),
    /// For the rows that ask: `logits = cap(norm(X) · weightᵀ · scale (+ bias))`.
    Head { norm: Norm, weight: WeightId, bias: Option<WeightId>, scale: f32, cap: Option<f32> },
}

/// Parts of a row that follow each other at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// From one to the next.
    pub every: usize,
    /// Where the first begins.
    pub from: usize,
}

impl Parts {
    /// So many numbers of the `n`-th.
    pub fn of(self, n: usize, len: usize) -> Range<usize> {
        let begin = n * self.every + self.from;
        begin..begin + len
    }
}

/// A matrix and its bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    pub weight: WeightId,
    pub bias: Option<WeightId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dims {
    pub n_layer: usize,
    pub n_vocab: usize,
    pub dim: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub dims: Dims,
    /// By buffer.
    pub widths: Vec<usize>,
    pub ropes: Vec<Rope>,
    /// By head.
    pub slopes: Vec<Vec<f32>>,
    pub attentions: Vec<AttnSpec>,
    pub experts: Vec<MoeSpec>,
    pub mixers: Vec<MixerSpec>,
    /// Positions are below this, where they are looked up in a table.
    pub most_positions: Option<usize>,
    /// How many tokens it reads. Those that it has logits of may be fewer.
    pub n_tokens: usize,
    pub embed: Vec<Op>,
    pub layers: Vec<LayerOps>,
    /// Without one a model gives no logits, but rows that stand for texts.
    pub head: Option<Op>,
    /// Rows see all of their text, also what comes behind them; of a window, as far on as back.
    pub bidirectional: bool,
    /// Predicts one token more, where the file has what was trained for that and it is wanted.
    pub mtp: Option<Mtp>,
    /// Makes keys and values of what another model left.
    pub inject: Option<Inject>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerOps {
    /// What both sublayers read, where they read the same: done if either of them is.
    pub shared: Vec<Op>,
    pub attn: Vec<Op>,
    pub mlp: Vec<Op>,
}

/// An operation of a pass and, for attention, the K/V slot that it works on.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub id: OpId,
    pub op: &'a Op,
    /// What of the model the operation is a part of.
    pub unit: Unit,
    pub slot: usize,
    pub visit: Visit,
    /// From the high bits of the weights alone, where they lie apart.
    pub coarse: bool,
    /// The most experts that a row takes, if fewer than the model has it.
    pub experts: Option<usize>,
}

impl<'a> Step<'a> {
    /// The last step of a pass that gives logits.
    pub fn of_head(PlanOp { id, op }: PlanOp<'a>) -> Self {
        Step { id, op, unit: Unit::Head, slot: 0, visit: Visit::first(0), coarse: false, experts: None }
    }
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
    pub fn width(&self, buf: Buf) -> usize {
        self.widths[buf.index()]
    }

    pub fn bufs(&self) -> impl Iterator<Item = Buf> + use<> {
        (0..self.widths.len()).map(Buf::new)
    }

    pub fn attention(&self, id: AttnId) -> &AttnSpec {
        &self.attentions[id.0 as usize]
    }

    pub fn mixer(&self, id: MixerId) -> &MixerSpec {
        &self.mixers[id.index()]
    }

    pub fn moe(&self, id: MoeId) -> &MoeSpec {
        &self.experts[id.0 as usize]
    }

    /// Where each buffer's rows lie, where those of several are side by side: one buffer after the other.
    pub fn crossing(&self, bufs: BufSet, rows: usize) -> impl Iterator<Item = (Buf, Range<usize>)> {
        let mut end = 0;
        bufs.iter().map(move |buf| {
            let begin = end;
            end += rows * self.width(buf);
            (buf, begin..end)
        })
    }

    /// How many numbers that is.
    pub fn crossing_len(&self, bufs: BufSet, rows: usize) -> usize {
        rows * bufs.iter().map(|buf| self.width(buf)).sum::<usize>()
    }

    /// Every operation in order.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        let layers = self.layers.iter().flat_map(|l| l.shared.iter().chain(&l.attn).chain(&l.mlp));
        self.embed
            .iter()
            .chain(layers)
            .chain(&self.head)
            .chain(self.mtp.iter().flat_map(Mtp::ops))
            .chain(self.inject.iter().flat_map(|inject| &inject.before))
    }

    /// How many steps a pass that runs the first `layers` layers in full takes before it comes to the next.
    pub fn steps_before(&self, layers: usize) -> usize {
        let in_layers = self.layers[..layers].iter().map(|l| l.shared.len() + l.attn.len() + l.mlp.len());
        self.embed.len() + in_layers.sum::<usize>()
    }

    /// How far back the layers see that do not see everything, at most.
    pub fn widest_window(&self) -> Option<u32> {
        self.attentions.iter().filter_map(|spec| spec.window).max()
    }

    /// The buffers whose rows these operations need to find, where those of `after` are needed behind them.
    pub fn live<'a>(&self, ops: impl DoubleEndedIterator<Item = &'a Op>, after: BufSet) -> BufSet {
        ops.rev().fold(after, |live, op| {
            let operands = self.operands(op);
            live.without(operands.writes).union(operands.reads)
        })
    }

    /// Buffers that some unit finds as another has left them.
    pub fn carried(&self) -> BufSet {
        let found = self.units().map(|(_, ops)| self.live(ops.iter().map(|of| of.op), BufSet::NONE));
        found.fold(BufSet::NONE, BufSet::union)
    }

    /// Whether all that goes from one layer to the next is the residual stream.
    pub fn carries_only_the_stream(&self) -> bool {
        let mut live = BufSet::of([Buf::X]);
        self.layers.iter().rev().all(|layer| {
            live = self.live(layer.shared.iter().chain(&layer.attn).chain(&layer.mlp), live);
            live == BufSet::of([Buf::X])
        })
    }

    /// Whether a pass may end between two layers and go on there: neither states nor anything but the stream cross.
    pub fn rests_between_layers(&self) -> bool {
        self.mixers.is_empty() && self.carries_only_the_stream()
    }

    /// The norm behind the last layer, where the head has one.
    pub fn last_norm(&self) -> Option<&Norm> {
        match &self.head {
            Some(Op::Head { norm, .. }) => Some(norm),
            _ => None,
        }
    }

    /// The attention whose keys and values an operation stores, if it does.
    pub fn store_of(&self, op: &Op) -> Option<&AttnSpec> {
        match *op {
            Op::Store(id) => Some(self.attention(id)).filter(|spec| spec.keys_of.is_none()),
            _ => None,
        }
    }

    /// What keeps states in a layer.
    pub fn mixers_of(&self, layer: usize) -> impl Iterator<Item = &MixerSpec> {
        self.layers[layer].attn.iter().filter_map(|op| match *op {
            Op::Convolve(id) => Some(self.mixer(id)),
            _ => None,
        })
    }

    /// The layer whose keys and values a layer's attention reads: its own, or an earlier one's.
    pub fn keys_of(&self, layer: usize) -> usize {
        let ops = &self.layers[layer].attn;
        let of_other = ops.iter().find_map(|op| match op {
            Op::Attend(id) => self.attention(*id).keys_of,
            _ => None,
        });
        of_other.unwrap_or(layer)
    }

    /// All steps of one pass under a mask. Layer `l` keeps its K/V in slot `l`; each repetition of a layer
    /// has a slot of its own after those, in the order in which they come.
    pub fn steps(&self, mask: Option<&RunLayers>) -> Vec<Step<'_>> {
        let mut out = Vec::with_capacity(self.ops().count());
        let visit = Visit::first(0);
        let unit = Unit::Embed;
        let embed = |PlanOp { id, op }| Step { id, op, unit, slot: 0, visit, coarse: false, experts: None };
        out.extend(OpList::Embed.number(&self.embed).map(embed));
        let mut next_slot = self.own_slots();
        let all = RunLayers::all(self.layers.len());
        for step in mask.unwrap_or(&all).steps() {
            let layer = &self.layers[step.layer];
            let owner = self.keys_of(step.layer);
            let (mut slot, mut visit) = (owner, Visit::first(owner));
            if step.repetition > 0 && owner == step.layer {
                visit.repetition = step.repetition as u32;
                if step.attn {
                    slot = next_slot;
                    next_slot += 1;
                }
            }
            let (attn, mlp) = (Unit::Attn(step.layer), Unit::Mlp(step.layer));
            let shared = if step.attn { (attn, step.coarse_attn) } else { (mlp, step.coarse_mlp) };
            let [shared_list, attn_list, mlp_list] = OpList::of_layer(step.layer);
            let parts = [
                (true, shared_list, &layer.shared, shared),
                (step.attn, attn_list, &layer.attn, (attn, step.coarse_attn)),
                (step.mlp, mlp_list, &layer.mlp, (mlp, step.coarse_mlp)),
            ];
            for (_, list, ops, (unit, coarse)) in parts.into_iter().filter(|(runs, ..)| *runs) {
                let unit = |op: &Op| if unit == mlp { op.unit_of_mlp(step.layer) } else { unit };
                let experts = step.experts;
                let step = |PlanOp { id, op }| Step { id, op, unit: unit(op), slot, visit, coarse, experts };
                out.extend(list.number(ops).map(step));
            }
        }
        out.extend(self.head_op().map(Step::of_head));
        out
    }

    /// The head of the model itself.
    pub fn head_op(&self) -> Option<PlanOp<'_>> {
        self.head.as_ref().map(|op| OpList::Head.at(0, op))
    }
}
