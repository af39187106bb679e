//! A model without some of its layers: those that stay are numbered anew, and what the metadata say of layers is cut.
//!
//! What a layer does may hang on its number, or on how many there are. So every layer that stays is compared, operation by
//! operation, with what it was; where one differs, and lists of the layers' kinds do not help, nothing is written.

use std::sync::{Arc, LazyLock};

use regex::{Captures, Regex};

use super::mix::layer_of;
use crate::{
    Error, Gguf, Model, Result, RunLayers,
    gguf::{Array, TensorInfo, Value},
    plan::{AttnSpec, Op, WeightId},
    quoted::Quoted,
};

/// Under the architecture's prefix. How many of the first layers, and of the last, something is true of.
const OF_THE_FIRST: &[&str] = &["leading_dense_block_count"];
const OF_THE_LAST: &[&str] = &["nextn_predict_layers", "attention.shared_kv_layers"];
/// Each so-manieth layer has experts: no architecture here goes by it, but llama.cpp does.
const STEP: &str = "interleave_moe_layer_step";
/// A list that is not of layers, however long it is.
const SECTIONS: &str = "rope.dimension_sections";
/// Lists that may tell a layer's kind where else its number does: whether it sees a window, and whether it has a state.
const WINDOWS: &str = "attention.sliding_window_pattern";
const STATES: &str = "attention.recurrent_layers";

/// By the number that a layer had, the one that it has now; none where it is left out.
pub struct Numbers(Vec<Option<u32>>);

impl Numbers {
    fn new(blocks: usize, without: &[usize]) -> Self {
        let mut next = 0..;
        Numbers((0..blocks).map(|block| if without.contains(&block) { None } else { next.next() }).collect())
    }

    fn of(&self, block: usize) -> Option<usize> {
        self.0.get(block).copied().flatten().map(|n| n as usize)
    }

    /// How many of these stay.
    fn kept(&self, blocks: impl Iterator<Item = usize>) -> usize {
        blocks.filter(|&block| self.of(block).is_some()).count()
    }

    /// A tensor's name now; none where its layer is left out.
    pub fn rename(&self, name: &str) -> Option<String> {
        match layer_of(name).map(|layer| (layer, self.0.get(layer as usize))) {
            None | Some((_, None)) => Some(name.into()),
            Some((_, Some(None))) => None,
            Some((_, Some(Some(new)))) => {
                let rest = name.splitn(3, '.').nth(2).unwrap_or_default();
                Some(format!("blk.{new}.{rest}"))
            }
        }
    }
}

pub struct Pruned {
    /// The bytes are those of the model's own file.
    pub gguf: Arc<Gguf>,
    pub numbers: Numbers,
    /// How many layers there were.
    pub before: u32,
}

/// The layers of a file, with those of heads for further tokens behind them.
pub fn blocks(gguf: &Gguf) -> Result<usize> {
    let key = format!("{}.block_count", architecture(gguf)?);
    Ok(gguf.metadata().u32(&key)?.ok_or_else(|| gguf.metadata().missing(&key))? as usize)
}

fn architecture(gguf: &Gguf) -> Result<&str> {
    const KEY: &str = "general.architecture";
    gguf.metadata().str(KEY)?.ok_or_else(|| gguf.metadata().missing(KEY))
}

/// The layers that a mask skips whole; one that leaves out parts of layers, or has them in another order, is refused.
pub fn skipped(mask: &RunLayers) -> Result<Vec<usize>> {
    let mut runs = vec![false; mask.n_layer()];
    let mut next = 0;
    for step in mask.steps() {
        let in_part =
            !step.attn || !step.mlp || step.coarse_attn || step.coarse_mlp || step.experts.is_some();
        if in_part || step.layer < next {
            let how = if in_part { "in part" } else { "out of order" };
            let what = format!("the mask runs layer {} {how}: layers can be left out whole only", step.layer);
            return Err(Error::Mask(what));
        }
        runs[step.layer] = true;
        next = step.layer + 1;
    }
    Ok((0..runs.len()).filter(|&layer| !runs[layer]).collect())
}

/// The model without these layers. The file is read as far as its directory only.
pub fn without(model: Model, layers: &[usize]) -> Result<Pruned> {
    let model = model.with_mtp();
    let source = &model.gguf;
    let blocks = blocks(source)?;
    let numbers = Numbers::new(blocks, layers);
    if numbers.kept(0..model.n_layer()) == 0 {
        let all = model.n_layer();
        return Err(Error::Usage(format!(
            "`prune_layers`: that is all {all} layers of the model; one must stay"
        )));
    }
    let entries = entries(source, &numbers, blocks, model.n_layer())?;
    let lists = lists(&model, &numbers, blocks, &entries);
    let gguf = match checked(&model, &numbers, entries.clone()) {
        Err(_) if !lists.is_empty() => {
            let mut entries = entries;
            for (key, flags) in lists {
                entries.retain(|(known, _)| **known != key);
                entries.push((key.into(), flags.into()));
            }
            checked(&model, &numbers, entries)?
        }
        checked => checked?,
    };
    Ok(Pruned { gguf, numbers, before: blocks as u32 })
}

/// The metadata, cut: counts of layers, and lists with an entry for each.
fn entries(gguf: &Gguf, numbers: &Numbers, blocks: usize, n_layer: usize) -> Result<Vec<(Box<str>, Value)>> {
    let prefix = format!("{}.", architecture(gguf)?);
    let mut entries = Vec::new();
    for (key, value) in gguf.metadata().iter() {
        let mut value = value.clone();
        let name = key.strip_prefix(&prefix);
        // Apertus has its lists under no architecture.
        let is_list = name.is_some_and(|name| name != SECTIONS) || key.starts_with("xielu.");
        let first_or_last = |n: usize| match name {
            Some("block_count") => Some(0..blocks),
            Some(name) if OF_THE_FIRST.contains(&name) => Some(0..n.min(blocks)),
            Some(name) if OF_THE_LAST.contains(&name) => Some(blocks.saturating_sub(n)..blocks),
            _ => None,
        };
        match &mut value {
            Value::Array(Array::String(_)) => {}
            Value::Array(list) if is_list && [blocks, n_layer].contains(&list.len()) => {
                list.retain(|block| numbers.of(block).is_some());
            }
            Value::Array(_) | Value::String(_) | Value::F32(_) | Value::F64(_) | Value::Bool(_) => {}
            number => {
                let n = gguf.metadata().u32(key).ok().flatten().unwrap_or(0) as usize;
                if let Some(range) = first_or_last(n) {
                    *number = Value::U32(numbers.kept(range) as u32);
                }
                if name == Some(STEP) && n > 1 {
                    check_step(gguf, numbers, key, n)?;
                }
            }
        }
        entries.push((key.into(), value));
    }
    Ok(entries)
}

fn check_step(gguf: &Gguf, numbers: &Numbers, key: &str, step: usize) -> Result<()> {
    let moved =
        |&(old, new): &(usize, usize)| (old + 1).is_multiple_of(step) != (new + 1).is_multiple_of(step);
    let mut kept = (0..numbers.0.len()).filter_map(|old| Some((old, numbers.of(old)?)));
    match kept.find(moved) {
        Some((old, new)) => Err(other_kind(gguf, old, new, &format!("by `{key}` {step} "))),
        None => Ok(()),
    }
}

/// The kinds of the layers that stay, under the keys that some architectures read them from: where they are of both kinds,
/// and no list tells it yet.
fn lists(
    model: &Model,
    numbers: &Numbers,
    blocks: usize,
    entries: &[(Box<str>, Value)],
) -> Vec<(String, Vec<bool>)> {
    let plan = &model.plan;
    let window = |op: &Op| matches!(op, Op::Attend(id) if plan.attention(*id).window.is_some());
    let windows = |layer: usize| plan.layers[layer].attn.iter().any(window);
    let states = |layer: usize| plan.mixers_of(layer).next().is_some();
    let kinds: [(&str, &dyn Fn(usize) -> bool); 2] = [(WINDOWS, &windows), (STATES, &states)];
    let list = |(name, is): (&str, &dyn Fn(usize) -> bool)| {
        let key = format!("{}.{name}", model.arch);
        let is_there = entries.iter().any(|(k, v)| **k == key && matches!(v, Value::Array(_)));
        let of = |block: usize| block < model.n_layer() && is(block);
        let all: Vec<bool> = (0..model.n_layer()).map(of).collect();
        let differ = all.contains(&true) && all.contains(&false);
        let kept = (0..blocks).filter(|&block| numbers.of(block).is_some()).map(of).collect();
        (differ && !is_there).then_some((key, kept))
    };
    kinds.into_iter().filter_map(list).collect()
}

/// The file of these metadata, if its layers do what they did.
fn checked(model: &Model, numbers: &Numbers, entries: Vec<(Box<str>, Value)>) -> Result<Arc<Gguf>> {
    let source = &model.gguf;
    let rename =
        |tensor: &TensorInfo| Some(TensorInfo { name: numbers.rename(&tensor.name)?, ..tensor.clone() });
    let gguf = Arc::new(source.seen_as(entries, source.tensors().iter().filter_map(rename).collect())?);
    let cut = Model::load(gguf.clone()).map_err(|error| match error {
        Error::Model { file, what } => {
            Error::model(file, format!("without the layers of `prune_layers`: {what}"))
        }
        other => other,
    })?;
    let cut = cut.with_mtp();
    let before = Spelled { model, numbers: Some(numbers) };
    let after = Spelled { model: &cut, numbers: None };
    for old in 0..model.n_layer() {
        let Some(new) = numbers.of(old) else { continue };
        if before.layer(old) != after.layer(new) {
            return Err(other_kind(source, old, new, ""));
        }
    }
    let ends = |spelled: &Spelled| {
        let plan = &spelled.model.plan;
        let mtp = plan.mtp.iter().filter(|_| cut.has_mtp()).flat_map(|mtp| mtp.ops());
        spelled.ops(plan.embed.iter().chain(&plan.head).chain(mtp))
    };
    if ends(&before) != ends(&after) {
        let what = format!(
            "`prune_layers`: in architecture {} what is before or behind the layers hangs on how many there are",
            Quoted(&model.arch)
        );
        return Err(Error::model(source.name(), what));
    }
    Ok(gguf)
}

fn other_kind(gguf: &Gguf, old: usize, new: usize, why: &str) -> Error {
    let what = format!(
        "`prune_layers`: layer {old} would be layer {new}, and {why}that is another kind of layer: it hangs on its number, \
         or on how many there are; leave out others, or so many together that all keep their kind"
    );
    Error::model(gguf.name(), what)
}

/// Operations in words that hold under any numbering: weights by where they lie in the file, buffers by their width. All
/// that an operation has is among its words, so nothing can be forgotten.
struct Spelled<'a> {
    model: &'a Model,
    /// By which layers are called, if not by the numbers that they have.
    numbers: Option<&'a Numbers>,
}

impl Spelled<'_> {
    fn layer(&self, layer: usize) -> String {
        let ops = &self.model.plan.layers[layer];
        self.ops(ops.shared.iter().chain(&ops.attn).chain(&ops.mlp))
    }

    fn ops<'o>(&self, ops: impl Iterator<Item = &'o Op>) -> String {
        ops.map(|op| self.expanded(&format!("{op:?}\n"))).collect()
    }

    fn expanded(&self, text: &str) -> String {
        static ID: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"\b(Buf|WeightId|AttnId|RopeId|MixerId|MoeId)\((\d+)\)").expect("a constant")
        });
        let plan = &self.model.plan;
        let spell = |found: &Captures| {
            let n: usize = found[2].parse().expect("digits");
            match &found[1] {
                "Buf" => format!("{} wide", plan.widths[n]),
                "WeightId" => {
                    let weight = self.model.weight(WeightId(n as u32));
                    let at = weight.tensor.offset + weight.begin;
                    format!("{} x {} at {at} of {}", weight.rows, weight.cols, weight.tensor.shard)
                }
                "AttnId" => {
                    let spec = plan.attentions[n];
                    // One that is left out has no number that any layer has.
                    let number =
                        |layer| self.numbers.map_or(layer, |all| all.of(layer).unwrap_or(usize::MAX));
                    let spec = AttnSpec { keys_of: spec.keys_of.map(number), ..spec };
                    self.expanded(&format!("{spec:?}"))
                }
                "RopeId" => format!("{:?}", plan.ropes[n]),
                "MixerId" => self.expanded(&format!("{:?}", plan.mixers[n])),
                _ => self.expanded(&format!("{:?}", plan.experts[n])),
            }
        };
        ID.replace_all(text, spell).into_owned()
    }
}
