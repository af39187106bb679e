//! Anthropic's messages: turned into the chat completion that they mean.

use serde_json::{Map, Value, json};

use super::{Result, chat};
use crate::wire::{
    ask::{Ask, Defaults, Shape},
    error::ApiError,
    fields::Fields,
};

/// Where a client says nothing.
const MAX_TOKENS: u64 = 4096;

/// Reads a request for a message.
pub fn messages(body: &Value, defaults: &Defaults) -> Result<Ask> {
    let fields = Fields::of(body)?;
    let mut all: Vec<Value> = Vec::new();
    match fields.get("system") {
        None => (),
        Some(Value::String(text)) => all.push(json!({ "role": "system", "content": stamped(text) })),
        Some(Value::Array(blocks)) => {
            let text: String =
                blocks.iter().filter_map(|block| block.get("text")?.as_str()).map(stamped).collect();
            all.push(json!({ "role": "system", "content": text }));
        }
        Some(_) => return Err(ApiError::field("system", "a text or a list of blocks is needed")),
    }
    let messages = fields.list("messages")?.ok_or_else(|| ApiError::field("messages", "a list is needed"))?;
    for (at, message) in messages.iter().enumerate() {
        add(message, &mut all).map_err(|what| ApiError::field(&format!("messages[{at}]"), what))?;
    }
    let mut chat_body = Map::new();
    chat_body.insert("messages".into(), all.into());
    if let Some(tools) = fields.list("tools")? {
        chat_body.insert("tools".into(), tools.iter().map(tool).collect());
    }
    if let Some(choice) = fields.object("tool_choice")? {
        let choice_name = match choice.text("type")? {
            Some("any") => json!("required"),
            Some("tool") => json!({ "type": "function", "function": { "name": choice.get("name") } }),
            Some(other) => json!(other),
            None => Value::Null,
        };
        chat_body.insert("tool_choice".into(), choice_name);
        if let Some(alone) = choice.bool("disable_parallel_tool_use")? {
            chat_body.insert("parallel_tool_calls".into(), (!alone).into());
        }
    }
    chat_body.insert("stop".into(), fields.get("stop_sequences").cloned().unwrap_or_default());
    chat_body.insert("max_tokens".into(), fields.get("max_tokens").cloned().unwrap_or(MAX_TOKENS.into()));
    let same = [
        "model",
        "temperature",
        "top_p",
        "top_k",
        "stream",
        "chat_template_kwargs",
        "mask",
        "seed",
        "drafts",
    ];
    for name in same {
        if let Some(value) = fields.get(name) {
            chat_body.insert(name.into(), value.clone());
        }
    }
    if let Some(thinking) = fields.object("thinking")?
        && thinking.text("type")? == Some("disabled")
    {
        chat_body.insert("reasoning_effort".into(), "none".into());
    }
    let ask = chat(&chat_body.into(), defaults)?;
    Ok(Ask { shape: Shape::Messages, ..ask })
}

/// Claude Code writes a checksum of each request at the very beginning. With it no two prompts would begin alike, and none
/// could be taken from the cache.
fn stamped(text: &str) -> String {
    const HEADER: &str = "x-anthropic-billing-header:";
    const STAMP: &str = "cch=";
    let Some(at) = text.starts_with(HEADER).then(|| text.find(STAMP)).flatten() else {
        return text.to_owned();
    };
    let value = at + STAMP.len();
    match text[value..].find(';') {
        Some(len) if len <= 16 => format!("{}{}{}", &text[..value], "0".repeat(len), &text[value + len..]),
        Some(_) | None => text.to_owned(),
    }
}

fn tool(json: &Value) -> Value {
    match json.get("input_schema") {
        Some(schema) => json!({
            "type": "function",
            "function": { "name": json["name"], "description": json["description"], "parameters": schema },
        }),
        // A tool that only its maker has.
        None => json!({ "type": json.get("type").cloned().unwrap_or("other".into()) }),
    }
}

/// A message's blocks are what is said, thought and called, or what tools answered: these are messages of their own.
fn add(message: &Value, all: &mut Vec<Value>) -> std::result::Result<(), String> {
    let role = message.get("role").and_then(Value::as_str).ok_or("`role` is needed")?;
    let blocks = match message.get("content") {
        Some(Value::Array(blocks)) => blocks,
        Some(Value::String(text)) => {
            all.push(json!({ "role": role, "content": text }));
            return Ok(());
        }
        Some(_) | None => return Err("`content` is a text or a list of blocks".into()),
    };
    let text =
        |block: &Value, name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (mut parts, mut calls, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    let mut thought = String::new();
    for block in blocks {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => parts.push(json!({ "type": "text", "text": text(block, "text") })),
            Some("thinking") => thought += &text(block, "thinking"),
            // What was thought elsewhere and cannot be read.
            Some("redacted_thinking") => (),
            Some("image") => parts.push(json!({ "type": "image_url" })),
            Some("tool_use") => calls.push(json!({
                "id": text(block, "id"),
                "type": "function",
                "function": { "name": text(block, "name"), "arguments": block.get("input").cloned().unwrap_or(json!({})) },
            })),
            Some("tool_result") => {
                let content = match block.get("content") {
                    Some(Value::Array(parts)) if parts.iter().all(|part| part["type"] == "text") => {
                        parts.iter().map(|part| text(part, "text")).collect::<String>().into()
                    }
                    Some(Value::Array(_)) => json!([{ "type": "image_url" }]),
                    Some(Value::String(text)) => json!(text),
                    Some(_) | None => json!(""),
                };
                let id = text(block, "tool_use_id");
                answers.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
            }
            Some(other) => return Err(format!("blocks of the type {other:?} are not read")),
            None => return Err("a block needs a `type`".into()),
        }
    }
    // Answers come first: they belong to the message before.
    all.append(&mut answers);
    if !parts.is_empty() || !calls.is_empty() || !thought.is_empty() {
        let content = if parts.is_empty() { json!("") } else { parts.into() };
        let mut message = json!({ "role": role, "content": content });
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        if !thought.is_empty() {
            message["reasoning_content"] = thought.into();
        }
        all.push(message);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chat::{Conversation, ToolChoice},
        wire::ask::{Chat, Input},
    };

    fn read(body: Value) -> (Ask, Chat) {
        let mut ask = messages(&body, &Defaults::default()).unwrap();
        match ask.inputs.remove(0) {
            Input::Chat(chat) => (ask, *chat),
            other => panic!("{other:?}"),
        }
    }

    /// As Claude Code sends it.
    #[test]
    fn a_conversation_with_blocks_of_all_kinds() {
        let (ask, chat) = read(json!({
            "model": "claude", "max_tokens": 32000, "temperature": 1, "stream": true, "metadata": { "user_id": "x" },
            "system": [
                { "type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a5145;You are Claude Code.", "cache_control": { "type": "ephemeral" } },
                { "type": "text", "text": " Be brief." },
            ],
            "messages": [
                { "role": "user", "content": "ls" },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "hm", "signature": "" },
                    { "type": "text", "text": "Let me see." },
                    { "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": { "command": "ls" } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "toolu_1", "content": [{ "type": "text", "text": "a" }], "is_error": false },
                    { "type": "text", "text": "And now?" },
                ] },
            ],
            "tools": [{ "name": "Bash", "description": "Runs", "input_schema": { "type": "object" } }, { "type": "web_search_20250305", "name": "web_search" }],
            "tool_choice": { "type": "tool", "name": "Bash", "disable_parallel_tool_use": true },
            "thinking": { "type": "disabled" },
            "stop_sequences": ["END"],
        }));
        let Conversation { messages, tools, thinking, .. } = chat.conversation;
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        let system = "x-anthropic-billing-header: cc_version=2.1; cch=00000;You are Claude Code. Be brief.";
        assert_eq!(messages[0].content.text(""), system);
        assert_eq!(messages[2].reasoning_content.as_deref(), Some("hm"));
        assert_eq!(messages[2].tool_calls[0].arguments, "{\"command\":\"ls\"}");
        assert_eq!(
            (messages[3].tool_call_id.as_deref(), messages[3].content.text("")),
            (Some("toolu_1"), "a".into())
        );
        assert_eq!((tools.len(), thinking, chat.tool_choice), (1, false, ToolChoice::Named("Bash".into())));
        assert_eq!(
            (ask.settings.stop.as_slice(), ask.settings.max_tokens),
            (&["END".to_owned()][..], Some(32000))
        );
        assert_eq!((ask.shape, chat.parallel_calls), (Shape::Messages, false));
    }

    /// llama-server answers these, and counts as many tokens as without any message.
    #[test]
    fn nothing_said_is_no_message() {
        let empty = json!({ "role": "user", "content": [] });
        for messages in [json!([]), json!([empty]), json!([empty, empty])] {
            for (system, expected) in [(json!(null), 0), (json!("Be brief."), 1)] {
                let (_, chat) = read(json!({ "messages": messages, "system": system }));
                assert_eq!(chat.conversation.messages.len(), expected, "{messages}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wrong = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
        for (body, what) in [
            (json!({}), "`messages`"),
            (json!({ "messages": [{}] }), "`role`"),
            (wrong(json!(1)), "`content`"),
            (wrong(json!([{ "type": "odd" }])), "\"odd\""),
            (wrong(json!([{ "type": "image", "source": {} }])), "image input is not supported"),
            (
                wrong(json!([{ "type": "tool_result", "content": [{ "type": "image" }] }])),
                "image input is not supported",
            ),
        ] {
            let error = messages(&body, &Defaults::default()).unwrap_err();
            assert!(error.message.contains(what), "{body}: {}", error.message);
        }
    }
}
