//! Calls whose arguments stand between tags, each by itself: they become members of an object.

use serde_json::Value;

use super::{Sink, arguments::Step, json};
use crate::chat::{
    Tool,
    markers::{Found, find},
    syntax::Tags,
};

pub(super) struct Tagged {
    tags: &'static Tags,
    tool: Option<Tool>,
    first: bool,
    value: Option<Reading>,
}

/// The value that is being read.
enum Reading {
    /// A text is handed on as it comes.
    Text { begun: bool },
    /// Anything else, when it is whole.
    Other { kinds: Vec<String>, begun: bool },
}

/// What ends the name begins the arguments, or ends them.
pub(super) fn begins_arguments(tags: &Tags, ended: &str) -> bool {
    ended == tags.key_open || ended == tags.end
}

impl Tagged {
    pub fn new(tags: &'static Tags, tool: Option<Tool>) -> Self {
        Tagged { tags, tool, first: true, value: None }
    }

    pub fn step(&mut self, pending: &mut String, last: bool, sink: &mut Sink) -> Step {
        loop {
            let step = match self.value {
                None => self.between(pending, last, sink),
                Some(_) => self.in_value(pending, last, sink),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// A key and what stands around it, or the end.
    fn between(&mut self, pending: &mut String, last: bool, sink: &mut Sink) -> Option<Step> {
        pending.drain(..json::skip_space(pending, 0));
        let tags = self.tags;
        let text = pending.as_str();
        let waits = |marker: &str| !last && marker.len() > text.len() && marker.starts_with(text);
        if waits(tags.key_open) || waits(tags.end) {
            return Some(Step::More);
        }
        if last && (tags.key_open.starts_with(text) || tags.end.starts_with(text)) && text != tags.end {
            // Half of a tag at the end of the answer.
            pending.clear();
            return Some(Step::More);
        }
        let Some(key) = text.strip_prefix(tags.key_open) else {
            // Anything else ends it as well.
            let end = if text.starts_with(tags.end) { tags.end.len() } else { 0 };
            pending.drain(..end);
            sink.arguments(if self.first { "{}" } else { "}" });
            return Some(Step::Done);
        };
        let Found::Marker { at, end, .. } = find(key, &[tags.key_close], last) else {
            return Some(Step::More);
        };
        let (key, behind) = (&key[..at], tags.key_open.len() + end);
        let space = if tags.value_open.is_empty() { 0 } else { json::skip_space(&text[behind..], 0) };
        let value = &text[behind + space..];
        if !value.starts_with(tags.value_open) {
            if waits_for(tags.value_open, value, last) {
                return Some(Step::More);
            }
            sink.arguments(if self.first { "{}" } else { "}" });
            return Some(Step::Done);
        }
        let schema = self.tool.as_ref().map(|tool| &tool.parameters["properties"][key]);
        let kinds = schema.map(kinds).unwrap_or_default();
        let quoted = Value::from(key.trim()).to_string();
        sink.arguments(&format!("{}{quoted}: ", if self.first { "{" } else { ", " }));
        self.first = false;
        pending.drain(..behind + space + tags.value_open.len());
        let is_text = kinds.iter().all(|kind| kind == "string") && !kinds.is_empty();
        self.value = Some(match is_text {
            true => Reading::Text { begun: false },
            false => Reading::Other { kinds, begun: false },
        });
        None
    }

    fn in_value(&mut self, pending: &mut String, last: bool, sink: &mut Sink) -> Option<Step> {
        let tags = self.tags;
        let Some(Reading::Text { begun } | Reading::Other { begun, .. }) = &mut self.value else {
            return None;
        };
        if !*begun {
            // The line break before an empty value is the one behind it, too.
            let is_break = tags.own_line && pending.starts_with('\n');
            let closes = || tags.value_closes.iter().any(|close| pending.starts_with(close));
            let may_close = || tags.value_closes.iter().any(|close| waits_for(close, pending, last));
            if pending.is_empty() || is_break && may_close() {
                return Some(Step::More);
            }
            if is_break && !closes() {
                pending.remove(0);
            }
            *begun = true;
            if let Some(Reading::Text { .. }) = self.value {
                sink.arguments("\"");
            }
        }
        let found = find(pending, tags.value_closes, last);
        match (&self.value, found) {
            (Some(Reading::Text { .. }), Found::Not(safe)) => {
                sink.arguments(&escaped(&pending[..safe]));
                pending.drain(..safe);
                Some(Step::More)
            }
            (Some(Reading::Text { .. }), Found::Marker { at, end, .. }) => {
                sink.arguments(&escaped(&pending[..at]));
                sink.arguments("\"");
                pending.drain(..end);
                self.value = None;
                None
            }
            (Some(Reading::Other { kinds, .. }), Found::Marker { at, end, .. }) => {
                sink.arguments(&typed(&pending[..at], kinds));
                pending.drain(..end);
                self.value = None;
                None
            }
            (Some(Reading::Other { .. }) | None, _) => Some(Step::More),
        }
    }
}

fn waits_for(marker: &str, text: &str, last: bool) -> bool {
    !last && marker.len() > text.len() && marker.starts_with(text)
}

/// As inside a string in JSON.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The types that a schema allows; none if it says nothing of them.
fn kinds(schema: &Value) -> Vec<String> {
    let mut all = Vec::new();
    match &schema["type"] {
        Value::String(kind) => all.push(kind.clone()),
        Value::Array(several) => {
            all.extend(several.iter().filter_map(|kind| Some(kind.as_str()?.to_owned())))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => (),
    }
    for choices in ["anyOf", "oneOf"] {
        all.extend(schema[choices].as_array().into_iter().flatten().flat_map(kinds));
    }
    if all.is_empty() {
        all.extend(schema["enum"].as_array().into_iter().flatten().map(|value| kind(value).to_owned()));
    }
    all
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as JSON: as what it looks like, if its schema allows that, or else as a text.
fn typed(text: &str, kinds: &[String]) -> String {
    let word = match text.trim() {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        other => other,
    };
    let allows = |value: &Value| {
        let is = kind(value);
        kinds.is_empty() || kinds.iter().any(|kind| kind == is || kind == "integer" && is == "number")
    };
    match serde_json::from_str::<Value>(word) {
        Ok(Value::String(_)) | Err(_) => Value::from(text).to_string(),
        Ok(value) if allows(&value) => word.to_owned(),
        Ok(_) => Value::from(text).to_string(),
    }
}
