//! Answers with markers in the text: around what the model thinks, and around calls.

use super::{
    Delta, Sink,
    arguments::{Arguments, Step},
    gemma, json,
    object_text::ObjectText,
    python,
    tagged::{self, Tagged},
};
use crate::chat::{
    Tool,
    markers::{Found, find},
    syntax::{Body, CALL, Marked, RESPONSE},
};

pub(super) struct MarkedReader {
    marked: Option<&'static Marked>,
    tools: Vec<Tool>,
    reasoning: Option<(&'static str, &'static str)>,
    state: State,
    /// What has come and was not decided on yet.
    pending: String,
    sink: Sink,
}

enum State {
    Thinking {
        /// Something else than spaces has come.
        begun: bool,
    },
    Text {
        /// Spaces at its beginning are not part of it.
        trims: bool,
        /// An object here is a call.
        bare: bool,
    },
    /// A marker and perhaps spaces before it stand at the beginning of what is pending, `len` bytes of it; a call follows,
    /// or it was no marker.
    Head {
        len: usize,
        bare: bool,
    },
    /// Between the objects of a list of calls.
    List,
    Json {
        arguments: Arguments,
        in_list: bool,
    },
    Tagged(Tagged),
    ObjectText(ObjectText),
}

impl MarkedReader {
    pub fn new(
        marked: Option<&'static Marked>,
        tools: &[Tool],
        reasoning: Option<(&'static str, &'static str)>,
        thinking: bool,
    ) -> Self {
        let state = match thinking && reasoning.is_some() {
            true => State::Thinking { begun: false },
            false => State::Text { trims: false, bare: true },
        };
        let (pending, sink) = (String::new(), Sink::default());
        MarkedReader { marked, tools: tools.to_vec(), reasoning, state, pending, sink }
    }

    pub fn push(&mut self, piece: &str, last: bool) -> Vec<Delta> {
        self.pending.push_str(piece);
        while self.step(last) {}
        self.sink.take()
    }

    /// Whether there may be more to do.
    fn step(&mut self, last: bool) -> bool {
        match &mut self.state {
            State::Thinking { begun } => {
                if !*begun {
                    trim_start(&mut self.pending);
                    *begun = !self.pending.is_empty();
                }
                !self.pending.is_empty() && self.think(last)
            }
            State::Text { trims, bare } => {
                if *trims {
                    trim_start(&mut self.pending);
                    *trims = self.pending.is_empty();
                }
                let bare = *bare;
                !self.pending.is_empty() && self.text(bare, last)
            }
            State::Head { len, bare } => {
                let (len, bare) = (*len, *bare);
                self.head(len, bare, last)
            }
            State::List => self.list(last),
            State::Json { arguments, in_list } => {
                let in_list = *in_list;
                match arguments.step(&mut self.pending, &mut self.sink) {
                    Step::More => false,
                    Step::Done if in_list => self.goes_to(State::List),
                    Step::Done => self.goes_to(State::Text { trims: true, bare: true }),
                }
            }
            State::ObjectText(text) => match text.step(&mut self.pending, &mut self.sink) {
                Step::More => false,
                Step::Done => self.goes_to(State::Text { trims: true, bare: true }),
            },
            State::Tagged(tagged) => match tagged.step(&mut self.pending, last, &mut self.sink) {
                Step::More => false,
                Step::Done => self.goes_to(State::Text { trims: true, bare: false }),
            },
        }
    }

    fn goes_to(&mut self, state: State) -> bool {
        self.state = state;
        true
    }

    fn think(&mut self, last: bool) -> bool {
        let Some((_, close)) = self.reasoning else {
            return self.goes_to(State::Text { trims: false, bare: false });
        };
        // The first ends what it thinks; where calls do so too, the text goes on with them.
        let mut ends = vec![close];
        if let Some(marked) = self.marked.filter(|marked| marked.ends_thinking) {
            ends.extend(marked.opens.iter().chain(marked.skips));
        }
        match find(&self.pending, &ends, last) {
            Found::Marker { at, end, which } => {
                self.sink.reasoning(self.pending[..at].trim_end());
                self.pending.drain(..if which == 0 { end } else { at });
                self.goes_to(State::Text { trims: true, bare: true })
            }
            Found::Not(safe) => {
                let shown = self.pending[..safe].trim_end().len();
                self.sink.reasoning(&self.pending[..shown]);
                self.pending.drain(..shown);
                if last {
                    self.pending.clear();
                }
                false
            }
        }
    }

    fn text(&mut self, bare: bool, last: bool) -> bool {
        let begins = |marked: &Marked| matches!(marked.body, Body::Json { bare: true, .. } | Body::Told);
        if bare && self.marked.is_some_and(begins) {
            let space = json::skip_space(&self.pending, 0);
            match self.pending[space..].chars().next() {
                None if !last => return false,
                Some('{') => return self.goes_to(State::Head { len: space, bare: true }),
                None | Some(_) => (),
            }
        }
        let (opens, skips) = self.marked.map_or((&[][..], &[][..]), |marked| (marked.opens, marked.skips));
        let think = self.reasoning.map(|(open, _)| open);
        let markers: Vec<&str> = opens.iter().chain(skips).copied().chain(think).collect();
        match find(&self.pending, &markers, last) {
            Found::Marker { at, end, which } => {
                let text = self.pending[..at].trim_end();
                self.sink.content(text);
                let shown = text.len();
                if which < opens.len() {
                    self.pending.drain(..shown);
                    return self.goes_to(State::Head { len: end - shown, bare: false });
                }
                self.pending.drain(..end);
                match which < opens.len() + skips.len() {
                    true => self.goes_to(State::Text { trims: true, bare: false }),
                    false => self.goes_to(State::Thinking { begun: false }),
                }
            }
            Found::Not(safe) => {
                let shown = if last { safe } else { self.pending[..safe].trim_end().len() };
                self.sink.content(&self.pending[..shown]);
                if shown > 0 {
                    self.state = State::Text { trims: false, bare: false };
                }
                self.pending.drain(..shown);
                false
            }
        }
    }

    /// The marker was none.
    fn not_a_call(&mut self, len: usize, bare: bool) -> bool {
        // An object that is no call begins with a bracket, which must not be looked at again.
        let len = if bare { len + 1 } else { len };
        self.sink.content(&self.pending[..len]);
        self.pending.drain(..len);
        self.goes_to(State::Text { trims: false, bare: false })
    }

    /// The end has come before it was known whether this is a call.
    fn unfinished(&mut self, len: usize, bare: bool, last: bool) -> bool {
        match (last, bare) {
            (false, _) => false,
            (true, true) => self.not_a_call(len, bare),
            (true, false) => {
                self.pending.clear();
                false
            }
        }
    }

    fn knows(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    fn head(&mut self, len: usize, bare: bool, last: bool) -> bool {
        let Some(marked) = self.marked else { return self.not_a_call(len, bare) };
        let rest = &self.pending[len..];
        match &marked.body {
            Body::Json { .. } => self.json_head(len, bare, last),
            Body::Told => self.told_head(len, last),
            Body::Named { prefix, ends, in_id } => {
                let space = json::skip_space(rest, 0);
                // Mistral's first models give a list of objects.
                match rest[space..].chars().next() {
                    Some('[' | '{') => return self.json_head(len, bare, last),
                    None => return self.unfinished(len, bare, last),
                    Some(_) => (),
                }
                let named = &rest[space..];
                if !last && prefix.starts_with(named) && named.len() < prefix.len() {
                    return false;
                }
                let named = named.strip_prefix(prefix).unwrap_or(named);
                match find(named, ends, last) {
                    Found::Not(_) => self.unfinished(len, bare, last),
                    Found::Marker { at, end, which } => {
                        let (name, end) = (named[..at].trim(), if ends[which] == "{" { at } else { end });
                        let (name, id) = match in_id {
                            // functions.NAME:0
                            true => (name.rsplit_once(':').map_or(name, |(name, _)| name), Some(name)),
                            false => (name, None),
                        };
                        let id = id.map(|id| format!("{prefix}{id}"));
                        self.named(len, name.to_owned(), id, named[end..].to_owned(), last, ends[which])
                    }
                }
            }
            Body::Tagged(tags) => match find(rest, tags.name_ends, last) {
                Found::Not(_) => self.unfinished(len, bare, last),
                Found::Marker { at, end, which } => {
                    let name = rest[..at].trim().to_owned();
                    // Others are most likely code.
                    if !self.knows(&name) {
                        return self.not_a_call(len, bare);
                    }
                    let keeps = tagged::begins_arguments(tags, tags.name_ends[which]);
                    let tool = self.tools.iter().find(|tool| tool.name == name).cloned();
                    self.pending.drain(..len + if keeps { at } else { end });
                    self.sink.call(name, None);
                    self.goes_to(State::Tagged(Tagged::new(tags, tool)))
                }
            },
            Body::Gemma => match gemma::call(rest) {
                gemma::Read::More => self.unfinished(len, bare, last),
                gemma::Read::Not => self.not_a_call(len, bare),
                gemma::Read::Call { name, arguments, end } => {
                    self.sink.call(name, None);
                    self.sink.arguments(&arguments);
                    self.pending.drain(..len + end);
                    self.goes_to(State::Text { trims: true, bare: false })
                }
            },
            Body::Python { close } => {
                let (end, next) = match find(rest, &[close], last) {
                    Found::Marker { at, end, .. } => (at, end),
                    Found::Not(_) if last => (rest.len(), rest.len()),
                    Found::Not(_) => return false,
                };
                let Some(calls) = python::calls(&rest[..end]) else {
                    return if last { self.unfinished(len, bare, last) } else { self.not_a_call(len, bare) };
                };
                for (name, arguments) in calls {
                    self.sink.call(name, None);
                    self.sink.arguments(&arguments);
                }
                self.pending.drain(..len + next);
                self.goes_to(State::Text { trims: true, bare: false })
            }
        }
    }

    /// A name that an object follows, perhaps with another end between them.
    fn named(
        &mut self,
        len: usize,
        name: String,
        id: Option<String>,
        rest: String,
        last: bool,
        ended: &str,
    ) -> bool {
        let (mut id, mut rest) = (id, rest);
        // Mistral: NAME[CALL_ID]ID[ARGS]
        if ended == "[CALL_ID]" {
            match find(&rest, &["[ARGS]", "{"], last) {
                Found::Not(_) => return self.unfinished(len, false, last),
                Found::Marker { at, end, which } => {
                    id = Some(rest[..at].trim().to_owned());
                    rest.drain(..if which == 0 { end } else { at });
                }
            }
        }
        if name.is_empty() {
            return self.not_a_call(len, false);
        }
        self.pending = rest;
        self.sink.call(name, id);
        self.goes_to(State::Json { arguments: Arguments::after_name(), in_list: false })
    }

    fn json_head(&mut self, len: usize, bare: bool, last: bool) -> bool {
        let rest = &self.pending[len..];
        let space = json::skip_space(rest, 0);
        let listed = usize::from(!bare && rest[space..].starts_with('['));
        let from = len + space + listed;
        match json::head(&self.pending[from..]) {
            json::Head::More => self.unfinished(len, bare, last),
            json::Head::Call { ref name, .. } if bare && !self.knows(name) => self.not_a_call(len, bare),
            json::Head::Call { name, id, arguments, at, objects } => {
                self.pending.drain(..from + at);
                self.called(name, id, Arguments::in_objects(objects, arguments), listed == 1)
            }
            json::Head::Not if listed == 1 && self.pending[from..].trim_start().starts_with(']') => {
                self.pending.drain(..from);
                self.goes_to(State::List)
            }
            json::Head::Not => self.not_a_call(len, bare),
        }
    }

    /// An object with a call in it, or with what is said.
    fn told_head(&mut self, len: usize, last: bool) -> bool {
        let (key, at) = match json::member(&self.pending[len..]) {
            json::Member::More => return self.unfinished(len, false, last),
            json::Member::Not => return self.not_a_call(len, true),
            json::Member::Of { key, at } => (key, len + at),
        };
        if key == RESPONSE {
            self.pending.drain(..at);
            return self.goes_to(State::ObjectText(ObjectText::Before));
        }
        match json::head(&self.pending[at..]) {
            json::Head::More if key == CALL => self.unfinished(len, false, last),
            json::Head::Call { name, id, arguments, at: end, objects }
                if key == CALL && self.knows(&name) =>
            {
                self.pending.drain(..at + end);
                self.called(name, id, Arguments::in_objects(objects + 1, arguments), false)
            }
            json::Head::More | json::Head::Call { .. } | json::Head::Not => self.not_a_call(len, true),
        }
    }

    fn called(&mut self, name: String, id: Option<String>, arguments: Arguments, in_list: bool) -> bool {
        self.sink.call(name, id);
        self.goes_to(State::Json { arguments, in_list })
    }

    fn list(&mut self, last: bool) -> bool {
        let at = json::skip_space(&self.pending, 0);
        match self.pending[at..].chars().next() {
            None => false,
            Some(',') => {
                self.pending.drain(..=at);
                true
            }
            Some('{') => match json::head(&self.pending) {
                json::Head::More if last => {
                    self.pending.clear();
                    false
                }
                json::Head::More => false,
                json::Head::Call { name, id, arguments, at, objects } => {
                    self.pending.drain(..at);
                    self.called(name, id, Arguments::in_objects(objects, arguments), true)
                }
                json::Head::Not => self.goes_to(State::Text { trims: true, bare: false }),
            },
            Some(']') => {
                self.pending.drain(..=at);
                self.goes_to(State::Text { trims: true, bare: false })
            }
            Some(_) => self.goes_to(State::Text { trims: true, bare: false }),
        }
    }
}

fn trim_start(text: &mut String) {
    text.drain(..json::skip_space(text, 0));
}
