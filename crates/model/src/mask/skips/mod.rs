//! Files that hold masks: our own `skips.json`, and two older spellings, told apart by their shape.
//!
//! - Ours, a family from cautious to bold, best first. Every key but `schema` and `masks` may be missing, and
//!   keys that we do not know are passed over:
//!   ```json
//!   {"schema": 1,
//!    "model": {"name": "..", "arch": "llama", "n_layer": 32, "fingerprint": ".."},
//!    "masks": [{"name": "half", "skip": {"attention": [3, 5], "mlp": [6]}, "coarse": {"attention": [], "mlp": [7]},
//!               "agreement": 0.9, "overlap": 0.85, "cost": 0.6, "predicted": {}, "measured": {}}]}
//!   ```
//!   Beside `skip` and `coarse`, `"experts": {"2": [0, 1, 5]}` runs the MLPs of these layers with two experts a token.
//!   In place of all three, `"steps": [0, 1, 1, {"layer": 2, "attention": "skip", "mlp": "coarse", "experts": 2}]`
//!   visits layers in any order; a number runs both sublayers, the words are `run` (the default), `coarse`, `skip`.
//! - Draft&Verify and SWIFT: `{"NAME": {"attention": [..], "mlp": [..]}}`, the layers to skip. Their published
//!   files hold masks of several models, so an entry beyond our last layer is set aside while another one fits.
//! - llama.cpp PR #3565: `[0, 1, 3, 2, ..]`, for each layer bit 0 = skip attention, bit 1 = skip the MLP; -1
//!   ends the list, and layers after its end run.

use std::{collections::HashSet, fs::File, io::Read, path::Path};

use serde_json::{Map, Value, error::Category, json};

use self::node::{Node, printable};
use super::{LayerBits, RunLayers, Step};
use crate::{Error, Result, files::write_whole, quoted::one_line};

mod node;

const SCHEMA: u64 = 1;
/// Bounds for what a hostile file makes us hold; published families have a dozen masks in a few kB.
const MAX_BYTES: u64 = 4 << 20;
const MAX_MASKS: usize = 1024;
/// Characters of a mask's name; names are shown, so what a terminal would obey is spelled out.
const MAX_NAME: usize = 200;

/// The model that a family of masks was made for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelId {
    /// What the file calls it.
    pub name: String,
    /// Its architecture.
    pub arch: String,
    /// Its number of layers.
    pub n_layer: usize,
    /// Tells its weights from others.
    pub fingerprint: String,
}

/// A mask and what is known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedMask {
    /// Its name in the file.
    pub name: String,
    /// What it runs.
    pub mask: RunLayers,
    /// Share of positions where the masked model's first choice is the full model's.
    pub agreement: Option<f64>,
    /// Σ min(p, q) over the vocabulary, averaged over positions.
    pub overlap: Option<f64>,
    /// Time of a masked step over that of a full one.
    pub cost: Option<f64>,
    /// Other numbers that were predicted, by name.
    pub predicted: Map<String, Value>,
    /// Numbers that were measured, by name.
    pub measured: Map<String, Value>,
}

impl NamedMask {
    /// A mask of which nothing else is known.
    pub fn new(name: impl Into<String>, mask: RunLayers) -> Self {
        let (predicted, measured) = (Map::new(), Map::new());
        Self { name: name.into(), mask, agreement: None, overlap: None, cost: None, predicted, measured }
    }
}

/// A file of masks.
#[derive(Clone, Debug)]
pub struct Skips {
    /// None in the two foreign spellings.
    pub model: Option<ModelId>,
    /// Best first; never empty when read from a file.
    pub masks: Vec<NamedMask>,
    source: String,
    /// Masks of other models in the same file, each with the reason.
    set_aside: Vec<(String, String)>,
}

impl Skips {
    /// Masks to be written to a file.
    pub fn new(model: ModelId, masks: Vec<NamedMask>) -> Self {
        Self { model: Some(model), masks, source: "skips".into(), set_aside: Vec::new() }
    }

    /// Reads masks for a model with `n_layer` layers.
    pub fn read(path: impl AsRef<Path>, n_layer: usize) -> Result<Self> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| Error::io(path, e))?;
        Self::parse(&path.display().to_string(), &bytes, n_layer)
    }

    /// `source` names the file in messages.
    pub fn parse(source: &str, bytes: &[u8], n_layer: usize) -> Result<Self> {
        let root = parse_json(source, bytes)?;
        let node = Node::root(source, &root);
        let mut skips = Self { model: None, masks: Vec::new(), source: source.into(), set_aside: Vec::new() };
        match &root {
            Value::Array(_) => {
                skips.masks.push(NamedMask::new("run_layers", llama_cpp_mask(&node, n_layer)?))
            }
            Value::Object(map) if is_ours(map) => skips.read_ours(&node, n_layer)?,
            Value::Object(_) => skips.read_draft_verify(&node, n_layer)?,
            _ => return Err(node.expected("masks: an object or, as in llama.cpp, an array of numbers")),
        }
        match skips.masks.is_empty() {
            true => Err(Error::Mask(format!("{source}: the file holds no mask"))),
            false => Ok(skips),
        }
    }

    fn read_ours(&mut self, root: &Node, n_layer: usize) -> Result<()> {
        let Some(schema) = root.get("schema") else {
            return Err(root.error(format_args!("\"masks\" without \"schema\": add \"schema\": {SCHEMA}")));
        };
        match schema.value.as_u64() {
            Some(SCHEMA) => {}
            Some(newer) if newer > SCHEMA => {
                let what =
                    format_args!("{newer} is newer than this program reads ({SCHEMA}): update spec-run");
                return Err(schema.error(what));
            }
            _ => return Err(schema.expected(format_args!("{SCHEMA}"))),
        }
        self.model = root.get("model").map(|node| read_model(&node, n_layer)).transpose()?;
        let Some(masks) = root.get("masks") else {
            return Err(root.error("no \"masks\": an array of masks was expected"));
        };
        let mut names = HashSet::new();
        for (i, node) in masks.items()?.enumerate() {
            check_count(&node, i)?;
            let name = match node.get("name") {
                Some(name) => name.string()?.to_string(),
                None => format!("mask {i}"),
            };
            if !names.insert(name.clone()) {
                return Err(
                    node.error(format_args!("a second mask named `{}`: rename one", printable(&name)))
                );
            }
            self.masks.push(read_mask(&node, one_line(&name, MAX_NAME), n_layer)?);
        }
        Ok(())
    }

    fn read_draft_verify(&mut self, root: &Node, n_layer: usize) -> Result<()> {
        for (i, (name, node)) in root.entries()?.enumerate() {
            check_count(&node, i)?;
            let (attn, mlp) = (node.get("attention"), node.get("mlp"));
            if attn.is_none() && mlp.is_none() {
                return Err(node.expected("{\"attention\": [..], \"mlp\": [..]}, the layers to skip"));
            }
            // Shape first: only a layer out of range may mean that the entry is some other model's.
            for list in [&attn, &mlp].into_iter().flatten() {
                list.items()?.try_for_each(|item| item.whole_number().map(drop))?;
            }
            let mut bits = vec![LayerBits::FULL; n_layer];
            let skipped =
                skip(&mut bits, attn, LayerBits::ATTN).and_then(|()| skip(&mut bits, mlp, LayerBits::MLP));
            match skipped {
                Ok(()) => self.masks.push(NamedMask::new(one_line(name, MAX_NAME), RunLayers::mask(bits))),
                Err(e) => self.set_aside.push((name.into(), e.to_string())),
            }
        }
        match (&self.masks[..], &self.set_aside[..]) {
            ([], [(_, reason), ..]) => Err(Error::Mask(reason.clone())),
            _ => Ok(()),
        }
    }

    /// The mask of that name, or the first, which is the best.
    pub fn pick(&self, name: Option<&str>) -> Result<&NamedMask> {
        let Some(name) = name else {
            return self.masks.first().ok_or_else(|| Error::Mask(format!("{}: holds no mask", self.source)));
        };
        if let Some(mask) = self.masks.iter().find(|m| m.name == name) {
            return Ok(mask);
        }
        if let Some((_, reason)) = self.set_aside.iter().find(|(n, _)| n == name) {
            return Err(Error::Mask(reason.clone()));
        }
        let names: Vec<_> = self.masks.iter().take(8).map(|m| printable(&m.name)).collect();
        let more = if self.masks.len() > names.len() { ", .." } else { "" };
        let names = names.join(", ");
        Err(Error::Mask(format!(
            "{}: no mask is named `{}`; it holds {names}{more}",
            self.source,
            printable(name)
        )))
    }

    /// Whether these masks were made for `model`: warnings where that is in doubt, an error where they cannot be used.
    pub fn check_model(&self, model: &ModelId) -> Result<Vec<String>> {
        let source = &self.source;
        let n_layer = model.n_layer;
        if let Some(misfit) = self.masks.iter().find(|m| m.mask.n_layer() != n_layer) {
            return Err(Error::Mask(format!(
                "{source}: mask `{}` is for {} layers and the model has {n_layer}: use masks made for this model",
                printable(&misfit.name),
                misfit.mask.n_layer()
            )));
        }
        let mut warnings = Vec::new();
        if let Some(made_for) = &self.model {
            let known = !made_for.fingerprint.is_empty() && !model.fingerprint.is_empty();
            let differs = |theirs: &str, ours: &str| !theirs.is_empty() && !ours.is_empty() && theirs != ours;
            let other = match known {
                true => made_for.fingerprint != model.fingerprint,
                false => differs(&made_for.name, &model.name) || differs(&made_for.arch, &model.arch),
            };
            if made_for.n_layer != n_layer {
                warnings.push(format!(
                    "{source}: made for a model of {} layers, this one has {n_layer}; the layers it names exist, so it is used",
                    made_for.n_layer
                ));
            } else if other {
                warnings.push(format!(
                    "{source}: made for {}, this is {}: its agreement and cost may not hold here",
                    describe(made_for),
                    describe(model)
                ));
            }
        }
        if let [(first, _), ..] = &self.set_aside[..] {
            warnings.push(format!(
                "{source}: {} of its masks name layers that this model lacks (`{}` first) and are left out",
                self.set_aside.len(),
                printable(first)
            ));
        }
        Ok(warnings)
    }

    /// Our spelling, one mask a line.
    pub fn to_json(&self) -> String {
        self.to_json_with(None)
    }

    /// With a line that says where the masks come from.
    pub fn to_json_with(&self, provenance: Option<&Value>) -> String {
        let mut lines = vec![format!("{{\"schema\": {SCHEMA},")];
        lines.extend(provenance.map(|provenance| format!(" \"provenance\": {provenance},")));
        if let Some(m) = &self.model {
            let model =
                json!({"name": m.name, "arch": m.arch, "n_layer": m.n_layer, "fingerprint": m.fingerprint});
            lines.push(format!(" \"model\": {model},"));
        }
        lines.push(" \"masks\": [".into());
        let masks: Vec<_> = self.masks.iter().map(|m| format!("  {}", mask_json(m))).collect();
        lines.push(masks.join(",\n"));
        lines.push(" ]}\n".into());
        lines.join("\n")
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write_with(path, None)
    }

    /// The same, with where the masks come from.
    pub fn write_with(&self, path: impl AsRef<Path>, provenance: Option<&Value>) -> Result<()> {
        write_whole(path.as_ref(), self.to_json_with(provenance))
    }
}

fn parse_json(source: &str, bytes: &[u8]) -> Result<Value> {
    let fail = |what: &str| Err(Error::Mask(format!("{source}: {what}")));
    // Windows editors put a byte order mark in front.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.starts_with(b"GGUF") {
        return fail("this is a model, not a file of masks (JSON)");
    }
    if bytes.len() as u64 > MAX_BYTES {
        return fail("larger than 4 MiB, which no file of masks is: check the path");
    }
    if bytes.trim_ascii().is_empty() {
        return fail("the file is empty; masks in JSON were expected");
    }
    serde_json::from_slice(bytes).map_err(|e| {
        let text = e.to_string();
        let reason = match e.classify() {
            Category::Eof => "the file ends in the middle; is it cut short?",
            _ => text.split(" at line ").next().unwrap_or(&text),
        };
        Error::Mask(format!("{source}:{}:{}: not JSON: {reason}", e.line(), e.column()))
    })
}

/// A Draft&Verify file may call a mask "schema" or "masks", but then it holds an object.
fn is_ours(root: &Map<String, Value>) -> bool {
    root.get("schema").is_some_and(|v| !v.is_object()) || root.get("masks").is_some_and(Value::is_array)
}

fn read_model(node: &Node, n_layer: usize) -> Result<ModelId> {
    node.object()?;
    let text = |key| node.get(key).map_or(Ok(String::new()), |n| n.string().map(str::to_string));
    let n_layer = match node.get("n_layer") {
        Some(n) => n.whole_number()? as usize,
        None => n_layer,
    };
    Ok(ModelId { name: text("name")?, arch: text("arch")?, n_layer, fingerprint: text("fingerprint")? })
}

fn read_mask(node: &Node, name: String, n_layer: usize) -> Result<NamedMask> {
    node.object()?;
    let (to_skip, coarse, experts) = (node.get("skip"), node.get("coarse"), node.get("experts"));
    let mask = match node.get("steps") {
        Some(_) if [&to_skip, &coarse, &experts].into_iter().any(Option::is_some) => {
            let what = "give either \"steps\" or \"skip\", \"coarse\" and \"experts\", not both";
            return Err(node.error(what));
        }
        Some(steps) => read_steps(&steps, n_layer)?,
        None => {
            let mut bits = vec![LayerBits::FULL; n_layer];
            if let Some(lists) = to_skip {
                lists.object()?;
                skip(&mut bits, lists.get("attention"), LayerBits::ATTN)?;
                skip(&mut bits, lists.get("mlp"), LayerBits::MLP)?;
            }
            if let Some(lists) = coarse {
                lists.object()?;
                coarsen(&mut bits, lists.get("attention"), LayerBits::ATTN, LayerBits::COARSE_ATTN)?;
                coarsen(&mut bits, lists.get("mlp"), LayerBits::MLP, LayerBits::COARSE_MLP)?;
            }
            if let Some(lists) = experts {
                take_experts(&mut bits, &lists)?;
            }
            RunLayers::mask(bits)
        }
    };
    let number = |key, max| node.get(key).map(|n: Node| n.number_up_to(max)).transpose();
    let map = |key| node.get(key).map_or(Ok(Map::new()), |n: Node| n.object().cloned());
    Ok(NamedMask {
        name,
        mask,
        agreement: number("agreement", 1.0)?,
        overlap: number("overlap", 1.0)?,
        cost: number("cost", f64::MAX)?,
        predicted: map("predicted")?,
        measured: map("measured")?,
    })
}

fn read_steps(steps: &Node, n_layer: usize) -> Result<RunLayers> {
    let mut list = Vec::new();
    for step in steps.items()? {
        if !step.value.is_object() {
            list.push((step.layer(n_layer)?, LayerBits::FULL));
            continue;
        }
        let Some(layer) = step.get("layer") else {
            return Err(step.error("no \"layer\" in this step"));
        };
        let state = |key, run: LayerBits, coarse: LayerBits| match step.get(key) {
            None => Ok(run),
            Some(word) => match word.value.as_str() {
                Some("run") => Ok(run),
                Some("coarse") => Ok(run | coarse),
                Some("skip") => Ok(LayerBits::NONE),
                _ => Err(word.expected("\"run\", \"coarse\" or \"skip\"")),
            },
        };
        let attn = state("attention", LayerBits::ATTN, LayerBits::COARSE_ATTN)?;
        let mlp = state("mlp", LayerBits::MLP, LayerBits::COARSE_MLP)?;
        let experts = match step.get("experts") {
            Some(n) => experts_bits(&n, n.value.as_u64())?,
            None => LayerBits::NONE,
        };
        list.push((layer.layer(n_layer)?, attn | mlp | experts));
    }
    RunLayers::from_steps(n_layer, list).map_err(|e| steps.error(e))
}

fn llama_cpp_mask(root: &Node, n_layer: usize) -> Result<RunLayers> {
    let mut bits = vec![LayerBits::FULL; n_layer];
    for (i, item) in root.items()?.enumerate() {
        let run = match item.value.as_i64() {
            Some(-1) => break,
            Some(0) => LayerBits::FULL,
            Some(1) => LayerBits::MLP,
            Some(2) => LayerBits::ATTN,
            Some(3) => LayerBits::NONE,
            _ => {
                return Err(item
                    .expected("0 to 3 for each layer (1 skips attention, 2 the MLP, 3 both), or -1 to end"));
            }
        };
        match bits.get_mut(i) {
            Some(bits) => *bits = run,
            None if run == LayerBits::FULL => {}
            None => drop(item.check_layer(i, n_layer)?),
        }
    }
    Ok(RunLayers::mask(bits))
}

fn skip(bits: &mut [LayerBits], list: Option<Node>, what: LayerBits) -> Result<()> {
    let Some(list) = list else { return Ok(()) };
    for item in list.items()? {
        let layer = item.layer(bits.len())?;
        bits[layer] = bits[layer].without(what);
    }
    Ok(())
}

fn coarsen(bits: &mut [LayerBits], list: Option<Node>, runs: LayerBits, coarse: LayerBits) -> Result<()> {
    let Some(list) = list else { return Ok(()) };
    for item in list.items()? {
        let layer = item.layer(bits.len())?;
        if !bits[layer].contains(runs) {
            return Err(item.error(format_args!("layer {layer} is listed under \"skip\" too: choose one")));
        }
        bits[layer] = bits[layer] | coarse;
    }
    Ok(())
}

/// By number of experts the layers.
fn take_experts(bits: &mut [LayerBits], lists: &Node) -> Result<()> {
    for (number, list) in lists.entries()? {
        let experts = experts_bits(&list, number.parse().ok())?;
        for item in list.items()? {
            let layer = item.layer(bits.len())?;
            if !bits[layer].contains(LayerBits::MLP) {
                let what = format_args!("the MLP of layer {layer} is listed under \"skip\" too: choose one");
                return Err(item.error(what));
            }
            if bits[layer].contains_experts() {
                return Err(item.error(format_args!("layer {layer} is listed twice: choose one")));
            }
            bits[layer] = bits[layer] | experts;
        }
    }
    Ok(())
}

fn experts_bits(node: &Node, n: Option<u64>) -> Result<LayerBits> {
    match n {
        Some(n @ 1..=255) => Ok(LayerBits::experts(n as usize)),
        _ => Err(node.expected("a number of experts, 1 to 255")),
    }
}

fn check_count(node: &Node, i: usize) -> Result<()> {
    match i < MAX_MASKS {
        true => Ok(()),
        false => Err(node.error(format_args!("more than {MAX_MASKS} masks: split the file"))),
    }
}

fn describe(id: &ModelId) -> String {
    let name = if id.name.is_empty() { "an unnamed model".into() } else { printable(&id.name) };
    match id.fingerprint.is_empty() {
        true => format!("{name} ({})", printable(&id.arch)),
        false => format!("{name} (fingerprint {})", printable(&id.fingerprint)),
    }
}

fn mask_json(m: &NamedMask) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), m.name.as_str().into());
    if m.mask.is_mask() {
        let n_layer = m.mask.n_layer();
        let without = |runs: fn(&RunLayers, usize) -> bool| -> Vec<usize> {
            (0..n_layer).filter(|&layer| !runs(&m.mask, layer)).collect()
        };
        let coarse = |is_coarse: fn(&Step) -> bool| -> Vec<usize> {
            m.mask.steps().filter(is_coarse).map(|step| step.layer).collect()
        };
        let skip = json!({"attention": without(RunLayers::runs_attn), "mlp": without(RunLayers::runs_mlp)});
        object.insert("skip".into(), skip);
        if m.mask.has_coarse() {
            let coarse = json!({"attention": coarse(|s| s.coarse_attn), "mlp": coarse(|s| s.coarse_mlp)});
            object.insert("coarse".into(), coarse);
        }
        if m.mask.has_experts() {
            let lists =
                m.mask.layers_by_experts().into_iter().map(|(n, layers)| (n.to_string(), layers.into()));
            object.insert("experts".into(), Value::Object(lists.collect()));
        }
    } else {
        object.insert("steps".into(), m.mask.steps().map(step_json).collect());
    }
    for (key, value) in [("agreement", m.agreement), ("overlap", m.overlap), ("cost", m.cost)] {
        if let Some(value) = value {
            object.insert(key.into(), value.into());
        }
    }
    for (key, map) in [("predicted", &m.predicted), ("measured", &m.measured)] {
        if !map.is_empty() {
            object.insert(key.into(), Value::Object(map.clone()));
        }
    }
    Value::Object(object)
}

fn step_json(step: Step) -> Value {
    let word = |runs, coarse| match (runs, coarse) {
        (false, _) => "skip",
        (true, true) => "coarse",
        (true, false) => "run",
    };
    let (attn, mlp) = (word(step.attn, step.coarse_attn), word(step.mlp, step.coarse_mlp));
    match (attn, mlp, step.experts) {
        ("run", "run", None) => step.layer.into(),
        (_, _, None) => json!({"layer": step.layer, "attention": attn, "mlp": mlp}),
        (_, _, Some(n)) => json!({"layer": step.layer, "attention": attn, "mlp": mlp, "experts": n}),
    }
}
