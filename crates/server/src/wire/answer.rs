//! What becomes known of an answer, whichever way it is then said.

use serde_json::{Map, Value, json};

use crate::chat::{Answer, Delta};

/// A token and what else was likely in its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Likely {
    /// The token.
    pub id: u32,
    /// What it stands for, perhaps half a character.
    pub bytes: Vec<u8>,
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest ones.
    pub top: Vec<(u32, Vec<u8>, f32)>,
}

/// How long what took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timings {
    /// Tokens of the prompt that were in the cache.
    pub cached: usize,
    /// Tokens of the prompt that were evaluated.
    pub prompt: usize,
    /// Milliseconds for these, up to the first token of the answer.
    pub prompt_ms: f64,
    /// Tokens of the answer.
    pub predicted: usize,
    /// Milliseconds from the first of them to the last.
    pub predicted_ms: f64,
    /// Tokens that were drafted.
    pub drafted: usize,
    /// Of these, tokens of the answer.
    pub accepted: usize,
}

/// Why an answer has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model ended it.
    End,
    /// A text came that ends it.
    Stop(String),
    /// As many tokens as were asked for, or there is no more room.
    Limit,
}

/// More of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct More {
    /// The text as the model wrote it, without what ends it.
    pub text: String,
    /// What it means.
    pub deltas: Vec<Delta>,
    /// The tokens that it is made of.
    pub tokens: Vec<u32>,
    /// How likely these are, if that was asked for.
    pub likely: Vec<Likely>,
    /// For each token who drafted it, as an index into the sources; nobody if it was not drafted.
    pub drafted: Vec<Option<usize>>,
    /// So far, if that was asked for.
    pub timings: Option<Timings>,
    /// Where it is made.
    pub slot: usize,
}

/// How far the evaluation of a prompt is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Tokens of the prompt.
    pub total: usize,
    /// Of these, in the cache before.
    pub cached: usize,
    /// Of these, evaluated or in the cache.
    pub processed: usize,
    /// Since it began.
    pub ms: f64,
    /// So far, if that was asked for.
    pub timings: Option<Timings>,
}

impl Progress {
    /// Adds it to what is sent.
    pub(super) fn add_to(&self, body: &mut Value) {
        let Progress { total, cached, processed, ms, timings } = self;
        body["prompt_progress"] =
            json!({ "total": total, "cache": cached, "processed": processed, "time_ms": ms });
        if let Some(timings) = timings {
            body["timings"] = timings.to_json();
        }
    }
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// The text as the model wrote it, without what ends it.
    pub text: String,
    /// What it means.
    pub answer: Answer,
    /// Why it has ended.
    pub reason: Reason,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// How likely they are, if that was asked for.
    pub likely: Vec<Likely>,
    /// The same of the prompt, whose first token has nothing before it.
    pub prompt_likely: Vec<Likely>,
    /// The same of the token that ended the text and is no part of it.
    pub end_likely: Option<Likely>,
    /// The prompt as text.
    pub prompt: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// There was no more room, or a part of the text was dropped to make room.
    pub truncated: bool,
    /// How long it took.
    pub timings: Timings,
    /// What speculation gave, by source, if that was asked for.
    pub speculation: Option<Value>,
    /// Where the text was made.
    pub slot: usize,
    /// With it the answer can be had again.
    pub seed: u64,
    /// The settings, as llama-server shows them.
    pub settings: Value,
}

/// What all answers to a request have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Names the answer; without a prefix.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model.
    pub model: String,
    /// Which program it is.
    pub fingerprint: String,
}

/// Something that is sent while an answer is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The kind of event, where the shape has kinds.
    pub event: Option<&'static str>,
    /// What is said.
    pub data: Value,
}

impl Frame {
    pub(super) fn plain(data: Value) -> Self {
        Frame { event: None, data }
    }

    /// An event whose data name it, too.
    pub(super) fn named(event: &'static str, data: Value) -> Self {
        let mut named = json!({ "type": event });
        for (key, value) in data.as_object().into_iter().flatten() {
            named[key] = value.clone();
        }
        Frame { event: Some(event), data: named }
    }

    /// As server-sent events have it.
    pub fn text(&self) -> String {
        let event = self.event.map_or(String::new(), |event| format!("event: {event}\n"));
        format!("{event}data: {}\n\n", self.data)
    }
}

impl Timings {
    /// As llama-server has them: numbers, and nothing else.
    pub fn to_json(&self) -> Value {
        let per_token = |ms: f64, n: usize| if n == 0 { 0.0 } else { ms / n as f64 };
        let per_second = |ms: f64, n: usize| if ms > 0.0 { n as f64 * 1e3 / ms } else { 0.0 };
        // The first token comes of the prompt's evaluation.
        let steps = self.predicted.saturating_sub(1);
        let mut json = json!({
            "cache_n": self.cached,
            "prompt_n": self.prompt,
            "prompt_ms": self.prompt_ms,
            "prompt_per_token_ms": per_token(self.prompt_ms, self.prompt),
            "prompt_per_second": per_second(self.prompt_ms, self.prompt),
            "predicted_n": self.predicted,
            "predicted_ms": self.predicted_ms,
            "predicted_per_token_ms": per_token(self.predicted_ms, steps),
            "predicted_per_second": per_second(self.predicted_ms, steps),
        });
        if self.drafted > 0 {
            json["draft_n"] = self.drafted.into();
            json["draft_n_accepted"] = self.accepted.into();
        }
        json
    }
}

impl Likely {
    /// As in chat completions, with more. `post` says that these are probabilities after all samplers.
    pub fn to_json(&self, post: bool) -> Value {
        let (one, all) = if post { ("prob", "top_probs") } else { ("logprob", "top_logprobs") };
        let entry = |id: u32, bytes: &[u8], logprob: f32| {
            let mut json = Map::new();
            json.insert("id".into(), id.into());
            json.insert("token".into(), text(bytes).into());
            json.insert("bytes".into(), bytes.into());
            // JSON has no infinity.
            let value = if post { logprob.exp() } else { logprob.max(f32::MIN) };
            json.insert(one.into(), value.into());
            json
        };
        let mut json = entry(self.id, &self.bytes, self.logprob);
        let top = self.top.iter().map(|(id, bytes, logprob)| Value::Object(entry(*id, bytes, *logprob)));
        json.insert(all.into(), top.collect());
        json.into()
    }
}

/// What of a token's bytes is text by itself.
pub(super) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(error) => String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned(),
    }
}

impl Whole {
    /// Adds what is said of how it was made, in all shapes that say it.
    pub(super) fn add_report(&self, body: &mut Value) {
        body["timings"] = self.timings.to_json();
        if let Some(speculation) = &self.speculation {
            body["speculation"] = speculation.clone();
        }
        body["seed"] = self.seed.into();
    }

    /// As all of OpenAI's answers count tokens.
    pub fn usage(all: &[Whole]) -> Value {
        let sum = |count: fn(&Whole) -> usize| all.iter().map(count).sum::<usize>();
        // Answers to the same prompt evaluate it once.
        let prompt = all.first().map_or(0, |one| one.prompt_tokens);
        let prompts = if all.iter().all(|one| one.prompt == all[0].prompt) {
            prompt
        } else {
            sum(|one| one.prompt_tokens)
        };
        let (completion, cached) =
            (sum(|one| one.timings.predicted), all.first().map_or(0, |one| one.timings.cached));
        json!({
            "completion_tokens": completion,
            "prompt_tokens": prompts,
            "total_tokens": completion + prompts,
            "prompt_tokens_details": { "cached_tokens": cached },
        })
    }
}
