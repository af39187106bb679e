//! The server over real sockets; what it answers is made up.

mod llama_server;
mod openai;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use spec_run_engine::speculation::{Report, Token};

use crate::{
    Adapters, Answers, Controls, Error, Facts, Preparer, TemplateFrom, Tokenizer,
    chat::{ChatTemplate, TemplateSource},
    constraint::Vocabulary,
    engine::{
        Ended, Event, Generation, Job, Listener, SavedText, SlotStatus, Status, Stop, TextRule, TokenScore,
    },
    sampler::SamplerConfig,
    tokenizer::EncodeOptions,
    wire::{Defaults, Settings},
};

/// Says the same to everybody. The vocabulary is one whose texts begin with a space.
struct Fake {
    tokens: Vec<u32>,
    /// Tokens of a text.
    room: usize,
    /// At once.
    texts: usize,
    /// Parts of prompts.
    chunk: usize,
    pause: Duration,
    jobs: Mutex<Vec<Job>>,
    /// How long the engine takes to look at a job.
    pass: Duration,
    /// Jobs whose listeners went away before the end.
    left: Arc<AtomicUsize>,
    /// What slots have, with the number of the slot as the first token.
    saved: Mutex<Vec<SavedText>>,
}

impl Answers for Arc<Fake> {
    fn submit(&self, job: Job, _: TextRule, mut listener: Listener) -> crate::Result<JobId> {
        let (tokens, chunk, pause, left) = (self.tokens.clone(), self.chunk, self.pause, self.left.clone());
        let prompt_tokens = job.request.prompt.len();
        self.jobs.lock().unwrap().push(job.clone());
        std::thread::sleep(self.pass);
        std::thread::spawn(move || {
            let most = job.request.max_tokens.unwrap_or(usize::MAX);
            let made: Vec<u32> = tokens.into_iter().take(most).collect();
            let _ = listener(Event::Begun { cached: 1, slot: 1 });
            for done in (1..prompt_tokens).step_by(chunk) {
                let _ = listener(Event::Evaluated((done + chunk).min(prompt_tokens)));
            }
            for &id in &made {
                std::thread::sleep(pause);
                // The token that was chosen is not among the likeliest.
                let likely = (0..job.request.logprobs as u32).map(|n| (n, -1.0 - n as f32)).collect();
                let score = (job.request.logprobs > 0).then_some(TokenScore { logprob: -7.0, likely });
                if listener(Event::Token { token: Token { id, drafted_by: None }, score }).is_break() {
                    left.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
            let stop = if made.len() == most { Stop::MaxTokens } else { Stop::EndOfText };
            let generation = Generation {
                tokens: made,
                logprobs: Vec::new(),
                // The engine came to the end, whether somebody waits for it or not.
                end: (job.request.logprobs > 0)
                    .then_some((2, TokenScore { logprob: -9.0, likely: Vec::new() })),
                prefill_seconds: 0.0,
                decode_seconds: 0.0,
                packing_seconds: 0.0,
                steps: 0,
                stop,
            };
            let ended = Ended {
                generation,
                report: Report::off("nothing drafts here"),
                prompt_tokens,
                cached: 1,
                scored: job.scores_from.map_or(Vec::new(), |_| {
                    vec![TokenScore { logprob: -3.0, likely: Vec::new() }; prompt_tokens - 1]
                }),
                shifted: true,
                seed: 0,
            };
            let _ = listener(Event::Ended(Ok(Box::new(ended))));
        });
        Ok(0)
    }

    fn cancel(&self, _: JobId) {}

    fn status(&self) -> crate::Result<Status> {
        let slots = vec![SlotStatus::default(); 2];
        Ok(Status { free_cells: 8, cells: 16, slots, ..Status::default() })
    }

    fn save(&self, slot: usize) -> crate::Result<SavedText> {
        Ok(SavedText { tokens: vec![slot as u32, 8, 9], cells: None })
    }

    fn restore(&self, slot: usize, saved: SavedText) -> crate::Result<usize> {
        let count = saved.tokens.len();
        self.saved.lock().unwrap().insert(slot, saved);
        Ok(count)
    }

    fn erase(&self, slot: usize) -> crate::Result<usize> {
        Ok(self.saved.lock().unwrap().remove(slot).tokens.len())
    }
}

struct Server {
    at: SocketAddr,
    fake: Arc<Fake>,
    /// What was written down.
    records: Arc<Mutex<Vec<Value>>>,
    ends: watch::Sender<bool>,
    runtime: tokio::runtime::Runtime,
    served: tokio::task::JoinHandle<crate::Result<()>>,
}

const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}<tool_call>{% endif %}\
    {% if add_generation_prompt %}<assistant>{% endif %}";

fn start(says: &str, change: impl FnOnce(&mut Config, &mut Fake)) -> Option<Server> {
    start_with(TEMPLATE, says, change)
}

fn start_with(template: &str, says: &str, change: impl FnOnce(&mut Config, &mut Fake)) -> Option<Server> {
    let Ok(gguf) = spec_run_gguf::embedded::open() else {
        eprintln!("NOT RUN: no embedded model");
        return None;
    };
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    let tokens = tokenizer.encode(says, EncodeOptions::PLAIN);
    let (jobs, left) = (Mutex::default(), Arc::default());
    let pause = Duration::from_millis(1);
    let mut fake = Fake {
        tokens,
        room: 128,
        texts: 2,
        chunk: 4,
        pause,
        jobs,
        pass: Duration::ZERO,
        left,
        saved: Mutex::default(),
    };
    let mut config = Config {
        hosts: vec!["127.0.0.1".into()],
        port: 0,
        api_keys: Vec::new(),
        origins: Origins::All,
        most_body: 1 << 20,
        timeout: Duration::from_secs(60),
        most_waiting: 8,
        slots: true,
        saves_to: None,
        predict: None,
        metrics: true,
        grace: Duration::from_secs(5),
    };
    change(&mut config, &mut fake);
    let (room, texts) = (fake.room, fake.texts);
    let fake = Arc::new(fake);
    let source = TemplateSource::new(template.into(), &tokenizer).unwrap();
    let template = ChatTemplate::new(source.clone()).unwrap();
    let caps = template.caps(false);
    let preparer = Preparer {
        vocabulary: Vocabulary::new(&tokenizer).ok(),
        controls: Controls::of(&tokenizer),
        tokenizer,
        template: Some(source),
        render: Box::new(move |conversation| template.render(conversation, &caps)),
        mask: Box::new(|_| Err(Error::Mask("there are none here".into()))),
        adapters: Adapters::default(),
        n_ctx: room,
        shifts: false,
    };
    let facts = Facts {
        names: vec!["test".into()],
        model_name: Some("Test 1".into()),
        tags: Vec::new(),
        path: "test.gguf".into(),
        fingerprint: "b1".into(),
        texts,
        n_ctx_train: 128,
        n_embd: 1,
        n_params: 1,
        size: 1,
        sources: vec!["ngram".into()],
        masks: json!([]),
        caps: Some(caps),
        template_from: TemplateFrom::Model,
    };
    let defaults = Defaults { settings: Settings::new(SamplerConfig::greedy()), ..Defaults::default() };
    let served = Served::new(defaults, facts, preparer, Box::new(fake.clone()));
    let mut app = App::new(config, Models::one(served));
    app.assets = &[("index.html", "text/html", b"<!doctype html>")];
    let records: Arc<Mutex<Vec<Value>>> = Arc::default();
    let to = records.clone();
    app.log = Some(Box::new(move |record| to.lock().unwrap().push(record.to_json())));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listeners = runtime.block_on(listen(&app.config)).unwrap();
    let at = listeners[0].local_addr().unwrap();
    let (ends, ended) = watch::channel(false);
    let served = runtime.spawn(serve(Arc::new(app), listeners, ended));
    Some(Server { at, fake, records, ends, runtime, served })
}

struct Reply {
    status: u16,
    /// As it came, and in small letters.
    head: String,
    headers: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The data of a stream.
    fn events(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }
}

impl Server {
    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let mut socket = self.connect();
        let length = body.len();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
        )
        .unwrap();
        // A server that has refused already may have closed.
        let _ = socket.write_all(body);
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all);
        let text = String::from_utf8(all).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Reply { status, head: head.into(), headers: head.to_lowercase(), body }
    }

    fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", b"")
    }

    fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, "content-type: application/json\r\n", body.to_string().as_bytes())
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        text.push_str(&rest[..length]);
        body = rest[length..].trim_start_matches("\r\n");
    }
    text
}

fn talk() -> Value {
    json!([{ "role": "user", "content": "Hi" }])
}

#[test]
fn answers_in_all_shapes() {
    let Some(server) = start("Once upon a time", |_, _| ()) else { return };
    let chat = server
        .post("/v1/chat/completions", json!({ "messages": talk(), "logprobs": true, "top_logprobs": 2 }));
    let (status, chat) = (chat.status, chat.json());
    assert_eq!(
        (status, &chat["choices"][0]["message"]["content"]),
        (200, &json!(" Once upon a time")),
        "{chat}"
    );
    assert_eq!(chat["choices"][0]["finish_reason"], "stop");
    let first = &chat["choices"][0]["logprobs"]["content"][0];
    assert_eq!((&first["logprob"], first["top_logprobs"].as_array().unwrap().len()), (&json!(-7.0), 2));
    let text =
        server.post("/v1/completions", json!({ "prompt": "Hi", "max_tokens": 2, "n": 2, "seed": 7 })).json();
    assert_eq!(
        (text["choices"].as_array().unwrap().len(), &text["usage"]["completion_tokens"]),
        (2, &json!(4))
    );
    assert_eq!(text["choices"][1]["finish_reason"], "length");
    let jobs = server.fake.jobs.lock().unwrap().clone();
    assert_eq!((jobs[1].sampler.seed, jobs[2].sampler.seed), (Some(7), Some(8)));
    assert_eq!(server.post("/completion", json!({ "prompt": "Hi" })).json()["content"], " Once upon a time");
    let response = server.post("/v1/responses", json!({ "input": "Hi" })).json();
    assert_eq!(response["output"][0]["content"][0]["text"], " Once upon a time");
    let message = server.post("/v1/messages", json!({ "messages": talk(), "max_tokens": 9 })).json();
    assert_eq!(
        (&message["content"][0]["text"], &message["stop_reason"]),
        (&json!(" Once upon a time"), &json!("end_turn"))
    );
}

#[test]
fn streams_come_in_pieces_and_end_at_stop_strings() {
    let Some(server) = start("Once upon a time", |_, _| ()) else { return };
    let reply =
        server.post("/v1/chat/completions", json!({ "messages": talk(), "stream": true, "stop": ["on a"] }));
    assert!(reply.headers.contains("content-type: text/event-stream"), "{}", reply.headers);
    let events = reply.events();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(chunks[0]["sources"], json!(["ngram"]));
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, " Once up");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    let body = server.post("/completion", json!({ "prompt": "Hi", "stop": "on a" })).json();
    assert_eq!(
        (&body["content"], &body["stop_type"], &body["stopping_word"]),
        (&json!(" Once up"), &json!("word"), &json!("on a"))
    );
}

#[test]
fn calls_of_tools_are_read() {
    let says = "Sure.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>";
    let Some(server) = start(says, |_, _| ()) else { return };
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let body = server.post("/v1/chat/completions", json!({ "messages": talk(), "tools": tools })).json();
    let choice = &body["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &json!(" Sure."))
    );
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(
        (&call["function"]["name"], &call["function"]["arguments"]),
        (&json!("f"), &json!("{\"x\": 1}"))
    );
    assert_eq!(call["id"].as_str().unwrap().len(), 9);
}

#[test]
fn answers_and_refusals_are_written_down() {
    let Some(server) = start("Once upon a time", |_, _| ()) else { return };
    let asked = json!({ "messages": talk(), "max_tokens": 3 });
    assert_eq!(server.post("/v1/chat/completions", asked.clone()).status, 200);
    assert_eq!(server.post("/v1/chat/completions", json!({ "messages": 3 })).status, 400);
    let mut streamed = asked;
    streamed["stream"] = json!(true);
    assert_eq!(server.post("/v1/messages", streamed).status, 200);
    let records = server.records.lock().unwrap().clone();
    let told = |n: usize, field: &str| records[n][field].clone();
    assert_eq!((told(0, "event"), told(0, "tokens")), (json!("answered"), json!(3)));
    assert_eq!((told(0, "path"), told(0, "reason")), (json!("/v1/chat/completions"), json!("limit")));
    assert_eq!((told(1, "event"), told(1, "status")), (json!("refused"), json!(400)));
    assert!(told(1, "message").as_str().unwrap().contains("messages"), "{records:?}");
    assert_eq!((told(2, "event"), told(2, "path")), (json!("answered"), json!("/v1/messages")));
    assert_eq!(records.len(), 3, "{records:?}");
}

#[test]
fn who_hangs_up_ends_the_job() {
    let Some(server) =
        start(&"Once upon a time ".repeat(50), |_, fake| fake.pause = Duration::from_millis(20))
    else {
        return;
    };
    let body = json!({ "messages": talk(), "stream": true }).to_string();
    for body in [body, json!({ "messages": talk() }).to_string()] {
        let before = server.fake.left.load(Ordering::Relaxed);
        let mut socket = server.connect();
        let length = body.len();
        write!(
            socket,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        std::thread::sleep(Duration::from_millis(200));
        drop(socket);
        let began = Instant::now();
        while server.fake.left.load(Ordering::Relaxed) == before {
            assert!(began.elapsed() < Duration::from_secs(10), "the job goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn keys_and_origins() {
    let Some(server) = start("x", |config, _| {
        config.api_keys = vec!["secret".into()];
        config.origins = Origins::parse("localhost");
    }) else {
        return;
    };
    assert_eq!((server.get("/health").status, server.get("/").status), (200, 200));
    let refused = server.post("/completions", json!({ "prompt": "Hi" }));
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (401, &json!("authentication_error")));
    let body = json!({ "prompt": "Hi" }).to_string();
    for header in ["authorization: Bearer secret\r\n", "x-api-key: secret\r\n"] {
        assert_eq!(server.send("POST", "/completions", header, body.as_bytes()).status, 200);
    }
    assert_eq!(
        server.send("POST", "/completions", "authorization: Bearer wrong\r\n", body.as_bytes()).status,
        401
    );
    let asked = server.send("OPTIONS", "/completions", "origin: http://localhost:3\r\n", b"");
    assert!(asked.status == 200 && asked.headers.contains("access-control-allow-origin: http://localhost:3"));
    // There are clients that look for the usual spelling.
    assert!(asked.head.contains("\r\nAccess-Control-Allow-Origin: "), "{}", asked.head);
    let asked = server.send("OPTIONS", "/completions", "origin: http://evil.com\r\n", b"");
    assert!(asked.status == 200 && !asked.headers.contains("access-control-allow-origin"));
}

#[test]
fn what_cannot_be_is_refused_and_others_go_on() {
    let Some(server) = start("x", |_, _| ()) else { return };
    let long = "word ".repeat(500);
    let error = server.post(
        "/v1/chat/completions",
        json!({ "messages": [{ "role": "user", "content": long }], "stream": true }),
    );
    let body = error.json();
    assert_eq!((error.status, &body["error"]["type"]), (400, &json!("exceed_context_size_error")));
    assert_eq!(body["error"]["n_ctx"], 128);
    assert!(body["error"]["n_prompt_tokens"].as_u64().unwrap() > 128);
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 6] =
        [b"", b"{", b"\xff\xfe", b"[]", deep.as_bytes(), b"{\"messages\": [{\"role\": 1}]}"];
    for body in bodies {
        for path in [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/responses",
            "/v1/messages",
            "/infill",
            "/tokenize",
        ] {
            let reply = server.send("POST", path, "", body);
            assert_eq!(reply.status, 400, "{path}: {}", reply.body);
            assert!(reply.json()["error"]["message"].is_string());
        }
    }
    let giant = server.send("POST", "/completion", "", &vec![b' '; (1 << 20) + 1]);
    assert!(matches!(giant.status, 413 | 0), "{}", giant.status);
    assert_eq!(server.get("/nothing").json()["error"]["type"], "not_found_error");
    let long = server.get(&format!("/{}", "a".repeat(5000))).json()["error"]["message"].clone();
    assert!(long.as_str().is_some_and(|text| text.len() < 300), "{long}");
    assert_eq!((server.get("//").status, server.send("PUT", "/", "", b"").status), (404, 405));
    let asked = server.get("/v1/chat/completions");
    assert!(asked.status == 405 && asked.headers.contains("\r\nallow: post"), "{}", asked.headers);
    assert!(asked.json()["error"]["message"].as_str().unwrap().contains("GET is not possible"));
    let anthropic = server.post("/v1/messages", json!({})).json();
    assert_eq!(
        (&anthropic["type"], &anthropic["error"]["type"]),
        (&json!("error"), &json!("invalid_request_error"))
    );
    let any = json!({ "type": "json_schema", "json_schema": { "name": "any", "schema": true } });
    let asked = json!({ "messages": talk(), "response_format": any });
    assert_eq!(server.post("/v1/chat/completions", asked).status, 200);
    let mask = server.post("/completion", json!({ "prompt": "Hi", "mask": "x" })).json();
    assert_eq!(mask["error"]["param"], "mask");
    for wrong in
        [json!({ "json_schema": { "type": "hiccup" } }), json!({ "grammar": "root ::= this is (not" })]
    {
        let mut body = wrong.clone();
        body["prompt"] = "Hi".into();
        assert_eq!(server.post("/completion", body).status, 400, "{wrong}");
    }
    assert_eq!(server.post("/completion", json!({ "prompt": "Hi" })).json()["content"], " x");
}

#[test]
fn a_full_queue_is_said() {
    let slow = |config: &mut Config, fake: &mut Fake| {
        (fake.texts, config.most_waiting) = (1, 0);
        fake.pause = Duration::from_millis(20);
    };
    let Some(server) = start(&"Once upon a time ".repeat(4), slow) else { return };
    let ask = || server.post("/completion", json!({ "prompt": "Hi" }));
    std::thread::scope(|scope| {
        let first = scope.spawn(ask);
        std::thread::sleep(Duration::from_millis(150));
        let second = ask();
        assert_eq!((second.status, &second.json()["error"]["type"]), (503, &json!("unavailable_error")));
        assert_eq!(first.join().unwrap().status, 200);
    });
    assert_eq!(ask().status, 200);
}

#[test]
fn a_queue_is_full_also_while_the_engine_has_not_looked_at_it() {
    let slow = |config: &mut Config, fake: &mut Fake| {
        (fake.texts, config.most_waiting) = (1, 0);
        fake.pass = Duration::from_millis(500);
    };
    let Some(server) = start("Once upon a time", slow) else { return };
    let mut statuses = std::thread::scope(|scope| {
        let ask = || server.post("/completion", json!({ "prompt": "Hi" })).status;
        let asked = [(); 3].map(|()| scope.spawn(ask));
        asked.map(|one| one.join().unwrap())
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503, 503]);
}

#[test]
fn tokens_templates_and_what_the_server_is() {
    let Some(server) = start("x", |_, _| ()) else { return };
    let tokens = server.post("/tokenize", json!({ "content": "Once upon" })).json()["tokens"].clone();
    assert_eq!(server.post("/detokenize", json!({ "tokens": tokens })).json()["content"], " Once upon");
    let pieces = server.post("/tokenize", json!({ "content": "Once", "with_pieces": true })).json();
    assert!(pieces["tokens"][0]["piece"].is_string());
    let vllm = server.post("/tokenize", json!({ "prompt": "Once upon" })).json();
    assert_eq!(vllm["count"].as_u64().unwrap() as usize, tokens.as_array().unwrap().len() + 1);
    let template = server.post("/apply-template", json!({ "messages": talk() })).json();
    assert_eq!(template["prompt"], "<user>Hi<assistant>");
    let counted = server.post("/v1/messages/count_tokens", json!({ "messages": talk() })).json();
    assert!(counted["input_tokens"].as_u64().unwrap() > 3);
    let props = server.get("/props").json();
    assert_eq!(
        (&props["total_slots"], &props["default_generation_settings"]["n_ctx"]),
        (&json!(2), &json!(128))
    );
    assert_eq!((&props["model_alias"], &props["model_name"]), (&json!("test"), &json!("Test 1")));
    assert_eq!(props["chat_template_from"], "model");
    assert_eq!(server.get("/v1/models").json()["data"][0]["id"], "test");
    assert_eq!(server.get("/slots").json().as_array().unwrap().len(), 2);
    server.post("/completion", json!({ "prompt": "Hi" }));
    let metrics = server.get("/metrics").body;
    let line = format!("\nllamacpp:tokens_predicted_total {}\n", server.fake.tokens.len());
    assert!(metrics.contains(&line), "{metrics}");
    let page = server.get("/");
    assert!(page.body.starts_with("<!doctype html>") && page.headers.contains("content-security-policy"));
}

/// Who says nothing, or half of something, does not keep a connection.
#[test]
fn who_is_slow_is_shown_out() {
    let Some(server) = start("x", |config, _| config.timeout = Duration::from_millis(300)) else { return };
    let whole = "POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: 16\r\n\r\n{\"prompt\": \"Hi\"}";
    for came in ["", "POST /comp", &whole[..50], &whole[..whole.len() - 1]] {
        let mut socket = server.connect();
        socket.write_all(came.as_bytes()).unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        // Of a body that did not come there is something to say.
        assert_eq!(reply.starts_with("HTTP/1.1 408"), came.ends_with("Hi\""), "{came:?}: {reply}");
    }
    assert_eq!(server.post("/completion", json!({ "prompt": "Hi" })).status, 200);
}

/// Answers that have begun are finished, and nothing new is taken.
#[test]
fn it_ends_gracefully() {
    let Some(server) =
        start(&"Once upon a time ".repeat(4), |_, fake| fake.pause = Duration::from_millis(20))
    else {
        return;
    };
    let body = json!({ "prompt": "Hi" }).to_string();
    let mut socket = server.connect();
    let length = body.len();
    write!(socket, "POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    std::thread::sleep(Duration::from_millis(150));
    server.ends.send(true).unwrap();
    let mut text = String::new();
    let _ = socket.read_to_string(&mut text);
    assert!(text.contains("\"stop_type\":\"eos\""), "{text}");
    server.runtime.block_on(server.served).unwrap().unwrap();
    assert!(TcpStream::connect(server.at).is_err());
}
