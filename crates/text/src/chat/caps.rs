//! What a template can be given, found out by rendering small conversations and looking for what should be in them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a template makes use of. The names are llama.cpp's, whose `/props` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Content that is a string.
    pub supports_string_content: bool,
    /// Content that is a list of parts.
    pub supports_typed_content: bool,
    /// Messages of the role `system`.
    pub supports_system_role: bool,
    /// Descriptions of tools.
    pub supports_tools: bool,
    /// Messages of the assistant that call tools.
    pub supports_tool_calls: bool,
    /// Several calls in one message.
    pub supports_parallel_tool_calls: bool,
    /// Arguments of calls have to be objects; else they are JSON in a string.
    pub supports_object_arguments: bool,
    /// What the assistant thought before earlier answers.
    pub supports_preserve_reasoning: bool,
    /// A word for how much to think.
    pub supports_reasoning_effort: bool,
}

// Digits, for a template may write words in capitals.
const NEEDLE: &str = "27182818284590";
const SECOND: &str = "31415926535897";
const TOOL: &str = "t_16180339887498";

/// `render` is given messages, tools and further variables, and says nothing where the template refuses.
pub(super) fn of(render: impl Fn(Value, Value, Value) -> Option<String>) -> Caps {
    let plain = |messages: Value| render(messages, Value::Null, json!({})).unwrap_or_default();
    let user = |content: Value| json!([{ "role": "user", "content": content }]);
    let string = plain(user(NEEDLE.into()));
    let typed = plain(user(json!([{ "type": "text", "text": NEEDLE }])));
    let system = plain(json!([
        { "role": "system", "content": NEEDLE },
        { "role": "user", "content": "Hi" },
    ]));
    let calls = |arguments: &[Value]| {
        let calls: Value = arguments.iter().zip(1..).map(|(arguments, n)| call(n, arguments)).collect();
        render(with_calls(calls), tools(), json!({})).unwrap_or_default()
    };
    let in_text = |needle: &str| Value::from(format!("{{\"arg\": \"{needle}\"}}"));
    let in_object = |needle: &str| json!({ "arg": needle });
    let (as_text, as_object) = (calls(&[in_text(NEEDLE)]), calls(&[in_object(NEEDLE)]));
    // What a template writes as it is keeps the text that the model wrote.
    let takes_text = as_text.contains(in_text(NEEDLE).as_str().unwrap_or_default());
    let needs_object = !takes_text && as_object.contains(NEEDLE);
    let arguments = |needle: &str| if needs_object { in_object(needle) } else { in_text(needle) };
    let thinking = json!({
        "enable_thinking": true,
        "preserve_thinking": true,
        "clear_thinking": false,
        "truncate_history_thinking": false,
        "drop_thinking": false,
    });
    let thoughts = render(with_thoughts(), Value::Null, thinking).unwrap_or_default();
    let effort = |effort: &str| {
        render(
            user("Hi".into()),
            Value::Null,
            json!({ "reasoning_effort": effort, "reasoning_strength": effort }),
        )
    };
    // Where a list is written as it is, its keys show: as JSON, or as Python shows a list.
    let is_list = |text: &str| {
        let shown = |quote: char| format!("{quote}text{quote}: {quote}{NEEDLE}{quote}");
        ['"', '\''].into_iter().any(|quote| text.contains(&shown(quote)))
    };
    let with_tools = [&as_text, &as_object].into_iter().any(|text| text.contains(TOOL));
    Caps {
        supports_string_content: string.contains(NEEDLE),
        supports_typed_content: typed.contains(NEEDLE) && !is_list(&typed),
        supports_system_role: system.contains(NEEDLE),
        supports_tools: with_tools,
        supports_tool_calls: takes_text || needs_object || as_text.contains(NEEDLE),
        supports_parallel_tool_calls: calls(&[arguments(NEEDLE), arguments(SECOND)]).contains(SECOND),
        supports_object_arguments: needs_object,
        supports_preserve_reasoning: thoughts.contains(NEEDLE),
        supports_reasoning_effort: effort("low") != effort("high"),
    }
}

fn call(n: usize, arguments: &Value) -> Value {
    // Mistral's templates want ids of nine characters.
    json!({
        "id": format!("call{n:05}"),
        "type": "function",
        "function": { "name": "known", "arguments": arguments },
    })
}

fn with_calls(calls: Value) -> Value {
    let mut messages = vec![
        json!({ "role": "user", "content": "Hi" }),
        json!({ "role": "assistant", "content": "", "tool_calls": calls }),
    ];
    for n in 1..=calls.as_array().map_or(0, Vec::len) {
        messages.push(json!({ "role": "tool", "content": "Done", "tool_call_id": format!("call{n:05}") }));
    }
    messages.push(json!({ "role": "assistant", "content": "It is done." }));
    messages.push(json!({ "role": "user", "content": "Good" }));
    messages.into()
}

fn with_thoughts() -> Value {
    json!([
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": "Hello", "reasoning_content": NEEDLE },
        { "role": "user", "content": "And?" },
        { "role": "assistant", "content": "So", "reasoning_content": "hm" },
        { "role": "user", "content": "Good" },
    ])
}

fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": { "arg": { "type": "string", "description": "What" } },
        "required": ["arg"],
    });
    let tool = |name: &str| {
        let function = json!({ "name": name, "description": "Does it", "parameters": parameters });
        json!({ "type": "function", "function": function })
    };
    json!([tool("known"), tool(TOOL)])
}
