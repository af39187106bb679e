//! One answer while it is made: tokens become text, text ends at a stop string, and what is left is read.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::Arc,
    time::Instant,
};

use super::wire::{Likely, More, Progress, Reason, Settings, Timings, Whole, settings_json};
use crate::{
    Tokenizer,
    chat::{Answer, AnswerReader, Delta, Reading, Shown, StopStrings, Syntax},
    engine::{self, Ended, TokenScore},
    speculation::Token,
    tokenizer::Utf8,
};

/// What is the same for all answers to one input.
#[derive(Clone)]
pub struct Source {
    /// The prompt as text.
    pub prompt: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// How the answer is read.
    pub syntax: Syntax,
    /// Tools that may be called.
    pub tools: Vec<crate::chat::Tool>,
    /// Takes what the model thinks out of the text.
    pub reasoning: bool,
    /// The prompt has begun what the model thinks.
    pub thinking: bool,
    /// Texts with which the model ends its answer where it has no token for that.
    pub ends: Vec<String>,
}

/// An answer in the making.
pub struct Choice {
    tokenizer: Arc<Tokenizer>,
    settings: Settings,
    source: Arc<Source>,
    /// Control tokens that the reader has to see.
    shown: Vec<u32>,
    utf8: Utf8,
    stops: StopStrings,
    reader: AnswerReader,
    answer: Answer,
    text: String,
    tokens: Vec<u32>,
    likely: Vec<Likely>,
    stopped: Option<String>,
    /// Tokens whose text is still held back, and who drafted them.
    held: Vec<u32>,
    drafted: Vec<Option<usize>>,
    accepted: usize,
    /// When the prompt began to be evaluated.
    began: Option<Instant>,
    slot: usize,
    cached: usize,
    /// Tokens of the prompt that are evaluated, or were in the cache.
    evaluated: usize,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Choice {
    /// An answer to this.
    pub fn new(tokenizer: Arc<Tokenizer>, settings: Settings, source: Arc<Source>) -> Self {
        let one = |text: &str| {
            let ids = tokenizer
                .encode(text, crate::tokenizer::EncodeOptions { add_special: false, parse_special: true });
            ids.first().copied().filter(|id| ids.len() == 1 && tokenizer.is_control(*id))
        };
        // A marker may be a control token and a word.
        let words = |text: &str| text.find('>').map_or(text.len(), |at| at + 1);
        let markers = source.syntax.markers().into_iter();
        let shown =
            markers.filter_map(|marker| one(marker).or_else(|| one(&marker[..words(marker)]))).collect();
        let Source { syntax, ref tools, reasoning, thinking, .. } = *source;
        let reader = AnswerReader::new(Reading { syntax, tools, reasoning, thinking });
        let stops = StopStrings::new(settings.stop.iter().chain(&source.ends).cloned());
        Choice {
            tokenizer,
            settings,
            source,
            shown,
            utf8: Utf8::default(),
            stops,
            reader,
            answer: Answer::default(),
            text: String::new(),
            tokens: Vec::new(),
            likely: Vec::new(),
            stopped: None,
            held: Vec::new(),
            drafted: Vec::new(),
            accepted: 0,
            began: None,
            slot: 0,
            cached: 0,
            evaluated: 0,
            first: None,
            last: None,
        }
    }

    /// The prompt is being evaluated; nothing is to be said of one that had to begin again.
    pub fn begins(&mut self, cached: usize, slot: usize) -> Option<Progress> {
        self.slot = slot;
        if self.began.is_some() {
            return None;
        }
        self.began = Some(Instant::now());
        (self.cached, self.evaluated) = (cached, cached);
        let total = self.source.tokens.len();
        let timings = self.settings.timings_per_token.then(Timings::default);
        let timings = timings.map(|timings| Timings { cached, ..timings });
        Some(Progress { total, cached, processed: cached, ms: 0.0, timings })
    }

    /// More of the prompt is evaluated; nothing where that was so before, and the text had to begin again.
    pub fn evaluated(&mut self, tokens: usize) -> Option<Progress> {
        if tokens <= self.evaluated {
            return None;
        }
        self.evaluated = tokens;
        let timings = self.timings();
        Some(Progress {
            total: self.source.tokens.len(),
            cached: self.cached,
            processed: tokens,
            ms: timings.prompt_ms,
            timings: self.settings.timings_per_token.then_some(timings),
        })
    }

    /// The prompt as text.
    pub fn prompt(&self) -> &str {
        &self.source.prompt
    }

    /// Whether a stop string has come.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The next token.
    pub fn token(&mut self, token: Token, score: Option<&TokenScore>) -> More {
        let Token { id, drafted_by } = token;
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.tokens.push(id);
        self.accepted += usize::from(drafted_by.is_some());
        self.drafted.push(drafted_by);
        self.held.push(id);
        let mut more = More::default();
        if let Some(score) = score.filter(|_| self.settings.logprobs.is_some()) {
            let one = self.likely_of(id, score);
            more.likely.push(one.clone());
            self.likely.push(one);
        }
        let hidden = self.tokenizer.is_control(id) && !self.shown.contains(&id);
        let piece = if hidden { String::new() } else { self.utf8.push(self.tokenizer.piece(id)) };
        self.shows(&piece, &mut more);
        more.slot = self.slot;
        self.lets_go(&mut more);
        if self.settings.timings_per_token {
            more.timings = Some(self.timings());
        }
        more
    }

    /// The tokens of what is shown now.
    fn lets_go(&mut self, more: &mut More) {
        if !more.text.is_empty() || !more.likely.is_empty() {
            more.tokens = std::mem::take(&mut self.held);
            more.drafted = std::mem::take(&mut self.drafted);
        }
    }

    fn shows(&mut self, piece: &str, more: &mut More) {
        let shown = self.stops.push(piece);
        self.takes(shown, more);
    }

    fn takes(&mut self, shown: Shown, more: &mut More) {
        let (text, deltas) = match shown {
            Shown::More(text) => {
                let deltas = self.reader.push(&text);
                (text, deltas)
            }
            Shown::Stop { text, word } => {
                let mut deltas = self.reader.push(&text);
                deltas.extend(self.reader.finish());
                self.stopped = Some(word);
                (text, deltas)
            }
        };
        self.says(&text, deltas, more);
    }

    fn says(&mut self, text: &str, deltas: Vec<Delta>, more: &mut More) {
        self.text.push_str(text);
        more.text.push_str(text);
        for delta in deltas {
            let delta = match delta {
                Delta::Call { index, id, name } => {
                    Delta::Call { index, id: Some(id.unwrap_or_else(call_id)), name }
                }
                Delta::Reasoning(_) | Delta::Content(_) | Delta::Arguments { .. } => delta,
            };
            self.answer.add(&delta);
            more.deltas.push(delta);
        }
    }

    fn likely_of(&self, id: u32, score: &TokenScore) -> Likely {
        let bytes = |id: u32| self.tokenizer.piece(id).to_vec();
        let most = self.settings.logprobs.unwrap_or(0);
        let top = score.likely.iter().take(most).map(|&(id, logprob)| (id, bytes(id), logprob)).collect();
        Likely { id, bytes: bytes(id), logprob: score.logprob, top }
    }

    /// How it went so far.
    pub fn timings(&self) -> Timings {
        let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        Timings {
            cached: self.cached,
            prompt: self.evaluated - self.cached,
            prompt_ms: ms(self.began.unwrap_or(first), first),
            predicted: self.tokens.len(),
            predicted_ms: self.last.map_or(0.0, |last| ms(first, last)),
            drafted: 0,
            accepted: self.accepted,
        }
    }

    /// The last pieces, and the whole.
    pub fn ends(mut self, ended: &Ended) -> (More, Whole) {
        let mut more = More::default();
        if !self.is_stopped() {
            let rest = self.utf8.finish();
            self.shows(&rest, &mut more);
        }
        if !self.is_stopped() {
            let rest = self.stops.finish();
            self.takes(rest, &mut more);
        }
        if !self.is_stopped() {
            let deltas = self.reader.finish();
            self.says("", deltas, &mut more);
        }
        self.lets_go(&mut more);
        let mut timings = self.timings();
        timings.drafted = ended.report.drafting.drafted;
        let stop = ended.generation.stop;
        let reason = match (self.stopped.take(), stop) {
            (Some(word), _) if self.settings.stop.contains(&word) => Reason::Stop(word),
            (Some(_), _) => Reason::End,
            (None, engine::Stop::EndOfText) => Reason::End,
            (None, engine::Stop::MaxTokens | engine::Stop::ContextFull | engine::Stop::Interrupted) => {
                Reason::Limit
            }
        };
        let mut prompt_likely = Vec::new();
        if self.settings.echo && self.settings.logprobs.is_some() {
            // Nothing is before the first one, which may be the only one.
            let unknown = TokenScore { logprob: 0.0, likely: Vec::new() };
            let scores = std::iter::once(&unknown).chain(&ended.scored);
            prompt_likely
                .extend(self.source.tokens.iter().zip(scores).map(|(id, score)| self.likely_of(*id, score)));
        }
        // Whether the engine came to the end before it was told of the stop string is chance.
        let end = ended.generation.end.as_ref().filter(|_| !matches!(reason, Reason::Stop(_)));
        let end_likely = end.map(|(id, score)| self.likely_of(*id, score));
        let seed = self.settings.sampler.seed.map_or(0, u64::from);
        let whole = Whole {
            text: self.text,
            answer: self.answer,
            reason,
            tokens: self.tokens,
            likely: self.likely,
            prompt_likely,
            end_likely,
            prompt: self.source.prompt.clone(),
            prompt_tokens: self.source.tokens.len(),
            truncated: stop == engine::Stop::ContextFull || ended.shifted,
            timings,
            speculation: self.settings.speculation.then(|| ended.report.to_json()),
            slot: self.slot,
            seed,
            settings: settings_json(&self.settings, seed),
        };
        (more, whole)
    }
}

/// An id for a call: nine letters and digits, which is what Mistral's templates want.
fn call_id() -> String {
    random(9)
}

/// A number by chance: each hasher of the standard library begins with another one.
fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Letters and digits by chance.
pub fn random(len: usize) -> String {
    const ALL: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut number = 0u64;
    let digit = |n: usize| {
        if n.is_multiple_of(5) {
            number = chance();
        }
        let digit = ALL[(number % 62) as usize];
        number /= 62;
        char::from(digit)
    };
    (0..len).map(digit).collect()
}
