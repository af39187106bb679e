//! OpenAI's chat completions.

use serde_json::{Map, Value, json};

use crate::{
    chat::Delta,
    wire::{
        answer::{Frame, Header, Likely, More, Progress, Reason, Whole},
        ask::Settings,
    },
};

/// Which answers have begun.
#[derive(Default)]
pub(super) struct Stream {
    begun: Vec<usize>,
}

impl Stream {
    pub fn begins(&mut self, header: &Header, index: usize, sources: &[String]) -> Vec<Frame> {
        if self.begun.contains(&index) {
            return Vec::new();
        }
        self.begun.push(index);
        let mut first = chunk(header, index, json!({ "role": "assistant", "content": null }), Value::Null);
        if !sources.is_empty() {
            first.data["sources"] = json!(sources);
        }
        vec![first]
    }
}

fn base(header: &Header, object: &str, choices: Value) -> Value {
    json!({
        "choices": choices,
        "created": header.created,
        "id": format!("chatcmpl-{}", header.id),
        "model": header.model,
        "system_fingerprint": header.fingerprint,
        "object": object,
    })
}

fn chunk(header: &Header, index: usize, delta: Value, reason: Value) -> Frame {
    let choice = json!({ "finish_reason": reason, "index": index, "delta": delta });
    Frame::plain(base(header, "chat.completion.chunk", json!([choice])))
}

pub(super) fn progress(header: &Header, index: usize, progress: &Progress) -> Frame {
    let mut frame = chunk(header, index, json!({ "role": "assistant", "content": null }), Value::Null);
    progress.add_to(&mut frame.data);
    frame
}

fn delta(delta: &Delta) -> Value {
    match delta {
        Delta::Reasoning(text) => json!({ "reasoning_content": text }),
        Delta::Content(text) => json!({ "content": text }),
        Delta::Call { index, id, name } => json!({ "tool_calls": [{
            "index": index,
            "id": id,
            "type": "function",
            "function": { "name": name, "arguments": "" },
        }] }),
        Delta::Arguments { index, text } => {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] })
        }
    }
}

pub(super) fn logprobs(likely: &[Likely], post: bool) -> Value {
    let content: Vec<Value> = likely.iter().map(|one| one.to_json(post)).collect();
    json!({ "content": content })
}

pub(super) fn more(header: &Header, index: usize, more: &More, post: bool) -> Vec<Frame> {
    let mut frames: Vec<Frame> =
        more.deltas.iter().map(|one| chunk(header, index, delta(one), Value::Null)).collect();
    // How likely a token is has to be said although its text is still held back.
    if frames.is_empty() && !more.likely.is_empty() {
        frames.push(chunk(header, index, json!({ "content": "" }), Value::Null));
    }
    if let Some(last) = frames.last_mut() {
        if !more.likely.is_empty() {
            last.data["choices"][0]["logprobs"] = logprobs(&more.likely, post);
        }
        drafted(&mut last.data, more);
        if let Some(timings) = &more.timings {
            last.data["timings"] = timings.to_json();
        }
    }
    frames
}

/// Who drafted the tokens, and how long their texts are, in the units of a browser. Those whose text was held back have none.
pub(super) fn drafted(data: &mut Value, more: &More) {
    if more.drafted.is_empty() {
        return;
    }
    let delta = &data["choices"][0]["delta"];
    let texts = [&delta["reasoning_content"], &delta["content"], &data["choices"][0]["text"]];
    let units = texts.iter().filter_map(|text| text.as_str()).map(|text| text.encode_utf16().count()).sum();
    let mut pieces = vec![0; more.drafted.len() - 1];
    pieces.push(units);
    data["drafted"] = json!(more.drafted);
    data["pieces"] = json!(pieces);
}

fn reason(whole: &Whole) -> &'static str {
    match whole.reason {
        Reason::Limit => "length",
        Reason::End | Reason::Stop(_) if whole.answer.calls.is_empty() => "stop",
        Reason::End | Reason::Stop(_) => "tool_calls",
    }
}

pub(super) fn ended(header: &Header, index: usize, whole: &Whole) -> Frame {
    let mut frame = chunk(header, index, json!({}), reason(whole).into());
    whole.add_report(&mut frame.data);
    frame
}

pub(super) fn usage(header: &Header, all: &[Whole]) -> Frame {
    let mut body = base(header, "chat.completion.chunk", json!([]));
    body["usage"] = Whole::usage(all);
    body["timings"] = all.first().map_or(Value::Null, |whole| whole.timings.to_json());
    Frame::plain(body)
}

pub(super) fn whole(header: &Header, all: &[Whole], settings: &Settings) -> Value {
    let choices = all.iter().enumerate().map(|(index, whole)| {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        let answer = &whole.answer;
        let content = match answer.content.as_str() {
            "" if !answer.calls.is_empty() => Value::Null,
            text => text.into(),
        };
        message.insert("content".into(), content);
        if !answer.reasoning.is_empty() {
            message.insert("reasoning_content".into(), answer.reasoning.as_str().into());
        }
        if !answer.calls.is_empty() {
            message.insert("tool_calls".into(), answer.calls.iter().map(|call| call.to_json()).collect());
        }
        let mut choice = json!({ "finish_reason": reason(whole), "index": index, "message": message });
        if settings.logprobs.is_some() {
            choice["logprobs"] = logprobs(&whole.likely, settings.post_sampling);
        }
        choice
    });
    let mut body = base(header, "chat.completion", choices.collect());
    body["usage"] = Whole::usage(all);
    if let Some(first) = all.first() {
        first.add_report(&mut body);
    }
    body
}
