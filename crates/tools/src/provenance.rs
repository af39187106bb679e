//! Where a figure comes from: enough to make it again, or to see that it cannot be held against another.
//!
//! Everything that the program writes for later (JSON, CSV, journals, pages) carries one of these.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Context, Gguf, RunLayers, hash::fnv1a};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    pub version: String,
    /// As it was typed, for a shell.
    pub command: Option<String>,
    pub model: ModelSource,
    pub text: Option<TextSource>,
    pub mask: Option<MaskSource>,
    /// What random numbers were drawn from; none where nothing is drawn.
    pub seed: Option<u64>,
    /// The device, its instruction set and its threads; none where nothing was computed.
    pub device: Option<String>,
    /// Whatever else the figures may depend on.
    pub settings: Map<String, Value>,
    pub chunks: Option<Chunks>,
    /// Ended before all was done: what is there is good, but not all.
    pub interrupted: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSource {
    pub name: String,
    pub fingerprint: String,
    pub file: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextSource {
    pub tokens: usize,
    pub hash: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaskSource {
    pub name: String,
    pub layers: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunks {
    pub done: usize,
    pub of: usize,
}

impl Provenance {
    /// Of what runs in `context`. Reads a little of each tensor, for the fingerprint.
    pub fn of(context: &Context) -> Self {
        let model = context.model();
        let source = ModelSource {
            name: model.name.clone(),
            fingerprint: context.fingerprint(),
            file: model.gguf.name().to_string(),
        };
        let of = Provenance { device: Some(context.describe()), ..Self::new(source) };
        match model.rope_change.described() {
            None => of,
            Some(change) => of.setting("rope", change),
        }
    }

    /// Of a file, which need not be a model that runs.
    pub fn of_file(gguf: &Gguf) -> Self {
        let file = gguf.name().to_string();
        let name = gguf.model_name().unwrap_or_else(|_| file.clone());
        Self::new(ModelSource { name, fingerprint: gguf.fingerprint(), file })
    }

    fn new(model: ModelSource) -> Self {
        Provenance {
            version: env!("CARGO_PKG_VERSION").into(),
            command: None,
            model,
            text: None,
            mask: None,
            seed: None,
            device: None,
            settings: Map::new(),
            chunks: None,
            interrupted: false,
        }
    }

    /// By the program's arguments, which need not be UTF-8.
    pub fn command(mut self, args: impl IntoIterator<Item = OsString>) -> Self {
        let args = args.into_iter().enumerate().map(|(i, arg)| match i {
            0 => "spec-run".into(),
            _ => quoted(&arg.to_string_lossy()),
        });
        self.command = Some(args.collect::<Vec<_>>().join(" "));
        self
    }

    pub fn text(mut self, tokens: &[u32]) -> Self {
        self.text = Some(TextSource { tokens: tokens.len(), hash: text_hash(tokens) });
        self
    }

    pub fn mask(mut self, name: &str, layers: &RunLayers) -> Self {
        self.mask = Some(MaskSource { name: name.into(), layers: layers.to_string() });
        self
    }

    pub fn setting(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }

    /// Name and value of everything that is there, each value one line.
    pub fn lines(&self) -> Vec<(String, String)> {
        lines_of(&self.to_json())
    }

    /// Comments for the head of a table: `# name: value`.
    pub fn comments(&self) -> String {
        self.lines().iter().map(|(name, value)| format!("# {name}: {value}\n")).collect()
    }
}

/// The same of one that was written, by whatever version.
pub fn lines_of(provenance: &Value) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (name, value) in provenance.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Object(parts) => {
                let parts: Vec<String> = parts
                    .iter()
                    .map(|(part, value)| format!("{} {}", one_line(part), plain(value)))
                    .collect();
                if !parts.is_empty() {
                    lines.push((one_line(name), parts.join(", ")));
                }
            }
            value => lines.push((one_line(name), plain(value))),
        }
    }
    lines
}

/// Names the tokens of a text.
pub fn text_hash(tokens: &[u32]) -> String {
    format!("{:016x}", fnv1a(tokens.iter().flat_map(|token| token.to_le_bytes())))
}

/// A value in one line, without control characters.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        other => one_line(&other.to_string()),
    }
}

fn one_line(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

fn quoted(arg: &str) -> String {
    let harmless = |c: char| c.is_alphanumeric() || "-_./,:=+@%".contains(c);
    match !arg.is_empty() && arg.chars().all(harmless) {
        true => arg.into(),
        false => format!("'{}'", arg.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
impl Provenance {
    /// Of nothing that is.
    pub fn example() -> Self {
        Self::new(ModelSource { name: "m".into(), fingerprint: "0".into(), file: "m.gguf".into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_for_a_shell() {
        assert_eq!(quoted("-c"), "-c");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn values_are_one_line() {
        assert_eq!(plain(&json!("a\nb\u{1b}")), "a\\nb\\u{1b}");
        assert_eq!(plain(&json!([1, 2])), "[1,2]");
    }
}
