//! `fit`: what is refused before a model is opened, and a head that is fitted in seconds.

use std::{fs, path::Path, process::Output, sync::Arc};

use spec_run::{
    Gguf, Model,
    head::{Head, HeadShape, Made, Tables, Weights},
};

use crate::common::{five_layers, run};

fn fails(output: &Output, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("spec-run: ") && last.contains(says), "{stderr}");
}

fn fit(folder: &Path, more: &[&str]) -> Output {
    let output = folder.join("x.gguf").display().to_string();
    run(&[&["fit", "-m", five_layers(), "-o", &output], more].concat())
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fails(&fit(folder, &["--minutes", "0"]), "--minutes 0: give 0.05 to 10000");
    fails(&fit(folder, &["--disk", "0"]), "--disk 0: give 0.01 to 10000");
    fails(&fit(folder, &["--resume"]), "--resume: there is no ");
    fails(&fit(folder, &["--prompts", "a", "--text", "b"]), "cannot be used with");
    let empty = folder.join("empty");
    fs::write(&empty, "\n\n").unwrap();
    let empty = empty.display().to_string();
    fails(&fit(folder, &["--prompts", &empty]), "0 prompts: ");
    fails(&fit(folder, &["--text", &empty]), "the text has ");
    fails(&fit(folder, &["--prompts", "nowhere"]), "nowhere: ");
    fs::write(folder.join("x.gguf.states"), "something").unwrap();
    fails(&fit(folder, &["--resume"]), "no file of kept states");
    assert!(!folder.join("x.gguf").exists());
}

#[test]
fn a_head_is_written_if_it_pays_and_else_one_line_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let output = fit(folder, &["--minutes", "0.2", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let [model, head] =
        ["model.gguf", "head.gguf"].map(|name| folder.path().join(name).display().to_string());
    let sizes = ["--layers", "6", "--dim", "64", "--ffn", "128", "--heads", "2", "-q", "q8_0"];
    let made = run(&[&["synth", "--like", "gemma3-1b", "-o", &model], &sizes[..]].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let output = run(&["fit", "-m", &model, "-o", &head, "--minutes", "0.1", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said["text_tokens"].as_u64().unwrap() > 2048, "too few to fill the windows: {said}");
}

/// Texts that are one token for ever say nothing.
#[test]
fn a_model_that_repeats_itself_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = folder.join("silent.gguf");
    let gguf = Gguf::open(Path::new(five_layers())).unwrap();
    let mut bytes = fs::read(five_layers()).unwrap();
    // All logits are equal: the first token, or one of the forty that top-k leaves.
    for tensor in ["token_embd.weight", "output.weight"].into_iter().filter_map(|name| gguf.tensor(name)) {
        bytes[tensor.offset as usize..][..tensor.bytes as usize].fill(0);
    }
    fs::write(&model, bytes).unwrap();
    let output = folder.join("x.gguf").display().to_string();
    let model = model.display().to_string();
    let refused = run(&["fit", "-m", &model, "-o", &output, "--minutes", "0.1"]);
    fails(&refused, "it repeats itself");
}

/// A head of noise for a model in a file.
fn head_of(model: &Path) -> Vec<u8> {
    let model = Arc::new(Model::load(Arc::new(Gguf::open(model).unwrap())).unwrap());
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
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.gguf");
    fs::copy(five_layers(), &model).unwrap();
    let beside = spec_run::head::default_path(&model);
    assert_eq!(beside, folder.path().join("m.head.gguf"));
    let model = model.display().to_string();
    let text = |more: &[&str]| {
        let text = ["-m", &model, "-p", "Once upon a time", "-n", "24", "--temp", "0", "--device", "cpu"];
        run(&[&text[..], &["--json", "--no-learn", "--ignore-eos"], more].concat())
    };
    let json = |output: &Output| -> serde_json::Value {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let sources = |said: &serde_json::Value| -> Vec<String> {
        let sources = said["spec"]["sources"].as_array().unwrap();
        sources.iter().map(|source| source["kind"].as_str().unwrap().to_owned()).collect()
    };
    let plain = json(&text(&["--draft", "none"]));
    assert!(!sources(&json(&text(&[]))).contains(&"head".to_owned()));
    fails(&text(&["--draft", "head"]), "has no head beside its file: make one with `spec-run fit`");
    fs::write(&beside, head_of(Path::new(five_layers()))).unwrap();
    let by_itself = json(&text(&[]));
    assert!(sources(&by_itself).contains(&"head".to_owned()), "{by_itself}");
    let alone = json(&text(&["--draft", "head", "--draft-max", "2"]));
    assert_eq!((sources(&alone), &alone["tokens"]), (vec!["head".to_owned()], &plain["tokens"]));
    assert!(alone["spec"]["drafted"].as_u64().unwrap() > 20, "{alone}");
    assert_eq!(by_itself["tokens"], plain["tokens"]);
    // Of another model, or cut short: one line, and where nobody named it, drafts without it.
    let foreign = folder.path().join("foreign");
    let story = folder.path().join("story.gguf");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories13m-q8_0.gguf"), &story).unwrap();
    let bytes = head_of(&story);
    for (bytes, says) in [(&bytes[..], "a head of another model"), (&bytes[..bytes.len() / 2], "incomplete")]
    {
        fs::write(&foreign, bytes).unwrap();
        fails(&text(&["--head", &foreign.display().to_string()]), says);
        fs::write(&beside, bytes).unwrap();
        let output = text(&[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let warned =
            stderr.lines().filter(|line| line.contains("drafts go without the head beside the model"));
        assert_eq!(warned.count(), 1, "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
        assert_eq!(json(&output)["tokens"], plain["tokens"]);
    }
}
