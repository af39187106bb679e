//! The server as a program: it answers, says what is wrong with its flags, and ends when it is told to.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{
    program::{EMBEDDED, Folder, run, stdout},
    server::Server,
};

/// Greedy and seeded texts are the same whoever else is being answered, and with drafts and without.
#[test]
fn answers_do_not_depend_on_others() {
    let server = Server::start(&["--parallel", "4", "--kv-unified"]);
    let body = |seed: u32, drafts: bool| json!({ "prompt": "Once upon a time", "n_predict": 24, "seed": seed, "temperature": seed % 2, "drafts": drafts });
    let alone: Vec<Value> = (0..4).map(|seed| server.text(&body(seed, false))).collect();
    assert!(alone.iter().all(|text| text.as_str().is_some_and(|text| text.len() > 20)), "{alone:?}");
    let bodies: Vec<Value> = (0..8).map(|n| body(n % 4, n < 4)).collect();
    assert_eq!(server.texts(&bodies), [alone.clone(), alone].concat());
}

/// A text that keeps to a grammar has drafts that the others have not: what its grammar forces.
#[test]
fn texts_with_a_grammar_and_without_are_made_together() {
    let server = Server::start(&["--parallel", "4", "--kv-unified"]);
    let forced = "a text that is forced from its beginning to its end";
    let bodies = [
        json!({ "prompt": "Once upon a time", "n_predict": 120, "temperature": 0, "ignore_eos": true }),
        json!({ "prompt": "Hi", "n_predict": 60, "temperature": 0, "json_schema": { "const": forced } }),
    ];
    let alone = bodies.each_ref().map(|body| server.text(body));
    assert_eq!(alone[1], format!("\"{forced}\""));
    for _ in 0..3 {
        assert_eq!(server.texts(&bodies), alone);
    }
}

/// Nobody could tell what is there of it from a whole text.
#[test]
fn a_text_that_cannot_go_on_is_an_error() {
    let server = Server::start(&[]);
    let ambiguous = "root ::= s\ns ::= s s | s s s | [a-z ]+";
    let mut ask = json!({ "prompt": "Hi", "n_predict": 400, "temperature": 0, "grammar": ambiguous });
    let why = |said: &Value| said["error"]["message"].as_str().unwrap_or_default().to_owned();
    let said = server.json("/completion", &ask);
    assert!(why(&said).starts_with("grammar: it cannot be followed beyond "), "{said}");
    assert_eq!(said["error"]["code"], 400, "it lies in the request: {said}");
    ask["stream"] = json!(true);
    let events = server.post("/completion", &ask);
    let last = events.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
    assert_eq!(why(&serde_json::from_str(last).unwrap()), why(&said), "{events}");
    // Other texts go on.
    let plain = json!({ "prompt": "Hi", "n_predict": 4, "temperature": 0 });
    assert!(server.text(&plain).is_string());
}

#[test]
fn schemas_and_required_tools_are_kept_to() {
    let server = Server::start(&[
        "--chat-template",
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call>{% endif %}",
    ]);
    let talk = json!([{ "role": "user", "content": "Once upon a time" }]);
    let format = json!({ "type": "json_schema", "json_schema": { "schema": { "const": "42" } } });
    let said = server.json(
        "/v1/chat/completions",
        &json!({ "messages": talk, "response_format": format, "max_tokens": 20 }),
    );
    assert_eq!(said["choices"][0]["message"]["content"], "\"42\"", "{said}");
    let parameters = json!({ "type": "object", "properties": { "n": { "enum": [7] } }, "required": ["n"], "additionalProperties": false });
    let tools = json!([{ "type": "function", "function": { "name": "count", "parameters": parameters } }]);
    let ask = json!({ "messages": talk, "tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 200 });
    let said = server.json("/v1/chat/completions", &ask);
    let call = &said["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "count", "{said}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({ "n": 7 }));
}

/// The model's file has no template: it is said once, and conversations go on.
#[test]
fn a_model_without_a_template_gets_chatml() {
    let server = Server::start(&[]);
    let warned: Vec<_> = server.said.iter().filter(|line| line.contains("ChatML")).collect();
    assert!(warned.len() == 1 && warned[0].starts_with("warning: "), "{:?}", server.said);
    let props = server.get("/props");
    assert_eq!(props["chat_template_from"], "assumed");
    assert!(props["chat_template"].as_str().unwrap().contains("<|im_start|>"), "{props}");
    let talk = json!([{ "role": "user", "content": "Hi" }]);
    let prompt = &server.json("/apply-template", &json!({ "messages": talk }))["prompt"];
    assert_eq!(prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let asked = json!({ "messages": talk, "max_tokens": 8, "temperature": 0 });
    assert!(server.json("/v1/chat/completions", &asked)["choices"][0]["message"]["content"].is_string());
    drop(server);
    let server = Server::start(&["--chat-template", "chatml"]);
    assert_eq!(server.get("/props")["chat_template_from"], "flag");
    assert!(!server.said.iter().any(|line| line.contains("warning")), "{:?}", server.said);
}

/// One line at the start, one for each conversation; other texts go on.
#[test]
fn a_template_that_cannot_be_read_is_said() {
    let server = Server::start(&["--chat-template", "{% for m in messages %}{{ m.content }}"]);
    let warned: Vec<_> = server.said.iter().filter(|line| line.contains("warning: ")).collect();
    assert!(warned.len() == 1 && warned[0].contains("chat template"), "{:?}", server.said);
    let talk = json!([{ "role": "user", "content": "Hi" }]);
    for path in ["/v1/chat/completions", "/apply-template", "/v1/messages"] {
        server.refuses(path, &json!({ "messages": talk }), 400, "line 1");
    }
    assert!(server.text(&json!({ "prompt": "Hi", "n_predict": 2 })).is_string());
}

/// A role that a template refuses is that template's word, in one line, and the next request is answered.
#[test]
fn what_a_template_refuses_is_refused() {
    let template = "{% for m in messages %}{% if m.role == 'robot' %}{{ raise_exception('no robots here') }}{% endif %}{{ m.content }}{% endfor %}";
    let server = Server::start(&["--chat-template", template]);
    let ask = |role: &str| json!({ "messages": [{ "role": role, "content": "Hi" }], "max_tokens": 2 });
    for path in ["/v1/chat/completions", "/apply-template"] {
        server.refuses(path, &ask("robot"), 400, "no robots here");
    }
    assert!(server.json("/v1/chat/completions", &ask("user"))["choices"].is_array());
}

/// The template says nothing of tools. The grammar keeps the form that the model is told, whether it knows it or not.
#[test]
fn tools_are_called_in_a_form_of_our_own() {
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let server = Server::start(&["-c", "2048", "--chat-template", plain]);
    let talk = json!([{ "role": "user", "content": "Once upon a time" }]);
    let parameters = json!({ "type": "object", "properties": { "n": { "enum": [7] } }, "required": ["n"], "additionalProperties": false });
    let tool =
        |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    let tools = json!([tool("count"), tool("add")]);
    for (choice, names) in [
        (json!("required"), &["count", "add"][..]),
        (json!({ "type": "function", "function": { "name": "add" } }), &["add"][..]),
    ] {
        let ask = json!({ "messages": talk, "tools": tools, "tool_choice": choice, "max_tokens": 200 });
        let said = server.json("/v1/chat/completions", &ask);
        let call = &said["choices"][0]["message"]["tool_calls"][0]["function"];
        assert!(names.iter().any(|name| call["name"] == *name), "{said}");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(
            (arguments, &said["choices"][0]["finish_reason"]),
            (json!({ "n": 7 }), &json!("tool_calls"))
        );
    }
    // What is said without a call may have to be JSON.
    let format = json!({ "type": "json_schema", "json_schema": { "schema": { "const": { "a": 1 } } } });
    for seed in 0..4 {
        let mut ask =
            json!({ "messages": talk, "tools": tools, "max_tokens": 200, "seed": seed, "temperature": 1 });
        for format in [Value::Null, format.clone()] {
            ask["response_format"] = format.clone();
            let said = server.json("/v1/chat/completions", &ask);
            let message = &said["choices"][0]["message"];
            let text = message["content"].as_str();
            let is_call = message["tool_calls"].is_array();
            assert!(is_call || text.is_some_and(|text| !text.contains("response\"")), "{said}");
            let json = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
            assert!(format.is_null() || is_call || json == Some(json!({ "a": 1 })), "{said}");
        }
    }
}

#[test]
fn a_model_is_called_as_its_file_is() {
    let server = Server::start(&[]);
    let models = server.get("/v1/models");
    assert_eq!(models["data"][0]["id"], "stories13m-q8_0.gguf");
    let props = server.get("/props");
    assert_eq!(
        (&props["model_alias"], &props["model_name"]),
        (&models["data"][0]["id"], &json!("stories13m"))
    );
    let body = json!({ "prompt": "Hi", "n_predict": 1 });
    assert_eq!(server.json("/completion", &body)["model"], "stories13m-q8_0.gguf");
    drop(server);
    let server = Server::start(&["-m", EMBEDDED, "-a", "mine", "--speculation-stats"]);
    assert_eq!(server.get("/v1/models")["data"][0]["id"], "mine");
    let said = server.json("/v1/messages", &json!({ "messages": [], "max_tokens": 1 }));
    assert_eq!(said["model"], "mine", "{said}");
    assert!(server.json("/completion", &body)["speculation"].is_object());
}

#[test]
fn prompts_are_scored() {
    let server = Server::start(&[]);
    let ask = json!({ "prompt": "Once upon a time", "max_tokens": 1, "echo": true, "logprobs": 1, "temperature": 0 });
    let said = server.json("/v1/completions", &ask);
    let logprobs = &said["choices"][0]["logprobs"];
    let values = logprobs["token_logprobs"].as_array().unwrap();
    assert!(
        values[0].is_null()
            && values[1..].iter().all(|value| value.as_f64().is_some_and(|value| value <= 0.0)),
        "{said}"
    );
    assert_eq!(values.len(), logprobs["tokens"].as_array().unwrap().len());
}

/// What was saved of one server another one goes on from, with the text that it would have made itself.
#[test]
fn slots_outlive_the_server() {
    let folder = Folder::new();
    let args = ["--parallel", "2", "--slot-save-path", folder.to_str().unwrap()];
    let body = |prompt: &str, slot: usize| json!({ "prompt": prompt, "n_predict": 16, "temperature": 0, "id_slot": slot, "ignore_eos": true });
    let first = Server::start(&args);
    let text = first.json("/completion", &body("Once upon a time", 1));
    let longer = format!("Once upon a time{} Then", text["content"].as_str().unwrap());
    let expected = first.json("/completion", &body(&longer, 0));
    assert_eq!((&expected["id_slot"], &expected["timings"]["cache_n"]), (&json!(0), &json!(0)));
    let file = json!({ "filename": "a.bin" });
    let saved = first.json("/slots/1?action=save", &file);
    drop(first);
    let second = Server::start(&args);
    assert_eq!(second.json("/slots/0?action=restore", &file)["n_restored"], saved["n_saved"]);
    let found = second.json("/completion", &body(&longer, 0));
    assert_eq!(found["content"], expected["content"]);
    assert!(found["timings"]["cache_n"].as_u64() > Some(10), "{found}");
    let mut bytes = std::fs::read(folder.path("a.bin")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    folder.file("a.bin", bytes);
    assert!(second.post("/slots/0?action=restore", &file).contains("damaged"));
}

/// Nobody asks, and the model's memory is given back; who asks then gets the same answer.
#[test]
fn a_model_sleeps_until_somebody_asks() {
    let server = Server::start(&["--sleep-idle-seconds", "1", "--metrics"]);
    let body = json!({ "prompt": "Once upon a time", "n_predict": 16, "seed": 7 });
    let before = server.text(&body);
    for _ in 0..2 {
        let began = Instant::now();
        while server.get("/props")["is_sleeping"] != true {
            assert!(began.elapsed() < Duration::from_secs(20), "it stays awake");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(server.get("/slots")[0]["is_processing"], false);
        let metrics = server.send("GET", "/metrics", &Value::Null);
        assert!(
            metrics.contains("llamacpp:n_decode_total ") && !metrics.contains("n_decode_total 0\n"),
            "{metrics}"
        );
        assert_eq!(server.get("/props")["is_sleeping"], true, "to look does not wake it");
        assert_eq!(server.text(&body), before);
        assert_eq!(server.get("/props")["is_sleeping"], false);
    }
}

/// A full slot drops a part of its text and goes on, or ends with as many tokens as it has room for; the answer says so.
#[test]
fn slots_have_room_for_so_many_tokens() {
    let body =
        json!({ "prompt": "Once upon a time", "n_predict": 100, "ignore_eos": true, "temperature": 0 });
    let shifting =
        Server::start(&["-c", "128", "--parallel", "2", "--context-shift"]).json("/completion", &body);
    assert_eq!((&shifting["tokens_predicted"], &shifting["truncated"]), (&json!(100), &json!(true)));
    let ending = Server::start(&["-c", "128", "--parallel", "2"]).json("/completion", &body);
    let tokens = |name: &str| ending[name].as_u64().unwrap();
    assert_eq!(
        (tokens("tokens_evaluated") + tokens("tokens_predicted"), &ending["truncated"]),
        (64, &json!(true))
    );
}

#[test]
fn it_ends_when_it_is_told_to() {
    let mut server = Server::start(&["--api-key", "k"]);
    assert!(server.post("/completion", &json!({ "prompt": "x" })).contains("authentication_error"));
    server.child.signal("-TERM");
    let began = Instant::now();
    while server.child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As llama-server: who sets a key there counts on it.
#[test]
fn the_environment_has_flags_of_the_server_too() {
    let variables = [("LLAMA_API_KEY", "k"), ("LLAMA_ARG_ALIAS", "mine"), ("LLAMA_ARG_N_PARALLEL", "3")];
    let server = Server::start_in(&variables, &[]);
    assert!(server.post("/completion", &json!({ "prompt": "x" })).contains("authentication_error"));
    drop(server);
    let server = Server::start_in(&variables[1..], &[]);
    assert_eq!(server.get("/v1/models")["data"][0]["id"], "mine");
    assert_eq!(server.get("/props")["total_slots"], 3);
    drop(server);
    // As many as without it, which share the context.
    let server = Server::start(&["--parallel", "-1"]);
    let found = (&server.get("/props")["total_slots"], &server.get("/slots")[0]["n_ctx"]);
    assert_eq!(found, (&json!(4), &json!(512)));
    drop(server);
    // The command line wins.
    assert_eq!(Server::start_in(&variables[1..], &["-np", "2"]).get("/props")["total_slots"], 2);
}

#[test]
fn a_dry_run_prints_the_plan_and_ends() {
    for command in ["serve", "chat"] {
        let told = stdout(&[command, "--dry-run", "--chat-template", "chatml", "--device", "cpu"]);
        assert!(told.contains("layers 0-15"), "{command}: {told}");
    }
}

#[test]
fn flags_that_cannot_be_are_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, what) in [
        (["--port", port.as_str()], "in use"),
        (["--parallel", "0"], "--parallel 0: give how many"),
        (["--parallel", "-2"], "--parallel -2: give how many"),
        (["--chat-template-kwargs", "1"], "--chat-template-kwargs"),
        (["--api-key", ","], "--api-key"),
        (["--host", ""], "--host \"\": an address"),
        (["--host", " , "], "--host \" , \": an address"),
        (["--max-body", "0"], "--max-body 0"),
        (["--timeout", "0"], "--timeout 0"),
        (["--slot-save-path", "no/such/folder"], "--slot-save-path"),
        (["--tools", "all"], "--tools: the server runs no tools"),
        (["--ssl-key-file", "key.pem"], "--ssl-key-file: the server speaks HTTP only"),
    ] {
        run(&[&["serve"], &args[..]].concat()).failed(2, &[what]);
    }
}
