//! One answer while it is made: tokens become text, text ends at a stop string, and what is left is read.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::Arc,
    time::Instant,
};

use super::wire::{Likely, More, Reason, Settings, Timings, Whole, settings_json};
use crate::{
    Tokenizer,
    chat::{Answer, AnswerReader, Delta, Reading, Shown, StopStrings, Syntax},
    engine::{self, Ended},
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
    submitted: Instant,
    cached: usize,
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
        let stops = StopStrings::new(settings.stop.iter().cloned());
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
            submitted: Instant::now(),
            cached: 0,
            first: None,
            last: None,
        }
    }

    /// The prompt is being evaluated.
    pub fn begins(&mut self, cached: usize) {
        self.cached = cached;
    }

    /// Tokens of the prompt that were in the cache.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Milliseconds since it was submitted.
    pub fn ms(&self) -> f64 {
        self.submitted.elapsed().as_secs_f64() * 1e3
    }

    /// Whether a stop string has come.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The next token.
    pub fn token(&mut self, id: u32, drafted_by: Option<usize>, likely: &[(u32, f32)]) -> More {
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.tokens.push(id);
        self.accepted += usize::from(drafted_by.is_some());
        self.drafted.push(drafted_by);
        self.held.push(id);
        let mut more = More::default();
        if self.settings.logprobs.is_some() {
            let one = self.likely_of(id, None, likely);
            more.likely.push(one.clone());
            self.likely.push(one);
        }
        let hidden = self.tokenizer.is_control(id) && !self.shown.contains(&id);
        let piece = if hidden { String::new() } else { self.utf8.push(self.tokenizer.piece(id)) };
        self.shows(&piece, &mut more);
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
        let (text, deltas) = match self.stops.push(piece) {
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

    fn likely_of(&self, id: u32, known: Option<f32>, likely: &[(u32, f32)]) -> Likely {
        let bytes = |id: u32| self.tokenizer.piece(id).to_vec();
        let among = likely.iter().find(|(other, _)| *other == id).map(|(_, logprob)| *logprob);
        // The engine was asked for as many as the sampler chooses among. Where that is all of them, it does not say how
        // likely one is that is not among the best: no likelier than the last of these.
        let beyond = likely.last().map_or(f32::MIN, |(_, logprob)| *logprob);
        let most = self.settings.logprobs.unwrap_or(0);
        let top = likely.iter().take(most).map(|&(id, logprob)| (id, bytes(id), logprob)).collect();
        Likely { id, bytes: bytes(id), logprob: known.or(among).unwrap_or(beyond), top }
    }

    fn timings(&self) -> Timings {
        let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
        let first = self.first.unwrap_or_else(Instant::now);
        Timings {
            cached: self.cached,
            prompt: self.source.tokens.len().saturating_sub(self.cached),
            prompt_ms: ms(self.submitted, first),
            predicted: self.tokens.len(),
            predicted_ms: self.last.map_or(0.0, |last| ms(first, last)),
            drafted: 0,
            accepted: self.accepted,
            rounds: 0,
            passes: self.tokens.len() - self.accepted,
            speculation: None,
        }
    }

    /// The last pieces, and the whole. Without `ended` a stop string has ended it.
    pub fn ends(mut self, ended: Option<&Ended>) -> (More, Whole) {
        let mut more = More::default();
        if !self.is_stopped() {
            let rest = self.utf8.finish();
            self.shows(&rest, &mut more);
        }
        if !self.is_stopped() {
            let text = self.stops.finish();
            let mut deltas = self.reader.push(&text);
            deltas.extend(self.reader.finish());
            self.says(&text, deltas, &mut more);
        }
        self.lets_go(&mut more);
        let mut timings = self.timings();
        if let Some(ended) = ended {
            let drafting = &ended.report.drafting;
            (timings.drafted, timings.rounds) = (drafting.drafted, drafting.rounds);
            timings.speculation = Some(ended.report.to_json());
        }
        let stop = ended.map(|ended| ended.generation.stop);
        let reason = match (self.stopped.take(), stop) {
            (Some(word), _) => Reason::Stop(word),
            (None, Some(engine::Stop::EndOfText)) => Reason::End,
            (None, _) => Reason::Limit,
        };
        let mut prompt_likely = Vec::new();
        if let Some(ended) = ended.filter(|ended| !ended.scored.is_empty()) {
            let first = self.source.tokens.first().map(|id| self.likely_of(*id, Some(0.0), &[]));
            let rest = self.source.tokens.iter().skip(1).zip(&ended.scored);
            prompt_likely.extend(first);
            prompt_likely
                .extend(rest.map(|(id, score)| self.likely_of(*id, Some(score.logprob), &score.likely)));
        }
        let seed = self.settings.sampler.seed.map_or(0, u64::from);
        let whole = Whole {
            text: self.text,
            answer: self.answer,
            reason,
            tokens: self.tokens,
            likely: self.likely,
            prompt_likely,
            prompt: self.source.prompt.clone(),
            prompt_tokens: self.source.tokens.len(),
            truncated: stop == Some(engine::Stop::ContextFull),
            timings,
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
