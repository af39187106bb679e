//! `fit`: what is refused before a model is opened, and a head that is fitted in seconds.

use std::{fs, path::Path, process::Output};

use spec_run::Gguf;

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
