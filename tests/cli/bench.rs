//! `spec-run bench` from outside. Machines that run tests are busy, so only what holds on any of them is asked:
//! the keys, what must be so by arithmetic, and differences of several times.

use crate::common::{child::Ended, program::run};
use serde_json::Value;

fn bench(args: &[&str]) -> Ended {
    run(&[&["bench", "--quick", "-c", "192"], args].concat())
}

fn json(args: &[&str]) -> Value {
    bench(&[args, &["--json"]].concat()).json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-6, "{a} and {b}");
}

/// Weight bytes that a token reads of the embedded model, by hand: Q8_0 has 34 bytes for 32 weights; the norms
/// are f32; of the embedding, which is the head too, a row more.
fn embedded_token_bytes() -> f64 {
    let q8 = |weights: usize| (weights / 32 * 34) as f64;
    let attn = 2 * 256 * 256 + 2 * 256 * 128;
    let norms = (16 * 2 + 1) * 256 * 4;
    16.0 * q8(attn + 3 * 256 * 768) + q8(2048 * 256) + q8(256) + norms as f64
}

#[test]
fn json_has_the_documented_keys_with_sane_values() {
    let out =
        json(&["-t", "1", "-r", "3", "--prefill", "16,64", "--depths", "0,150", "--curve-depth", "160"]);
    assert_eq!(out["curve_depth"], 160);

    let prefill: Vec<_> = out["prefill"].as_array().unwrap().iter().map(|p| p["n"].as_u64()).collect();
    assert_eq!(prefill, [Some(16), Some(64)]);
    let decode = &out["decode"];
    let rate = number(&decode["tok_s"]);
    // From a machine that is choked to one that does not exist.
    assert!((0.2..1e6).contains(&rate), "{rate} tok/s");
    close(number(&decode["gb_s"]), rate * embedded_token_bytes() / 1e9);
    assert!((0.05..1e4).contains(&number(&decode["peak_gb_s"])), "{decode}");
    assert!(number(&decode["share_min"]) <= number(&decode["share"]));
    assert!(number(&decode["share"]) <= number(&decode["share_max"]));
    let depths: Vec<_> = out["decode_at"].as_array().unwrap().iter().map(|d| d["depth"].as_u64()).collect();
    assert_eq!(depths, [Some(0), Some(150)]);

    let curve = out["curve"].as_array().unwrap();
    assert_eq!(curve.len(), 16);
    for (i, row) in curve.iter().enumerate() {
        assert_eq!(row["n"], i + 1);
        assert!(number(&row["min"]) > 0.0 && number(&row["min"]) <= number(&row["ms"]));
        assert!(number(&row["ms"]) <= number(&row["max"]));
    }
    assert_eq!(number(&curve[0]["ratio"]), 1.0);
    assert!(out["draft_cost"].is_null());
    let made = &out["provenance"];
    assert!(made["command"].as_str().unwrap().starts_with("spec-run bench --quick -c 192 -t 1 "), "{made}");
    assert_eq!((&made["version"], &made["device"]), (&env!("CARGO_PKG_VERSION").into(), &out["device"]));
    assert_eq!((&made["model"]["name"], &made["settings"]["rounds"]), (&out["model"], &3.into()));
    assert_eq!((&made["mask"], &made["interrupted"]), (&Value::Null, &false.into()));
    assert_eq!(made["model"]["fingerprint"].as_str().unwrap().len(), 16, "{made}");
    assert!(number(&out["load_ms"]) > 0.0);
    if cfg!(target_os = "linux") {
        // The model is in the program, so at least its weights are in memory.
        assert!((14.0..4096.0).contains(&number(&out["rss_mb"])), "{}", out["rss_mb"]);
    }
}

#[test]
fn a_bare_bench_measures_the_lengths_that_the_design_names() {
    let out = json(&["-c", "512", "-t", "1", "-r", "1"]);
    assert_eq!(out["curve_depth"], 128);
    let prefill: Vec<_> = out["prefill"].as_array().unwrap().iter().map(|p| p["n"].as_u64()).collect();
    assert_eq!(prefill, [Some(128), Some(512)]);
}

#[test]
fn a_draft_of_few_layers_costs_less() {
    let out = json(&["-t", "1", "-r", "5", "--prefill", "8", "--skip-attn", "0-14", "--skip-mlp", "0-14"]);
    // A sixteenth of the layers and the head: 9 % of the bytes.
    assert!(number(&out["draft_cost"]) < 0.6, "{}", out["draft_cost"]);
    let by_hand =
        1.0 - 15.0 * ((3 * 256 * 256 + 3 * 256 * 768) / 32 * 34 + 2 * 1024) as f64 / embedded_token_bytes();
    assert_eq!(out["provenance"]["mask"]["layers"], out["draft"]["mask"]);
    let bytes = number(&out["draft"]["bytes"]);
    assert!((bytes - by_hand).abs() < 1e-6, "{bytes} for {by_hand}");
}

#[test]
fn a_second_configuration_is_measured_beside_the_first() {
    let ratios = |out: &Value| -> Vec<(String, f64)> {
        let ratios = out["ratios"].as_array().unwrap().iter();
        ratios.map(|r| (r["test"].as_str().unwrap().to_string(), number(&r["ratio"]))).collect()
    };
    let of = |ratios: &[(String, f64)], test: &str| ratios.iter().find(|(name, _)| name == test).unwrap().1;

    let itself = ratios(&json(&["-t", "1", "-r", "7", "--prefill", "128", "--vs", ""]));
    let same = of(&itself, "prefill 128");
    assert!((0.6..1.7).contains(&same), "one thread is {same} times itself");

    let fast_and_slow = json(&["-r", "3", "--prefill", "128", "--vs", "-t 1 --isa scalar"]);
    assert!(fast_and_slow["vs"]["device"].as_str().unwrap().contains("scalar, 1 thread"));
    assert_eq!(fast_and_slow["vs"]["provenance"]["device"], fast_and_slow["vs"]["device"]);
    let best_is_scalar = fast_and_slow["device"].as_str().unwrap().contains("scalar");
    let faster = of(&ratios(&fast_and_slow), "prefill 128");
    assert!(
        best_is_scalar || faster > 2.0,
        "all threads and instructions give {faster} times one scalar thread"
    );
}

#[test]
fn the_table_is_markdown_with_a_line_for_each_figure() {
    let text = bench(&["-t", "1", "-r", "1", "--prefill", "8"]).done();
    for name in ["| prefill 8 ", "| decode at 0 ", "| memory read ", "| T(1) ", "| T(16) ", "| load "] {
        assert_eq!(text.lines().filter(|line| line.starts_with(name)).count(), 1, "{name}\n{text}");
    }
    let columns = |line: &str| line.matches('|').count();
    let mut rows = text.lines().filter(|line| line.starts_with('|'));
    let first = columns(rows.next().unwrap());
    assert!(rows.all(|row| columns(row) == first), "{text}");
}

#[test]
fn settings_that_make_no_sense() {
    for (args, code, words) in [
        (["-r", "0"], 2, &["-r 0"][..]),
        (["--prefill", "193"], 2, &["--prefill 193", "192", "-c"]),
        (["--prefill", "0"], 2, &["--prefill 0"]),
        (["--depths", "192"], 2, &["--depths 192", "191"]),
        (["--curve-depth", "177"], 2, &["--curve-depth 177", "176"]),
        (["--prefill", "18446744073709551615"], 2, &["--prefill"]),
        (["--skip-mlp", "16"], 1, &["--skip-mlp", "16"]),
        (["--vs", "--nonsense"], 2, &["--vs", "--nonsense"]),
        (["--vs", "-r 3"], 2, &["--vs", "-t"]),
        (["--vs", "-m 'my model.gguf"], 2, &["--vs", "'"]),
        (["--vs", "-m no/such.gguf"], 1, &["no/such.gguf"]),
        (["--vs", "--vs x"], 2, &["--vs"]),
        (["--vs", "-t 100000"], 2, &["-t"]),
    ] {
        bench(&args).refused(code, words);
    }
}
