//! OpenAI's chat completions.

use serde_json::{Map, Value};

use super::{Result, model, settings};
use crate::{
    chat::{Conversation, Message, Tool, ToolChoice},
    wire::{
        ask::{Ask, Chat, Constraint, Defaults, Input, Shape},
        error::ApiError,
        fields::Fields,
    },
};

/// The most of the likeliest tokens where a client asks for logprobs without a number.
const TOP_LOGPROBS: i64 = 20;

/// Reads a request for a chat completion.
pub fn chat(body: &Value, defaults: &Defaults) -> Result<Ask> {
    let fields = Fields::of(body)?;
    let mut settings = settings::settings(fields, defaults)?;
    let stream = fields.bool("stream")?.unwrap_or(false);
    let messages = fields.list("messages")?.ok_or_else(|| ApiError::field("messages", "a list is needed"))?;
    let messages: Vec<Message> =
        messages.iter().enumerate().map(|(at, json)| message(at, json)).collect::<Result<_>>()?;
    let tools = tools(fields)?;
    let tool_choice = fields.get("tool_choice").map_or(Ok(ToolChoice::Auto), ToolChoice::from_json);
    let tool_choice = tool_choice.map_err(|what| ApiError::field("tool_choice", what))?;
    if let ToolChoice::Named(name) = &tool_choice
        && !tools.iter().any(|tool| tool.name == *name)
    {
        return Err(ApiError::field("tool_choice", format!("no tool is named {name:?}")));
    }
    if tool_choice == ToolChoice::Required && tools.is_empty() {
        return Err(ApiError::field("tool_choice", "a call is required, and `tools` has no function"));
    }
    if !tools.is_empty()
        && tool_choice != ToolChoice::None
        && matches!(settings.constraint, Some(Constraint::Grammar(_)))
    {
        return Err(ApiError::field("grammar", "not possible together with tools"));
    }
    if fields.bool("logprobs")?.unwrap_or(false) {
        let most = fields.integer(&["top_logprobs"], 0..=1000)?.unwrap_or(TOP_LOGPROBS);
        settings.logprobs = Some(most as usize);
    } else if fields.get("top_logprobs").is_some_and(|value| value.as_u64() != Some(0)) {
        return Err(ApiError::field("top_logprobs", "`logprobs` has to be true for it"));
    }
    let splits_reasoning = match fields.text("reasoning_format")? {
        None => defaults.splits_reasoning,
        Some("none") => false,
        Some("auto" | "deepseek" | "deepseek-legacy") => true,
        Some(other) => {
            let message = format!("{other:?}; `none`, `auto` and `deepseek` are possible");
            return Err(ApiError::field("reasoning_format", message));
        }
    };
    let (thinking, variables) = thinking(fields, defaults)?;
    let opens = fields.bool("add_generation_prompt")?;
    let continues = continues(fields, &messages, defaults)?;
    if continues && opens == Some(true) {
        let message = "`add_generation_prompt` cannot be true at the same time";
        return Err(ApiError::field("continue_final_message", message));
    }
    let conversation = Conversation {
        messages,
        tools,
        add_generation_prompt: opens.unwrap_or(true) && !continues,
        continue_final_message: continues,
        thinking,
        variables,
    };
    let parallel_calls = fields.bool("parallel_tool_calls")?.unwrap_or(true);
    let chat = Chat { conversation, tool_choice, parallel_calls, splits_reasoning };
    let inputs = vec![Input::Chat(Box::new(chat))];
    Ok(Ask { inputs, settings, shape: Shape::Chat, stream, model: model(fields) })
}

fn message(at: usize, json: &Value) -> Result<Message> {
    Message::from_json(json).map_err(|what| {
        let error = ApiError::field(&format!("messages[{at}]"), &what);
        // llama-server calls this its own fault, and its clients rely on it.
        if what.starts_with("image input is not supported") {
            ApiError { status: 500, ..error }
        } else {
            error
        }
    })
}

/// Tools that are functions; others only their makers can call.
fn tools(fields: Fields) -> Result<Vec<Tool>> {
    let all = fields.list("tools")?.map(Vec::as_slice).unwrap_or_default().iter().enumerate();
    let tools = all.map(|(at, json)| {
        Tool::from_json(json).map_err(|what| ApiError::field(&format!("tools[{at}]"), what))
    });
    tools.filter_map(Result::transpose).collect()
}

/// Whether the last message is the beginning of the answer.
fn continues(fields: Fields, messages: &[Message], defaults: &Defaults) -> Result<bool> {
    let is_assistant = |message: &Message| message.role == "assistant";
    let asked = match fields.get("continue_final_message") {
        None | Some(Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(Value::String(what)) if what == "content" || what == "reasoning_content" => true,
        Some(_) => return Err(ApiError::field("continue_final_message", "true or false is needed")),
    };
    let last = messages.last().filter(|last| is_assistant(last));
    let Some(last) = last.filter(|_| asked || defaults.prefills) else { return Ok(false) };
    if messages.len() > 1 && is_assistant(&messages[messages.len() - 2]) {
        return Err(ApiError::field(
            "messages",
            "two messages of the assistant are at the end; one can be continued",
        ));
    }
    if !last.tool_calls.is_empty() {
        return Err(ApiError::field(
            "messages",
            "a message of the assistant that calls tools cannot be continued",
        ));
    }
    Ok(true)
}

/// Whether to think, and the variables of the template.
fn thinking(fields: Fields, defaults: &Defaults) -> Result<(bool, Map<String, Value>)> {
    let mut thinking = defaults.thinking;
    let mut variables = defaults.variables.clone();
    if let Some(more) = fields.object("chat_template_kwargs")? {
        variables.extend(more.0.clone());
    }
    match variables.shift_remove("enable_thinking") {
        None | Some(Value::Null) => (),
        Some(Value::Bool(enable)) => thinking = enable,
        Some(_) => {
            return Err(ApiError::field("chat_template_kwargs.enable_thinking", "true or false is needed"));
        }
    }
    match fields.text("reasoning_effort")? {
        None | Some("") => (),
        Some("none") => thinking = false,
        Some(effort) => drop(variables.insert("reasoning_effort".into(), effort.into())),
    }
    Ok((thinking, variables))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<(Ask, Chat)> {
        let mut ask = chat(&body, &Defaults::default())?;
        match ask.inputs.remove(0) {
            Input::Chat(chat) => Ok((ask, *chat)),
            other => panic!("{other:?}"),
        }
    }

    /// As openai-python sends it.
    #[test]
    fn a_request_with_tools() {
        let (ask, chat) = read(json!({
            "model": "gpt-4o",
            "messages": [
                { "role": "developer", "content": "Be brief." },
                { "role": "user", "content": [{ "type": "text", "text": "Weather in Paris?" }] },
            ],
            "tools": [
                { "type": "function", "function": { "name": "weather", "strict": true, "parameters": { "type": "object" } } },
                { "type": "web_search" },
            ],
            "tool_choice": { "type": "function", "function": { "name": "weather" } },
            "parallel_tool_calls": false,
            "stream": true,
            "logprobs": true,
            "top_logprobs": 5,
            "reasoning_effort": "low",
            "service_tier": "auto",
            "metadata": {},
        }))
        .unwrap();
        assert_eq!(
            (ask.stream, ask.settings.logprobs, ask.model.as_deref()),
            (true, Some(5), Some("gpt-4o"))
        );
        assert_eq!(chat.conversation.tools.len(), 1);
        assert_eq!((chat.tool_choice, chat.parallel_calls), (ToolChoice::Named("weather".into()), false));
        assert_eq!(chat.conversation.variables["reasoning_effort"], "low");
        assert!(chat.conversation.add_generation_prompt && chat.conversation.thinking);
    }

    /// As Open WebUI and vLLM's clients send it.
    #[test]
    fn thinking_and_the_beginning_of_an_answer() {
        let talk = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "We" }]);
        let (_, chat) =
            read(json!({ "messages": talk, "chat_template_kwargs": { "enable_thinking": false, "x": 1 } }))
                .unwrap();
        assert!(chat.conversation.continue_final_message && !chat.conversation.add_generation_prompt);
        assert!(!chat.conversation.thinking);
        assert_eq!(chat.conversation.variables, Map::from_iter([("x".to_owned(), json!(1))]));
        let body =
            json!({ "messages": talk, "continue_final_message": true, "add_generation_prompt": false });
        assert!(read(body).unwrap().1.conversation.continue_final_message);
        let (_, chat) =
            read(json!({ "messages": [talk[0]], "reasoning_effort": "none", "reasoning_format": "none" }))
                .unwrap();
        assert!(!chat.conversation.thinking && !chat.splits_reasoning);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let user = json!({ "role": "user", "content": "test" });
        let assistant = json!({ "role": "assistant", "content": "test" });
        for (body, what) in [
            (json!({}), "`messages`"),
            (json!({ "messages": null }), "`messages`"),
            (json!({ "messages": "string" }), "`messages`"),
            (json!({ "messages": [123] }), "`messages[0]`"),
            (json!({ "messages": [user, {}] }), "`messages[1]`"),
            (json!({ "messages": [user, assistant, assistant] }), "two messages of the assistant"),
            (
                json!({ "messages": [user, assistant], "add_generation_prompt": true }),
                "`add_generation_prompt`",
            ),
            (json!({ "messages": [user], "top_logprobs": 3 }), "`top_logprobs`"),
            (json!({ "messages": [user], "tools": {} }), "`tools`"),
            (json!({ "messages": [user], "tools": [{ "type": "function" }] }), "`tools[0]`"),
            (json!({ "messages": [user], "tool_choice": "perhaps" }), "`tool_choice`"),
            (json!({ "messages": [user], "tool_choice": "required" }), "`tool_choice`: a call is required"),
            (json!({ "messages": [user], "tool_choice": "required", "tools": [{ "type": "x" }] }), "`tools`"),
            (json!({ "messages": [user], "tool_choice": { "function": { "name": "f" } } }), "\"f\""),
            (
                json!({ "messages": [user], "chat_template_kwargs": { "enable_thinking": "no" } }),
                "enable_thinking",
            ),
        ] {
            let error = read(body.clone()).unwrap_err();
            assert_eq!(error.status, 400, "{body}");
            assert!(error.message.contains(what), "{body}: {}", error.message);
        }
        let image =
            json!({ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "data:" } }] });
        let error = read(json!({ "messages": [image] })).unwrap_err();
        assert!(error.status == 500 && error.message.contains("image input is not supported"), "{error:?}");
    }
}
