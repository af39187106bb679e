//! `fit`: what is refused before a model is opened, and a head that is fitted in seconds.

use std::{fs, path::Path};

use spec_run::{
    Gguf,
    head::{Head, HeadShape, Made, Tables, Weights},
};

use crate::common::{
    child::Ended,
    five_layers, load,
    program::{EMBEDDED, Folder, json, run, stdout},
};

fn fit(folder: &Folder, more: &[&str]) -> Ended {
    run(&[&["fit", "-m", five_layers(), "-o", &folder.path("x.gguf")], more].concat())
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let folder = Folder::new();
    let empty = folder.file("empty", "\n\n");
    for (args, code, says) in [
        (&["--minutes", "0"][..], 2, "--minutes 0: give 0.05 to 10000"),
        (&["--disk", "0"], 2, "--disk 0: give 0.01 to 10000"),
        (&["--resume"], 2, "--resume: there is no "),
        (&["--prompts", "a", "--text", "b"], 2, "cannot be used with"),
        (&["--prompts", &empty], 1, "0 prompts: "),
        (&["--text", &empty], 1, "the text has "),
        (&["--prompts", "nowhere"], 1, "nowhere: "),
    ] {
        fit(&folder, args).failed(code, &[says]);
    }
    folder.file("x.gguf.states", "something");
    fit(&folder, &["--resume"]).failed(1, &["no file of kept states"]);
    assert!(!folder.join("x.gguf").exists());
}

#[test]
fn a_head_is_written_if_it_pays_and_else_one_line_says_so() {
    let folder = Folder::new();
    let said = fit(&folder, &["--minutes", "0.2", "--json"]).json();
    let speed = said["predicted_speed"].as_f64().unwrap();
    let file = folder.join("x.gguf");
    assert_eq!(file.exists(), speed >= 1.03, "{said}");
    assert_eq!(said["file"].is_null(), !file.exists(), "{said}");
    assert!(said["text_tokens"].as_u64().unwrap() >= 512, "{said}");
    assert!(!folder.join("x.gguf.states").exists());
}

/// Sixteen texts at once need more cells in layers with a window of 512 than one text does.
#[test]
fn a_model_with_windows_has_room_for_all_texts() {
    let folder = Folder::new();
    let [model, head] = ["model.gguf", "head.gguf"].map(|name| folder.path(name));
    let sizes = ["--layers", "6", "--dim", "64", "--ffn", "128", "--heads", "2", "-q", "q8_0"];
    stdout(&[&["synth", "--like", "gemma3-1b", "-o", &model], &sizes[..]].concat());
    let said = json(&["fit", "-m", &model, "-o", &head, "--minutes", "0.1", "--json"]);
    assert!(said["text_tokens"].as_u64().unwrap() > 2048, "too few to fill the windows: {said}");
}

/// Texts that are one token for ever say nothing.
#[test]
fn a_model_that_repeats_itself_is_one_line() {
    let folder = Folder::new();
    let gguf = Gguf::open(Path::new(five_layers())).unwrap();
    let mut bytes = fs::read(five_layers()).unwrap();
    // All logits are equal: the first token, or one of the forty that top-k leaves.
    for tensor in ["token_embd.weight", "output.weight"].into_iter().filter_map(|name| gguf.tensor(name)) {
        bytes[tensor.offset as usize..][..tensor.bytes as usize].fill(0);
    }
    let (model, output) = (folder.file("silent.gguf", bytes), folder.path("x.gguf"));
    run(&["fit", "-m", &model, "-o", &output, "--minutes", "0.1"]).failed(1, &["it repeats itself"]);
}

/// A head of noise for a model in a file.
fn head_of(model: &Path) -> Vec<u8> {
    let model = load(model);
    let mut weights = Weights::zero(HeadShape::of(&model).unwrap());
    weights.numbers_mut().iter_mut().enumerate().for_each(|(i, x)| *x = (i % 89) as f32 / 500.0 - 0.08);
    let tables = Tables::new(model.clone());
    let head = Head {
        weights,
        tokens: (0..40).collect(),
        embedding_rms: tables.embedding_rms(),
        made: Made::default(),
    };
    head.bytes("x", &model).unwrap()
}

#[test]
fn a_head_beside_its_model_drafts_without_being_named() {
    let folder = Folder::new();
    let model = folder.path("m.gguf");
    fs::copy(five_layers(), &model).unwrap();
    let beside = spec_run::head::default_path(Path::new(&model));
    assert_eq!(beside, folder.join("m.head.gguf"));
    let text = |more: &[&str]| {
        let text = ["-m", &model, "-p", "Once upon a time", "-n", "24", "--temp", "0", "--device", "cpu"];
        run(&[&text[..], &["--json", "--no-learn", "--ignore-eos"], more].concat())
    };
    let sources = |said: &serde_json::Value| -> Vec<String> {
        let sources = said["spec"]["sources"].as_array().unwrap();
        sources.iter().map(|source| source["kind"].as_str().unwrap().to_owned()).collect()
    };
    let plain = text(&["--draft", "none"]).json();
    assert!(!sources(&text(&[]).json()).contains(&"head".to_owned()));
    text(&["--draft", "head"]).failed(2, &["has no head beside its file: make one with `spec-run fit`"]);
    fs::write(&beside, head_of(Path::new(five_layers()))).unwrap();
    let by_itself = text(&[]).json();
    assert!(sources(&by_itself).contains(&"head".to_owned()), "{by_itself}");
    let alone = text(&["--draft", "head", "--draft-max", "2"]).json();
    assert_eq!((sources(&alone), &alone["tokens"]), (vec!["head".to_owned()], &plain["tokens"]));
    assert!(alone["spec"]["drafted"].as_u64().unwrap() > 20, "{alone}");
    assert_eq!(by_itself["tokens"], plain["tokens"]);
    // Of another model, or cut short: one line, and where nobody named it, drafts without it.
    let bytes = head_of(Path::new(EMBEDDED));
    for (bytes, says) in [(&bytes[..], "a head of another model"), (&bytes[..bytes.len() / 2], "incomplete")]
    {
        let foreign = folder.file("foreign", bytes);
        text(&["--head", &foreign]).failed(1, &[says]);
        fs::write(&beside, bytes).unwrap();
        let output = text(&[]);
        let stderr = output.said();
        let warned =
            stderr.lines().filter(|line| line.contains("drafts go without the head beside the model"));
        assert_eq!(warned.count(), 1, "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
        assert_eq!(output.json()["tokens"], plain["tokens"]);
    }
}
