//! The program on real models: schemas, answers, a server with schemas, tools and streams, slots that are saved.

use serde_json::{Value, json};

use crate::{
    ALL,
    common::{program::json, server::Server},
    models,
};

const SCHEMA: &str = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
    "old": {"type": "boolean"}}, "required": ["name", "old"], "additionalProperties": false}"#;

#[test]
fn schemas_hold() {
    for (real, path) in models("schemas_hold", &ALL) {
        let path = path.to_str().unwrap();
        let args = ["-m", path, "-q", "--no-learn", "--no-display-prompt", "-n", "80", "-s", "5"];
        let value = json(&[&args, &["-p", "A person:", "-j", SCHEMA][..]].concat());
        assert!(value["name"].is_string() && value["old"].is_boolean(), "{}: {value}", real.name);
    }
}

#[test]
fn a_server_answers_keeps_to_schemas_calls_tools_and_streams() {
    for (real, path) in models("a_server_answers_keeps_to_schemas_calls_tools_and_streams", &ALL) {
        let server = Server::start(&["-c", "1024", "--parallel", "2", "-m", path.to_str().unwrap()]);
        let ask = |more: Value| {
            let mut body = json!({"messages": [{"role": "user", "content": "What is the weather in Paris?"}],
                "max_tokens": 60, "temperature": 0});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let route = "/v1/chat/completions";
        let plain = server.json(route, &ask(json!({})))["choices"][0]["message"]["content"].clone();
        let plain = plain.as_str().unwrap();
        assert!(plain.len() > 10, "{}: {plain}", real.name);
        let streamed = server.post(route, &ask(json!({"stream": true})));
        let chunks = streamed.lines().filter_map(|line| line.strip_prefix("data: ")?.parse::<Value>().ok());
        let pieces = chunks.filter_map(|c| Some(c["choices"][0]["delta"]["content"].as_str()?.to_owned()));
        assert_eq!(pieces.collect::<String>(), plain, "{}", real.name);
        let schema: Value = SCHEMA.parse().unwrap();
        let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}});
        let answer = server.json(route, &ask(format))["choices"][0]["message"]["content"].clone();
        let value: Value = answer.as_str().unwrap().parse().unwrap();
        assert!(value["name"].is_string() && value["old"].is_boolean(), "{}: {value}", real.name);
        let tool = json!({"type": "function", "function": {"name": "weather", "description": "The weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"],
            "additionalProperties": false}}});
        let calling = server.json(route, &ask(json!({"tools": [tool], "tool_choice": "required"})));
        let call = &calling["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "weather", "{}: {calling}", real.name);
        let arguments: Value = call["arguments"].as_str().unwrap().parse().unwrap();
        assert!(arguments["city"].is_string(), "{}: {arguments}", real.name);
        // Still there.
        assert!(server.json("/tokenize", &json!({"content": "Hi"}))["tokens"].is_array());
    }
}

#[test]
fn slots_are_saved_and_restored() {
    for (real, path) in models("slots_are_saved_and_restored", &ALL) {
        let folder = tempfile::tempdir().unwrap();
        let (path, saves_to) = (path.to_str().unwrap(), folder.path().to_str().unwrap());
        let args = ["-c", "1024", "--parallel", "1", "--slot-save-path", saves_to, "-m", path];
        let server = Server::start(&args);
        let body = json!({"prompt": "The capital of France is", "n_predict": 16, "temperature": 0, "cache_prompt": true});
        let first = server.json("/completion", &body)["content"].clone();
        let file = json!({"filename": "slot.bin"});
        let saved = server.json("/slots/0?action=save", &file);
        assert!(saved["n_saved"].as_u64().is_some_and(|n| n > 5), "{}: {saved}", real.name);
        server.json("/slots/0?action=erase", &json!({}));
        let restored = server.json("/slots/0?action=restore", &file);
        assert_eq!(restored["n_restored"], saved["n_saved"], "{}: {restored}", real.name);
        assert_eq!(server.json("/completion", &body)["content"], first, "{}", real.name);
    }
}
