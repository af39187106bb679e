//! Anthropic's messages: blocks that begin, grow and end.

use serde_json::{Value, json};

use crate::{
    chat::Delta,
    wire::answer::{Frame, Header, More, Reason, Whole},
};

#[derive(Default)]
pub(super) struct Stream {
    begun: bool,
    /// What the open block is for.
    open: Option<Block>,
    /// Blocks that have begun.
    blocks: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Block {
    Thinking,
    Text,
    Call(usize),
}

impl Stream {
    pub fn begins(&mut self, header: &Header, prompt_tokens: usize, cached: usize) -> Vec<Frame> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        let message = json!({
            "id": format!("msg_{}", header.id),
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": header.model,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": {
                "cache_read_input_tokens": cached,
                "input_tokens": prompt_tokens - cached.min(prompt_tokens),
                "output_tokens": 0,
            },
        });
        vec![Frame::named("message_start", json!({ "message": message }))]
    }

    pub fn more(&mut self, more: &More) -> Vec<Frame> {
        let mut frames = Vec::new();
        for delta in &more.deltas {
            let (block, delta) = match delta {
                Delta::Reasoning(text) => {
                    (Block::Thinking, json!({ "type": "thinking_delta", "thinking": text }))
                }
                Delta::Content(text) => (Block::Text, json!({ "type": "text_delta", "text": text })),
                Delta::Call { index, id, name } => {
                    let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                    frames.extend(self.begins_block(Block::Call(*index), block));
                    continue;
                }
                Delta::Arguments { index, text } => {
                    (Block::Call(*index), json!({ "type": "input_json_delta", "partial_json": text }))
                }
            };
            if self.open != Some(block) {
                let empty = match block {
                    Block::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
                    Block::Text | Block::Call(_) => json!({ "type": "text", "text": "" }),
                };
                frames.extend(self.begins_block(block, empty));
            }
            frames.push(self.delta(delta));
        }
        frames
    }

    fn delta(&self, delta: Value) -> Frame {
        let index = self.blocks.saturating_sub(1);
        Frame::named("content_block_delta", json!({ "index": index, "delta": delta }))
    }

    fn begins_block(&mut self, block: Block, json: Value) -> Vec<Frame> {
        let mut frames = self.ends_block();
        let data = json!({ "index": self.blocks, "content_block": json });
        frames.push(Frame::named("content_block_start", data));
        self.blocks += 1;
        self.open = Some(block);
        frames
    }

    fn ends_block(&mut self) -> Vec<Frame> {
        let Some(block) = self.open.take() else { return Vec::new() };
        let mut frames = Vec::new();
        if block == Block::Thinking {
            // Nobody here can sign what was thought.
            frames.push(self.delta(json!({ "type": "signature_delta", "signature": "" })));
        }
        frames.push(Frame::named("content_block_stop", json!({ "index": self.blocks - 1 })));
        frames
    }

    pub fn ended(&mut self, whole: &Whole) -> Vec<Frame> {
        let mut frames = self.ends_block();
        let data = json!({
            "delta": { "stop_reason": reason(whole), "stop_sequence": stop(whole) },
            "usage": { "output_tokens": whole.timings.predicted },
        });
        frames.push(Frame::named("message_delta", data));
        frames.push(Frame::named("message_stop", json!({})));
        frames
    }
}

fn reason(whole: &Whole) -> &'static str {
    match whole.reason {
        Reason::Limit => "max_tokens",
        Reason::End | Reason::Stop(_) if !whole.answer.calls.is_empty() => "tool_use",
        Reason::End => "end_turn",
        Reason::Stop(_) => "stop_sequence",
    }
}

fn stop(whole: &Whole) -> Value {
    match &whole.reason {
        Reason::Stop(word) => word.as_str().into(),
        Reason::End | Reason::Limit => Value::Null,
    }
}

pub(super) fn whole(header: &Header, whole: &Whole) -> Value {
    let mut content = Vec::new();
    let answer = &whole.answer;
    if !answer.reasoning.is_empty() {
        content.push(json!({ "type": "thinking", "thinking": answer.reasoning, "signature": "" }));
    }
    if !answer.content.is_empty() || answer.reasoning.is_empty() && answer.calls.is_empty() {
        content.push(json!({ "type": "text", "text": answer.content }));
    }
    for call in &answer.calls {
        // Arguments that were cut off are none.
        let input = serde_json::from_str::<Value>(&call.arguments).ok().filter(Value::is_object);
        content.push(json!({
            "type": "tool_use", "id": call.id, "name": call.name, "input": input.unwrap_or(json!({})),
        }));
    }
    let cached = whole.timings.cached;
    json!({
        "id": format!("msg_{}", header.id),
        "type": "message",
        "role": "assistant",
        "content": content,
        "model": header.model,
        "stop_reason": reason(whole),
        "stop_sequence": stop(whole),
        "usage": {
            "cache_read_input_tokens": cached,
            "input_tokens": whole.prompt_tokens - cached.min(whole.prompt_tokens),
            "output_tokens": whole.timings.predicted,
        },
    })
}
