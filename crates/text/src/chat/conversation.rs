//! A conversation as a template wants it, and what comes of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Content, Message, Tool, caps::Caps, message::typed, syntax::Syntax, told::told};
use crate::{Error, Result};

/// What a model is to answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// What was said so far.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// The last message is the beginning of the answer.
    pub continue_final_message: bool,
    /// Whether a model that can think does so; `enable_thinking` in the template.
    pub thinking: bool,
    /// More variables for the template.
    pub variables: Map<String, Value>,
}

/// What a template made of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// For [`Tokenizer::encode`](crate::Tokenizer::encode) with `parse_special`.
    pub text: String,
    /// The template has begun what the model thinks: the answer goes on there.
    pub thinking: bool,
    /// Where in `text` the answer begins, if the last message is continued.
    pub answer_at: usize,
}

impl Conversation {
    /// A conversation to be answered.
    pub fn new(messages: Vec<Message>) -> Self {
        Conversation {
            messages,
            tools: Vec::new(),
            add_generation_prompt: true,
            continue_final_message: false,
            thinking: true,
            variables: Map::new(),
        }
    }

    /// The variables of the template that are not the same for all.
    pub(super) fn variables(&self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert("enable_thinking".into(), self.thinking.into());
        all.extend(self.variables.clone());
        if let Some(Value::Bool(preserve)) = all.get("preserve_reasoning").cloned() {
            all.insert("preserve_thinking".into(), preserve.into());
            for name in ["clear_thinking", "truncate_history_thinking", "drop_thinking"] {
                all.insert(name.into(), (!preserve).into());
            }
        }
        if let Some(effort) = all.get("reasoning_effort").cloned() {
            all.insert("reasoning_strength".into(), effort);
        }
        all
    }

    /// Whether tools are described in the system message, because this template says nothing of calls.
    pub(super) fn is_told_of_tools(&self, source: &str) -> bool {
        !self.tools.is_empty() && Syntax::of(source).is_told()
    }

    /// The messages in the form that this template takes, and the last one apart if it is continued.
    pub(super) fn messages(&self, source: &str, caps: &Caps) -> Result<(Value, Option<&Message>)> {
        let (messages, continued) = match self.messages.split_last() {
            Some((last, before)) if self.continue_final_message => (before, Some(last)),
            _ => (self.messages.as_slice(), None),
        };
        let is_harmony = source.contains("<|channel|>");
        let mut messages = messages.to_vec();
        if !is_harmony {
            for message in messages.iter_mut().filter(|message| message.role == "developer") {
                message.role = "system".into();
            }
        }
        if self.is_told_of_tools(source) {
            messages = told(messages, &self.tools);
        }
        if !caps.supports_system_role {
            join_system(&mut messages);
        }
        let json = messages.iter().map(|message| {
            let mut json = message.to_json();
            match (caps.supports_string_content, caps.supports_typed_content) {
                (true, false) => json["content"] = message.content.text("\n").into(),
                (false, true) => {
                    if let Content::Text(text) = &message.content {
                        json["content"] = typed(std::slice::from_ref(text));
                    }
                }
                (true, true) | (false, false) => (),
            }
            if caps.supports_object_arguments {
                objects(&mut json)?;
            }
            if let (true, Some(thought)) = (is_harmony, &message.reasoning_content) {
                json["thinking"] = thought.as_str().into();
                if !message.tool_calls.is_empty()
                    && let Some(fields) = json.as_object_mut()
                {
                    fields.shift_remove("content");
                }
            }
            Ok(json)
        });
        let json = json.collect::<Result<Vec<Value>>>()?;
        let json = if has_tool_responses(source) { with_tool_responses(json) } else { json };
        Ok((json.into(), continued))
    }
}

/// A system message goes before the first user's.
fn join_system(messages: &mut Vec<Message>) {
    if messages.first().is_none_or(|first| first.role != "system") {
        return;
    }
    let system = messages.remove(0);
    if let Some(next) = messages.first_mut() {
        next.content = format!("{}\n{}", system.content.text("\n"), next.content.text("\n")).into();
    }
}

/// Arguments of calls as objects.
fn objects(message: &mut Value) -> Result<()> {
    let Some(calls) = message.get_mut("tool_calls").and_then(Value::as_array_mut) else { return Ok(()) };
    for call in calls {
        let function = &mut call["function"];
        let text = function["arguments"].as_str().unwrap_or_default();
        let text = if text.trim().is_empty() { "{}" } else { text };
        function["arguments"] = serde_json::from_str(text).map_err(|e| {
            let name = function["name"].as_str().unwrap_or_default();
            Error::Input(format!("the arguments of the call of {name:?} are not JSON ({e})"))
        })?;
    }
    Ok(())
}

/// Gemma 4's first templates want what tools answered inside the message that called them.
fn has_tool_responses(source: &str) -> bool {
    source.contains("'<|tool_call>call:'") && !source.contains("{#- OpenAI Chat Completions:")
}

fn with_tool_responses(messages: Vec<Value>) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        let calling = joined.last_mut().filter(|last| last.get("tool_calls").is_some());
        match calling {
            Some(calling) if role == "tool" => {
                let known = calling["tool_responses"].as_array().map_or(0, Vec::len);
                let name = calling["tool_calls"][known]["function"]["name"].clone();
                let name = if name.is_null() { message["tool_call_id"].clone() } else { name };
                let parsed = message["content"].as_str().and_then(|text| serde_json::from_str(text).ok());
                let response = parsed.unwrap_or_else(|| message["content"].clone());
                let mut responses = calling["tool_responses"].as_array().cloned().unwrap_or_default();
                responses.push(serde_json::json!({ "name": name, "response": response }));
                calling["tool_responses"] = responses.into();
            }
            // What the assistant says to the answers belongs to the same turn.
            Some(calling)
                if role == "assistant"
                    && message.get("tool_calls").is_none()
                    && calling.get("tool_responses").is_some()
                    && calling["content"].as_str() == Some("") =>
            {
                calling["content"] = message["content"].clone();
            }
            _ => joined.push(message),
        }
    }
    joined
}

impl Prompt {
    pub(super) fn new(mut text: String, continued: Option<&Message>, source: &str, thinking: bool) -> Self {
        let marks = Syntax::of(source).reasoning;
        let opened = |text: &str| marks.is_some_and(|(open, _)| text.trim_end().ends_with(open));
        let mut open = opened(&text);
        if let (true, false, Some((_, close))) = (open, thinking, marks) {
            text.push_str(close);
            open = false;
        }
        let answer_at = text.len();
        if let Some(message) = continued {
            let thought = message.reasoning_content.as_deref().unwrap_or_default();
            if let Some((start, close)) = marks {
                if !thought.is_empty() {
                    if !open {
                        text.push_str(start);
                        text.push('\n');
                    }
                    text.push_str(thought);
                    open = true;
                }
                if open && !message.content.is_empty() {
                    text.push_str(&format!("\n{close}\n\n"));
                    open = false;
                }
            }
            text.push_str(&message.content.text("\n\n"));
        }
        Prompt { text, thinking: open, answer_at }
    }
}
