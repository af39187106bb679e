//! Arguments in JSON, handed on as they come.

use super::{Sink, json::ValueScan};

/// Whether a reader of a part is through with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It waits for more text.
    More,
    /// What is pending belongs to somebody else.
    Done,
}

pub(super) struct Arguments {
    state: State,
    /// So many objects are open around them.
    objects: usize,
}

enum State {
    /// Words and fences may stand before the object.
    Before,
    /// Handed on as it is.
    Object(ValueScan),
    /// Models put JSON into a string, too.
    String(ValueScan, String),
    /// They stood before the name.
    Known(String),
    /// The rest of the object that the call is.
    Rest(RestScan),
}

/// Looks for the bracket that closes an object.
#[derive(Default)]
pub(super) struct RestScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Arguments {
    /// What follows a name is an object, perhaps in a fence.
    pub fn after_name() -> Self {
        Arguments { state: State::Before, objects: 0 }
    }

    /// What follows is the value of a member, unless the arguments are `known`, or the end of the innermost of so many
    /// objects.
    pub fn in_objects(objects: usize, known: Option<String>) -> Self {
        Arguments { state: known.map_or(State::Before, State::Known), objects }
    }

    fn rest(&self) -> State {
        State::Rest(RestScan { depth: self.objects.saturating_sub(1), ..RestScan::default() })
    }

    pub fn step(&mut self, pending: &mut String, sink: &mut Sink) -> Step {
        loop {
            match &mut self.state {
                State::Before => {
                    let at = super::json::skip_space(pending, 0);
                    pending.drain(..at);
                    match pending.chars().next() {
                        None => return Step::More,
                        Some('{') => self.state = State::Object(ValueScan::default()),
                        Some('}') if self.objects > 0 => {
                            sink.arguments("{}");
                            self.state = self.rest();
                        }
                        Some(_) if self.objects > 0 => {
                            self.state = State::String(ValueScan::default(), String::new());
                        }
                        Some(_) if "```json".starts_with(pending.as_str()) => return Step::More,
                        Some(_) if pending.starts_with("```json") => {
                            pending.drain(.."```json".len());
                        }
                        Some(_) => {
                            sink.arguments("{}");
                            return Step::Done;
                        }
                    }
                }
                State::Object(scan) => {
                    let end = scan.feed(pending);
                    let text: String = pending.drain(..end.unwrap_or(pending.len())).collect();
                    sink.arguments(&text);
                    match end {
                        None => return Step::More,
                        Some(_) if self.objects > 0 => self.state = self.rest(),
                        Some(_) => return Step::Done,
                    }
                }
                State::String(scan, text) => {
                    let end = scan.feed(pending);
                    text.extend(pending.drain(..end.unwrap_or(pending.len())));
                    if end.is_none() {
                        return Step::More;
                    }
                    self.state = State::Known(std::mem::take(text));
                }
                State::Known(text) => {
                    sink.arguments(&plain(text));
                    self.state = self.rest();
                }
                State::Rest(scan) => {
                    let end = scan.feed(pending);
                    pending.drain(..end.unwrap_or(pending.len()));
                    return if end.is_some() { Step::Done } else { Step::More };
                }
            }
        }
    }
}

/// JSON out of a string, and no arguments instead of nothing.
fn plain(value: &str) -> String {
    match serde_json::from_str::<String>(value) {
        Ok(text) if text.trim().is_empty() => "{}".into(),
        Ok(text) => text,
        Err(_) if value == "null" => "{}".into(),
        Err(_) => value.to_owned(),
    }
}

impl RestScan {
    pub fn feed(&mut self, text: &str) -> Option<usize> {
        for (at, c) in text.char_indices() {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' if self.in_string => self.escaped = true,
                '"' => self.in_string = !self.in_string,
                '{' | '[' if !self.in_string => self.depth += 1,
                '}' if !self.in_string && self.depth == 0 => return Some(at + 1),
                '}' | ']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => (),
            }
        }
        None
    }
}
