//! OpenAI's completions, with logprobs in both shapes: the one that it had first, which evaluation harnesses read, and that of
//! chat completions.

use serde_json::{Map, Value, json};

use super::chat;
use crate::wire::{
    answer::{Frame, Header, Likely, More, Progress, Reason, Whole, text},
    ask::Settings,
};

/// What has been sent of all answers.
#[derive(Default)]
pub(super) struct Stream {
    /// For each answer where the text of its next token begins.
    offsets: Vec<usize>,
}

impl Stream {
    fn offset(&mut self, index: usize) -> &mut usize {
        if self.offsets.len() <= index {
            self.offsets.resize(index + 1, 0);
        }
        &mut self.offsets[index]
    }

    /// The prompt is the first piece of its answer.
    pub fn echoes(&mut self, header: &Header, index: usize, prompt: &str) -> Frame {
        *self.offset(index) += prompt.chars().count();
        Frame::plain(base(header, json!([choice(prompt, index, Value::Null, Value::Null)])))
    }

    pub fn more(&mut self, header: &Header, index: usize, more: &More, post: bool) -> Frame {
        let logprobs = match more.likely.is_empty() {
            true => Value::Null,
            false => logprobs(&more.likely, false, self.offset(index), post),
        };
        let mut body = base(header, json!([choice(&more.text, index, logprobs, Value::Null)]));
        chat::drafted(&mut body, more);
        if let Some(timings) = &more.timings {
            body["timings"] = timings.to_json();
        }
        Frame::plain(body)
    }
}

fn base(header: &Header, choices: Value) -> Value {
    json!({
        "choices": choices,
        "created": header.created,
        "id": format!("cmpl-{}", header.id),
        "model": header.model,
        "system_fingerprint": header.fingerprint,
        "object": "text_completion",
    })
}

fn choice(text: &str, index: usize, logprobs: Value, reason: Value) -> Value {
    json!({ "text": text, "index": index, "logprobs": logprobs, "finish_reason": reason })
}

pub(super) fn progress(header: &Header, index: usize, progress: &Progress) -> Frame {
    let mut body = base(header, json!([choice("", index, Value::Null, Value::Null)]));
    progress.add_to(&mut body);
    Frame::plain(body)
}

fn reason(whole: &Whole) -> &'static str {
    match whole.reason {
        Reason::Limit => "length",
        Reason::End | Reason::Stop(_) => "stop",
    }
}

pub(super) fn ended(header: &Header, index: usize, whole: &Whole) -> Frame {
    let mut body = base(header, json!([choice("", index, Value::Null, reason(whole).into())]));
    whole.add_report(&mut body);
    Frame::plain(body)
}

pub(super) fn usage(header: &Header, all: &[Whole]) -> Frame {
    let mut body = base(header, json!([]));
    body["usage"] = Whole::usage(all);
    body["timings"] = all.first().map_or(Value::Null, |whole| whole.timings.to_json());
    Frame::plain(body)
}

pub(super) fn whole(header: &Header, all: &[Whole], settings: &Settings) -> Value {
    let choices = all.iter().enumerate().map(|(index, whole)| {
        let (mut text, mut likely) = (String::new(), Vec::new());
        if settings.echo {
            text.push_str(&whole.prompt);
            likely.extend_from_slice(&whole.prompt_likely);
        }
        text.push_str(&whole.text);
        likely.extend_from_slice(&whole.likely);
        // Who asks for one token behind a prompt and takes the last entry for it would miss one of the prompt's.
        if settings.echo {
            likely.extend(whole.end_likely.clone());
        }
        let logprobs = match settings.logprobs {
            Some(_) => logprobs(&likely, settings.echo, &mut 0, settings.post_sampling),
            None => Value::Null,
        };
        choice(&text, index, logprobs, reason(whole).into())
    });
    let mut body = base(header, choices.collect());
    body["usage"] = Whole::usage(all);
    if let Some(first) = all.first() {
        first.add_report(&mut body);
    }
    body
}

/// The first token of a prompt has nothing before it, so nothing says how likely it is. The texts begin `at`, which is moved on.
fn logprobs(likely: &[Likely], first_is_unknown: bool, at: &mut usize, post: bool) -> Value {
    let (mut tokens, mut values, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (n, one) in likely.iter().enumerate() {
        let text = token(&one.bytes);
        let known = n > 0 || !first_is_unknown;
        offsets.push(*at);
        *at += text.chars().count();
        tokens.push(text);
        values.push(if known { json!(one.logprob.max(f32::MIN)) } else { Value::Null });
        let mut top = Map::new();
        for (_, bytes, logprob) in &one.top {
            // Of tokens with the same text there is room for the first, which is the likeliest.
            top.entry(token(bytes)).or_insert_with(|| json!(logprob.max(f32::MIN)));
        }
        tops.push(if known { Value::Object(top) } else { Value::Null });
    }
    let mut json =
        json!({ "tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets });
    json["content"] = chat::logprobs(likely, post)["content"].take();
    json
}

/// Tokens that are no text by themselves have to be told apart.
fn token(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let hex = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}{}", text(&[]), hex.collect::<String>())
        }
    }
}
