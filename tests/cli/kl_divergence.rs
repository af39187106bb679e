//! A model held against another one's log-probabilities, in llama.cpp's format and by its formulas.

use std::fs;

use serde_json::Value;

use crate::common::{
    fixture,
    program::{Folder, json, run, stdout},
};

/// As much of the stories as [`LLAMA`] is of.
const TEXT: &[u8] = include_bytes!("../../models/stories-val.txt");
const BYTES: usize = 6000;

/// Steps of some tokens in some rows of the file that llama-perplexity (llama-cpp-python 0.3.36) makes:
/// `-m stories13m-f16.gguf -f TEXT -c 64 -b 64 --chunks 4 -ctk f32 -ctv f32 --kl-divergence-base FILE`.
const TOKENS: [usize; 6] = [0, 13, 300, 777, 1500, 2047];
const LLAMA_ROWS: [(usize, f32, [u16; 6]); 3] = [
    (0, -17.287_382, [971, 22298, 27845, 41570, 31487, 3729]),
    (60, -16.806_335, [452, 16337, 10583, 42284, 16392, 0]),
    (123, -16.394_875, [0, 3677, 26939, 29780, 14348, 0]),
];
/// What it then prints of stories13m-q4_0.gguf, and how near ours has to come: both round rows to 8 bits, each in its way.
const LLAMA: [(&str, f64, f64); 12] = [
    ("/ppl/value", 15.587688, 0.02),
    ("/ppl/stderr", 3.839434, 0.02),
    ("/base_ppl/value", 15.875949, 0.004),
    ("/base_ppl/stderr", 3.950913, 0.002),
    ("/correlation", 0.9984, 0.0005),
    ("/ln_ratio/value", -0.018324, 0.001),
    ("/kl/value", 0.010940, 0.0002),
    ("/kl/stderr", 0.000922, 0.00003),
    ("/kl_quantiles/5/value", 0.008141, 0.0004),
    ("/change/value", -0.00136, 0.0005),
    ("/change_rms/value", 0.02394, 0.0015),
    ("/same_first/value", 0.92742, 0.0001),
];

#[test]
fn files_and_statistics_are_llama_perplexitys() {
    const TEST: &str = "files_and_statistics_are_llama_perplexitys";
    let model = |name: &str| fixture(TEST, name).map(|path| path.display().to_string());
    let (Some(f16), Some(q4_0)) = (model("models/stories13m-f16.gguf"), model("models/stories13m-q4_0.gguf"))
    else {
        return;
    };
    let folder = Folder::new();
    let (text, base) = (folder.file("text", &TEXT[..BYTES]), folder.path("base"));
    let cache = ["-ctk", "f32", "-ctv", "f32"];
    let keep =
        ["perplexity", "-m", &f16, "-f", &text, "-c", "64", "--chunks", "4", "--kl-divergence-base", &base];
    stdout(&[&keep[..], &cache].concat());
    let file = fs::read(&base).unwrap();
    let integer = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((&file[..8], [8, 12, 16, 20, 24].map(integer)), (&b"_logits_"[..], [64, 2048, 4, 1, 413]));
    let row_bytes = 2 * (4 + 2048);
    assert_eq!(file.len(), 20 + 4 * 64 * 4 + 31 * 4 * row_bytes);
    for (row, least, steps) in LLAMA_ROWS {
        let row = &file[20 + 4 * 64 * 4 + row * row_bytes..][..row_bytes];
        let found = f32::from_le_bytes(row[4..8].try_into().unwrap());
        assert!((found - least).abs() < 2e-3, "{found}, not {least}");
        for (token, wanted) in TOKENS.into_iter().zip(steps) {
            let found = u16::from_le_bytes(row[8 + 2 * token..10 + 2 * token].try_into().unwrap());
            assert!(found.abs_diff(wanted) <= 20, "token {token}: {found}, not {wanted}");
        }
    }
    let compare = ["perplexity", "-m", &q4_0, "--kl-divergence-base", &base, "--kl-divergence"];
    let found = json(&[&compare[..], &cache, &["--json"]].concat());
    for (key, wanted, off) in LLAMA {
        let number = found.pointer(key).and_then(Value::as_f64).unwrap();
        assert!((number - wanted).abs() <= off, "{key}: {number}, not {wanted} to {off}");
    }
    assert_eq!((&found["chunks"], &found["tokens"]), (&4.into(), &124.into()));
    let said = stdout(&[&compare[..], &cache].concat());
    assert!(said.contains("same first choice 92.742 +/- 2.339 %"), "{said}");
}

#[test]
fn a_model_is_like_itself() {
    let folder = Folder::new();
    let base = folder.path("base");
    let text = String::from_utf8_lossy(&TEXT[..2000]).into_owned();
    stdout(&["perplexity", "-p", &text, "-c", "96", "--kl-divergence-base", &base]);
    let compare = ["perplexity", "--kl-divergence-base", &base, "--kl-divergence", "--json"];
    let found = json(&compare);
    let number = |key: &str| found.pointer(key).and_then(Value::as_f64).unwrap();
    // But for the steps of the file.
    assert!(number("/kl/value").abs() < 1e-5 && number("/change_rms/value") < 1e-4, "{found}");
    assert!(number("/ln_ratio/value").abs() < 1e-4 && number("/same_first/value") > 0.98, "{found}");
}

#[test]
fn what_cannot_be_compared_is_one_line() {
    let folder = Folder::new();
    let base = folder.path("base");
    let text = "Once upon a time there was a little girl named Lily. ".repeat(4);
    let keep = ["perplexity", "-p", &text, "-c", "16", "--chunks", "2", "--kl-divergence-base", &base];
    stdout(&keep);
    let whole = fs::read(&base).unwrap();
    let cut = folder.file("cut", &whole[..whole.len() - 1]);
    // One more token than the model has, and rows as long.
    let mut larger = whole.clone();
    larger[12..16].copy_from_slice(&2047u32.to_le_bytes());
    let other = folder.file("other", larger);
    for (base, more, code, part) in [
        (&cut, &[][..], 1, "cut off"),
        (&other, &[], 1, "of a model with 2047 tokens, where stories13m has 2048"),
        (&folder.path("gone"), &[], 1, "gone"),
        (&base, &["-c", "32"], 2, "chunks of 16 tokens"),
        (&base, &["--force"], 2, "--force: no file is written"),
        (&base, &["--exit", "4"], 2, "--exit"),
    ] {
        let compare = ["perplexity", "--kl-divergence-base", base, "--kl-divergence"];
        run(&[&compare, more].concat()).refused(code, &[part]);
    }
    // Nor is what is there lost unasked.
    run(&keep).refused(2, &["--force"]);
    assert_eq!(fs::read(&base).unwrap(), whole);
    stdout(&[&keep[..], &["--force"]].concat());
    assert_eq!(fs::read(&base).unwrap(), whole);
    run(&["perplexity", "-p", &text, "-c", "16", "--kl-divergence"]).refused(2, &["--kl-divergence"]);
}
