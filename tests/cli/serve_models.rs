//! A server with several models: which answers, which are loaded, and what becomes of those that cannot be.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::fs::symlink,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::common::{
    program::{EMBEDDED, Folder, run},
    server::Server,
};

/// A folder with the embedded model under these names.
fn folder(names: &[&str]) -> Folder {
    let folder = Folder::new();
    for name in names {
        symlink(EMBEDDED, folder.join(format!("{name}.gguf"))).unwrap();
    }
    folder
}

/// Nothing is found in this cache of downloads.
fn started(folder: &Path, args: &[&str]) -> Server {
    let none = folder.join("no-cache");
    let variables = [("LLAMA_CACHE", none.to_str().unwrap())];
    Server::start_in(&variables, &[&["--models-dir", folder.to_str().unwrap()], args].concat())
}

fn status(server: &Server, name: &str) -> String {
    let listed = server.get("/v1/models");
    let all = listed["data"].as_array().unwrap();
    let one = all.iter().find(|model| model["id"] == name);
    one.map_or("none".into(), |model| model["status"]["value"].as_str().unwrap().into())
}

fn wait_for(server: &Server, name: &str, wanted: &str) {
    let began = Instant::now();
    while status(server, name) != wanted {
        assert!(began.elapsed() < Duration::from_secs(120), "{name} is {}", status(server, name));
        thread::sleep(Duration::from_millis(20));
    }
}

fn load(server: &Server, name: &str) {
    assert_eq!(server.json("/models/load", &json!({ "model": name })), json!({ "success": true }));
    wait_for(server, name, "loaded");
}

fn unload(server: &Server, name: &str) {
    assert_eq!(server.json("/models/unload", &json!({ "model": name })), json!({ "success": true }));
    wait_for(server, name, "unloaded");
}

fn ask(model: &str) -> Value {
    json!({ "model": model, "prompt": "Once upon a time", "n_predict": 24, "temperature": 0 })
}

fn message(said: &Value) -> &str {
    said["error"]["message"].as_str().unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn a_request_names_the_model_that_answers() {
    let folder = folder(&["a", "b", "c"]);
    let server = started(&folder, &["--models-max", "2"]);
    assert_eq!(["a", "b", "c"].map(|name| status(&server, name)), ["unloaded"; 3]);
    let props = server.get("/props");
    assert_eq!((&props["role"], &props["max_instances"]), (&json!("router"), &json!(2)));
    // The text is that of a server with the one model.
    let alone = Server::start(&["-m", EMBEDDED]).text(&ask(""));
    for name in ["a", "b"] {
        let said = server.json("/completion", &ask(name));
        assert_eq!((&said["content"], &said["model"]), (&alone, &json!(name)), "{said}");
    }
    assert_eq!(["a", "b", "c"].map(|name| status(&server, name)), ["loaded", "loaded", "unloaded"]);
    // The longest unused makes room.
    assert_eq!(server.text(&ask("c")), alone);
    assert_eq!(["a", "b", "c"].map(|name| status(&server, name)), ["unloaded", "loaded", "loaded"]);
    unload(&server, "c");
    for (body, what) in [
        (json!({ "prompt": "Hi" }), "model name is missing from the request"),
        (ask("d"), "model `d` not found"),
        (ask("a\n"), "model `a\\n` not found"),
    ] {
        server.refuses("/completion", &body, 400, what);
    }
    assert!(message(&server.json("/models/unload", &json!({ "model": "a" }))).contains("is not running"));
    assert!(message(&server.json("/models/load", &json!({ "model": "b" }))).contains("is already running"));
    // What has to be looked up in a model loads it too.
    let tokens = server.json("/tokenize", &json!({ "model": "a", "content": "Hi" }));
    assert!(tokens["tokens"].is_array(), "{tokens}");
    assert_eq!(server.get("/props?model=a")["model_alias"], "a");
    assert!(message(&server.get("/slots")).contains("model name is missing"));
    assert!(server.get("/slots?model=a").is_array());
}

/// With room for one, the text that is being made is made to its end, and who waits is told.
#[test]
fn a_text_in_the_making_is_not_cut() {
    let folder = folder(&["a", "b"]);
    let server = started(&folder, &["--models-max", "1"]);
    let long =
        json!({ "model": "a", "prompt": "Once", "n_predict": 400, "ignore_eos": true, "temperature": 0 });
    let alone = server.text(&long);
    thread::scope(|scope| {
        let first = scope.spawn(|| server.text(&long));
        while server.get("/slots?model=a&autoload=0")[0]["is_processing"] != true && !first.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        let mut second = ask("b");
        second["stream"] = json!(true);
        let events = server.post("/completion", &second);
        assert!(events.contains("\"stop\":true"), "{events}");
        assert_eq!(first.join().unwrap(), alone);
    });
    assert_eq!([status(&server, "a"), status(&server, "b")], ["unloaded", "loaded"]);
}

/// A connection on which something was asked.
fn asked(server: &Server, head: &str, body: &str) -> TcpStream {
    let at = server.said.last().unwrap().split_once("http://").unwrap().1;
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    write!(socket, "{head} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    socket
}

/// Who waited for a model and has gone costs no other model its place.
#[test]
fn a_client_that_leaves_while_it_waits_loads_nothing() {
    let folder = folder(&["a", "b"]);
    let server = started(&folder, &["--models-max", "1"]);
    load(&server, "a");
    let long = json!({ "model": "a", "prompt": "Once", "n_predict": 400, "ignore_eos": true });
    thread::scope(|scope| {
        let busy = scope.spawn(|| server.text(&long));
        while server.get("/slots?model=a")[0]["is_processing"] != true && !busy.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        let waits = asked(&server, "POST /completion", &ask("b").to_string());
        thread::sleep(Duration::from_millis(200));
        drop(waits);
        assert!(busy.join().unwrap().is_string());
    });
    thread::sleep(Duration::from_secs(1));
    assert_eq!([status(&server, "a"), status(&server, "b")], ["loaded", "unloaded"]);
}

#[test]
fn what_happens_to_models_is_told_as_it_happens() {
    let folder = folder(&["a"]);
    let server = started(&folder, &[]);
    let mut events = BufReader::new(asked(&server, "GET /models/sse", "")).lines();
    // The head is there: whoever listens is known.
    assert!(events.next().unwrap().unwrap().contains("200"));
    load(&server, "a");
    unload(&server, "a");
    let told = events
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let said: Vec<String> = told.take(3).map(|event| event.to_string()).collect();
    let of = |status: &str| {
        json!({ "model": "a", "event": "model_status", "data": { "status": status } }).to_string()
    };
    assert_eq!(said, ["loading", "loaded", "unloaded"].map(of));
}

#[test]
fn a_server_with_one_model_loads_and_lets_go_of_none() {
    let server = Server::start(&[]);
    for path in ["/models/load", "/models/unload"] {
        server.refuses(path, &json!({ "model": "x" }), 501, "one model");
    }
    assert!(server.text(&ask("any name")).is_string());
}

#[test]
fn models_are_loaded_by_hand_where_requests_may_not() {
    let folder = folder(&["a"]);
    let server = started(&folder, &["--no-models-autoload"]);
    server.refuses("/completion", &ask("a"), 400, "model is not loaded");
    load(&server, "a");
    assert!(server.text(&ask("a")).is_string());
    unload(&server, "a");
    assert!(server.json("/completion?autoload=1", &ask("a"))["content"].is_string());
}

/// Weights of 14 MiB, and keys and values beside them.
#[test]
fn memory_is_counted_before_a_model_is_loaded() {
    let folder = folder(&["a", "b"]);
    let preset = "[large]\nmodel = MODEL\nc = 4096\n".replace("MODEL", EMBEDDED);
    let preset = folder.file("presets.ini", preset);
    let room = ["--models-memory", "30MiB", "--models-preset", &preset];
    let mut all = room.to_vec();
    // Of all models; a preset's own is the command line's here, so each has 512.
    all.extend(["--models-max", "0"]);
    let server = started(&folder, &all);
    assert!(server.text(&ask("a")).is_string());
    assert!(server.text(&ask("b")).is_string());
    assert_eq!([status(&server, "a"), status(&server, "b")], ["unloaded", "loaded"]);
    let small = started(&folder, &["--models-memory", "10MiB"]);
    small.refuses("/completion", &ask("a"), 500, "of memory and 10 MiB models may have");
    assert_eq!(status(&small, "a"), "unloaded");
}

#[test]
fn a_file_that_vanishes_is_said_and_others_go_on() {
    let folder = folder(&["a", "b"]);
    folder.file("broken.gguf", "GGUF and then something else");
    let server = started(&folder, &["--models-max", "1"]);
    fs::remove_file(folder.join("a.gguf")).unwrap();
    for name in ["a", "broken"] {
        server.refuses("/completion", &ask(name), 500, &format!("{name}.gguf"));
        assert_eq!(status(&server, name), "unloaded");
    }
    let failed = server.get("/models")["data"][0]["status"].clone();
    assert_eq!((&failed["failed"], &failed["exit_code"]), (&json!(true), &json!(1)), "{failed}");
    assert!(server.text(&ask("b")).is_string());
    symlink(EMBEDDED, folder.join("a.gguf")).unwrap();
    assert!(server.text(&ask("a")).is_string());
    // A stream has no status left for it.
    fs::remove_file(folder.join("b.gguf")).unwrap();
    let mut streamed = ask("b");
    streamed["stream"] = json!(true);
    assert!(server.post("/completion", &streamed).contains("b.gguf"));
}

#[test]
fn presets_give_models_their_flags_and_are_read_again() {
    let folder = folder(&["a"]);
    let write = |text: &str| folder.file("presets.ini", text.replace("MODEL", EMBEDDED));
    let preset = write(
        "[*]\nparallel = 2\n[a]\nalias = first, one\ntemp = 0.25\n[mine]\nmodel = MODEL\nload-on-startup = 1\nnp = 1\ntemp = 0.5\n",
    );
    let server = started(&folder, &["--models-preset", &preset]);
    wait_for(&server, "mine", "loaded");
    let settings = |name: &str| {
        let props = server.get(&format!("/props?model={name}"));
        (props["default_generation_settings"]["params"]["temperature"].clone(), props["total_slots"].clone())
    };
    assert_eq!(settings("mine"), (json!(0.5), json!(1)));
    assert_eq!(settings("one"), (json!(0.25), json!(2)));
    assert_eq!(server.json("/completion", &ask("first"))["model"], "a");
    write("[mine]\nmodel = MODEL\n[new]\nmodel = MODEL\n");
    let listed = server.get("/models?reload=1");
    let names: Vec<_> = listed["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(names, ["a", "mine", "new"]);
    // Others' settings: what was loaded goes.
    wait_for(&server, "mine", "unloaded");
    write("[new]\nmodel = MODEL\nno-such-flag = 1\n");
    assert!(message(&server.get("/models?reload=1")).contains("no-such-flag"));
    assert_eq!(status(&server, "new"), "unloaded");
}

#[test]
fn wrong_lists_are_refused_at_the_start() {
    let folder = folder(&["a"]);
    let of_none = folder.file("of-none.ini", "[x]\nc = 5\n");
    let twice = folder.file("twice.ini", "[x]\nmodel = MODEL\nalias = a\n");
    let (none, dir) = (folder.path("none"), folder.to_str().unwrap());
    for (args, what, code) in [
        (&["--models-dir", &none][..], "none", 1),
        (&["--models-preset", &none], "none", 1),
        (&["--models-preset", &of_none], "the preset [x] is of no model", 1),
        (&["--models-dir", dir, "-m", EMBEDDED], "-m, -hf or -mu beside --models-dir", 2),
        (&["--models-dir", dir, "--models-memory", "5"], "--models-memory 5", 2),
        (&["--models-dir", dir, "--dry-run"], "--dry-run: it is for one model", 2),
        (&["--models-dir", dir, "--models-preset", &twice], "\"a\" is a name of the models", 1),
    ] {
        run(&[&["serve"], args].concat()).refused(code, &[what]);
    }
}

/// What the process holds: threads, handles, KiB of memory.
#[cfg(target_os = "linux")]
fn held(server: &Server) -> [usize; 3] {
    let at = |name: &str| format!("/proc/{}/{name}", server.child.id());
    let count = |name: &str| fs::read_dir(at(name)).unwrap().count();
    let status = fs::read_to_string(at("status")).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    [count("task"), count("fd"), kib.trim().trim_end_matches(" kB").parse().unwrap()]
}

#[cfg(target_os = "linux")]
#[test]
fn two_hundred_loads_leave_nothing_behind() {
    let folder = folder(&["a", "b"]);
    let server = started(&folder, &["--models-max", "1", "-t", "2"]);
    let once = |name: &str| {
        let said = server.text(&json!({ "model": name, "prompt": "Hi", "n_predict": 2 }));
        assert!(said.is_string(), "{said}");
    };
    for _ in 0..10 {
        once("a");
        once("b");
    }
    unload(&server, "b");
    let before = held(&server);
    for _ in 0..100 {
        once("a");
        once("b");
    }
    unload(&server, "b");
    let after = held(&server);
    eprintln!("threads, handles, KiB: {before:?}, after 200 loads {after:?}");
    // Threads of the runtime come and go.
    assert!(after[0] <= before[0] + 4, "threads: {before:?}, {after:?}");
    assert!(after[1] <= before[1] + 2, "handles: {before:?}, {after:?}");
    // A model takes 30 MiB.
    assert!(after[2] <= before[2] + 8 * 1024, "KiB: {before:?}, {after:?}");
}
