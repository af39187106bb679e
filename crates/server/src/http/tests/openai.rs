//! What OpenAI's requests may ask for, and what of it cannot be had.

use serde_json::{Value, json};

use super::{start, start_with, talk};

const PLAIN: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

fn weather() -> Value {
    let parameters =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    json!([{ "type": "function", "function": { "name": "weather", "parameters": parameters } }])
}

/// The model is told of the tools and of a form for its answer, and what it writes is read.
#[test]
fn tools_are_told_where_the_template_has_no_syntax_for_calls() {
    let says = "{\"tool_call\": {\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}}";
    let Some(server) = start_with(PLAIN, says, |_, fake| fake.room = 2048) else { return };
    let named = json!({ "type": "function", "function": { "name": "weather" } });
    for choice in [json!("auto"), json!("required"), named] {
        let mut asked = json!({ "messages": talk(), "tools": weather(), "tool_choice": choice });
        let body = server.post("/v1/chat/completions", asked.clone()).json();
        let choice = &body["choices"][0];
        assert_eq!(
            (&choice["finish_reason"], &choice["message"]["content"]),
            (&json!("tool_calls"), &json!(null)),
            "{body}"
        );
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(call, &json!({ "name": "weather", "arguments": "{\"city\": \"Oslo\"}" }));
        asked["stream"] = json!(true);
        let streamed = server.post("/v1/chat/completions", asked).body;
        assert!(
            streamed.contains("\"name\":\"weather\"") && !streamed.contains("tool_call\\\""),
            "{streamed}"
        );
    }
    let tools = json!([{ "name": "weather", "input_schema": weather()[0]["function"]["parameters"] }]);
    let message = server.post("/v1/messages", json!({ "messages": talk(), "tools": tools })).json();
    assert_eq!(
        (&message["stop_reason"], &message["content"][0]["input"]["city"]),
        (&json!("tool_use"), &json!("Oslo"))
    );
    let conversation = json!([
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": null, "tool_calls": [{ "id": "1", "function": { "name": "weather", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "1", "content": "rain" },
    ]);
    let asked = json!({ "messages": conversation, "tools": weather() });
    let prompt = server.post("/apply-template", asked.clone()).json()["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.starts_with("<system>There are tools") && prompt.contains("\"weather\""), "{prompt}");
    let end = "<assistant>{\"tool_call\": {\"name\": \"weather\", \"arguments\": {}}}\
               <user>{\"tool_result\": {\"name\": \"weather\", \"content\": \"rain\"}}";
    assert!(prompt.ends_with(end), "{prompt}");
    // Who may call nothing is told of nothing.
    let mut none = asked;
    none["tool_choice"] = json!("none");
    assert!(!server.post("/apply-template", none).body.contains("There are tools"));
}

#[test]
fn an_answer_without_a_call_is_read_out_of_the_form_that_was_told() {
    let says = "{\"response\": \"Hello,\\n\\u00e9\"}";
    let Some(server) = start_with(PLAIN, says, |_, fake| fake.room = 2048) else { return };
    let asked = json!({ "messages": talk(), "tools": weather() });
    let body = server.post("/v1/chat/completions", asked.clone()).json();
    let choice = &body["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("Hello,\n\u{e9}"), &json!("stop"))
    );
    // An answer that has begun as text goes on as text, and no call can be required of it.
    let mut begun = asked;
    begun["messages"] = json!([talk()[0], { "role": "assistant", "content": "Well, " }]);
    let body = server.post("/v1/chat/completions", begun.clone()).json();
    assert!(body["choices"][0]["message"]["content"].as_str().unwrap().contains("response"), "{body}");
    begun["tool_choice"] = json!("required");
    let refused = server.post("/v1/chat/completions", begun);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("tool_choice")));
}

/// A vocabulary that was not made for a template has no token that ends a turn: the model writes it as text.
#[test]
fn an_end_that_is_written_as_text_ends_the_answer_and_is_not_shown() {
    let chatml = crate::chat::known_template("chatml").unwrap();
    let says = "Hello.<|im_end|>\n<|im_start|>user\nAnd";
    let Some(server) = start_with(chatml, says, |_, _| ()) else { return };
    let whole = server.post("/v1/chat/completions", json!({ "messages": talk() })).json();
    let choice = &whole["choices"][0];
    let told = (&choice["message"]["content"], &choice["finish_reason"]);
    assert_eq!(told, (&json!(" Hello."), &json!("stop")));
    let streamed = server.post("/v1/chat/completions", json!({ "messages": talk(), "stream": true }));
    assert!(streamed.body.contains("\"stop\"") && !streamed.body.contains('<'), "{}", streamed.body);
    let message = server.post("/v1/messages", json!({ "messages": talk() })).json();
    let told = (&message["content"][0]["text"], &message["stop_reason"], &message["stop_sequence"]);
    assert_eq!(told, (&json!(" Hello."), &json!("end_turn"), &json!(null)));
    // Who stops there has asked for it.
    let asked = json!({ "messages": talk(), "stop_sequences": ["<|im_end|>"] });
    assert_eq!(server.post("/v1/messages", asked).json()["stop_reason"], "stop_sequence");
    // A text that is no conversation has no turns.
    let plain = server.post("/v1/completions", json!({ "prompt": "Hi" })).json();
    assert!(plain["choices"][0]["text"].as_str().unwrap().contains("<|im_end|>"), "{plain}");
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
