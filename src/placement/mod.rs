//! Where each part of a model lives: in the GPU's memory, in RAM, or in the file. Pure arithmetic over bytes and
//! budgets, no device.
//!
//! Speed is bytes over bandwidth, so every byte of weights in the fast memory saves the same time per reading. But
//! a draft under a mask reads only what it runs, and several times a round: with a mask those parts come first, unless
//! crossings cost more than that saves (`choice.rs`). Without one whole layers do, the last ones first, as llama.cpp's
//! -ngl takes them, so that the hidden rows cross only once.

mod choice;
#[allow(missing_docs)]
pub(crate) mod forecast;

use std::fmt;

pub use choice::First;
pub(crate) use choice::PlacementChoice;
pub(crate) use choice::choose;
pub(crate) use forecast::Basis;

pub use crate::plan::{Unit, UnitSet};

use crate::{
    Error, Model, Result, RunLayers,
    plan::{Op, WeightId},
};

/// What a user wants of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementRequest {
    /// The last so many layers go to the GPU, and with more than there are the head too; as llama.cpp's -ngl.
    pub gpu_layers: Option<u32>,
    /// Bytes of the GPU's memory that may be taken; what the driver tells if not given.
    pub vram: Option<u64>,
    /// Bytes of RAM for weights; the rest stays in the file.
    pub ram: Option<u64>,
    /// What drafts will run.
    pub draft: Option<RunLayers>,
    /// Whole layers first, also where drafts would be faster with what they run first: then no mask decides what
    /// runs where, and so none changes a bit.
    pub whole_layers: bool,
    /// Exactly these parts go to the GPU.
    pub on_gpu: Option<UnitSet>,
    /// Fail where a plan turns out not to fit, instead of taking the next smaller one.
    pub strict: bool,
}

/// Where a part of a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the GPU's memory.
    Vram,
    /// In RAM, packed for the CPU.
    Ram,
    /// In the file. A pass reads it through the map.
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
    pub(crate) read: Read,
    pub(crate) gpu_read: Read,
    /// What it needs beside its weights on a GPU: keys and values, or logits.
    pub overhead: u64,
    /// Whether a draft runs it.
    pub drafted: bool,
}

/// Bytes read for one token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub full: u64,
    /// By a draft: fewer where it reads high bits alone.
    pub draft: u64,
}

impl Read {
    fn of(self, drafting: bool) -> f64 {
        (if drafting { self.draft } else { self.full }) as f64
    }
}

/// How large a matrix is in RAM and on a GPU.
pub(crate) trait Sizes {
    /// Bytes read of it from RAM.
    fn in_ram(&self, id: WeightId, coarse: bool) -> u64;
    fn on_gpu(&self, id: WeightId, coarse: bool) -> u64;
    /// Bytes that the weights of an operation take on a GPU.
    fn taken_on_gpu(&self, op: &Op) -> u64;
    /// See [`UnitSize::overhead`].
    fn overhead(&self, unit: Unit) -> u64;
}

/// Parts of a model in its order, without places.
pub(crate) fn parts(model: &Model, sizes: &impl Sizes, draft: Option<&RunLayers>) -> Vec<UnitSize> {
    let part = |unit, ops: &[&Op], drafted, coarse, experts| {
        let sum = |experts, matrix: &dyn Fn(WeightId) -> u64| {
            ops.iter().map(|op| model.bytes_read(op, experts, matrix)).sum()
        };
        UnitSize {
            unit,
            bytes: ops.iter().map(|op| model.bytes_of(op)).sum(),
            gpu_bytes: ops.iter().map(|op| sizes.taken_on_gpu(op)).sum(),
            read: Read {
                full: sum(None, &|id| sizes.in_ram(id, false)),
                draft: sum(experts, &|id| sizes.in_ram(id, coarse)),
            },
            gpu_read: Read {
                full: sum(None, &|id| sizes.on_gpu(id, false)),
                draft: sum(experts, &|id| sizes.on_gpu(id, coarse)),
            },
            overhead: sizes.overhead(unit),
            drafted,
        }
    };
    let plan = &model.plan;
    let coarse = coarse_sublayers(draft, plan.layers.len());
    let runs = |layer, runs: fn(&RunLayers, usize) -> bool| draft.is_some_and(|mask| runs(mask, layer));
    let sized = plan.units().map(|(unit, ops)| {
        let (drafted, coarse) = match unit {
            Unit::Attn(l) => (runs(l, RunLayers::runs_attn), coarse[l][0]),
            Unit::Mlp(l) => (runs(l, RunLayers::runs_mlp), coarse[l][1]),
            Unit::Embed | Unit::Head => (draft.is_some(), false),
        };
        let experts = match unit {
            Unit::Mlp(l) => most_experts(draft, l),
            Unit::Attn(_) | Unit::Embed | Unit::Head => None,
        };
        part(unit, &ops, drafted, coarse, experts)
    });
    let mut parts: Vec<UnitSize> = sized.collect();
    let tables = plan.embed.iter().filter_map(|op| plan.operands(op).table);
    if let Op::Head { weight, .. } = plan.head
        && tables.into_iter().any(|table| table == weight)
    {
        // One matrix: it is counted with the head.
        let table = model.weight(weight).bytes;
        parts[0].bytes = parts[0].bytes.saturating_sub(table);
        parts[0].gpu_bytes = 0;
    }
    parts
}

/// By layer: whether a draft runs attention and MLP by their high bits alone, each time that it does.
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

/// What there is. Without a GPU `vram` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budgets {
    pub vram: Option<u64>,
    /// What the GPU needs whatever runs on it.
    pub scratch: u64,
    pub ram: Option<u64>,
}

impl Budgets {
    /// The most of the GPU's memory; none too where nothing tells how much there is.
    pub fn most_vram(&self) -> Option<u64> {
        self.vram.filter(|&bytes| bytes < 1 << 50)
    }
}

/// What lives where.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// All parts in the model's order, each with its place.
    pub parts: Vec<(UnitSize, Place)>,
    pub(crate) budgets: Budgets,
    /// What the GPU holds in another form than the file, in words.
    pub converted: Vec<String>,
    /// What had the first claim on the GPU's memory.
    pub first: First,
    /// Where there was one to make.
    #[doc(hidden)]
    pub choice: Option<PlacementChoice>,
}

/// With what a draft runs in the fast memory first, or whole layers where nothing drafts.
pub(crate) fn place(parts: Vec<UnitSize>, request: &PlacementRequest, budgets: Budgets) -> Result<Placement> {
    let first = if request.draft.is_some() { First::Drafted } else { First::WholeLayers };
    place_first(first, parts, request, budgets)
}

/// `first` is about the GPU's memory. In RAM, what a draft runs always comes first: no rows cross there.
fn place_first(
    first: First,
    parts: Vec<UnitSize>,
    request: &PlacementRequest,
    budgets: Budgets,
) -> Result<Placement> {
    let first = if request.on_gpu.is_some() { First::Given } else { first };
    let mut places = vec![None; parts.len()];
    if let Some(vram) = budgets.vram {
        let taken = into_vram(&parts, request, first, vram.saturating_sub(budgets.scratch))?;
        taken.into_iter().for_each(|i| places[i] = Some(Place::Vram));
    }
    let mut left = budgets.ram.unwrap_or(u64::MAX);
    for i in in_order(&parts, request.draft.is_some()) {
        if places[i].is_none() {
            let fits = parts[i].bytes <= left;
            if fits {
                left -= parts[i].bytes;
            }
            places[i] = Some(if fits { Place::Ram } else { Place::File });
        }
    }
    let parts = parts.into_iter().zip(places).map(|(part, place)| (part, place.expect("given above")));
    Ok(Placement { parts: parts.collect(), budgets, converted: Vec::new(), first, choice: None })
}

/// Which parts go to the GPU.
fn into_vram(parts: &[UnitSize], request: &PlacementRequest, first: First, room: u64) -> Result<Vec<usize>> {
    let cost = |i: usize| parts[i].gpu_bytes + parts[i].overhead;
    let (embed, head) = (0, parts.len() - 1);
    let n_layer = (parts.len() - 2) / 2;
    let layer = |l: usize| [2 * l + 1, 2 * l + 2];
    let mut taken = Vec::new();
    let mut left = room;
    let mut take = |group: &[usize], taken: &mut Vec<usize>| {
        let new = || group.iter().filter(|i| !taken.contains(i)).copied();
        let cost: u64 = new().map(cost).sum();
        let fits = cost <= left;
        if fits {
            left -= cost;
            let new: Vec<usize> = new().collect();
            taken.extend(new);
        }
        fits
    };
    if let Some(held) = &request.on_gpu {
        let wanted = |part: &UnitSize| held.holds(part.unit);
        taken.extend((0..parts.len()).filter(|&i| wanted(&parts[i])));
        let cost: u64 = taken.iter().map(|&i| cost(i)).sum();
        if cost > room {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            return Err(Error::Memory(format!(
                "the given placement takes {:.1} MiB of GPU memory, {:.1} MiB are there",
                mib(cost),
                mib(room)
            )));
        }
        return Ok(taken);
    }
    if let Some(n) = request.gpu_layers {
        let wanted = (n as usize).min(n_layer);
        let mut groups: Vec<Vec<usize>> =
            (n_layer - wanted..n_layer).rev().map(|l| layer(l).to_vec()).collect();
        if n as usize > n_layer {
            groups.push(vec![head]);
        }
        for (done, group) in groups.iter().enumerate() {
            if !take(group, &mut taken) {
                return Err(Error::Memory(format!(
                    "`gpu_layers` {n} does not fit: {done} layers do, into {:.0} MiB of GPU memory; leave `gpu_layers` out to have what fits",
                    room as f64 / f64::from(1 << 20)
                )));
            }
        }
    } else {
        take(&[head], &mut taken);
        if first == First::Drafted {
            for i in (1..head).filter(|&i| parts[i].drafted) {
                take(&[i], &mut taken);
            }
        }
        for l in (0..n_layer).rev() {
            if !take(&layer(l), &mut taken) && first == First::WholeLayers {
                break;
            }
        }
    }
    if (1..parts.len()).all(|i| taken.contains(&i)) {
        take(&[embed], &mut taken);
    }
    Ok(taken)
}

/// The order in which parts are given RAM: the embedding last, of which a token reads one row.
fn in_order(parts: &[UnitSize], draft_first: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| (parts[i].unit == Unit::Embed, draft_first && !parts[i].drafted));
    order
}

impl Placement {
    /// The parts in the GPU's memory.
    pub fn on_gpu(&self) -> UnitSet {
        self.held(|place| place == Place::Vram)
    }

    /// The parts in RAM.
    pub fn in_ram(&self) -> UnitSet {
        self.held(|place| place == Place::Ram)
    }

    /// Where a part is.
    // Parts are in the model's order.
    pub fn place_of(&self, unit: Unit) -> Place {
        let part = match unit {
            Unit::Embed => 0,
            Unit::Attn(layer) => 2 * layer + 1,
            Unit::Mlp(layer) => 2 * layer + 2,
            Unit::Head => self.parts.len() - 1,
        };
        self.parts[part].1
    }

    fn held(&self, here: impl Fn(Place) -> bool) -> UnitSet {
        let n_layer = (self.parts.len() - 2) / 2;
        UnitSet::of(n_layer, |unit| here(self.place_of(unit)))
    }

    /// In a line.
    pub(crate) fn conversion_note(&self) -> String {
        format!("converted for the GPU, losing nothing: {}", self.converted.join(", "))
    }

    /// Bytes of the weights in RAM.
    pub fn bytes_in_ram(&self) -> u64 {
        self.parts.iter().filter(|(_, place)| *place == Place::Ram).map(|(part, _)| part.bytes).sum()
    }

    /// The least that goes to a GPU: a layer or the head, or by itself a sublayer that a draft runs.
    pub(crate) fn least_on_gpu(&self) -> u64 {
        let all: Vec<UnitSize> = self.parts[1..].iter().map(|(part, _)| *part).collect();
        let cost = |parts: &[UnitSize]| parts.iter().map(|part| part.gpu_bytes + part.overhead).sum();
        let whole = all.chunks(2).map(cost);
        let alone = all.chunks(1).filter(|part| part[0].drafted).map(cost);
        whole.chain(alone).min().unwrap_or(0)
    }

    /// Whether the model lies in more than one place.
    pub fn is_divided(&self) -> bool {
        [Place::Vram, Place::Ram, Place::File].into_iter().filter(|&place| self.uses(place)).count() > 1
    }

    /// Whether any part is in this place.
    pub fn uses(&self, place: Place) -> bool {
        self.parts.iter().any(|&(_, p)| p == place)
    }
}

/// `0-3,7`
fn ranges(mut layers: impl Iterator<Item = usize>) -> String {
    let mut out = String::new();
    let Some(mut first) = layers.next() else { return out };
    let mut last = first;
    let mut add = |first: usize, last: usize| {
        let comma = if out.is_empty() { "" } else { "," };
        out += &if first == last { format!("{comma}{first}") } else { format!("{comma}{first}-{last}") };
    };
    for l in layers {
        if l != last + 1 {
            add(first, last);
            first = l;
        }
        last = l;
    }
    add(first, last);
    out
}

/// A table: a line for each place that is used.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(f, "{:<6} {:>12} {:>12}  what", "place", "weights MiB", "overhead MiB")?;
        for (place, name) in [(Place::Vram, "VRAM"), (Place::Ram, "RAM"), (Place::File, "file")] {
            let here = || self.parts.iter().filter(move |(_, p)| *p == place).map(|(part, _)| part);
            if here().next().is_none() {
                continue;
            }
            let on_gpu = place == Place::Vram;
            let weights = here().map(|p| if on_gpu { p.gpu_bytes } else { p.bytes }).sum();
            let overhead =
                here().map(|p| p.overhead).sum::<u64>() + if on_gpu { self.budgets.scratch } else { 0 };
            let attn = ranges(here().filter_map(|p| if let Unit::Attn(l) = p.unit { Some(l) } else { None }));
            let mlp = ranges(here().filter_map(|p| if let Unit::Mlp(l) = p.unit { Some(l) } else { None }));
            let has = |unit| here().any(|p| p.unit == unit);
            let mut what = Vec::new();
            what.extend(has(Unit::Embed).then(|| "embedding".to_string()));
            if attn == mlp && !attn.is_empty() {
                what.push(format!("layers {attn}"));
            } else {
                what.extend((!attn.is_empty()).then(|| format!("attention {attn}")));
                what.extend((!mlp.is_empty()).then(|| format!("MLP {mlp}")));
            }
            what.extend(has(Unit::Head).then(|| "head".to_string()));
            writeln!(f, "{name:<6} {:>12.1} {:>12.1}  {}", mib(weights), mib(overhead), what.join(", "))?;
        }
        if let Some(vram) = self.budgets.most_vram() {
            writeln!(f, "VRAM budget {:.1} MiB", mib(vram))?;
        }
        if !self.converted.is_empty() {
            writeln!(f, "{}", self.conversion_note())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        forecast::{Forecast, Known},
        *,
    };

    fn read(bytes: u64) -> Read {
        Read { full: bytes, draft: bytes }
    }

    pub(super) fn basis([vram, ram, file]: [f64; 3], crossing: f64) -> Basis {
        let [vram, ram, file] = [vram, ram, file].map(Known::given);
        Basis { vram, ram, file, crossing: Known::given(crossing), ..Basis::default() }
    }

    /// Layers of 100 bytes of attention and 200 of MLP, 10 of K/V; an embedding and a head of 50.
    pub(super) fn model(n_layer: usize, draft: Option<&RunLayers>) -> Vec<UnitSize> {
        let part = |unit, bytes, overhead, drafted| UnitSize {
            unit,
            bytes,
            gpu_bytes: bytes,
            read: read(if unit == Unit::Embed { 1 } else { bytes }),
            gpu_read: read(if unit == Unit::Embed { 1 } else { bytes }),
            overhead,
            drafted,
        };
        let mut parts = vec![part(Unit::Embed, 50, 0, draft.is_some())];
        for l in 0..n_layer {
            parts.push(part(Unit::Attn(l), 100, 10, draft.is_some_and(|m| m.runs_attn(l))));
            parts.push(part(Unit::Mlp(l), 200, 0, draft.is_some_and(|m| m.runs_mlp(l))));
        }
        parts.push(part(Unit::Head, 50, 5, draft.is_some()));
        parts
    }

    pub(super) fn budgets(vram: u64) -> Budgets {
        Budgets { vram: Some(vram), scratch: 20, ram: None }
    }

    fn layers(held: &[bool]) -> Vec<usize> {
        (0..held.len()).filter(|&l| held[l]).collect()
    }

    #[test]
    fn everything_that_fits_goes_to_the_gpu() {
        let all = place(model(4, None), &PlacementRequest::default(), budgets(10_000)).unwrap();
        assert!(!all.uses(Place::Ram) && !all.uses(Place::File));
        assert_eq!(all.on_gpu(), UnitSet::all(4));
    }

    #[test]
    fn without_a_mask_whole_layers_the_last_ones_first() {
        // 20 scratch, 55 head, two layers of 310.
        let p = place(model(4, None), &PlacementRequest::default(), budgets(20 + 55 + 620 + 309)).unwrap();
        let gpu = p.on_gpu();
        assert_eq!((layers(&gpu.attn), layers(&gpu.mlp)), (vec![2, 3], vec![2, 3]));
        assert!(gpu.head && !gpu.embed);
    }

    /// A gap would make the rows cross twice more.
    #[test]
    fn a_layer_that_does_not_fit_is_where_whole_layers_end() {
        let mut parts = model(4, None);
        parts[6].gpu_bytes = 10_000;
        assert_eq!(parts[6].unit, Unit::Mlp(2));
        let p = place(parts, &PlacementRequest::default(), budgets(20 + 55 + 3 * 310)).unwrap();
        assert_eq!((layers(&p.on_gpu().attn), layers(&p.on_gpu().mlp)), (vec![3], vec![3]));
    }

    #[test]
    fn what_a_draft_runs_comes_first() {
        let mask = RunLayers::all(4).skip_attn(1).skip_mlp(1).skip_mlp(2).skip_attn(3);
        let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
        // Head 55, attention of 0 and 2 220, MLP of 0 and 3 400: 675; then nothing else fits but one attention.
        let p = place(model(4, Some(&mask)), &request, budgets(20 + 675)).unwrap();
        let gpu = p.on_gpu();
        assert_eq!((layers(&gpu.attn), layers(&gpu.mlp)), (vec![0, 2], vec![0, 3]));
        // The draft never leaves the fast memory but for the row of the embedding.
        let predicted = p.predict(&basis([100.0, 10.0, 1.0], 0.5));
        let drafted = (50.0 + 200.0 + 400.0) / 100.0 + 0.1 + 0.5;
        assert!((predicted.draft - drafted).abs() < 1e-9, "{predicted:?}");
        // Token: the same and 600 bytes from RAM; borders: embed|0, 0|1, 1|2attn, 2attn|2mlp, 2mlp..3attn|3mlp.
        let token = 6.5 + 0.1 + (100.0 + 200.0 + 200.0 + 100.0) / 10.0 + 5.0 * 0.5;
        assert!((predicted.token - token).abs() < 1e-9, "{predicted:?} {token}");
        let k = predicted.drafted;
        let tokens: f64 = (0..=k).map(|i| 0.75f64.powi(i)).sum();
        assert!((predicted.speedup() - tokens * token / (f64::from(k) * drafted + token)).abs() < 1e-9);
        let other = |k: i32| {
            let tokens: f64 = (0..=k).map(|i| 0.75f64.powi(i)).sum();
            tokens * token / (f64::from(k) * drafted + token)
        };
        assert!((1..=16).all(|k| other(k) <= predicted.speedup() + 1e-12));
    }

    #[test]
    fn ngl_means_what_llama_cpp_means() {
        let with = |n| PlacementRequest { gpu_layers: Some(n), ..PlacementRequest::default() };
        let gpu = |n| place(model(4, None), &with(n), budgets(10_000)).unwrap().on_gpu();
        assert_eq!((layers(&gpu(3).attn), gpu(3).head), (vec![1, 2, 3], false));
        assert_eq!((layers(&gpu(4).attn), gpu(4).head, gpu(4).embed), (vec![0, 1, 2, 3], false, false));
        assert_eq!(gpu(5), UnitSet::all(4));
        assert_eq!(gpu(99), UnitSet::all(4));
        let error = place(model(4, None), &with(3), budgets(700)).unwrap_err().to_string();
        assert!(error.contains("`gpu_layers` 3") && error.contains("2 layers"), "{error}");
    }

    #[test]
    fn what_ram_does_not_hold_stays_in_the_file() {
        let mask = RunLayers::all(3).skip_attn(0).skip_mlp(0);
        let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
        let none = Budgets { vram: None, scratch: 0, ram: Some(50 + 50 + 600) };
        let p = place(model(3, Some(&mask)), &request, none).unwrap();
        let ram = p.in_ram();
        assert_eq!((layers(&ram.attn), layers(&ram.mlp)), (vec![1, 2], vec![1, 2]));
        assert!(ram.embed && ram.head && p.uses(Place::File) && !p.uses(Place::Vram));
    }

    #[test]
    fn the_table_names_every_place_and_part() {
        let mask = RunLayers::all(4).skip_attn(1).skip_mlp(1).skip_mlp(2).skip_attn(3);
        let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
        let p = place(model(4, Some(&mask)), &request, Budgets { ram: Some(350), ..budgets(695) }).unwrap();
        let table = p.to_string();
        assert!(table.contains("attention 0,2, MLP 0,3, head"), "{table}");
        assert!(table.contains("RAM") && table.contains("file"), "{table}");
        assert_eq!(ranges([0, 1, 2, 5, 7, 8].into_iter()), "0-2,5,7-8");
    }

    /// The design's arithmetic for a 70B on a card of 24 GB.
    #[test]
    fn the_case_of_the_70b() {
        const GB: u64 = 1_000_000_000;
        let n_layer = 80;
        let mask = (0..n_layer)
            .filter(|l| l % 2 == 1)
            .fold(RunLayers::all(n_layer), |m, l| m.skip_attn(l).skip_mlp(l));
        let parts = |draft: Option<&RunLayers>| -> Vec<UnitSize> {
            model(n_layer, draft)
                .into_iter()
                .map(|mut p| {
                    let bytes = match p.unit {
                        Unit::Embed | Unit::Head => GB,
                        Unit::Attn(_) => GB / 10,
                        Unit::Mlp(_) => GB * 4 / 10,
                    };
                    p.bytes = bytes;
                    p.gpu_bytes = bytes;
                    p.read = read(if p.unit == Unit::Embed { 8192 } else { bytes });
                    p.gpu_read = p.read;
                    p.overhead = 0;
                    p
                })
                .collect()
        };
        let budgets = Budgets { vram: Some(24 * GB), scratch: GB, ram: None };
        let basis = basis([1e12, 50e9, 3e9], 100e-6);
        let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
        let whole_layers = place(parts(Some(&mask)), &PlacementRequest::default(), budgets).unwrap();
        let chosen = place(parts(Some(&mask)), &request, budgets).unwrap();
        let forecast = Forecast::new(&whole_layers, &chosen, basis);
        let (plain, drafting, aware) = (forecast.plain, forecast.drafting.unwrap(), forecast.placed.unwrap());
        assert!((0.35..0.45).contains(&plain.token), "{plain:?}");
        assert!((0.02..0.025).contains(&aware.draft), "{aware:?}");
        assert!(aware.speedup() > 2.4, "{aware:?}");
        // Half of what a draft reads lies in RAM: by whole layers it gains little.
        assert!((1.0..1.6).contains(&forecast.gain(&drafting)), "{drafting:?}");
        assert!(forecast.gain(&aware) > 1.5 * forecast.gain(&drafting));
        assert_eq!(plain.token, drafting.token);
        let text = forecast.to_string();
        assert!(text.contains("1000 (given), 50 (given) and 3.00 (given) GB/s"), "{text}");
        assert!(text.contains("75 % of drafted tokens standing (assumed)"), "{text}");
    }
}
