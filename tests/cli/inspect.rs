//! `spec-run inspect` from outside. Numbers are those that the gguf package for Python gives for the files.

use std::{fs, process::Stdio};

use crate::common::{
    child::{Ended, Start},
    fixture,
    parts::{Part, Parts},
    program::{EMBEDDED, Folder, program, run, run_in},
};
use serde_json::{Value, json};
use spec_run::quant::GgmlType;

fn inspect(args: &[&str]) -> Ended {
    run(&[&["inspect"], args].concat())
}

#[track_caller]
fn stdout(args: &[&str]) -> String {
    let output = inspect(args);
    assert_eq!(output.said(), "");
    output.done()
}

#[track_caller]
fn parsed(args: &[&str]) -> Value {
    let text = stdout(args);
    assert_eq!(text.lines().count(), 1, "one object and nothing else");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn json_of_a_model() {
    let json = parsed(&["-m", EMBEDDED, "--json"]);
    assert_eq!(json["architecture"], "llama");
    assert_eq!(json["parameters"], 13_115_648);
    assert!((json["bits_per_weight"].as_f64().unwrap() - 13_960_192.0 * 8.0 / 13_115_648.0).abs() < 1e-9);

    let metadata = json["metadata"].as_object().unwrap();
    assert_eq!(metadata.len(), 27);
    assert_eq!(metadata["llama.block_count"], 16);
    assert_eq!(metadata["llama.attention.layer_norm_rms_epsilon"].as_f64(), Some(1e-5));
    assert_eq!(metadata["tokenizer.ggml.add_bos_token"], true);
    assert_eq!(metadata["tokenizer.ggml.tokens"].as_array().unwrap().len(), 2048);

    let made = &json["provenance"];
    assert_eq!((&made["version"], &made["device"]), (&env!("CARGO_PKG_VERSION").into(), &json!(null)));
    assert!(made["command"].as_str().unwrap().starts_with("spec-run inspect -m "), "{made}");
    assert_eq!((&made["model"]["name"], &made["model"]["file"]), (&metadata["general.name"], &json["file"]));
    assert_eq!(made["model"]["fingerprint"].as_str().unwrap().len(), 16, "{made}");

    let tensors = json["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 146);
    assert_eq!(
        tensors[1],
        json!({"name": "token_embd.weight", "type": "Q8_0", "shape": [256, 2048], "bytes": 557_056})
    );

    let layers = json["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 16);
    for layer in layers {
        assert_eq!((&layer["attn_bytes"], &layer["mlp_bytes"]), (&json!(209_920), &json!(627_712)));
    }
}

#[test]
#[cfg(feature = "embedded-model")]
fn without_m_the_embedded_model_is_shown() {
    let (mut json, mut of_file) = (parsed(&["--json"]), parsed(&["-m", EMBEDDED, "--json"]));
    assert_eq!(json["file"], "stories13m-q8_0.gguf (embedded)");
    json["file"] = EMBEDDED.into();
    let fingerprints = [&json, &of_file].map(|json| json["provenance"]["model"]["fingerprint"].clone());
    assert_eq!(fingerprints[0], fingerprints[1]);
    [&mut json, &mut of_file].into_iter().for_each(|json| drop(json["provenance"].take()));
    assert_eq!(json, of_file);
}

#[test]
fn text_of_a_model() {
    let text = stdout(&["-m", EMBEDDED]);
    for part in [
        "\nname             stories13m\n",
        "GGUF version 3",
        "13.4 MiB",
        "13.12 million",
        "bits per weight  8.52",
        "llama.rope.freq_base                    10000.0\n",
        "[\"<unk>\", \"<s>\", \"</s>\", \"<0x00>\", \"<0x01>\", \"<0x02>\", ..] (2048 x string)",
        "Q8_0        113     13.3 MiB   99.8%",
        "0-15, each     205.0 KiB    613.0 KiB",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("blk.3.ffn_up.weight"));
    let all = stdout(&["-m", EMBEDDED, "--tensors"]);
    let tensor = all.lines().find(|line| line.contains("blk.3.ffn_up.weight")).unwrap();
    let columns: Vec<&str> = tensor.split_whitespace().collect();
    assert_eq!(columns, ["blk.3.ffn_up.weight", "Q8_0", "208896", "256", "x", "768"]);
}

/// A small one of OLMoE's kind: 64 experts, 8 chosen.
#[test]
fn experts_are_shown_with_what_a_token_needs_of_them() {
    let folder = Folder::new();
    let sizes = "--layers 2 --dim 256 --heads 2 --kv-heads 2 --vocab 2048 --expert-ffn 64";
    run_in(&folder, &format!("synth -o experts.gguf --like olmoe-1b-7b -q q8_0 {sizes}")).done();
    let path = &folder.path("experts.gguf");
    let json = parsed(&["-m", path, "--json"]);
    // Three matrices of 256 x 64 for each of 64 experts in two layers; 34 bytes for 32 weights.
    let experts = 2 * 64 * 3 * 256 * 64;
    let all = json["parameters"].as_u64().unwrap();
    assert_eq!(json["experts"]["parameters"], experts);
    assert_eq!(json["experts"]["bytes"], experts / 32 * 34);
    assert_eq!(json["experts"]["active_parameters"], all - experts / 64 * 56);
    assert_eq!((&json["experts"]["count"], &json["experts"]["used"]), (&json!(64), &json!(8)));
    assert_eq!(json["layers"][1]["expert_bytes"], experts / 2 / 32 * 34);
    let text = stdout(&["-m", path]);
    assert!(text.contains("\nexperts          64 in 2 layers, 8 for each token; 6.4 MiB\n"), "{text}");
    assert!(text.contains("\nactive "), "{text}");
    assert_eq!(parsed(&["-m", EMBEDDED, "--json"])["experts"], json!(null));
}

#[test]
fn a_vocabulary_has_no_tensors() {
    let Some(path) = fixture("a_vocabulary_has_no_tensors", "vocab/ggml-vocab-qwen2.gguf") else { return };
    let path = path.to_str().unwrap();
    assert!(stdout(&["-m", path, "--tensors"]).ends_with("no tensors: a vocabulary only\n"));
    let json = parsed(&["-m", path, "--json"]);
    assert_eq!(
        (&json["tensors"], &json["layers"], &json["bits_per_weight"]),
        (&json!([]), &json!([]), &json!(null))
    );
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"].as_array().unwrap().len(), 151_936);
}

#[test]
fn odd_names_and_values() {
    let mut parts = Parts::new()
        .with("nan", f32::NAN)
        .with("floats", vec![f64::INFINITY, 0.1])
        .with("largest", u64::MAX)
        .with("escape\n", "red \u{1b}[31m\nnext");
    let names =
        ["blk.1.attn_q.weight", "blk.4000000000.attn_q.weight", "blk.1.post_norm", "blk.x.ffn", "blk.0.ffn"];
    parts.tensors.extend(names.map(|name| Part::new(name, GgmlType::F32, &[2], &[0.0; 2])));
    let folder = Folder::new();
    let path = &folder.file("odd.gguf", parts.bytes());
    let json = parsed(&["-m", path, "--json"]);
    assert_eq!(json["architecture"], json!(null));
    let metadata = json!({"nan": "NaN", "floats": ["inf", 0.1], "largest": u64::MAX, "escape\n": "red \u{1b}[31m\nnext"});
    assert_eq!(json["metadata"], metadata);
    assert_eq!(
        json["layers"],
        json!([
            {"attn_bytes": 0, "mlp_bytes": 8, "expert_bytes": 0, "other_bytes": 0},
            {"attn_bytes": 8, "mlp_bytes": 0, "expert_bytes": 0, "other_bytes": 8},
        ])
    );
    let text = stdout(&["-m", path, "--tensors"]);
    assert!(!text.contains('\u{1b}') && text.contains(r"red \u{1b}[31m\nnext"), "{text}");
}

#[test]
fn what_cannot_be_opened_is_one_line_and_a_failure() {
    let folder = Folder::new();
    for (path, part) in [
        (&*folder.path("absent.gguf"), "absent.gguf: "),
        (folder.to_str().unwrap(), "is a directory"),
        (&folder.file("cut.gguf", &fs::read(EMBEDDED).unwrap()[..100_000]), "beyond the end of the file"),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "not a GGUF file"),
    ] {
        inspect(&["-m", path]).refused(1, &[part]);
        inspect(&["-m", path, "--json"]).refused(1, &[part]);
    }
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let mut child = program()
        .args(["inspect", "-m", EMBEDDED, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    drop(child.stdout.take());
    let output = child.output();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
