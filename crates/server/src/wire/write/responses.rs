//! OpenAI's responses: items that begin, grow and end.

use serde_json::{Value, json};

use crate::{
    chat::{Answer, Delta},
    wire::answer::{Frame, Header, More, Progress, Reason, Whole},
};

pub(super) struct Stream {
    id: String,
    begun: bool,
    sequence: u64,
    /// What has been said so far.
    answer: Answer,
    /// The items in the order in which they began; the last one may still grow.
    items: Vec<Item>,
}

#[derive(Clone, Copy, PartialEq)]
enum Item {
    Reasoning,
    Message,
    Call(usize),
}

impl Stream {
    pub fn new(header: &Header) -> Self {
        Stream {
            id: header.id.clone(),
            begun: false,
            sequence: 0,
            answer: Answer::default(),
            items: Vec::new(),
        }
    }

    fn frame(&mut self, event: &'static str, mut data: Value) -> Frame {
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        Frame::named(event, data)
    }

    pub fn begins(&mut self, header: &Header) -> Vec<Frame> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        let response = body(header, "in_progress", &[], Value::Null);
        let data = json!({ "response": response });
        vec![self.frame("response.created", data.clone()), self.frame("response.in_progress", data)]
    }

    pub fn progress(&mut self, progress: &Progress) -> Frame {
        let response =
            json!({ "id": format!("resp_{}", self.id), "object": "response", "status": "in_progress" });
        let mut data = json!({ "response": response });
        progress.add_to(&mut data);
        self.frame("response.in_progress", data)
    }

    pub fn more(&mut self, more: &More) -> Vec<Frame> {
        let mut frames = Vec::new();
        for delta in &more.deltas {
            let item = match delta {
                Delta::Reasoning(_) => Item::Reasoning,
                Delta::Content(_) => Item::Message,
                Delta::Call { index, .. } | Delta::Arguments { index, .. } => Item::Call(*index),
            };
            self.answer.add(delta);
            if !self.items.contains(&item) {
                frames.extend(self.ends_last("completed"));
                self.items.push(item);
                frames.extend(self.begins_item(item));
            }
            let mut data = self.location(item);
            let (event, delta) = match delta {
                Delta::Reasoning(text) => ("response.reasoning_text.delta", text),
                Delta::Content(text) => ("response.output_text.delta", text),
                Delta::Arguments { text, .. } => ("response.function_call_arguments.delta", text),
                Delta::Call { .. } => continue,
            };
            data["delta"] = delta.as_str().into();
            frames.push(self.frame(event, data));
        }
        if let (Some(last), Some(timings)) = (frames.last_mut(), &more.timings) {
            last.data["timings"] = timings.to_json();
        }
        frames
    }

    /// The fields that say which item an event is about.
    fn location(&self, item: Item) -> Value {
        let index = self.items.iter().position(|known| *known == item);
        let mut location = json!({ "item_id": self.item_id(item), "output_index": index });
        if !matches!(item, Item::Call(_)) {
            location["content_index"] = 0.into();
        }
        location
    }

    fn item_id(&self, item: Item) -> String {
        match item {
            Item::Reasoning => format!("rs_{}", self.id),
            Item::Message => format!("msg_{}", self.id),
            Item::Call(index) => format!("fc_{}_{index}", self.id),
        }
    }

    fn begins_item(&mut self, item: Item) -> Vec<Frame> {
        let mut json = self.json(item, "in_progress");
        if let Item::Reasoning | Item::Message = item {
            json["content"] = json!([]);
        }
        if let Item::Call(_) = item {
            json["arguments"] = "".into();
        }
        let index = self.items.len() - 1;
        let mut frames =
            vec![self.frame("response.output_item.added", json!({ "output_index": index, "item": json }))];
        if item == Item::Message {
            let mut data = self.location(item);
            data["part"] = json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] });
            frames.push(self.frame("response.content_part.added", data));
        }
        frames
    }

    fn ends_last(&mut self, status: &str) -> Vec<Frame> {
        let Some(item) = self.items.last().copied() else { return Vec::new() };
        let json = self.json(item, status);
        let mut frames = Vec::new();
        let location = self.location(item);
        let with = |key: &str, value: &Value| {
            let mut data = location.clone();
            data[key] = value.clone();
            data
        };
        match item {
            Item::Reasoning => {
                frames.push(
                    self.frame("response.reasoning_text.done", with("text", &json["content"][0]["text"])),
                );
            }
            Item::Message => {
                let part = json["content"][0].clone();
                frames.push(self.frame("response.output_text.done", with("text", &part["text"])));
                frames.push(self.frame("response.content_part.done", with("part", &part)));
            }
            Item::Call(_) => {
                let data = with("arguments", &json["arguments"]);
                frames.push(self.frame("response.function_call_arguments.done", data));
            }
        }
        let index = self.items.len() - 1;
        let data = json!({ "output_index": index, "item": json });
        frames.push(self.frame("response.output_item.done", data));
        frames
    }

    fn json(&self, item: Item, status: &str) -> Value {
        item_json(item, &self.item_id(item), &self.answer, status)
    }

    /// What an answer consists of; only the last item may have been cut.
    fn output(&self, items: &[Item], whole: &Whole) -> Vec<Value> {
        let last = items.len().saturating_sub(1);
        let status = |n: usize| if n == last { status(whole) } else { "completed" };
        items.iter().enumerate().map(|(n, item)| self.json(*item, status(n))).collect()
    }

    pub fn ended(&mut self, header: &Header, whole: &Whole) -> Vec<Frame> {
        let mut frames = self.ends_last(status(whole));
        let output = self.output(&self.items, whole);
        let response = finished(header, &output, whole);
        let mut data = json!({ "response": response });
        whole.add_report(&mut data);
        // As in llama-server also where it was cut, which the status in it says.
        frames.push(self.frame("response.completed", data));
        frames
    }
}

fn status(whole: &Whole) -> &'static str {
    match whole.reason {
        Reason::Limit => "incomplete",
        Reason::End | Reason::Stop(_) => "completed",
    }
}

fn item_json(item: Item, id: &str, answer: &Answer, status: &str) -> Value {
    match item {
        Item::Reasoning => json!({
            "id": id,
            "type": "reasoning",
            "summary": [],
            "content": [{ "type": "reasoning_text", "text": answer.reasoning }],
            "encrypted_content": "",
            "status": status,
        }),
        Item::Message => json!({
            "id": id,
            "type": "message",
            "role": "assistant",
            "content": [{ "type": "output_text", "text": answer.content, "annotations": [], "logprobs": [] }],
            "status": status,
        }),
        Item::Call(index) => {
            let call = answer.calls.get(index).cloned().unwrap_or_default();
            json!({
                "id": id,
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "status": status,
            })
        }
    }
}

fn body(header: &Header, status: &str, output: &[Value], usage: Value) -> Value {
    json!({
        "id": format!("resp_{}", header.id),
        "object": "response",
        "created_at": header.created,
        "model": header.model,
        "status": status,
        "output": output,
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "tools": [],
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": {},
        "usage": usage,
    })
}

fn finished(header: &Header, output: &[Value], whole: &Whole) -> Value {
    let (input, made) = (whole.prompt_tokens, whole.timings.predicted);
    let usage = json!({
        "input_tokens": input,
        "output_tokens": made,
        "total_tokens": input + made,
        "input_tokens_details": { "cached_tokens": whole.timings.cached },
        "output_tokens_details": { "reasoning_tokens": 0 },
    });
    let mut body = body(header, status(whole), output, usage);
    if whole.reason == Reason::Limit {
        body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    }
    body
}

pub(super) fn whole(header: &Header, whole: &Whole) -> Value {
    let stream = Stream { answer: whole.answer.clone(), ..Stream::new(header) };
    let mut items = Vec::new();
    if !whole.answer.reasoning.is_empty() {
        items.push(Item::Reasoning);
    }
    if !whole.answer.content.is_empty() || whole.answer.calls.is_empty() {
        items.push(Item::Message);
    }
    items.extend((0..whole.answer.calls.len()).map(Item::Call));
    let mut body = finished(header, &stream.output(&items, whole), whole);
    body["completed_at"] = header.created.into();
    body
}
