//! OpenAI's responses: turned into the chat completion that they mean.

use serde_json::{Map, Value, json};

use super::{Result, chat};
use crate::wire::{
    ask::{Ask, Defaults, Shape},
    error::ApiError,
    fields::Fields,
};

/// Reads a request for a response.
pub fn responses(body: &Value, defaults: &Defaults) -> Result<Ask> {
    let fields = Fields::of(body)?;
    if fields.text("previous_response_id")?.is_some_and(|id| !id.is_empty()) {
        let message = "responses are not kept here; send the conversation in `input`";
        return Err(ApiError::field("previous_response_id", message));
    }
    let mut messages: Vec<Value> = Vec::new();
    if let Some(text) = fields.text("instructions")? {
        messages.push(json!({ "role": "system", "content": text }));
    }
    match fields.get("input") {
        Some(Value::String(text)) => messages.push(json!({ "role": "user", "content": text })),
        Some(Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                add(item, &mut messages).map_err(|what| ApiError::field(&format!("input[{at}]"), what))?;
            }
        }
        _ => return Err(ApiError::field("input", "a text or a list of items is needed")),
    }
    let mut chat_body = fields.0.clone();
    chat_body.insert("messages".into(), messages.into());
    let tools = fields.list("tools")?.map(|tools| tools.iter().filter_map(tool).collect::<Vec<Value>>());
    chat_body.insert("tools".into(), tools.unwrap_or_default().into());
    if let Some(most) = fields.get("max_output_tokens") {
        chat_body.insert("max_tokens".into(), most.clone());
    }
    if let Some(effort) = fields.object("reasoning")?.and_then(|reasoning| reasoning.get("effort")) {
        chat_body.insert("reasoning_effort".into(), effort.clone());
    }
    if let Some(format) = fields.object("text")?.and_then(|text| text.get("format")) {
        chat_body.insert("response_format".into(), format.clone());
    }
    let ask = chat(&chat_body.into(), defaults)?;
    Ok(Ask { shape: Shape::Responses, ..ask })
}

/// A function, one level deeper; other tools only their makers can call.
fn tool(json: &Value) -> Option<Value> {
    let mut function = json.as_object().filter(|tool| tool.get("type") == Some(&"function".into()))?.clone();
    function.shift_remove("type");
    Some(json!({ "type": "function", "function": function }))
}

/// Adds an item to the conversation; what the assistant says, thinks and calls in a row is one message.
fn add(item: &Value, messages: &mut Vec<Value>) -> std::result::Result<(), String> {
    let fields = item.as_object().ok_or("an object is needed")?;
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or("message");
    match kind {
        "message" => {
            let role = fields.get("role").cloned().ok_or("`role` is needed")?;
            let content = fields.get("content").cloned().unwrap_or_default();
            if role == "assistant" {
                let last = assistant(messages);
                let parts = match content {
                    Value::Array(parts) => parts,
                    text => vec![json!({ "type": "text", "text": text })],
                };
                match last.get_mut("content").and_then(Value::as_array_mut) {
                    Some(before) => before.extend(parts),
                    None => drop(last.insert("content".into(), parts.into())),
                }
            } else {
                messages.push(json!({ "role": role, "content": content }));
            }
        }
        "function_call" => {
            let get = |name: &str| fields.get(name).cloned().ok_or_else(|| format!("`{name}` is needed"));
            let call = json!({
                "type": "function",
                "id": get("call_id")?,
                "function": { "name": get("name")?, "arguments": get("arguments")? },
            });
            let last = assistant(messages);
            match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
                Some(calls) => calls.push(call),
                None => drop(last.insert("tool_calls".into(), json!([call]))),
            }
        }
        "function_call_output" => {
            let get = |name: &str| fields.get(name).cloned().ok_or_else(|| format!("`{name}` is needed"));
            messages
                .push(json!({ "role": "tool", "tool_call_id": get("call_id")?, "content": get("output")? }));
        }
        "reasoning" => {
            let texts = |name: &str| {
                let parts = fields.get(name).and_then(Value::as_array).into_iter().flatten();
                parts.filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n")
            };
            let text =
                Some(texts("content")).filter(|text| !text.is_empty()).unwrap_or_else(|| texts("summary"));
            // Nothing can be read of what was encrypted elsewhere.
            if !text.is_empty() {
                assistant(messages).insert("reasoning_content".into(), text.into());
            }
        }
        // Calls of tools that only their makers have leave nothing that could be read.
        _ if kind.ends_with("_call") || kind.ends_with("_call_output") => (),
        other => return Err(format!("items of the type {other:?} are not known")),
    }
    Ok(())
}

/// The assistant's message at the end, a new one if there is none.
fn assistant(messages: &mut Vec<Value>) -> &mut Map<String, Value> {
    if messages.last().is_none_or(|last| last["role"] != "assistant") {
        messages.push(json!({ "role": "assistant" }));
    }
    let last = messages.len() - 1;
    match &mut messages[last] {
        Value::Object(fields) => fields,
        _ => unreachable!("messages are objects"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chat::Conversation,
        wire::ask::{Constraint, Input},
    };

    fn conversation(body: Value) -> (Ask, Conversation) {
        let mut ask = responses(&body, &Defaults::default()).unwrap();
        match ask.inputs.remove(0) {
            Input::Chat(chat) => (ask, chat.conversation),
            other => panic!("{other:?}"),
        }
    }

    /// As Codex sends it.
    #[test]
    fn a_conversation_with_tools_of_many_kinds() {
        let (ask, talk) = conversation(json!({
            "model": "gpt-5-codex",
            "instructions": "You are Codex.",
            "input": [
                { "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": "Sandbox" }] },
                { "role": "user", "content": "List files" },
                { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "hm" }], "content": null, "encrypted_content": "x" },
                { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Sure" }] },
                { "type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\"]}", "call_id": "call_1" },
                { "type": "function_call_output", "call_id": "call_1", "output": "a\nb" },
            ],
            "tools": [
                { "type": "function", "name": "shell", "strict": false, "parameters": { "type": "object" } },
                { "type": "local_shell" }, { "type": "web_search" }, { "type": "custom", "name": "apply_patch" },
            ],
            "tool_choice": "auto", "parallel_tool_calls": false, "reasoning": { "effort": "medium", "summary": "auto" },
            "store": false, "stream": true, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "x",
            "max_output_tokens": 99,
        }));
        let roles: Vec<&str> = talk.messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "developer", "user", "assistant", "tool"]);
        let message = &talk.messages[3];
        assert_eq!(
            (message.content.text(""), message.reasoning_content.as_deref()),
            ("Sure".into(), Some("hm"))
        );
        assert_eq!(
            (message.tool_calls[0].id.as_str(), message.tool_calls[0].name.as_str()),
            ("call_1", "shell")
        );
        assert_eq!((talk.tools.len(), talk.tools[0].name.as_str()), (1, "shell"));
        assert_eq!((ask.stream, ask.settings.max_tokens, ask.shape), (true, Some(99), Shape::Responses));
        assert_eq!(talk.variables["reasoning_effort"], "medium");
    }

    #[test]
    fn a_text_and_a_format() {
        let format = json!({ "format": { "type": "json_schema", "name": "x", "schema": { "const": 1 } } });
        let (ask, talk) = conversation(json!({ "input": "Hi", "text": format }));
        assert_eq!(talk.messages[0].content.text(""), "Hi");
        assert_eq!(ask.settings.constraint, Some(Constraint::Schema(json!({ "const": 1 }))));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (body, what) in [
            (json!({}), "`input`"),
            (json!({ "input": "x", "previous_response_id": "resp_1" }), "`previous_response_id`"),
            (json!({ "input": [1] }), "`input[0]`"),
            (json!({ "input": [{ "type": "odd" }] }), "\"odd\""),
            (json!({ "input": [{ "type": "function_call", "name": "f" }] }), "`call_id`"),
        ] {
            let error = responses(&body, &Defaults::default()).unwrap_err();
            assert!(error.message.contains(what), "{body}: {}", error.message);
        }
    }
}
