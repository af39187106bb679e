//! Files that are made of a real model: quantized, with an importance matrix.

use crate::{SMOLLM2, common::run, models};

fn perplexity(path: &str) -> f64 {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories-val.txt");
    let output = run(&["perplexity", "-q", "-m", path, "-f", text, "-c", "256", "--chunks", "4", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    json["ppl"].as_f64().unwrap_or_else(|| panic!("{json}"))
}

/// Of Q4_1 weights Q8_0 is nearly all; Q3_K_S loses something, and less of it with an importance matrix of its own text.
#[test]
fn a_quantized_model_is_nearly_the_model() {
    for (_, path) in models("a_quantized_model_is_nearly_the_model", &[SMOLLM2]) {
        let (folder, source) = (tempfile::tempdir().unwrap(), path.to_str().unwrap());
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories-val.txt");
        let succeeds = |args: &[&str]| {
            let output = run(args);
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let matrix = file("imatrix.gguf");
        succeeds(&["imatrix", "-q", "-m", source, "-f", text, "-c", "256", "--chunks", "8", "-o", &matrix]);
        let made = |name: &str, kind: &str, more: &[&str]| {
            let path = file(name);
            succeeds(&[&["quantize", "--allow-requantize"], more, &[source, &path, kind]].concat());
            perplexity(&path)
        };
        let (whole, eight) = (perplexity(source), made("q8_0.gguf", "Q8_0", &[]));
        assert!((eight / whole - 1.0).abs() < 0.01, "Q8_0 {eight}, {whole}");
        let (three, weighted) =
            (made("q3.gguf", "Q3_K_S", &[]), made("q3i.gguf", "Q3_K_S", &["--imatrix", &matrix]));
        println!("{whole} Q8_0 {eight} Q3_K_S {three} with a matrix {weighted}");
        assert!(whole < weighted && weighted < three && three < 4.0 * whole, "{whole} {weighted} {three}");
    }
}
