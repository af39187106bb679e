//! Adapters and control vectors from outside: on the command line, and in requests.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::{
    embedded_model, lora,
    program::{EMBEDDED, Folder, run, stdout},
    server::Server,
};

/// Two adapters and a control vector of the embedded model.
struct Files {
    folder: Folder,
    adapters: [PathBuf; 2],
    vector: PathBuf,
}

fn files() -> Files {
    let folder = Folder::new();
    let model = embedded_model();
    let parts = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let is_adapted = |name: &&String| parts.iter().any(|part| name.ends_with(&format!(".{part}.weight")));
    let names = model.gguf.tensors().iter().map(|tensor| &tensor.name);
    let tensors: Vec<String> = names.filter(is_adapted).cloned().collect();
    let [one, two] = lora::adapters(&folder, &model, &tensors).try_into().unwrap();
    let width = model.gguf.metadata().u32("llama.embedding_length").unwrap().unwrap() as usize;
    let vector = lora::vector(&folder, model.n_layer(), width).path;
    Files { folder, adapters: [one.path, two.path], vector }
}

impl Files {
    /// Flags for both, with so much of each.
    fn flags(&self, scales: [f32; 2]) -> [String; 3] {
        let scaled =
            std::iter::zip(&self.adapters, scales).map(|(path, scale)| format!("{}:{scale}", path.display()));
        let scaled: Vec<String> = scaled.collect();
        ["--no-learn".into(), "--lora-scaled".into(), scaled.join(",")]
    }
}

/// What is written after a beginning, with flags.
fn written(flags: &[String], more: &[&str]) -> String {
    let start = ["-p", "Once upon a time", "-n", "40", "--temp", "0", "-c", "128"];
    let flags = flags.iter().map(String::as_str);
    stdout(&flags.chain(start).chain(more.iter().copied()).collect::<Vec<_>>())
}

#[test]
fn adapters_change_the_text_by_their_scales_and_drafts_do_not() {
    let files = files();
    let none = ["--no-learn".to_owned()];
    let plain = written(&none, &["--draft", "none"]);
    assert_eq!(written(&files.flags([0.0, 0.0]), &["--draft", "none"]), plain, "nothing of both");
    let with = |scales| written(&files.flags(scales), &["--draft", "none"]);
    let texts = [with([0.25, 0.0]), with([0.0, 1.5]), with([0.25, 1.5])];
    for (i, text) in texts.iter().enumerate() {
        assert!(*text != plain && !texts[..i].contains(text), "{i}: {text}");
    }
    // Whole, it is the scale 1.
    let [one, two] = files.adapters.each_ref().map(|path| path.display().to_string());
    let flags = ["--no-learn", "--lora", &one, "--lora-scaled", &format!("{two}:1.5")].map(str::to_owned);
    assert_eq!(written(&flags, &["--draft", "none"]), with([1.0, 1.5]));
    for drafts in
        [&["--draft", "ngram", "--draft-max", "5"][..], &["--draft-exit", "4", "--draft-max", "4"], &[]]
    {
        assert_eq!(written(&files.flags([0.25, 1.5]), drafts), texts[2], "{drafts:?}");
    }
}

#[test]
fn a_control_vector_changes_the_text() {
    let files = files();
    let vector = files.vector.display().to_string();
    let with = |flags: &[&str]| {
        let flags = [&["--no-learn"], flags].concat();
        written(&flags.into_iter().map(str::to_owned).collect::<Vec<_>>(), &["--draft", "none"])
    };
    let plain = with(&[]);
    let scaled = |scale: &str| with(&["--control-vector-scaled", &format!("{vector}:{scale}")]);
    let steered = scaled("3");
    assert_ne!(steered, plain);
    assert_eq!(scaled(&format!("1.5,{vector}:1.5")), steered);
    assert_eq!(scaled("0"), plain);
    assert_eq!(with(&["--control-vector", &vector]), scaled("1"));
    let strong = format!("{vector}:3");
    let range = |first, last| {
        with(&["--control-vector-scaled", &strong, "--control-vector-layer-range", first, last])
    };
    assert_eq!(range("1", "99"), steered);
    assert_ne!(range("1", "2"), steered);
    assert_eq!(range("99", "99"), plain);
}

#[test]
fn a_file_that_is_no_adapter_ends_the_program_in_one_line() {
    let files = files();
    let bytes = std::fs::read(&files.adapters[0]).unwrap();
    let damaged = files.folder.file("damaged.gguf", &bytes[..bytes.len() / 2]);
    for (path, what) in [
        (&*damaged, "the file is incomplete or damaged"),
        (EMBEDDED, "`general.type` is"),
        ("no-such-file.gguf", "No such file"),
    ] {
        run(&["--lora", path, "-p", "Hi", "-n", "1", "-c", "64"]).failed(1, &[path, what]);
    }
}

fn lora(scales: [f32; 2]) -> Value {
    json!([{ "id": 0, "scale": scales[0] }, { "id": 1, "scale": scales[1] }])
}

/// Those with other adapters share its passes; and a text does not begin with what one with others has left.
#[test]
fn texts_with_different_adapters_are_made_together_as_alone() {
    let files = files();
    let flags = files.flags([0.25, 0.0]);
    let flags: Vec<&str> = flags[1..].iter().map(String::as_str).collect();
    let server = Server::start(&[&flags[..], &["--parallel", "4", "--kv-unified", "-c", "1024"]].concat());
    let of =
        |n: usize| [None, Some(lora([0.0, 0.0])), Some(lora([0.0, 1.5])), Some(lora([0.25, 1.5]))][n].clone();
    let body = |n: usize, temperature: u32, drafts: bool| {
        let mut body = json!({ "prompt": "Once upon a time", "n_predict": 32, "seed": 7, "temperature": temperature, "drafts": drafts });
        if let Some(lora) = of(n % 4) {
            body["lora"] = lora;
        }
        body
    };
    for temperature in [0, 1] {
        let alone: Vec<Value> = (0..4).map(|n| server.text(&body(n, temperature, false))).collect();
        for (i, text) in alone.iter().enumerate() {
            assert!(
                text.as_str().is_some_and(|text| text.len() > 20) && !alone[..i].contains(text),
                "{i}: {text}"
            );
        }
        let bodies: Vec<Value> = (0..8).map(|n| body(n, temperature, n < 4)).collect();
        assert_eq!(server.texts(&bodies), [alone.clone(), alone].concat());
    }
}

#[test]
fn adapters_are_told_and_set() {
    let files = files();
    let paths = files.adapters.each_ref().map(|path| path.display().to_string());
    let flags = ["--lora", &paths[0], "--lora-scaled", &format!("{}:-0.5", paths[1])];
    let server = Server::start(&flags);
    let entry = |id: usize, scale: f64| json!({ "id": id, "path": paths[id], "scale": scale, "task_name": "", "prompt_prefix": "" });
    assert_eq!(server.get("/lora-adapters"), json!([entry(0, 1.0), entry(1, -0.5)]));
    let ask = |lora: Value| json!({ "prompt": "Once upon a time", "n_predict": 24, "temperature": 0, "lora": lora });
    let text = |lora| server.text(&ask(lora));
    let default = text(json!([]));
    assert_eq!(text(lora([1.0, -0.5])), default);
    let plain = text(lora([0.0, 0.0]));
    assert_ne!(plain, default);
    // What is not said is nothing.
    assert_eq!(text(json!([{ "id": 1 }])), plain);
    let reply = server.json("/completion", &ask(lora([0.0, 0.5])));
    assert_eq!(reply["generation_settings"]["lora"], lora([0.0, 0.5]));
    assert_eq!(
        server.json("/lora-adapters", &json!([{ "id": 1, "scale": 0.5 }])),
        json!({ "success": true })
    );
    assert_eq!(server.get("/lora-adapters"), json!([entry(0, 0.0), entry(1, 0.5)]));
    assert_eq!(text(json!([])), reply["content"]);
    let chat = json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 4, "lora": lora([0.5, 0.0]) });
    assert!(server.json("/v1/chat/completions", &chat)["choices"].is_array());
    for (body, what) in [
        (json!([{ "id": 2, "scale": 1 }]), "no adapter 2: there are 2"),
        (json!({ "id": 0, "scale": 1 }), "a list of objects"),
        (json!([{ "id": 0, "scale": "much" }]), "a number is needed"),
        (json!([{ "scale": 1 }]), "a list of objects"),
    ] {
        server.refuses("/lora-adapters", &body, 400, what);
        server.refuses("/completion", &ask(body), 400, what);
    }
    assert_eq!(
        server.get("/lora-adapters"),
        json!([entry(0, 0.0), entry(1, 0.5)]),
        "what was refused sets nothing"
    );
    drop(server);
    let server = Server::start(&[&flags[..], &["--lora-init-without-apply"]].concat());
    assert_eq!(server.get("/lora-adapters"), json!([entry(0, 0.0), entry(1, 0.0)]));
    assert_eq!(server.text(&ask(json!([]))), plain);
    drop(server);
    assert_eq!(Server::start(&[]).get("/lora-adapters"), json!([]));
}

/// Its keys and values are of its adapters, so that they are made again.
#[test]
fn a_slot_whose_text_has_adapters_is_saved_and_restored() {
    let files = files();
    let flags = files.flags([0.25, 1.5]);
    let saved = files.folder.path("saved");
    std::fs::create_dir(&saved).unwrap();
    let saves = ["--parallel", "1", "--slot-save-path", &saved];
    let flags: Vec<&str> = flags[1..].iter().map(String::as_str).chain(saves).collect();
    let server = Server::start(&flags);
    let body = json!({ "prompt": "Once upon a time", "n_predict": 24, "temperature": 0 });
    let text = server.text(&body);
    let file = json!({ "filename": "text.bin" });
    let count = server.json("/slots/0?action=save", &file)["n_saved"].as_u64().unwrap();
    assert!(count > 20, "{count}");
    drop(server);
    let server = Server::start(&flags);
    assert_eq!(server.json("/slots/0?action=restore", &file)["n_restored"], count);
    assert_eq!(server.text(&body), text);
    // With others nothing of it is of use.
    let plain =
        json!({ "prompt": "Once upon a time", "n_predict": 24, "temperature": 0, "lora": lora([0.0, 0.0]) });
    let plain = server.json("/completion", &plain);
    assert_eq!(plain["timings"]["cache_n"], 0, "{plain}");
    assert_ne!(plain["content"], text);
}
