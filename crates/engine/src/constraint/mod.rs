//! Grammars and JSON schemas that restrict a text.
//!
//! ```text
//! grammar ─ Vocabulary::compile ─ Constraint ─ Sampler::bind: what may not follow gets -inf, then the sampler's stages
//!                                     └ ForcedTokens: where only one text may follow, its tokens are a draft
//! ```
//!
//! Which tokens may follow depends on the text alone, so a constrained text is the same with drafts and without. The crate
//! llguidance reads and runs grammars; GBNF is translated for it (`gbnf.rs`).

mod bounds;
mod forced;
mod gbnf;
mod json;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bounds::Size;
pub use forced::ForcedTokens;
pub use json::with_settings;
use llguidance::{
    Logger, Matcher, ParserFactory,
    api::{GrammarInit, ParserLimits, TopLevelGrammar},
};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};

use crate::{Error, Result, Tokenizer, quoted, sampler::Rule, words::count};

/// The most bytes of a grammar's text.
pub const LONGEST: usize = 1 << 20;
/// The most characters of a message about it.
const MOST_MESSAGE: usize = 400;
/// Part of llguidance's message where a text can be read in too many ways.
const TOO_MANY_READINGS: &str = "items; max is";

/// What restricts a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// Any JSON value.
    Json,
    /// JSON by a schema.
    JsonSchema(String),
    /// llama.cpp's notation.
    Gbnf(String),
    /// llguidance's notation.
    Lark(String),
}

impl Grammar {
    /// A grammar in llguidance's notation if its text says so, else in llama.cpp's.
    pub fn written(text: String) -> Self {
        if text.trim_start().starts_with("%llguidance") { Grammar::Lark(text) } else { Grammar::Gbnf(text) }
    }
}

/// A tokenizer's tokens, prepared for constraints; once for all of them.
pub struct Vocabulary {
    factory: ParserFactory,
    shared: Arc<Tokens>,
}

struct Tokens {
    /// Tokens that end a text.
    ends: Vec<u32>,
    /// Tokens with the same bytes as another token, which the trie has for both.
    twins: Vec<(u32, u32)>,
}

impl Vocabulary {
    /// An error where no token ends a text.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self> {
        let ids = 0..tokenizer.vocab_size() as u32;
        let ends: Vec<u32> = ids.clone().filter(|&id| tokenizer.is_eog(id)).collect();
        let Some(&end) = tokenizer.eos().filter(|eos| ends.contains(eos)).as_ref().or(ends.first()) else {
            return Err(Error::Input(
                "the vocabulary has no token that ends a text, and a grammar needs one".into(),
            ));
        };
        // A token without bytes gets none: it is not in the trie, so no grammar can choose it.
        let bytes = |id: u32| match tokenizer.piece(id) {
            piece if !piece.is_empty() && (tokenizer.is_control(id) || tokenizer.is_eog(id)) => {
                [&[TokTrie::SPECIAL_TOKEN_MARKER], piece].concat()
            }
            piece => piece.to_vec(),
        };
        let words: Vec<Vec<u8>> = ids.map(bytes).collect();
        let mut trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
        trie = trie.with_eos_tokens(&ends);
        let twin = |(id, word): (u32, &Vec<u8>)| {
            let known = trie.token_id(word).filter(|&known| known != id)?;
            Some((id, known))
        };
        // The trie panics if it is asked for a token with no bytes.
        let twins = (0..).zip(&words).filter(|(_, word)| !word.is_empty()).filter_map(twin).collect();
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env).map_err(|e| refused("a grammar", e))?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Vocabulary { factory, shared: Arc::new(Tokens { ends, twins }) })
    }

    /// An error says what is wrong with the grammar, and where.
    pub fn compile(&self, grammar: &Grammar) -> Result<Constraint> {
        let what = match grammar {
            Grammar::Json => "JSON",
            Grammar::JsonSchema(_) => "JSON schema",
            Grammar::Gbnf(_) | Grammar::Lark(_) => "grammar",
        };
        let text = match grammar {
            Grammar::Json => "",
            Grammar::JsonSchema(text) | Grammar::Gbnf(text) | Grammar::Lark(text) => text,
        };
        if text.len() > LONGEST {
            return Err(refused(what, format!("{} bytes, {LONGEST} are the most", text.len())));
        }
        bounds::with_large_stack(|| self.compiled(grammar, what)).map_err(|e| refused(what, e))?
    }

    /// The recursion is as deep as the grammar's parts refer to each other.
    fn compiled(&self, grammar: &Grammar, what: &'static str) -> Result<Constraint> {
        let refused = |why: String| refused(what, why);
        let lark = |text: String| -> Result<_> {
            let size = Size::of_lark(&text).map_err(refused)?;
            Ok((size, TopLevelGrammar::from_lark(text)))
        };
        let schema = |schema| {
            let size = Size::of_schema(&schema).map_err(refused)?;
            Ok((size, TopLevelGrammar::from_json_schema(schema)))
        };
        let (size, compiled) = match grammar {
            Grammar::Json => schema(json::any()),
            Grammar::JsonSchema(text) => schema(json::schema(text).map_err(refused)?),
            Grammar::Gbnf(text) => lark(gbnf::to_lark(text).map_err(refused)?),
            Grammar::Lark(text) => lark(text.clone()),
        }?;
        let start = self.matcher(compiled, &size);
        if let Some(error) = start.get_error() {
            return Err(match grammar {
                Grammar::JsonSchema(schema) => {
                    let what = format!("{what}{}", self.pointer_to(schema, &error, &size));
                    self::refused(&what, error)
                }
                Grammar::Json | Grammar::Gbnf(_) | Grammar::Lark(_) => refused(error),
            });
        }
        // A grammar that allows nothing is refused now, and so is one with too many readings at the beginning of a text.
        let mut first = start.deep_clone();
        let nothing = "no text of this vocabulary keeps to it";
        first.compute_mask_or_eos().map_err(|error| refused(message(&error, nothing)))?;
        Ok(Constraint {
            at: start.deep_clone(),
            start,
            text: Vec::new(),
            fault: None,
            about: About { what, most_readings: size.most_readings() },
            shared: self.shared.clone(),
        })
    }

    fn matcher(&self, grammar: TopLevelGrammar, size: &Size) -> Matcher {
        let limits = ParserLimits { max_items_in_row: size.most_readings(), ..self.factory.limits().clone() };
        Matcher::new(self.factory.create_parser_from_init_ext(
            GrammarInit::Serialized(grammar),
            Logger::new(0, 0),
            InferenceCapabilities::default(),
            limits,
        ))
    }

    /// Where in a schema an error is, as a JSON pointer to the innermost part that has the error by itself.
    fn pointer_to(&self, schema: &str, error: &str, size: &Size) -> String {
        let Ok(schema) = json::schema(schema) else { return String::new() };
        let (mut at, mut part) = (String::new(), &schema);
        // Trying a part takes about a millisecond.
        let mut tries = 0..1000;
        'inwards: loop {
            for (name, inner) in json::parts(part) {
                if tries.next().is_none() {
                    break 'inwards;
                }
                let alone = TopLevelGrammar::from_json_schema(json::alone(inner, &schema));
                let matcher = self.matcher(alone, size);
                if matcher.get_error().is_some_and(|e| one_line(&e) == one_line(error)) {
                    at = format!("{at}/{name}");
                    part = inner;
                    continue 'inwards;
                }
            }
            break;
        }
        if at.is_empty() { at } else { format!(" at {at}") }
    }
}

/// An error in one line, which is cut where it quotes much of a grammar.
fn refused(what: &str, why: impl ToString) -> Error {
    let why = why.to_string();
    // llguidance catches its own panics, and quotes their messages.
    let why = if why.contains("panic: ") { "llguidance failed on it".into() } else { one_line(&why) };
    Error::Input(format!("{what}: {}", quoted::one_line(&why, MOST_MESSAGE)))
}

/// llguidance's message in a line, without the dump after it and without the lines that it quotes.
fn one_line(why: &str) -> String {
    let mut lines = why.lines().map(str::trim).take_while(|line| !line.starts_with('<'));
    let first = lines.next().unwrap_or_default();
    match lines.filter(|line| first.ends_with(':') && !line.is_empty()).last() {
        Some(last) => format!("{first} {last}"),
        None => first.to_owned(),
    }
}

/// llguidance's message about an error, or `nothing` where it only means that nothing may follow.
fn message(error: &impl ToString, nothing: &str) -> String {
    let why = error.to_string();
    if why.to_lowercase().contains("error: ") { one_line(&why) } else { nothing.into() }
}

/// A grammar, and the state of a text in it.
pub struct Constraint {
    start: Matcher,
    /// The state after `text`.
    at: Matcher,
    text: Vec<u32>,
    /// Why the last question for allowed tokens failed, if it did.
    fault: Option<String>,
    about: About,
    shared: Arc<Tokens>,
}

/// For the message where a text cannot go on.
#[derive(Clone, Copy)]
struct About {
    what: &'static str,
    most_readings: usize,
}

impl Constraint {
    /// The same for another text, at its beginning.
    pub fn fresh(&self) -> Self {
        let (start, about, shared) = (self.start.deep_clone(), self.about, self.shared.clone());
        Constraint { at: start.deep_clone(), start, text: Vec::new(), fault: None, about, shared }
    }

    /// Moves to the state after `text`. False if the grammar does not allow this text.
    fn go_to(&mut self, text: &[u32]) -> bool {
        let common = std::iter::zip(&self.text, text).take_while(|(a, b)| a == b).count();
        let back = self.text.len() - common;
        self.text.truncate(common);
        if back > 0 && self.at.rollback(back).is_err() {
            self.begin_again();
        }
        for &token in &text[self.text.len()..] {
            match self.at.try_consume_tokens(&[token]) {
                Ok(1) => self.text.push(token),
                Ok(_) => return false,
                Err(error) => {
                    self.fails(&error);
                    return false;
                }
            }
        }
        true
    }

    /// Keeps the message of an error after the text so far.
    fn fails(&mut self, error: &impl ToString) {
        let About { what, most_readings } = self.about;
        let why = match message(error, "no token of this vocabulary may follow") {
            why if why.contains(TOO_MANY_READINGS) => {
                format!(
                    "it may be read in more than {most_readings} ways at once; write it so that a text has fewer readings"
                )
            }
            why => why,
        };
        let behind = count(self.text.len(), "token");
        self.fault = Some(refused(what, format!("it cannot be followed beyond {behind}: {why}")).to_string());
        self.begin_again();
    }

    /// After an error a matcher cannot be used any more.
    fn begin_again(&mut self) {
        self.at = self.start.deep_clone();
        self.text.clear();
    }

    /// The tokens that may follow; `None` where the text has ended or the grammar does not allow it.
    fn allowed(&mut self, text: &[u32]) -> Option<SimpleVob> {
        if text.iter().any(|token| self.shared.ends.contains(token)) || !self.go_to(text) {
            return None;
        }
        self.at.compute_mask_or_eos().inspect_err(|error| self.fails(error)).ok()
    }

    /// Bytes that have to follow; `None` where that is not known, now or later in this text. There may be more bytes: llguidance stops
    /// at its limits, and the matcher cannot be used then, so the text is gone through again.
    fn forced(&mut self, text: &[u32]) -> Option<Vec<u8>> {
        if text.iter().any(|token| self.shared.ends.contains(token)) {
            return None;
        }
        let is_there = self.go_to(text) || self.go_to(text);
        (is_there && !self.at.is_stopped()).then(|| self.at.compute_ff_bytes())
    }
}

impl Rule for Constraint {
    fn mask(&mut self, text: &[u32], logits: &mut [f32]) {
        self.fault = None;
        let allowed = self.allowed(text);
        let is_allowed = |id: u32| match &allowed {
            Some(mask) => (id as usize) < mask.len() && mask.is_allowed(id),
            None => self.shared.ends.contains(&id),
        };
        let kept: Vec<(u32, f32)> = match &allowed {
            Some(_) => {
                let twins = self.shared.twins.iter().filter(|(_, known)| is_allowed(*known));
                twins.map(|&(id, _)| (id, logits[id as usize])).collect()
            }
            None => Vec::new(),
        };
        for (id, logit) in (0..).zip(logits.iter_mut()) {
            if !is_allowed(id) {
                *logit = f32::NEG_INFINITY;
            }
        }
        kept.into_iter().for_each(|(id, logit)| logits[id as usize] = logit);
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}
