//! Where each part of a model is: in the GPU's memory, in RAM, or in the file. Arithmetic on bytes and budgets, without any
//! device.
//!
//! The time of a pass is bytes over bandwidth, so every byte of weights in the fast memory saves the same time per reading.
//! But a draft under a mask reads only the parts that it runs, and reads them several times a round. With a mask these parts
//! come first, unless transfers between devices cost more than that saves (`choice.rs`). Without a mask whole layers come
//! first, from the last one, as with llama.cpp's -ngl, so that hidden rows cross between devices only once. A token reads
//! few of the experts, so a byte of them saves the least: they come last, in the GPU's memory and in RAM.
//!
//! Where a draft reads the high bits alone, the GPU can hold just these of a layer. The low planes are then in RAM, and only
//! full passes read them (`planes.rs`).

mod acceptance;
mod choice;
mod deal;
#[allow(missing_docs)]
pub mod forecast;
mod heads;
mod order;
mod pass;
mod planes;
mod prompt;
mod rounds;
mod table;
#[cfg(test)]
mod tests;

pub use acceptance::{Acceptance, of_high_bits};
pub use choice::First;
pub use choice::choose;
pub use choice::{PlacementChoice, Side};
pub use deal::Share;
pub use deal::{Room, place_on};
pub use forecast::Basis;
pub use heads::{HeadForecast, HeadKind, forecasts as head_forecasts};
pub use pass::PassTime;
use pass::RowWork;
pub use planes::{Apart, ByPlanes};
pub use prompt::PromptForecast;

pub use crate::{
    backend::planes::{HighBits, PerHighBits, PlanesApart},
    plan::{Unit, UnitSet},
};

use crate::{
    Model, Result, RunLayers,
    plan::{Choice, Op, OpList, PlanOp, WeightId},
};

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementRequest {
    /// So many layers go to the GPU, from the last one; a number above the layers' includes the head. As llama.cpp's -ngl.
    pub gpu_layers: Option<u32>,
    /// Bytes of each GPU's memory that may be used. If not given, what the driver reports.
    pub vram: Option<u64>,
    /// The share of the layers that each of several GPUs gets, in any proportion. If not given, by their memory.
    pub split: Option<Vec<f32>>,
    /// Bytes of RAM for weights; the rest stays in the file.
    pub ram: Option<u64>,
    /// What drafts will run.
    pub draft: Option<RunLayers>,
    /// Whole layers first, even where it would be faster to place what drafts run first. Then the mask does not decide which
    /// device computes what, and so it changes no bit of a result.
    pub whole_layers: bool,
    /// Exactly these parts go to the GPU.
    pub on_gpu: Option<UnitSet>,
    /// Of the parts on the GPU, those whose low planes are in RAM. Parts without low planes are not affected.
    pub planes_apart: Option<PlanesApart>,
    /// These parts stay off the GPU, whatever else is asked for.
    pub off_gpu: Option<UnitSet>,
    /// Fail where a plan turns out not to fit, instead of taking the next smaller one.
    pub strict: bool,
}

impl PlacementRequest {
    pub fn keeps_off_gpu(&self, unit: Unit) -> bool {
        self.off_gpu.as_ref().is_some_and(|off| off.holds(unit))
    }
}

/// Where a part of a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the GPU's memory.
    Vram,
    /// In RAM, packed for the CPU.
    Ram,
    /// In the file. A pass reads it through the memory map.
    File,
}

/// A part of a model and its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitSize {
    /// The part.
    pub unit: Unit,
    /// Bytes of its weights in the file.
    pub bytes: u64,
    /// Bytes of its weights on a GPU.
    pub gpu_bytes: u64,
    /// From RAM or the file, and from the GPU's memory.
    pub read: Read,
    pub gpu_read: Read,
    /// What a row needs in addition to the reading.
    pub work: RowWork,
    /// Bytes on a GPU in addition to the weights: keys and values, states, or logits.
    pub overhead: u64,
    /// Whether a draft runs it.
    pub drafted: bool,
    /// Of experts: how many a row reads.
    pub choice: Option<Choice>,
    /// Of an MLP: whether a pass comes back to it after its layer's experts.
    pub goes_on: bool,
    /// Its sizes with the low planes in RAM, if it has low planes.
    pub by_planes: Option<PerHighBits<ByPlanes>>,
    /// The bits of its high planes, if only these go to the GPU. Then `gpu_bytes` and `gpu_read` count these alone.
    pub planes_apart: Option<HighBits>,
    /// Of an attention: the layer whose keys and values it reads, if not its own.
    pub keys_of: Option<usize>,
}

/// Bytes read for one token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub full: u64,
    /// By a draft: less where it reads the high bits alone.
    pub draft: u64,
}

impl Read {
    fn of(self, drafting: bool) -> f64 {
        (if drafting { self.draft } else { self.full }) as f64
    }
}

/// How large a matrix is in RAM and on a GPU.
pub trait Sizes {
    /// Bytes read of it from RAM.
    fn in_ram(&self, id: WeightId, coarse: bool) -> u64;
    fn on_gpu(&self, id: WeightId, coarse: bool) -> u64;
    /// Bytes that the weights of an operation take on a GPU.
    fn taken_on_gpu(&self, op: &Op) -> u64;
    /// A unit's sizes with its low planes in RAM, if it has low planes.
    fn by_planes(&self, unit: Unit, ops: &[PlanOp], high: HighBits) -> Option<ByPlanes>;
    /// See [`UnitSize::overhead`].
    fn overhead(&self, unit: Unit) -> u64;
}

/// The parts of a model in order, not placed yet.
pub fn parts(model: &Model, sizes: &impl Sizes, draft: Option<&RunLayers>) -> Vec<UnitSize> {
    let plan = &model.plan;
    let choice =
        |ops: &[PlanOp]| ops.iter().find_map(|op| plan.operands(op).experts().next()).map(|m| m.choice);
    let goes_on = |unit| match unit {
        Unit::Mlp(l) => {
            let ops = &plan.layers[l].mlp;
            ops.last().is_some_and(|op| !op.is_of_experts()) && ops.iter().any(Op::is_of_experts)
        }
        Unit::Embed | Unit::Attn(_) | Unit::Experts(_) | Unit::Head | Unit::Mtp => false,
    };
    let keys_of = |unit| match unit {
        Unit::Attn(l) => Some(plan.keys_of(l)).filter(|&of| of != l),
        Unit::Embed | Unit::Mlp(_) | Unit::Experts(_) | Unit::Head | Unit::Mtp => None,
    };
    let part = |unit, ops: &[PlanOp], drafted, coarse, experts| {
        // The head that predicts one token more is not run by the model's own passes.
        let sum = |experts, matrix: &dyn Fn(WeightId) -> u64| {
            let ops = ops.iter().filter(|op| !matches!(op.id.list, OpList::Mtp(_)));
            ops.map(|op| model.bytes_read(op, experts, matrix)).sum()
        };
        let kept = each_matrix_once(model, ops);
        UnitSize {
            unit,
            bytes: kept.iter().map(|op| model.bytes_of(op)).sum(),
            gpu_bytes: kept.iter().map(|op| sizes.taken_on_gpu(op)).sum(),
            read: Read {
                full: sum(None, &|id| sizes.in_ram(id, false)),
                draft: sum(experts, &|id| sizes.in_ram(id, coarse)),
            },
            gpu_read: Read {
                full: sum(None, &|id| sizes.on_gpu(id, false)),
                draft: sum(experts, &|id| sizes.on_gpu(id, coarse)),
            },
            work: kept.iter().map(|op| work_of(model, op)).fold(RowWork::default(), RowWork::and),
            overhead: sizes.overhead(unit),
            drafted,
            choice: choice(ops),
            goes_on: goes_on(unit),
            by_planes: match unit {
                Unit::Attn(_) | Unit::Mlp(_) => {
                    let of = |high| Some(ByPlanes { coarse, ..sizes.by_planes(unit, ops, high)? });
                    of(HighBits::Most).zip(of(HighBits::Two)).map(|(most, two)| PerHighBits { most, two })
                }
                Unit::Embed | Unit::Experts(_) | Unit::Head | Unit::Mtp => None,
            },
            planes_apart: None,
            keys_of: keys_of(unit),
        }
    };
    let coarse = coarse_sublayers(draft, plan.layers.len());
    let runs = |layer, runs: fn(&RunLayers, usize) -> bool| draft.is_some_and(|mask| runs(mask, layer));
    let sized = plan.units().map(|(unit, ops)| {
        let (drafted, coarse) = match unit {
            Unit::Attn(l) => (runs(l, RunLayers::runs_attn), coarse[l][0]),
            Unit::Mlp(l) | Unit::Experts(l) => (runs(l, RunLayers::runs_mlp), coarse[l][1]),
            Unit::Embed | Unit::Head | Unit::Mtp => (draft.is_some(), false),
        };
        let experts = match unit {
            Unit::Experts(l) => most_experts(draft, l),
            Unit::Attn(_) | Unit::Mlp(_) | Unit::Embed | Unit::Head | Unit::Mtp => None,
        };
        part(unit, &ops, drafted, coarse, experts)
    });
    let mut parts: Vec<UnitSize> = sized.collect();
    let tables = plan.embed.iter().filter_map(|op| plan.operands(op).table);
    if let Some(Op::Head { weight, .. }) = plan.head
        && tables.into_iter().any(|table| table == weight)
    {
        // One matrix: it is counted with the head.
        let table = model.weight(weight).bytes;
        parts[0].bytes = parts[0].bytes.saturating_sub(table);
        parts[0].gpu_bytes = 0;
    }
    parts
}

/// The work of one row with an operation's matrices.
fn work_of(model: &Model, op: &Op) -> RowWork {
    let operands = model.plan.operands(op);
    let of = |id, times| RowWork::of(model.weight(id).rows, model.weight(id).cols, times);
    let all = operands.matrices().chain(operands.heads()).map(|(id, _)| of(id, 1));
    let chosen = operands.experts().map(|matrices| of(matrices.first, matrices.choice.used));
    all.chain(chosen).fold(RowWork::default(), RowWork::and)
}

/// The operations of a unit, each matrix once: two heads may share one.
fn each_matrix_once<'p>(model: &Model, ops: &[PlanOp<'p>]) -> Vec<PlanOp<'p>> {
    let mut seen = Vec::new();
    let largest = |op: &Op| model.plan.operands(op).weights().max_by_key(|&id| model.weight(id).bytes);
    let mut is_new = |op: &PlanOp| match largest(op) {
        Some(id) if seen.contains(&id) => false,
        id => {
            seen.extend(id);
            true
        }
    };
    ops.iter().copied().filter(|op| is_new(op)).collect()
}

/// By layer: whether a draft, whenever it runs attention or MLP, uses the high bits alone.
fn coarse_sublayers(draft: Option<&RunLayers>, n_layer: usize) -> Vec<[bool; 2]> {
    let mut coarse = vec![[true; 2]; n_layer];
    for step in draft.iter().flat_map(|mask| mask.steps()) {
        coarse[step.layer][0] &= !step.attn || step.coarse_attn;
        coarse[step.layer][1] &= !step.mlp || step.coarse_mlp;
    }
    coarse
}

/// The most experts that a draft takes in a layer, if it never takes all.
fn most_experts(draft: Option<&RunLayers>, layer: usize) -> Option<usize> {
    let mlps = draft.into_iter().flat_map(|mask| mask.steps()).filter(|step| step.layer == layer && step.mlp);
    mlps.map(|step| step.experts).reduce(|a, b| Some(a?.max(b?))).flatten()
}

/// The memory that may be used, of several GPUs together. Without a GPU `vram` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    pub vram: Option<u64>,
    /// What the GPU needs whatever runs on it.
    pub scratch: u64,
    pub ram: Option<u64>,
}

/// A budget this large or larger stands for a GPU whose memory is not known.
const UNTOLD: u64 = 1 << 50;

impl Budgets {
    /// The most of the GPU's memory that may be used; `None` also where its size is not known.
    pub fn most_vram(&self) -> Option<u64> {
        self.vram.filter(|&bytes| bytes < UNTOLD)
    }
}

/// Which part is where.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// All parts in the model's order, each with its place.
    pub parts: Vec<(UnitSize, Place)>,
    pub budgets: Budgets,
    /// Which GPU has what, where there are several.
    pub shares: Vec<Share>,
    /// What the GPU holds in another form than the file, in words.
    pub converted: Vec<String>,
    /// What was placed into the GPU's memory first.
    pub first: First,
    /// How that was decided, where there was a choice.
    #[doc(hidden)]
    pub choice: Option<PlacementChoice>,
}

/// For messages and tables.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// How many layers the parts are of.
fn n_layer<'a>(parts: impl Iterator<Item = &'a UnitSize>) -> usize {
    parts.filter(|part| matches!(part.unit, Unit::Attn(_))).count()
}

/// Places first what a draft runs into the fast memory, or whole layers where nothing drafts.
pub fn place(parts: Vec<UnitSize>, request: &PlacementRequest, budgets: Budgets) -> Result<Placement> {
    let first = if request.draft.is_some() { First::Drafted } else { First::WholeLayers };
    place_first(first, parts, request, budgets)
}

/// `first` is about the GPU's memory. In RAM, the parts that a draft runs always come first: no rows cross between devices there.
fn place_first(
    first: First,
    parts: Vec<UnitSize>,
    request: &PlacementRequest,
    budgets: Budgets,
) -> Result<Placement> {
    let first = if request.on_gpu.is_some() { First::Given } else { first };
    let mut places = vec![None; parts.len()];
    if let Some(vram) = budgets.vram {
        let taken = order::into_vram(&parts, request, first, vram.saturating_sub(budgets.scratch))?;
        let all = places.iter_mut().zip(taken);
        all.filter(|(_, taken)| *taken).for_each(|(place, _)| *place = Some(Place::Vram));
    }
    let on_gpu = std::iter::zip(&parts, &places).filter(|(_, place)| **place == Some(Place::Vram));
    let low: u64 = on_gpu.map(|(part, _)| part.low_bytes()).sum();
    let mut left = budgets.ram.unwrap_or(u64::MAX).saturating_sub(low);
    for i in order::into_ram(&parts, request.draft.is_some()) {
        if places[i].is_none() {
            let fits = parts[i].bytes <= left;
            if fits {
                left -= parts[i].bytes;
            }
            places[i] = Some(if fits { Place::Ram } else { Place::File });
        }
    }
    let parts = parts.into_iter().zip(places).map(|(part, place)| (part, place.expect("given above")));
    let (shares, converted) = (Vec::new(), Vec::new());
    Ok(Placement { parts: parts.collect(), budgets, shares, converted, first, choice: None })
}

impl Placement {
    /// The parts in the GPU's memory.
    pub fn on_gpu(&self) -> UnitSet {
        self.held(|place| place == Place::Vram)
    }

    /// The parts that the CPU computes: in RAM, and what stays in the file.
    pub fn on_cpu(&self) -> UnitSet {
        self.held(|place| place != Place::Vram)
    }

    /// The parts in RAM.
    pub fn in_ram(&self) -> UnitSet {
        self.held(|place| place == Place::Ram)
    }

    /// Where a part is.
    ///
    /// # Panics
    /// If the model has no such part.
    pub fn place_of(&self, unit: Unit) -> Place {
        self.find(unit).expect("a part of the model")
    }

    fn find(&self, unit: Unit) -> Option<Place> {
        self.parts.iter().find(|(part, _)| part.unit == unit).map(|(_, place)| *place)
    }

    fn held(&self, here: impl Fn(Place) -> bool) -> UnitSet {
        UnitSet::of(n_layer(self.parts.iter().map(|(part, _)| part)), |unit| match unit {
            // A layer without experts as a part of their own has them in its MLP.
            Unit::Experts(l) => here(self.find(unit).unwrap_or_else(|| self.place_of(Unit::Mlp(l)))),
            Unit::Embed | Unit::Attn(_) | Unit::Mlp(_) | Unit::Head => here(self.place_of(unit)),
            // Without a part of its own it belongs to the head.
            Unit::Mtp => here(self.find(unit).unwrap_or_else(|| self.place_of(Unit::Head))),
        })
    }

    /// `converted` in a line.
    pub fn conversion_note(&self) -> String {
        format!("converted for the GPU, losing nothing: {}", self.converted.join(", "))
    }

    /// Bytes of the weights in RAM.
    pub fn bytes_in_ram(&self) -> u64 {
        let bytes = |(part, place): &(UnitSize, Place)| match place {
            Place::Vram => part.low_bytes(),
            Place::Ram => part.bytes,
            Place::File => 0,
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Of the parts in the GPU's memory, those whose low planes lie in RAM.
    pub fn planes_apart(&self) -> PlanesApart {
        let n_layer = n_layer(self.parts.iter().map(|(part, _)| part));
        let units = UnitSet::of(n_layer, |unit| self.apart().any(|(part, _)| part.unit == unit));
        let high = self.apart().map(|(_, high)| high).next().unwrap_or_default();
        PlanesApart { units, high }
    }

    pub fn has_planes_apart(&self) -> bool {
        self.apart().next().is_some()
    }

    fn apart(&self) -> impl Iterator<Item = (&UnitSize, HighBits)> {
        let here = self.parts.iter().filter(|(_, place)| *place == Place::Vram);
        here.filter_map(|(part, _)| Some((part, part.planes_apart?)))
    }

    /// Bytes that the GPUs' parts take, with buffers.
    pub fn bytes_on_gpu(&self) -> u64 {
        let here = self.parts.iter().filter(|(_, place)| *place == Place::Vram);
        here.map(|(part, _)| part.gpu_bytes + part.overhead).sum::<u64>() + self.budgets.scratch
    }

    /// The smallest thing that goes to a GPU: the head, a layer without its experts, or a single sublayer that a draft runs.
    pub fn least_on_gpu(&self) -> u64 {
        let all: Vec<UnitSize> = self.parts[1..].iter().map(|(part, _)| *part).collect();
        let cost = |part: &UnitSize| part.gpu_bytes + part.overhead;
        let without_experts = |part: &&UnitSize| part.choice.is_none();
        let layers = all.chunk_by(|a, b| a.unit.layer() == b.unit.layer());
        let whole = layers.map(|layer| layer.iter().filter(without_experts).map(cost).sum());
        let alone = all.iter().filter(|part| part.drafted).map(cost);
        whole.chain(alone).min().unwrap_or(0)
    }

    /// Whether the model lies in more than one place.
    pub fn is_divided(&self) -> bool {
        self.has_planes_apart()
            || self.shares.iter().filter(|share| !share.is_empty()).count() > 1
            || [Place::Vram, Place::Ram, Place::File].into_iter().filter(|&place| self.uses(place)).count()
                > 1
    }

    /// Whether any part is in this place.
    pub fn uses(&self, place: Place) -> bool {
        self.parts.iter().any(|&(_, p)| p == place)
    }
}
