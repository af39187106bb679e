//! What OpenAI's requests may ask for, and what of it cannot be had.

use serde_json::{Value, json};

use super::{start, start_with, talk};

#[test]
fn a_call_cannot_be_required_where_there_is_no_syntax_for_it() {
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let Some(server) = start_with(plain, "x", |_, _| ()) else { return };
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let named = json!({ "type": "function", "function": { "name": "f" } });
    for (choice, status) in [(json!("required"), 400), (named, 400), (json!("auto"), 200)] {
        let asked = json!({ "messages": talk(), "tools": tools, "tool_choice": choice });
        let reply = server.post("/v1/chat/completions", asked);
        assert_eq!(reply.status, status, "{choice}: {}", reply.body);
        assert!(status == 200 || reply.json()["error"]["param"] == "tool_choice", "{}", reply.body);
    }
}

#[test]
fn prompts_are_echoed() {
    let Some(server) = start("Once upon a time", |_, _| ()) else { return };
    let mut asked = json!({ "prompt": [5], "echo": true, "logprobs": 1, "max_tokens": 2 });
    let values = |asked: &Value| {
        let body = server.post("/v1/completions", asked.clone()).json();
        body["choices"][0]["logprobs"]["token_logprobs"].clone()
    };
    // A prompt of one token has one that nothing is before; then comes what was made, and what ended it.
    assert_eq!(values(&asked), json!([null, -7.0, -7.0, -9.0]));
    asked["prompt"] = json!([5, 6]);
    assert_eq!(values(&asked), json!([null, -3.0, -7.0, -7.0, -9.0]));
    // Whether the engine came to the end of the text is chance where a stop string has ended it.
    asked["max_tokens"] = json!(50);
    asked["stop"] = json!(["on a"]);
    let stopped = values(&asked);
    assert!(!stopped.as_array().unwrap().contains(&json!(-9.0)), "{stopped}");
    let streamed = json!({ "prompt": "Hi", "echo": true, "stream": true, "max_tokens": 2 });
    let reply = server.post("/v1/completions", streamed.clone());
    let text: String = reply
        .events()
        .iter()
        .filter_map(|event| serde_json::from_str(event).ok())
        .filter_map(|event: Value| event["choices"][0]["text"].as_str().map(str::to_owned))
        .collect();
    let mut whole = streamed;
    whole["stream"] = json!(false);
    assert_eq!(text, server.post("/v1/completions", whole).json()["choices"][0]["text"]);
}
