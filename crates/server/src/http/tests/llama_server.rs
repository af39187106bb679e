//! What llama-server has beyond OpenAI's API: progress, slots, settings that are shown, and its page's files.

use serde_json::{Value, json};

use super::{super::Predict, start, talk};

#[test]
fn progress_is_told_part_by_part() {
    let Some(server) = start("Once", |_, _| ()) else { return };
    let asked = json!({
        "prompt": "Once upon a time there was a little dog", "stream": true, "return_progress": true,
        "timings_per_token": true,
    });
    let reply = server.post("/completion", asked);
    let told: Vec<Value> = reply
        .events()
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .filter(|event: &Value| event.get("prompt_progress").is_some())
        .collect();
    let total = server.fake.jobs.lock().unwrap()[0].request.prompt.len() as u64;
    let processed: Vec<u64> =
        told.iter().map(|event| event["prompt_progress"]["processed"].as_u64().unwrap()).collect();
    assert_eq!(processed[..2], [1, 5]);
    assert!(
        processed.len() > 2 && processed.last() == Some(&total) && processed.is_sorted(),
        "{processed:?}"
    );
    let first = &told[0]["timings"];
    assert_eq!((&first["prompt_n"], &first["prompt_ms"]), (&json!(0), &json!(0.0)));
    assert_eq!(told.last().unwrap()["timings"]["prompt_n"], json!(total - 1));
}

/// All routes render what llama-server renders: the template with an empty list.
#[test]
fn no_message_at_all_is_answered() {
    let Some(server) = start("Once", |_, _| ()) else { return };
    let none = json!({ "messages": [] });
    assert_eq!(server.post("/apply-template", none.clone()).json()["prompt"], "<assistant>");
    let blocks = json!({ "messages": [{ "role": "user", "content": [] }] });
    let input = json!({ "input": [] });
    for (path, asked) in [
        ("/v1/chat/completions", &none),
        ("/v1/messages", &none),
        ("/v1/messages", &blocks),
        ("/v1/responses", &input),
    ] {
        let reply = server.post(path, asked.clone());
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    let prompts: Vec<_> =
        server.fake.jobs.lock().unwrap().iter().map(|job| job.request.prompt.clone()).collect();
    assert!(prompts.len() == 4 && prompts.iter().all(|prompt| *prompt == prompts[0]), "{prompts:?}");
}

/// After a stop string the engine still says what drafting did, and what was asked of the prompt.
#[test]
fn the_report_is_there_after_a_stop_string() {
    let Some(server) = start("Once upon a time", |_, _| ()) else { return };
    let asked = json!({ "prompt": "Hi", "stop": "on a", "speculation": true });
    let body = server.post("/completion", asked).json();
    assert_eq!((&body["stop_type"], &body["truncated"]), (&json!("word"), &json!(true)));
    assert!(body["speculation"].is_object(), "{body}");
}

/// Clients that know llama-server alone are told nothing else.
#[test]
fn what_drafting_gave_is_told_to_who_asks() {
    let Some(server) = start("Once upon a time", |_, _| ()) else { return };
    for (path, mut asked) in [
        ("/completion", json!({ "prompt": "Hi" })),
        ("/v1/completions", json!({ "prompt": "Hi" })),
        ("/v1/chat/completions", json!({ "messages": talk() })),
        ("/v1/responses", json!({ "input": "Hi" })),
    ] {
        for stream in [false, true] {
            asked["stream"] = json!(stream);
            asked["speculation"] = json!(false);
            let told = server.post(path, asked.clone()).body;
            assert!(!told.contains("speculation"), "{path}: {told}");
            asked["speculation"] = json!(true);
            let told = server.post(path, asked.clone()).body;
            assert!(
                told.contains("\"speculation\":{") || (path == "/v1/responses" && !stream),
                "{path}: {told}"
            );
        }
    }
    let refused = server.post("/completion", json!({ "prompt": "Hi", "speculation": "yes" }));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("speculation")));
}

/// In the order of llama-server, which has two more where tokens were drafted. The last event with numbers has them.
#[test]
fn timings_have_the_names_of_llama_server() {
    let Some(server) = start("Once upon a time", |_, _| ()) else { return };
    let names = [
        "cache_n",
        "prompt_n",
        "prompt_ms",
        "prompt_per_token_ms",
        "prompt_per_second",
        "predicted_n",
        "predicted_ms",
        "predicted_per_token_ms",
        "predicted_per_second",
    ];
    let keys = |event: &Value| event["timings"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for (path, mut asked) in [
        ("/v1/completions", json!({ "prompt": "Hi" })),
        ("/v1/chat/completions", json!({ "messages": talk() })),
    ] {
        assert_eq!(keys(&server.post(path, asked.clone()).json()), names);
        asked["stream"] = json!(true);
        for usage in [false, true] {
            asked["stream_options"] = json!({ "include_usage": usage });
            for each in [false, true] {
                asked["timings_per_token"] = json!(each);
                let reply = server.post(path, asked.clone());
                let events: Vec<Value> =
                    reply.events().iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
                assert_eq!(keys(events.last().unwrap()), names, "{path}");
                let told = events.iter().filter(|event| event.get("timings").is_some()).count();
                assert_eq!(told > 2, each, "{path}: {events:?}");
            }
        }
    }
}

#[test]
fn settings_are_shown_as_they_are() {
    let Some(server) = start("Once", |_, _| ()) else { return };
    let asked = json!({ "prompt": "Hi", "ignore_eos": true, "logit_bias": [[5, -1.5]], "id_slot": 1 });
    let body = server.post("/completion", asked).json();
    let bias = body["generation_settings"]["logit_bias"].as_array().unwrap();
    assert_eq!(bias[0], json!({ "token": 5, "bias": -1.5 }));
    assert!(bias.len() > 1 && bias[1..].iter().all(|entry| entry["bias"].is_null()), "{bias:?}");
    assert_eq!(body["id_slot"], 1);
    let job = server.fake.jobs.lock().unwrap()[0].clone();
    assert_eq!((job.slot, job.sampler.logit_bias.len()), (Some(1), bias.len()));
}

/// What is wrong is said by the field's own name.
#[test]
fn what_is_no_token_is_no_text() {
    let Some(server) = start("Once", |_, _| ()) else { return };
    let most = server.get("/v1/models").json()["data"][0]["meta"]["n_vocab"].as_u64().unwrap();
    for (path, body, param, what) in [
        ("/detokenize", json!({ "tokens": [5, most] }), "tokens", most.to_string()),
        ("/detokenize", json!({ "tokens": [1.5] }), "tokens", "a list of tokens".into()),
        ("/tokenize", json!({ "content": [1.5] }), "content", "a list of tokens".into()),
    ] {
        let refused = server.post(path, body);
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["param"]), (400, &json!(param)), "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains(&what), "{path}: {error}");
    }
    let asked = json!({ "prompt": "Hi", "with_pieces": true });
    let told = server.post("/tokenize", asked);
    assert!(told.headers.contains("content-type: application/json"), "{}", told.headers);
    let told = told.json();
    assert_eq!(told["count"], told["tokens"].as_array().unwrap().len());
    assert_eq!(told["max_model_len"], 128);
    assert!(told["tokens"][0]["id"].is_u64(), "{told}");
}

/// One number is enough to have all answers to a request again.
#[test]
fn a_request_has_one_seed() {
    let Some(server) = start("Once", |_, _| ()) else { return };
    let mut asked = json!({ "prompt": ["Hi", "Ho"], "n": 2 });
    let first = server.post("/v1/completions", asked.clone()).json();
    asked["seed"] = first["seed"].clone();
    assert_eq!(server.post("/v1/completions", asked).json()["seed"], first["seed"]);
    let seeds: Vec<_> = server.fake.jobs.lock().unwrap().iter().map(|job| job.sampler.seed).collect();
    assert_eq!(seeds.len(), 8);
    assert_eq!(seeds[..4], seeds[4..]);
    assert_ne!(seeds[0], seeds[1]);
}

/// A text may have many more tokens than a list has entries, and each answer has a list of its own.
#[test]
fn biases_are_counted_when_they_are_tokens() {
    let Some(server) = start("Once", |_, _| ()) else { return };
    let asked = json!({ "prompt": "Hi", "logit_bias": { "Once upon": -1 } });
    assert_eq!(server.post("/completion", asked).status, 200);
    let before = server.fake.jobs.lock().unwrap()[0].sampler.logit_bias.len();
    assert!(before > 1);
    let many = json!({ "prompt": "Hi", "logit_bias": { "\u{1f600}".repeat(1 << 15): -1 } });
    let often: Vec<(u32, f32)> = (0..2048).map(|id| (id % 100, 1.0)).collect();
    let often = json!({ "prompt": vec!["Hi"; 1024], "logit_bias": often });
    for (asked, most) in [(many, "16384"), (often, "1048576")] {
        let refused = server.post("/completion", asked);
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["param"]), (400, &json!("logit_bias")), "{error}");
        assert!(error["message"].as_str().unwrap().contains(most), "{error}");
    }
}

#[test]
fn slots_are_saved_to_files_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let saves_to = folder.path().to_owned();
    let Some(server) = start("x", |config, _| config.saves_to = Some(saves_to)) else { return };
    let file = json!({ "filename": "a.bin" });
    let saved = server.post("/slots/1?action=save", file.clone()).json();
    assert_eq!((&saved["id_slot"], &saved["n_saved"]), (&json!(1), &json!(3)), "{saved}");
    let restored = server.post("/slots/0?action=restore", file.clone()).json();
    assert_eq!((&restored["n_restored"], &restored["n_read"]), (&json!(3), &saved["n_written"]));
    assert_eq!(server.fake.saved.lock().unwrap()[0].tokens, [1, 8, 9]);
    assert_eq!(server.post("/slots/0?action=erase", json!({})).json()["n_erased"], 3);
    std::fs::write(folder.path().join("other"), "something else").unwrap();
    for (path, body, what) in [
        ("/slots/0?action=restore", json!({ "filename": "other" }), "other: not a text"),
        ("/slots/0?action=restore", json!({ "filename": "none" }), "none: "),
        ("/slots/0?action=restore", json!({ "filename": "../a.bin" }), "without a folder"),
        ("/slots/0?action=restore", json!({}), "filename"),
        ("/slots/0?action=fill", file.clone(), "`restore`"),
        ("/slots/0", file.clone(), "`restore`"),
        ("/slots/x?action=save", file.clone(), "numbers"),
    ] {
        let reply = server.post(path, body);
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(reply.status == 400 && message.contains(what), "{path}: {} {message}", reply.status);
        assert!(!message.contains(folder.path().to_str().unwrap()), "{message}");
    }
    // Who opens a pipe waits for its other end.
    #[cfg(unix)]
    for action in ["restore", "save"] {
        let pipe = folder.path().join("pipe");
        let there =
            pipe.exists() || std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success();
        let reply = server.post(&format!("/slots/0?action={action}"), json!({ "filename": "pipe" }));
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(there && reply.status == 400, "{action}: {} {message}", reply.status);
        assert_eq!(message, "`filename`: pipe: is not a regular file; give another name");
    }
    let Some(server) = start("x", |_, _| ()) else { return };
    assert_eq!(server.post("/slots/1?action=save", file).status, 501);
    let slots = server.get("/slots?fail_on_no_slot=1").json();
    assert_eq!(
        (&slots[0]["is_processing"], &slots[0]["next_token"][0]["n_remain"]),
        (&json!(false), &json!(-1))
    );
}

#[test]
fn vertex_ai_asks_for_several_answers_at_once() {
    let predict = Predict { path: "/predict".into(), health: Some("/ready".into()) };
    let Some(server) = start("Once upon a time", |config, _| {
        config.predict = Some(predict);
        config.api_keys = vec!["secret".into()];
    }) else {
        return;
    };
    assert_eq!((server.get("/ready").status, server.get("/predict").status), (200, 401));
    let instances = json!({ "instances": [
        { "@requestFormat": "chatCompletions", "messages": talk(), "stream": true },
        { "@requestFormat": "/completion", "prompt": "Hi" },
        { "@requestFormat": "chatCompletions", "messages": 3 },
        { "@requestFormat": "sound" },
        7,
    ] });
    let send =
        |body: Value| server.send("POST", "/predict", "x-api-key: secret\r\n", body.to_string().as_bytes());
    let all = send(instances).json()["predictions"].clone();
    assert_eq!(all[0]["choices"][0]["message"]["content"], " Once upon a time", "{all}");
    assert_eq!(all[1]["content"], " Once upon a time");
    for (index, what) in [(2, "`messages`"), (3, "chatCompletions"), (4, "object")] {
        let message = all[index]["error"]["message"].as_str().unwrap();
        assert!(message.contains(what), "{index}: {message}");
    }
    assert_eq!((send(json!({})).status, send(json!({ "instances": vec![0; 129] })).status), (400, 400));
}

/// What a page needs for times without the server is there without a key, and what is refused says so.
#[test]
fn the_page_says_what_belongs_to_it() {
    let Some(server) = start("x", |config, _| config.api_keys = vec!["secret".into()]) else { return };
    let told = server.get("/_app/version.json").json();
    assert_eq!((&told["files"], told["version"].as_str().unwrap().len()), (&json!(["./", "index.html"]), 16));
    let proxy = server.send("GET", "/cors-proxy?url=http://127.0.0.1/", "x-api-key: secret\r\n", b"");
    assert_eq!(proxy.status, 403);
    assert_eq!(server.get("/cors-proxy?url=http://127.0.0.1/").status, 401);
}
