//! Speculation from the command line: what `spec-run` prints, reports and refuses.

use crate::common::{
    child::Ended,
    five_layers,
    program::{self, EMBEDDED, Folder},
};
use serde_json::Value;

/// What earlier runs have learnt must not decide what a test sees.
fn run(args: &[&str]) -> Ended {
    program::run(&[&["--no-learn"], args].concat())
}

fn json(args: &[&str]) -> Value {
    run(&[args, &["--json"]].concat()).json()
}

fn fails(args: &[&str], code: i32, words: &[&str]) {
    run(args).failed(code, words);
}

/// The source of drafts of this kind.
fn source<'r>(report: &'r Value, key: &str, name: &str) -> &'r Value {
    let sources = report["spec"]["sources"].as_array().unwrap();
    sources.iter().find(|source| source[key] == name).expect("it is among the sources")
}

const GREEDY: [&str; 6] = ["--temp", "0", "-n", "96", "-p", "Once upon a time"];

#[test]
fn every_way_of_drafting_tells_the_same_story() {
    let plain = json(&[&GREEDY[..], &["--draft-max", "0", "--logprobs", "2"]].concat());
    assert_eq!((&plain["spec"]["rounds"], plain["generated"].as_u64()), (&0.into(), Some(96)));
    let ways: [&[&str]; 12] = [
        &[],
        &["--draft", "ngram"],
        &["--draft", "mask,exit"],
        &["--draft-exit", "4", "--draft-max", "5"],
        &["--draft-exit", "3,6"],
        &["--draft-exit", "auto"],
        &["--draft-exit", "3,6,9", "--draft-max", "4"],
        &["--draft-exit", "4", "--draft-max", "5", "--no-prefix-reuse"],
        &["--draft-exit", "4", "--draft-max", "5", "--no-shortlist"],
        &["--skip-attn", "3-9", "--skip-mlp", "5", "--draft-max", "16", "--draft-p-min", "0.4"],
        &["--skip-mlp", "0-15", "--draft-min", "3"],
        &["--draft", "none"],
    ];
    for way in ways {
        let drafted = json(&[&GREEDY[..], way, &["--logprobs", "2"]].concat());
        for key in ["text", "tokens", "logprobs", "stop"] {
            assert_eq!(drafted[key], plain[key], "{way:?}: {key}");
        }
    }
}

/// Who asks for drafts always is told why there was none.
#[test]
fn plain_steps_of_fixed_drafts_are_told_by_why() {
    for way in [&["--draft-exit", "6"][..], &["--draft", "ngram"]] {
        let spec = json(&[&GREEDY[..], way, &["--draft-max", "3"]].concat())["spec"].take();
        let steps = |key: &str| spec["undrafted"][key].as_u64().unwrap_or_else(|| panic!("{key} in {spec}"));
        let (no_room, nothing) = (steps("no_room"), steps("nothing"));
        assert_eq!(
            Some(steps("packing") + no_room + nothing),
            spec["plain_steps"].as_u64(),
            "{way:?}: {spec}"
        );
        // The last token alone leaves no room; only a lookup may find nothing.
        assert!(no_room <= 1 && (nothing > 0) == (way[1] == "ngram"), "{way:?}: {spec}");
    }
}

#[test]
fn the_report_has_the_documented_keys() {
    let spec = json(&[&GREEDY[..], &["--draft-exit", "6", "--draft-max", "3"]].concat())["spec"].take();
    let number = |key: &str| spec[key].as_f64().unwrap_or_else(|| panic!("{key} in {spec}"));
    let (rounds, drafted, accepted) = (number("rounds"), number("drafted"), number("accepted"));
    assert!(rounds > 0.0 && accepted <= drafted && drafted <= 3.0 * rounds, "{spec}");
    assert_eq!(number("acceptance"), accepted / drafted);
    assert_eq!(number("tokens_per_round"), (accepted + rounds) / rounds);
    assert_eq!(rounds + accepted + number("plain_steps"), 95.0, "all tokens but the first came from rounds");
    let positions = spec["by_position"].as_array().unwrap();
    assert_eq!(positions.len(), 3);
    assert_eq!(positions[0]["drafted"].as_f64(), Some(rounds));
    let sum: f64 = positions.iter().map(|p| p["accepted"].as_f64().unwrap()).sum();
    assert_eq!(sum, accepted);
    let source = &spec["sources"][0];
    assert_eq!((&source["kind"], &source["prefix"]["layers"]), (&"exit".into(), &6.into()));
    let share = source["prefix"]["share"].as_f64().unwrap();
    assert!(
        share > 0.2 && share < 6.0 / 16.0,
        "six of sixteen layers, but the head is no part of them: {share}"
    );
    let resumed = spec["resumed"].as_array().unwrap().iter().map(|pass| pass["passes"].as_f64().unwrap());
    assert_eq!(resumed.sum::<f64>(), rounds);
    assert_eq!(source["resumed_rounds"].as_f64(), Some(rounds));
    let shares = ["draft", "verify", "rest"].map(|part| spec["shares"][part].as_f64().unwrap());
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
    for key in ["predicted_speedup", "measured_speedup", "off_reason", "needed", "verify", "shortened"] {
        assert!(spec.get(key).is_some(), "{key} in {spec}");
    }
}

#[test]
fn why_it_was_off_is_one_sentence() {
    for (way, words) in [(["--draft", "none"], "--draft none"), (["--draft-max", "0"], "--draft-max 0")] {
        let spec = json(&[&GREEDY[..], &way].concat())["spec"].take();
        let reason = spec["off_reason"].as_str().unwrap();
        assert!(reason.contains(words) && !reason.contains('\n'), "{reason}");
    }
}

#[test]
fn a_seed_repeats_a_drafted_run_and_is_the_plain_one() {
    let seeded = ["-n", "80", "-s", "7", "--temp", "0.9", "-p", "Once upon a time"];
    let plain = json(&[&seeded[..], &["--draft", "none"]].concat());
    for way in [&[][..], &["--draft-exit", "5", "--draft-max", "4"], &["--draft", "ngram,exit"]] {
        assert_eq!(json(&[&seeded[..], way].concat())["tokens"], plain["tokens"], "{way:?}");
    }
}

#[test]
fn a_stop_string_ends_the_text() {
    let all = json(&GREEDY)["text"].as_str().unwrap().to_string();
    let words: Vec<&str> = all.split(' ').collect();
    let stop = words[8..11].join(" ");
    for way in [&[][..], &["--draft-exit", "8", "--draft-max", "12"], &["--draft", "none"]] {
        let found = json(&[&GREEDY[..], way, &["-r", "not in there", "-r", &stop]].concat());
        let text = found["text"].as_str().unwrap();
        assert_eq!(found["stop"], "stop_string");
        assert!(text.contains(&stop) && all.starts_with(text) && text.len() < all.len(), "{way:?}: {text}");
    }
    let newline = json(&["--temp", "0", "-n", "200", "-p", "Once upon a time", "--stop", r"\n"]);
    assert!(["stop_string", "end_of_text", "max_tokens"].contains(&newline["stop"].as_str().unwrap()));
}

#[test]
fn accepted_tokens_are_coloured_on_request() {
    let draft = [&GREEDY[..], &["--draft-exit", "6", "--draft-max", "3"]].concat();
    let plain = run(&draft).done();
    let coloured = run(&[&draft[..], &["--color"]].concat()).done();
    assert!(coloured.contains("\u{1b}[32m") && !plain.contains('\u{1b}'));
    assert_eq!(coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), plain);
}

#[test]
fn a_draft_longer_than_the_room_is_shortened_and_said_so() {
    let tight = ["-c", "24", "--temp", "0", "-p", "Once upon a time", "--ignore-eos"];
    let draft = ["--draft-exit", "8", "--draft-max", "16"];
    let plain = json(&[&tight[..], &["--draft", "none"]].concat());
    let drafted = json(&[&tight[..], &draft].concat());
    assert_eq!((&drafted["tokens"], &drafted["stop"]), (&plain["tokens"], &"context_full".into()));
    assert!(drafted["spec"]["shortened"].as_u64().unwrap() > 0, "{drafted}");
    let shifting = ["--context-shift", "-n", "60"];
    let plain = json(&[&tight[..], &shifting, &["--draft", "none"]].concat());
    assert_eq!(json(&[&tight[..], &shifting, &draft].concat())["tokens"], plain["tokens"]);
}

#[test]
fn all_spellings_of_mask_files_draft() {
    let folder = Folder::new();
    let ours = r#"{"schema": 1, "model": {"name": "x", "fingerprint": "0123456789abcdef", "n_layer": 16}, "masks": [
        {"name": "calm", "skip": {"attention": [9, 11], "mlp": [10]}},
        {"name": "bold", "skip": {"attention": [6, 7, 8, 9, 10, 11], "mlp": [6, 7, 8, 9, 10, 11]}},
        {"name": "twice", "steps": [0, 1, 1, 2, 3, 15]}]}"#;
    let swift = r#"{"half": {"attention": [5, 7, 9], "mlp": [5, 7, 9]}}"#;
    let bits = "[0, 0, 0, 0, 1, 2, 3, 3, 0, 0, 3, 0, 0, 0, 0, 0]";
    let plain = json(&[&GREEDY[..], &["--draft", "none"]].concat());
    let run_with = |path: &str, more: &[&str]| {
        let found = json(&[&GREEDY[..], &["--draft-skip", path], more].concat());
        assert_eq!(found["tokens"], plain["tokens"], "{path}");
        let sources = found["spec"]["sources"].as_array().unwrap().clone();
        sources.iter().map(|s| s["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let ours = folder.file("skips.json", ours);
    assert_eq!(run_with(&ours, &[]), ["ngram", "calm", "bold", "twice"]);
    assert_eq!(run_with(&ours, &["--mask", "bold", "--draft-max", "4"]), ["bold"]);
    assert_eq!(run_with(&ours, &["--mask", "twice", "--draft-max", "2"]), ["twice"]);
    assert_eq!(run_with(&folder.file("swift.json", swift), &["--draft", "mask"]), ["half"]);
    assert_eq!(run_with(&folder.file("bits.json", bits), &[]), ["ngram", "run_layers"]);
    let warned = run(&[&GREEDY[..], &["--draft-skip", &ours]].concat()).said();
    assert!(warned.contains("warning: ") && warned.contains("0123456789abcdef"), "{warned}");
    let cut = folder.file("cut.json", r#"{"schema": 1, "masks": [{"na"#);
    fails(&["--draft-skip", &cut], 1, &["cut.json"]);
    let deep = folder.file("deep.json", r#"{"deep": {"attention": [40], "mlp": []}}"#);
    fails(&["--draft-skip", &deep], 1, &["deep.json", "40", "15"]);
}

#[test]
fn a_mask_that_skips_everything_is_warned_of() {
    let output = run(&["--skip-attn", "0-15", "--skip-mlp", "0-15", "-n", "12", "--temp", "0"]);
    let message = output.said();
    assert!(output.status.success() && message.contains("skips everything"), "{message}");
}

#[test]
fn flags_that_make_no_sense() {
    fails(&["--draft", "8"], 2, &["--draft-max 8"]);
    fails(&["--draft", "mask,none"], 2, &["--draft"]);
    fails(&["--draft", "magic"], 2, &["magic", "ngram"]);
    fails(&["--draft", "mtp"], 2, &["--spec-type mtp", "no head that was trained to predict one token more"]);
    fails(&["--draft-max", "100000"], 2, &["--spec-draft-n-max", "1024"]);
    fails(&["--draft-max", "2", "--draft-min", "3"], 2, &["--spec-draft-n-min 3", "--spec-draft-n-max 2"]);
    fails(&["--draft-p-min", "1.5"], 2, &["--spec-draft-p-min", "0 to 1"]);
    fails(&["--draft-exit", "16"], 1, &["--draft-exit 16", "15"]);
    fails(&["--draft-exit", "0"], 1, &["--draft-exit 0"]);
    fails(&["--draft-exit", "6,often"], 2, &["'often'", "a number of layers, or auto"]);
    fails(&["--skip-attn", "3,16"], 1, &["--skip-attn", "16"]);
    fails(&["--mask", "x"], 2, &["--draft-skip"]);
}

#[test]
fn a_head_for_one_token_more_drafts_where_the_model_has_one() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mtp/qwen35.gguf");
    let common = ["-m", model, "--temp", "0", "-n", "40", "-p", "Once upon a time", "--ignore-eos"];
    let with = |more: &[&str]| json(&[&common, more].concat());
    let plain = with(&["--draft", "none"]);
    for more in [&["--draft", "mtp", "--spec-draft-n-max", "3"][..], &["--draft", "mtp"], &[]] {
        let report = with(more);
        assert_eq!(report["text"], plain["text"], "{more:?}");
        let mtp = source(&report, "kind", "mtp");
        let several = report["spec"]["sources"].as_array().unwrap().len() > 1;
        assert_eq!((mtp["name"].as_str(), several), (Some("mtp"), more.is_empty()), "{more:?}");
        assert!(more.len() < 4 || mtp["drafted"].as_u64().unwrap() > 50, "{mtp}");
    }
}

#[test]
fn agreement_of_a_head_for_one_token_more_is_told() {
    let perplexity = |args: &[&str]| program::run(&[&["perplexity"], args].concat());
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mtp/qwen35.gguf");
    let text = ["-c", "64", "-f", "models/stories-val.txt", "--chunks", "2", "--json"];
    let scored = perplexity(&[&["-m", model, "--draft", "mtp"], &text[..]].concat()).json();
    let cost = scored["cost"].as_f64().unwrap();
    assert_eq!(scored["draft"], "mtp");
    assert!(scored["ppl"] != scored["base_ppl"] && (0.1..1.0).contains(&cost), "{scored}");
    for (args, words) in [
        (["--draft", "mtp", "-p", "x"], "--spec-type mtp: stories13m"),
        (["--draft", "mask", "-p", "x"], "mtp; for masks there are --draft-skip"),
    ] {
        perplexity(&args).failed(2, &[words]);
    }
}

/// For stories260K.
const EAGLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/trained/eagle-own-tables.gguf");

#[test]
fn an_eagle_head_drafts_the_same_text() {
    let args = [&GREEDY[..], &["-m", five_layers()]].concat();
    let plain = json(&[&args[..], &["--draft", "none"]].concat());
    let ways: [&[&str]; 3] = [&[], &["--spec-type", "draft-eagle3"], &["--spec-draft-n-max", "4"]];
    for way in ways {
        let drafted = json(&[&args[..], &["-md", EAGLE], way].concat());
        assert_eq!(drafted["tokens"], plain["tokens"], "{way:?}");
        let head = source(&drafted, "name", "eagle3");
        assert!(!way.contains(&"--spec-draft-n-max") || head["drafted"].as_u64() > Some(40), "{head}");
    }
}

#[test]
fn a_draft_model_drafts_the_same_text() {
    let plain = json(&[&GREEDY[..], &["--draft", "none"]].concat());
    let ways: [&[&str]; 4] = [
        &[],
        &["--spec-type", "model"],
        &["--spec-draft-n-max", "6"],
        &["--spec-draft-n-max", "6", "--spec-draft-type-k", "q8_0"],
    ];
    for way in ways {
        let drafted = json(&[&GREEDY[..], &["-md", EMBEDDED], way].concat());
        assert_eq!(drafted["tokens"], plain["tokens"], "{way:?}");
        let model = source(&drafted, "kind", "model");
        // It costs what a plain step does, so it drafts only where it must; and it says what the model says, as it is the model.
        if way.contains(&"--spec-draft-n-max") {
            assert!(model["drafted"].as_u64() > Some(40), "{model}");
            assert!(way.len() > 2 || model["accepted"] == model["drafted"], "{model}");
        }
    }
}

#[test]
fn draft_models_that_cannot_be_are_one_line() {
    let folder = Folder::new();
    let (missing, other) = (folder.path("no.gguf"), five_layers());
    fails(&["-md", &missing, "-n", "1"], 1, &["no.gguf"]);
    fails(&["-md", &folder.file("odd.gguf", "GGUF"), "-n", "1"], 1, &["odd.gguf"]);
    fails(&["-md", other, "-n", "1"], 1, &["cannot draft", "vocabulary", "512"]);
    fails(&["--spec-type", "model", "-n", "1"], 2, &["--spec-draft-model"]);
    fails(&["--spec-type", "draft-eagle3", "-n", "1"], 2, &["--spec-draft-model"]);
    fails(&["--spec-type", "draft-eagle3", "-md", EMBEDDED, "-n", "1"], 2, &["no such head"]);
    fails(&["-md", EAGLE, "-n", "1"], 1, &["cannot draft", "64 numbers"]);
    fails(&["-m", EAGLE, "-n", "1"], 1, &["no model by itself"]);
    let both = ["-m", other, "-md", EAGLE, "--head", &missing, "-p", "x", "-n", "1"];
    fails(&both, 2, &["--head"]);
    // What is not used is not opened.
    run(&["-md", &missing, "--draft", "none", "-n", "1"]).done();
}
