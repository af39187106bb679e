use std::{collections::BTreeMap, fmt::Write};

use clap::Args;
use serde_json::{Value as Json, json};

use super::common::{self, ModelArgs};
use crate::{
    Gguf, Result,
    gguf::{Array, TensorInfo, Value},
    provenance::Provenance,
};

#[derive(Args, Debug)]
pub struct InspectArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Print one JSON object: metadata in full, tensors, bytes per layer
    #[arg(long)]
    json: bool,
}

pub fn run(args: InspectArgs) -> Result<()> {
    let gguf = args.model.open()?;
    let summary = Summary::of(&gguf)?;
    if !args.json {
        return common::print(summary.text(args.tensors));
    }
    let mut out = summary.json();
    out["provenance"] = Provenance::of_file(&gguf).command(std::env::args_os()).to_json();
    common::print_json(&out)
}

struct Summary<'a> {
    gguf: &'a Gguf,
    architecture: Option<&'a str>,
    parameters: u64,
    tensor_bytes: u64,
    layers: Vec<Layer>,
    outside_layers: u64,
    experts: Option<Experts>,
}

/// Of all layers that have some.
#[derive(Clone, Copy, Default)]
struct Experts {
    count: u32,
    /// For each token.
    used: u32,
    layers: usize,
    parameters: u64,
    bytes: u64,
}

impl Experts {
    /// What of so many parameters or bytes of experts a token does not need.
    fn idle(self, of: u64) -> u64 {
        of / u64::from(self.count) * u64::from(self.count - self.used)
    }
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Layer {
    attn_bytes: u64,
    /// All that the MLP has beside experts.
    mlp_bytes: u64,
    expert_bytes: u64,
    /// Norms and the like whose names tell of neither.
    other_bytes: u64,
}

impl<'a> Summary<'a> {
    fn of(gguf: &'a Gguf) -> Result<Self> {
        let mut summary = Summary {
            gguf,
            architecture: gguf.metadata().str("general.architecture")?,
            parameters: 0,
            tensor_bytes: 0,
            layers: Vec::new(),
            outside_layers: 0,
            experts: experts_of(gguf),
        };
        for t in gguf.tensors() {
            summary.parameters += t.elements();
            summary.tensor_bytes += t.bytes;
            // A layer has a tensor at least, so a higher number is no layer's, and may cost no memory.
            match layer_and_part(&t.name).filter(|&(layer, _)| layer < gguf.tensors().len()) {
                None => summary.outside_layers += t.bytes,
                Some((layer, part)) => {
                    if layer >= summary.layers.len() {
                        summary.layers.resize(layer + 1, Layer::default());
                    }
                    let layer = &mut summary.layers[layer];
                    match part {
                        part if is_of_experts(part) => {
                            layer.expert_bytes += t.bytes;
                            if let Some(experts) = &mut summary.experts {
                                experts.parameters += t.elements();
                                experts.bytes += t.bytes;
                            }
                        }
                        part if part.starts_with("attn") => layer.attn_bytes += t.bytes,
                        part if part.starts_with("ffn") => layer.mlp_bytes += t.bytes,
                        _ => layer.other_bytes += t.bytes,
                    }
                }
            }
        }
        let with_experts = summary.layers.iter().filter(|layer| layer.expert_bytes > 0).count();
        summary.experts = summary.experts.filter(|_| with_experts > 0);
        if let Some(experts) = &mut summary.experts {
            experts.layers = with_experts;
        }
        Ok(summary)
    }

    /// Parameters and bytes that a token is multiplied with or looks up, and no expert that it does not choose.
    fn active(&self, experts: Experts) -> (u64, u64) {
        (self.parameters - experts.idle(experts.parameters), self.tensor_bytes - experts.idle(experts.bytes))
    }

    fn bits_per_weight(&self) -> Option<f64> {
        (self.parameters > 0).then(|| self.tensor_bytes as f64 * 8.0 / self.parameters as f64)
    }

    fn json(&self) -> Json {
        let metadata: serde_json::Map<String, Json> =
            self.gguf.metadata().iter().map(|(key, value)| (key.to_owned(), value_json(value))).collect();
        let tensors: Vec<Json> = self
            .gguf
            .tensors()
            .iter()
            .map(|t| json!({"name": t.name, "type": t.ty.name(), "shape": t.shape, "bytes": t.bytes}))
            .collect();
        let layers: Vec<Json> = self
            .layers
            .iter()
            .map(|l| {
                json!({
                    "attn_bytes": l.attn_bytes,
                    "mlp_bytes": l.mlp_bytes,
                    "expert_bytes": l.expert_bytes,
                    "other_bytes": l.other_bytes,
                })
            })
            .collect();
        let experts = self.experts.map(|experts| {
            let (active_parameters, active_bytes) = self.active(experts);
            json!({
                "count": experts.count,
                "used": experts.used,
                "layers": experts.layers,
                "parameters": experts.parameters,
                "bytes": experts.bytes,
                "active_parameters": active_parameters,
                "active_bytes": active_bytes,
            })
        });
        json!({
            "file": self.gguf.name(),
            "version": self.gguf.version(),
            "shards": self.gguf.shard_count(),
            "file_bytes": self.gguf.file_bytes(),
            "architecture": self.architecture,
            "parameters": self.parameters,
            "bits_per_weight": self.bits_per_weight(),
            "experts": experts,
            "metadata": metadata,
            "tensors": tensors,
            "layers": layers,
        })
    }

    fn text(&self, every_tensor: bool) -> String {
        let mut out = String::new();
        self.head(&mut out);
        self.metadata(&mut out);
        if self.gguf.tensors().is_empty() {
            line(&mut out, format_args!("\nno tensors: a vocabulary only"));
            return out;
        }
        self.types(&mut out);
        self.layer_table(&mut out);
        if every_tensor {
            self.tensor_table(&mut out);
        }
        out
    }

    fn head(&self, out: &mut String) {
        let gguf = self.gguf;
        let shards = match gguf.shard_count() {
            1 => String::new(),
            n => format!(" in {n} shards"),
        };
        line(out, format_args!("file             {}", gguf.name()));
        if let Ok(Some(name)) = gguf.metadata().str("general.name") {
            line(out, format_args!("name             {}", shortened(name)));
        }
        line(out, format_args!("format           GGUF version {}", gguf.version()));
        line(out, format_args!("architecture     {}", shortened(self.architecture.unwrap_or("not named"))));
        line(out, format_args!("size             {}{shards}", size(gguf.file_bytes())));
        line(out, format_args!("parameters       {}", count(self.parameters)));
        if let Some(bits) = self.bits_per_weight() {
            line(out, format_args!("bits per weight  {bits:.2}"));
        }
        if let Some(experts) = self.experts {
            let Experts { count: n, used, layers, bytes, .. } = experts;
            let layers = match layers {
                1 => "1 layer".to_string(),
                n => format!("{n} layers"),
            };
            let (parameters, active_bytes) = self.active(experts);
            line(
                out,
                format_args!("experts          {n} in {layers}, {used} for each token; {}", size(bytes)),
            );
            line(
                out,
                format_args!(
                    "active           {} parameters for each token, {}",
                    count(parameters),
                    size(active_bytes)
                ),
            );
        }
    }

    fn metadata(&self, out: &mut String) {
        let metadata = self.gguf.metadata();
        line(out, format_args!("\nmetadata ({} keys)", metadata.len()));
        let widest = metadata.iter().map(|(key, _)| shortened(key).chars().count()).max().unwrap_or(0);
        for (key, value) in metadata.iter() {
            line(out, format_args!("  {:widest$}  {}", shortened(key), value_text(value)));
        }
    }

    fn types(&self, out: &mut String) {
        let mut types = BTreeMap::<&str, (u64, u64)>::new();
        for t in self.gguf.tensors() {
            let (number, bytes) = types.entry(t.ty.name()).or_default();
            *number += 1;
            *bytes += t.bytes;
        }
        let number = self.gguf.tensors().len();
        line(out, format_args!("\ntensors ({number}, {})", size(self.tensor_bytes)));
        line(out, format_args!("  {:8} {:>6} {:>12} {:>7}", "type", "number", "size", "share"));
        for (ty, (number, bytes)) in types {
            let share = bytes as f64 / self.tensor_bytes as f64 * 100.0;
            line(out, format_args!("  {ty:8} {number:>6} {:>12} {share:>6.1}%", size(bytes)));
        }
    }

    /// Neighbours of the same size share a line.
    fn layer_table(&self, out: &mut String) {
        line(out, format_args!("\nlayers ({})", self.layers.len()));
        let column = |text: &str| if self.experts.is_some() { format!(" {text:>12}") } else { String::new() };
        let experts = column("experts");
        line(
            out,
            format_args!("  {:11} {:>12} {:>12}{experts} {:>12}", "layer", "attention", "mlp", "other"),
        );
        let mut first = 0;
        for alike in self.layers.chunk_by(|a, b| a == b) {
            let last = first + alike.len() - 1;
            let name = if first == last { first.to_string() } else { format!("{first}-{last}, each") };
            let Layer { attn_bytes, mlp_bytes, expert_bytes, other_bytes } = alike[0];
            let (attn, mlp, other) = (size(attn_bytes), size(mlp_bytes), size(other_bytes));
            let experts = column(&size(expert_bytes));
            line(out, format_args!("  {name:11} {attn:>12} {mlp:>12}{experts} {other:>12}"));
            first = last + 1;
        }
        line(out, format_args!("  outside     {:>38}", size(self.outside_layers)));
    }

    fn tensor_table(&self, out: &mut String) {
        let shape = |t: &TensorInfo| t.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        let widest =
            |width: fn(&TensorInfo) -> usize| self.gguf.tensors().iter().map(width).max().unwrap_or(0);
        let names = widest(|t| shortened(&t.name).chars().count());
        line(out, format_args!("\n  {:names$}  {:8} {:>12}  shape", "tensor", "type", "bytes"));
        for t in self.gguf.tensors() {
            line(
                out,
                format_args!("  {:names$}  {:8} {:>12}  {}", shortened(&t.name), t.ty, t.bytes, shape(t)),
            );
        }
    }
}

/// As the file's keys have them; nothing if they make no sense, which is for whoever runs the model to say.
fn experts_of(gguf: &Gguf) -> Option<Experts> {
    let arch = gguf.metadata().str("general.architecture").ok()??;
    let number = |key: &str| gguf.metadata().u32(&format!("{arch}.{key}")).ok()?;
    let (count, used) = (number("expert_count")?, number("expert_used_count")?);
    (used > 0 && used <= count).then(|| Experts { count, used, ..Experts::default() })
}

/// `ffn_up_exps.weight`: the matrices of all experts, side by side.
fn is_of_experts(part: &str) -> bool {
    part.split('.').next().is_some_and(|part| part.ends_with("_exps"))
}

/// `blk.7.attn_q.weight` is layer 7, `attn_q.weight`.
fn layer_and_part(name: &str) -> Option<(usize, &str)> {
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

fn line(out: &mut String, text: std::fmt::Arguments) {
    writeln!(out, "{text}").expect("a string takes everything");
}

/// On one line and free of control characters, whatever the file holds.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 72;
    let mut out = String::new();
    for c in text.chars().take(LONGEST) {
        match c {
            '"' | '\'' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    match text.chars().nth(LONGEST) {
        Some(_) => format!("{out}.. ({} bytes)", text.len()),
        None => out,
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => shortened(text),
        Value::Array(array) => array_text(array),
        Value::Bool(x) => x.to_string(),
        Value::F32(x) => format!("{x:?}"),
        Value::F64(x) => format!("{x:?}"),
        number => number.integer().expect("the other types are integers").to_string(),
    }
}

fn array_text(array: &Array) -> String {
    const SHOWN: usize = 6;
    let shown = array.iter().take(SHOWN).map(|value| match value {
        Value::String(text) => format!("\"{}\"", shortened(&text)),
        value => value_text(&value),
    });
    let more = if array.len() > SHOWN { ", .." } else { "" };
    let shown = shown.collect::<Vec<_>>().join(", ");
    format!("[{shown}{more}] ({} x {})", array.len(), array.element_kind())
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::String(text) => json!(text),
        Value::Array(array) => array.iter().map(|value| value_json(&value)).collect(),
        Value::Bool(x) => json!(x),
        Value::F32(x) => float_json(*x),
        Value::F64(x) => float_json(*x),
        number => json!(number.integer().expect("the other types are integers")),
    }
}

/// The shortest decimal that reads back as the same float (1e-5, not 0.000009999999747378752). JSON has no
/// NaN and no infinity, so these become strings rather than nothing.
fn float_json(x: impl ToString) -> Json {
    let text = x.to_string();
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() => json!(x),
        _ => json!(text),
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn count(n: u64) -> String {
    match n {
        0..1_000_000 => n.to_string(),
        1_000_000..1_000_000_000 => format!("{:.2} million", n as f64 / 1e6),
        _ => format!("{:.2} billion", n as f64 / 1e9),
    }
}
