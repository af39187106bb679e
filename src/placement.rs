//! Where each part of a model lives: in the GPU's memory, in RAM, or in the file. Pure arithmetic over bytes and
//! budgets, no device.
//!
//! Speed is bytes over bandwidth, so every byte of weights in the fast memory saves the same time per reading. But
//! a draft under a mask reads only what it runs, and several times a round: with a mask those parts come first.
//! Without one whole layers do, the last ones first, as llama.cpp's -ngl takes them, so that the hidden rows cross
//! only once.

use std::fmt;

use crate::{Error, Model, Result, RunLayers, backend::Held, plan::Op};

/// What a user wants of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// The last so many layers go to the GPU, and with more than there are the head too; as llama.cpp's -ngl.
    pub gpu_layers: Option<u32>,
    /// Bytes of the GPU's memory that may be taken; what the driver tells if not given.
    pub vram: Option<u64>,
    /// Bytes of RAM for weights; the rest stays in the file.
    pub ram: Option<u64>,
    /// What drafts will run.
    pub draft: Option<RunLayers>,
    /// Exactly these parts go to the GPU; for experiments.
    pub on_gpu: Option<Held>,
    /// Fail where a plan turns out not to fit, instead of taking the next smaller one.
    pub strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Vram,
    Ram,
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Embed,
    Attn(usize),
    Mlp(usize),
    Head,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    pub kind: Kind,
    /// Of weights, in the file's form and in the GPU's.
    pub bytes: u64,
    pub gpu_bytes: u64,
    /// Read for one token.
    pub read: u64,
    /// What it needs beside its weights on a GPU: keys and values, or logits.
    pub beside: u64,
    pub drafted: bool,
}

/// Parts of a model in its order, without places.
pub fn parts(
    model: &Model,
    gpu_bytes: impl Fn(&Op) -> u64,
    beside: impl Fn(Kind) -> u64,
    draft: Option<&RunLayers>,
) -> Vec<Part> {
    let part = |kind, ops: &[Op], drafted| {
        let whole = |op: &Op| op.weights().map(|id| model.weight(id).tensor.bytes).sum::<u64>();
        let read = |op: &Op| model.bytes_read(op, |id| model.weight(id).tensor.bytes);
        Part {
            kind,
            bytes: ops.iter().map(whole).sum(),
            gpu_bytes: ops.iter().map(&gpu_bytes).sum(),
            read: ops.iter().map(read).sum(),
            beside: beside(kind),
            drafted,
        }
    };
    let plan = &model.plan;
    let one = std::slice::from_ref;
    let layers = plan.layers.iter().enumerate().flat_map(|(l, layer)| {
        let runs = |runs: fn(&RunLayers, usize) -> bool| draft.is_some_and(|mask| runs(mask, l));
        [
            part(Kind::Attn(l), &layer.attn, runs(RunLayers::runs_attn)),
            part(Kind::Mlp(l), &layer.mlp, runs(RunLayers::runs_mlp)),
        ]
    });
    let mut parts = vec![part(Kind::Embed, one(&plan.embed), draft.is_some())];
    parts.extend(layers);
    parts.push(part(Kind::Head, one(&plan.head), draft.is_some()));
    if let (Op::Embed { table }, Op::Head { weight, .. }) = (&plan.embed, &plan.head)
        && table == weight
    {
        // One matrix: it is counted with the head.
        (parts[0].bytes, parts[0].gpu_bytes) = (0, 0);
    }
    parts
}

/// What there is. Without a GPU `vram` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    pub vram: Option<u64>,
    /// What the GPU needs whatever runs on it.
    pub scratch: u64,
    pub ram: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    pub parts: Vec<(Part, Place)>,
    pub budgets: Budgets,
}

pub fn place(parts: Vec<Part>, wishes: &Wishes, budgets: Budgets) -> Result<Placement> {
    let mut places = vec![None; parts.len()];
    if let Some(vram) = budgets.vram {
        let taken = into_vram(&parts, wishes, vram.saturating_sub(budgets.scratch))?;
        taken.into_iter().for_each(|i| places[i] = Some(Place::Vram));
    }
    let mut left = budgets.ram.unwrap_or(u64::MAX);
    for i in in_order(&parts, wishes.draft.is_some()) {
        if places[i].is_none() {
            let fits = parts[i].bytes <= left;
            if fits {
                left -= parts[i].bytes;
            }
            places[i] = Some(if fits { Place::Ram } else { Place::File });
        }
    }
    let parts = parts.into_iter().zip(places).map(|(part, place)| (part, place.expect("given above")));
    Ok(Placement { parts: parts.collect(), budgets })
}

/// Which parts go to the GPU.
fn into_vram(parts: &[Part], wishes: &Wishes, room: u64) -> Result<Vec<usize>> {
    let cost = |i: usize| parts[i].gpu_bytes + parts[i].beside;
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
    if let Some(held) = &wishes.on_gpu {
        let wanted = |part: &Part| match part.kind {
            Kind::Embed => held.embed,
            Kind::Attn(l) => held.attn[l],
            Kind::Mlp(l) => held.mlp[l],
            Kind::Head => held.head,
        };
        return Ok((0..parts.len()).filter(|&i| wanted(&parts[i])).collect());
    }
    if let Some(n) = wishes.gpu_layers {
        let wanted = (n as usize).min(n_layer);
        let mut groups: Vec<Vec<usize>> =
            (n_layer - wanted..n_layer).rev().map(|l| layer(l).to_vec()).collect();
        if n as usize > n_layer {
            groups.push(vec![head]);
        }
        for (done, group) in groups.iter().enumerate() {
            if !take(group, &mut taken) {
                return Err(Error::Memory(format!(
                    "-ngl {n} does not fit: {done} layers do, into {:.0} MiB of GPU memory; leave -ngl out to have what fits",
                    room as f64 / f64::from(1 << 20)
                )));
            }
        }
    } else {
        if wishes.draft.is_some() {
            take(&[head], &mut taken);
            for i in (1..head).filter(|&i| parts[i].drafted) {
                take(&[i], &mut taken);
            }
        } else {
            take(&[head], &mut taken);
        }
        for l in (0..n_layer).rev() {
            if !take(&layer(l), &mut taken) && wishes.draft.is_none() {
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
fn in_order(parts: &[Part], draft_first: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| (parts[i].kind == Kind::Embed, draft_first && !parts[i].drafted));
    order
}

/// Bytes a second from each place, and seconds for the hidden rows to cross once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    pub vram: f64,
    pub ram: f64,
    pub file: f64,
    pub crossing: f64,
}

impl Speeds {
    /// A card of the upper middle, two channels of DDR5, a good SSD.
    pub const ASSUMED: Speeds = Speeds { vram: 500e9, ram: 50e9, file: 3e9, crossing: 100e-6 };
}

/// What drafting is assumed to find, where nothing is known of the model.
const ACCEPTANCE: f64 = 0.75;
const MOST_DRAFTED: i32 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds for a token, for a draft step, and for a round of `drafted` draft steps and a verification.
    pub token: f64,
    pub draft: f64,
    pub round: f64,
    pub drafted: i32,
    /// Against plain decoding.
    pub speedup: f64,
}

impl Placement {
    pub fn on_gpu(&self) -> Held {
        self.held(|place| place == Place::Vram)
    }

    pub fn in_ram(&self) -> Held {
        self.held(|place| place == Place::Ram)
    }

    fn held(&self, here: impl Fn(Place) -> bool) -> Held {
        let n_layer = (self.parts.len() - 2) / 2;
        let at = |i: usize| here(self.parts[i].1);
        Held {
            embed: at(0),
            attn: (0..n_layer).map(|l| at(2 * l + 1)).collect(),
            mlp: (0..n_layer).map(|l| at(2 * l + 2)).collect(),
            head: at(self.parts.len() - 1),
        }
    }

    pub fn uses(&self, place: Place) -> bool {
        self.parts.iter().any(|&(_, p)| p == place)
    }

    /// Seconds for one token through all parts, or through those that drafts run.
    fn seconds(&self, speeds: &Speeds, drafting: bool) -> f64 {
        let run = self.parts.iter().filter(|(part, _)| !drafting || part.drafted);
        let mut seconds = 0.0;
        let mut on_gpu = None;
        for (part, place) in run {
            let speed = match place {
                Place::Vram => speeds.vram,
                Place::Ram => speeds.ram,
                Place::File => speeds.file,
            };
            let here = *place == Place::Vram;
            if on_gpu.is_some_and(|before| before != here) {
                seconds += speeds.crossing;
            }
            on_gpu = Some(here);
            seconds += part.read as f64 / speed;
        }
        seconds
    }

    /// Of time spent on reading weights alone. Verifying reads them once, whatever the number of rows.
    pub fn predict(&self, speeds: &Speeds) -> Prediction {
        let token = self.seconds(speeds, false);
        if !self.parts.iter().any(|(part, _)| part.drafted) {
            return Prediction { token, draft: token, round: token, drafted: 0, speedup: 1.0 };
        }
        let draft = self.seconds(speeds, true);
        let of = |drafted: i32| {
            let tokens = (1.0 - ACCEPTANCE.powi(drafted + 1)) / (1.0 - ACCEPTANCE);
            let round = f64::from(drafted) * draft + token;
            Prediction { token, draft, round, drafted, speedup: tokens * token / round }
        };
        (1..=MOST_DRAFTED).map(of).max_by(|a, b| a.speedup.total_cmp(&b.speedup)).expect("some lengths")
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
        writeln!(f, "{:<6} {:>12} {:>12}  what", "place", "weights MiB", "beside MiB")?;
        for (place, name) in [(Place::Vram, "VRAM"), (Place::Ram, "RAM"), (Place::File, "file")] {
            let here = || self.parts.iter().filter(move |(_, p)| *p == place).map(|(part, _)| part);
            if here().next().is_none() {
                continue;
            }
            let on_gpu = place == Place::Vram;
            let weights = here().map(|p| if on_gpu { p.gpu_bytes } else { p.bytes }).sum();
            let beside =
                here().map(|p| p.beside).sum::<u64>() + if on_gpu { self.budgets.scratch } else { 0 };
            let attn = ranges(here().filter_map(|p| if let Kind::Attn(l) = p.kind { Some(l) } else { None }));
            let mlp = ranges(here().filter_map(|p| if let Kind::Mlp(l) = p.kind { Some(l) } else { None }));
            let has = |kind| here().any(|p| p.kind == kind);
            let mut what = Vec::new();
            what.extend(has(Kind::Embed).then(|| "embedding".to_string()));
            if attn == mlp && !attn.is_empty() {
                what.push(format!("layers {attn}"));
            } else {
                what.extend((!attn.is_empty()).then(|| format!("attention {attn}")));
                what.extend((!mlp.is_empty()).then(|| format!("MLP {mlp}")));
            }
            what.extend(has(Kind::Head).then(|| "head".to_string()));
            writeln!(f, "{name:<6} {:>12.1} {:>12.1}  {}", mib(weights), mib(beside), what.join(", "))?;
        }
        if let Some(vram) = self.budgets.vram.filter(|&v| v < 1 << 50) {
            writeln!(f, "VRAM budget {:.1} MiB", mib(vram))?;
        }
        Ok(())
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reading the weights takes {:.2} ms a token", 1e3 * self.token)?;
        if self.drafted == 0 {
            return Ok(());
        }
        write!(
            f,
            ", {:.2} ms a draft step; a round of {} drafted tokens {:.2} ms: {:.2} times plain decoding at an acceptance of {ACCEPTANCE}",
            1e3 * self.draft,
            self.drafted,
            1e3 * self.round,
            self.speedup
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers of 100 bytes of attention and 200 of MLP, 10 of K/V; an embedding and a head of 50.
    fn model(n_layer: usize, draft: Option<&RunLayers>) -> Vec<Part> {
        let part = |kind, bytes, beside, drafted| Part {
            kind,
            bytes,
            gpu_bytes: bytes,
            read: if kind == Kind::Embed { 1 } else { bytes },
            beside,
            drafted,
        };
        let mut parts = vec![part(Kind::Embed, 50, 0, draft.is_some())];
        for l in 0..n_layer {
            parts.push(part(Kind::Attn(l), 100, 10, draft.is_some_and(|m| m.runs_attn(l))));
            parts.push(part(Kind::Mlp(l), 200, 0, draft.is_some_and(|m| m.runs_mlp(l))));
        }
        parts.push(part(Kind::Head, 50, 5, draft.is_some()));
        parts
    }

    fn budgets(vram: u64) -> Budgets {
        Budgets { vram: Some(vram), scratch: 20, ram: None }
    }

    fn layers(held: &[bool]) -> Vec<usize> {
        (0..held.len()).filter(|&l| held[l]).collect()
    }

    #[test]
    fn everything_that_fits_goes_to_the_gpu() {
        let all = place(model(4, None), &Wishes::default(), budgets(10_000)).unwrap();
        assert!(!all.uses(Place::Ram) && !all.uses(Place::File));
        assert_eq!(all.on_gpu(), Held::all(4));
    }

    #[test]
    fn without_a_mask_whole_layers_the_last_ones_first() {
        // 20 scratch, 55 head, two layers of 310.
        let p = place(model(4, None), &Wishes::default(), budgets(20 + 55 + 620 + 309)).unwrap();
        let gpu = p.on_gpu();
        assert_eq!((layers(&gpu.attn), layers(&gpu.mlp)), (vec![2, 3], vec![2, 3]));
        assert!(gpu.head && !gpu.embed);
    }

    #[test]
    fn what_a_draft_runs_comes_first() {
        let mask = RunLayers::all(4).skip_attn(1).skip_mlp(1).skip_mlp(2).skip_attn(3);
        let wishes = Wishes { draft: Some(mask.clone()), ..Wishes::default() };
        // Head 55, attention of 0 and 2 220, MLP of 0 and 3 400: 675; then nothing else fits but one attention.
        let p = place(model(4, Some(&mask)), &wishes, budgets(20 + 675)).unwrap();
        let gpu = p.on_gpu();
        assert_eq!((layers(&gpu.attn), layers(&gpu.mlp)), (vec![0, 2], vec![0, 3]));
        // The draft never leaves the fast memory but for the row of the embedding.
        let speeds = Speeds { vram: 100.0, ram: 10.0, file: 1.0, crossing: 0.5 };
        let predicted = p.predict(&speeds);
        let drafted = (50.0 + 200.0 + 400.0) / 100.0 + 0.1 + 0.5;
        assert!((predicted.draft - drafted).abs() < 1e-9, "{predicted:?}");
        // Token: the same and 600 bytes from RAM; borders: embed|0, 0|1, 1|2attn, 2attn|2mlp, 2mlp..3attn|3mlp.
        let token = 6.5 + 0.1 + (100.0 + 200.0 + 200.0 + 100.0) / 10.0 + 5.0 * 0.5;
        assert!((predicted.token - token).abs() < 1e-9, "{predicted:?} {token}");
        let k = predicted.drafted;
        let tokens: f64 = (0..=k).map(|i| 0.75f64.powi(i)).sum();
        assert!((predicted.speedup - tokens * token / (f64::from(k) * drafted + token)).abs() < 1e-9);
        let other = |k: i32| {
            let tokens: f64 = (0..=k).map(|i| 0.75f64.powi(i)).sum();
            tokens * token / (f64::from(k) * drafted + token)
        };
        assert!((1..=16).all(|k| other(k) <= predicted.speedup + 1e-12));
    }

    #[test]
    fn ngl_means_what_llama_cpp_means() {
        let with = |n| Wishes { gpu_layers: Some(n), ..Wishes::default() };
        let gpu = |n| place(model(4, None), &with(n), budgets(10_000)).unwrap().on_gpu();
        assert_eq!((layers(&gpu(3).attn), gpu(3).head), (vec![1, 2, 3], false));
        assert_eq!((layers(&gpu(4).attn), gpu(4).head, gpu(4).embed), (vec![0, 1, 2, 3], false, false));
        assert_eq!(gpu(5), Held::all(4));
        assert_eq!(gpu(99), Held::all(4));
        let error = place(model(4, None), &with(3), budgets(700)).unwrap_err().to_string();
        assert!(error.contains("-ngl 3") && error.contains("2 layers"), "{error}");
    }

    #[test]
    fn what_ram_does_not_hold_stays_in_the_file() {
        let mask = RunLayers::all(3).skip_attn(0).skip_mlp(0);
        let wishes = Wishes { draft: Some(mask.clone()), ..Wishes::default() };
        let none = Budgets { vram: None, scratch: 0, ram: Some(50 + 50 + 600) };
        let p = place(model(3, Some(&mask)), &wishes, none).unwrap();
        let ram = p.in_ram();
        assert_eq!((layers(&ram.attn), layers(&ram.mlp)), (vec![1, 2], vec![1, 2]));
        assert!(ram.embed && ram.head && p.uses(Place::File) && !p.uses(Place::Vram));
    }

    #[test]
    fn the_table_names_every_place_and_part() {
        let mask = RunLayers::all(4).skip_attn(1).skip_mlp(1).skip_mlp(2).skip_attn(3);
        let wishes = Wishes { draft: Some(mask.clone()), ..Wishes::default() };
        let p = place(model(4, Some(&mask)), &wishes, Budgets { ram: Some(350), ..budgets(695) }).unwrap();
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
        let parts = |draft: Option<&RunLayers>| -> Vec<Part> {
            model(n_layer, draft)
                .into_iter()
                .map(|mut p| {
                    let bytes = match p.kind {
                        Kind::Embed | Kind::Head => GB,
                        Kind::Attn(_) => GB / 10,
                        Kind::Mlp(_) => GB * 4 / 10,
                    };
                    p.bytes = bytes;
                    p.gpu_bytes = bytes;
                    p.read = if p.kind == Kind::Embed { 8192 } else { bytes };
                    p.beside = 0;
                    p
                })
                .collect()
        };
        let budgets = Budgets { vram: Some(24 * GB), scratch: GB, ram: None };
        let speeds = Speeds { vram: 1e12, ram: 50e9, file: 3e9, crossing: 100e-6 };
        let plain = place(parts(None), &Wishes::default(), budgets).unwrap().predict(&speeds);
        let wishes = Wishes { draft: Some(mask.clone()), ..Wishes::default() };
        let aware = place(parts(Some(&mask)), &wishes, budgets).unwrap().predict(&speeds);
        assert!((0.35..0.45).contains(&plain.token), "{plain:?}");
        assert!((0.02..0.025).contains(&aware.draft), "{aware:?}");
        assert!(aware.speedup > 2.4, "{aware:?}");
    }
}
