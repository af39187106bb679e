//! Files of masks: the three spellings, what is written is read again, and what a bad file answers.

use proptest::prelude::*;
use serde_json::{Map, json};
use spec_run::{
    Error, RunLayers,
    mask::{
        LayerBits,
        skips::{ModelId, NamedMask, Skips},
    },
};

const N: usize = 16;

fn parse(text: &str) -> Skips {
    Skips::parse("skips.json", text.as_bytes(), N).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn only_mask(text: &str) -> RunLayers {
    let skips = parse(text);
    assert_eq!(skips.masks.len(), 1);
    skips.masks[0].mask.clone()
}

/// The message of a refusal, which is one line that begins with the file.
fn refusal(bytes: impl AsRef<[u8]>) -> String {
    let error = Skips::parse("skips.json", bytes.as_ref(), N).expect_err("was taken");
    assert!(matches!(error, Error::Mask(_)));
    let line = error.to_string();
    assert!(line.starts_with("skips.json:") && line.lines().count() == 1 && line.len() < 300, "{line}");
    line
}

fn assert_refused(text: impl AsRef<[u8]>, parts: &[&str]) {
    let line = refusal(&text);
    for part in parts {
        assert!(line.contains(part), "{}: {line} lacks {part}", String::from_utf8_lossy(text.as_ref()));
    }
}

fn stories() -> ModelId {
    ModelId { name: "stories13m".into(), arch: "llama".into(), n_layer: N, fingerprint: "c0ffee".into() }
}

#[test]
fn ours_holds_a_family_best_first() {
    let skips = parse(
        r#"{"schema": 1, "model": {"name": "stories13m", "arch": "llama", "n_layer": 16, "fingerprint": "c0ffee"},
            "masks": [
              {"name": "cautious", "skip": {"attention": [12, 13], "mlp": [13]}, "agreement": 0.875, "overlap": 0.75,
               "cost": 0.5, "predicted": {"speedup": 1.25}, "measured": {"tok_s": 200, "by": ["a"]}},
              {"name": "bold", "skip": {"attention": [], "mlp": [1]}, "coarse": {"attention": [0], "mlp": [2, 3]}}]}"#,
    );
    assert_eq!(skips.model, Some(stories()));
    let [cautious, bold] = &skips.masks[..] else { panic!("{} masks", skips.masks.len()) };
    assert_eq!(cautious.mask, RunLayers::all(N).skip_attn(12).skip_attn(13).skip_mlp(13));
    assert_eq!((cautious.agreement, cautious.overlap, cautious.cost), (Some(0.875), Some(0.75), Some(0.5)));
    assert_eq!(cautious.predicted["speedup"], 1.25);
    assert_eq!(cautious.measured["by"], json!(["a"]));
    assert_eq!(bold.mask, RunLayers::all(N).skip_mlp(1).coarse_attn(0).coarse_mlp(2).coarse_mlp(3));
    assert_eq!((bold.agreement, &bold.predicted), (None, &Map::new()));
    assert_eq!(skips.pick(None).unwrap().name, "cautious");
    assert_eq!(skips.pick(Some("bold")).unwrap().name, "bold");
}

#[test]
fn ours_needs_little_and_passes_over_what_it_does_not_know() {
    let skips = parse(
        r#"{"schema": 1, "masks": [{}, {"skip": null, "agreement": null, "note": {"by": 3}}], "x": [1]}"#,
    );
    assert!(skips.model.is_none() && skips.masks.iter().all(|m| m.mask.is_full()));
    assert_eq!(skips.masks[1].name, "mask 1");
    assert_eq!(parse(r#"{"schema": 1, "model": {}, "masks": [{}]}"#).model.unwrap().n_layer, N);
}

#[test]
fn ours_names_layers_by_the_number_of_their_experts_and_reads_back() {
    let text = r#"{"schema": 1, "masks": [{"experts": {"2": [0, 3], "1": [5]}, "skip": {"mlp": [4]}},
        {"steps": [1, {"layer": 0, "attention": "skip", "experts": 3}, {"layer": 0, "mlp": "coarse", "experts": 1}]}]}"#;
    let skips = parse(text);
    let mask = RunLayers::all(N).experts(0, 2).experts(3, 2).experts(5, 1).skip_mlp(4);
    let steps = [
        (1, LayerBits::FULL),
        (0, LayerBits::MLP | LayerBits::experts(3)),
        (0, LayerBits::FULL | LayerBits::COARSE_MLP | LayerBits::experts(1)),
    ];
    let steps = RunLayers::from_steps(N, steps).unwrap();
    let masks = |skips: &Skips| skips.masks.iter().map(|named| named.mask.clone()).collect::<Vec<_>>();
    assert_eq!(masks(&skips), [mask, steps]);
    assert_eq!(masks(&parse(&skips.to_json())), masks(&skips));
}

#[test]
fn ours_spells_steps_as_numbers_or_objects() {
    let text = r#"{"schema": 1, "masks": [{"steps": [0, 1, 1, {"layer": 2},
        {"layer": 3, "attention": "skip", "mlp": "coarse"}, {"layer": 2, "mlp": "skip", "why": 0}]}]}"#;
    let expected = [
        (0, LayerBits::FULL),
        (1, LayerBits::FULL),
        (1, LayerBits::FULL),
        (2, LayerBits::FULL),
        (3, LayerBits::MLP | LayerBits::COARSE_MLP),
        (2, LayerBits::ATTN),
    ];
    assert_eq!(only_mask(text), RunLayers::from_steps(N, expected).unwrap());
}

#[test]
fn draft_verify_lists_what_to_skip_under_names() {
    let skips = parse(r#"{"a": {"attention": [3, 5], "mlp": [6]}, "b": {"mlp": []}}"#);
    assert!(skips.model.is_none());
    assert_eq!(skips.masks[0].name, "a");
    assert_eq!(skips.masks[0].mask, RunLayers::all(N).skip_attn(3).skip_attn(5).skip_mlp(6));
    assert!(skips.masks[1].mask.is_full());
    // A mask may well be called as one of our keys is.
    assert_eq!(only_mask(r#"{"schema": {"attention": [0], "mlp": []}}"#), RunLayers::all(N).skip_attn(0));
}

#[test]
fn draft_verify_files_with_masks_of_larger_models_still_serve_ours() {
    let skips = parse(r#"{"70b": {"attention": [79], "mlp": [2]}, "1b": {"attention": [15], "mlp": []}}"#);
    assert_eq!(skips.pick(None).unwrap().name, "1b");
    let refused = skips.pick(Some("70b")).unwrap_err().to_string();
    assert!(refused.contains("70b.attention[0]: layer 79 does not exist"), "{refused}");
    let warnings = skips.check_model(&stories()).unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("`70b`"), "{warnings:?}");
    assert_refused(
        r#"{"70b": {"attention": [79], "mlp": [2]}}"#,
        &["70b.attention[0]", "layer 79 does not exist", "0 to 15"],
    );
    // A wrong shape is never another model's.
    assert_refused(
        r#"{"70b": {"attention": [79, -1]}, "1b": {"mlp": []}}"#,
        &["70b.attention[1]", "-1 where"],
    );
}

#[test]
fn llama_cpp_counts_bits_per_layer() {
    let expected = RunLayers::all(N).skip_attn(1).skip_mlp(2).skip_attn(3).skip_mlp(3);
    assert_eq!(only_mask("[0, 1, 2, 3]"), expected);
    assert_eq!(only_mask("[0, 1, 2, 3, -1]"), expected, "the terminator");
    assert_eq!(only_mask("[0, 1, 2, 3, -1, 3, 3]"), expected, "beyond the terminator");
    assert_eq!(only_mask("[0,1,2,3,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"), expected, "zeros beyond the model");
    assert!(only_mask("[]").is_full() && only_mask("[-1]").is_full());
    assert_refused(
        "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2]",
        &["[16]", "layer 16 does not exist", "16 layers, 0 to 15"],
    );
    for (text, found) in [
        ("[4]", "4 where"),
        ("[0, -2]", "[1]: -2 where"),
        ("[1.0]", "1.0 where"),
        ("[[0]]", "an array where"),
    ] {
        assert_refused(text, &[found, "0 to 3 for each layer"]);
    }
}

#[test]
fn a_byte_order_mark_is_no_syntax_error() {
    let skips = Skips::parse("skips.json", b"\xef\xbb\xbf[1]", N).unwrap();
    assert_eq!(skips.masks[0].mask, RunLayers::all(N).skip_attn(0));
}

#[test]
fn text_that_is_not_json_names_line_and_column() {
    assert_refused("layers: 3", &["skips.json:1:1: not JSON"]);
    assert_refused("{\"a\":\n {\"mlp\": [3 4]}}", &["skips.json:2:13: not JSON: expected `,` or `]`"]);
    assert_refused("[0, 1]]", &["skips.json:1:7: not JSON"]);
    assert_refused("[0, NaN]", &["skips.json:1:5: not JSON"]);
    assert_refused([b'[', 0xff, b']'], &["skips.json:1:"]);
    assert_refused("[".repeat(100_000), &["not JSON", "recursion limit"]);
    // A syntax error or a wrong number: serde_json's features, which other crates choose, decide.
    assert_refused("[1e999]", &[]);
    assert_refused(r#"{"schema": 1, "masks": [{"cost": 1e999}]}"#, &[]);
}

#[test]
fn a_file_cut_anywhere_says_so() {
    let whole = r#"{"schema": 1, "masks": [{"name": "a", "skip": {"attention": [3, 5], "mlp": []}}]}"#;
    parse(whole);
    for cut in 1..whole.len() {
        assert_refused(&whole[..cut], &["skips.json:1:", "not JSON"]);
    }
    assert_refused(&whole[..40], &["cut short"]);
    assert_refused("", &["empty"]);
    assert_refused(" \n", &["empty"]);
}

#[test]
fn a_model_given_as_skips_is_recognised() {
    assert_refused(b"GGUF\x03\0\0\0", &["this is a model"]);
    assert_refused(vec![b' '; (4 << 20) + 1], &["larger than 4 MiB"]);
}

#[test]
fn no_such_file_and_a_directory_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("none.json"), folder.path().to_path_buf()] {
        let error = Skips::read(&path, N).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_newer_schema_asks_for_an_update() {
    assert_refused(r#"{"schema": 2, "masks": [{}]}"#, &["schema", "2 is newer", "update spec-run"]);
    for schema in ["0", "-1", "\"1\"", "1.0", "true"] {
        assert_refused(format!(r#"{{"schema": {schema}, "masks": [{{}}]}}"#), &["schema", "1 was expected"]);
    }
    assert_refused(r#"{"masks": [{}]}"#, &["without \"schema\""]);
}

#[test]
fn wrong_shapes_name_the_place_and_what_was_expected() {
    for (text, parts) in [
        ("3", &["3 where masks: an object"][..]),
        ("null", &["null where masks"]),
        ("{}", &["no mask"]),
        (r#"{"schema": 1}"#, &["no \"masks\""]),
        (r#"{"schema": 1, "masks": []}"#, &["no mask"]),
        (r#"{"schema": 1, "masks": {"a": 1}}"#, &["masks: an object where an array was expected"]),
        (r#"{"schema": 1, "masks": [[1]]}"#, &["masks[0]: an array where an object was expected"]),
        (r#"{"schema": 1, "model": "x", "masks": [{}]}"#, &["model: \"x\" where an object was expected"]),
        (
            r#"{"schema": 1, "model": {"n_layer": "x"}, "masks": [{}]}"#,
            &["model.n_layer: \"x\" where a whole number"],
        ),
        (r#"{"schema": 1, "masks": [{"name": 3}]}"#, &["masks[0].name: 3 where a string was expected"]),
        (r#"{"schema": 1, "masks": [{"name": "a"}, {"name": "a"}]}"#, &["masks[1]: a second mask named `a`"]),
        (
            r#"{"schema": 1, "masks": [{"skip": [3]}]}"#,
            &["masks[0].skip: an array where an object was expected"],
        ),
        (
            r#"{"schema": 1, "masks": [{"skip": {"mlp": 3}}]}"#,
            &["masks[0].skip.mlp: 3 where an array was expected"],
        ),
        (
            r#"{"schema": 1, "masks": [{"skip": {"mlp": [0, -3]}}]}"#,
            &["masks[0].skip.mlp[1]: -3 where a whole number"],
        ),
        (
            r#"{"schema": 1, "masks": [{"skip": {"mlp": [2.5]}}]}"#,
            &["masks[0].skip.mlp[0]: 2.5 where a whole number"],
        ),
        (r#"{"schema": 1, "masks": [{"skip": {"mlp": ["3"]}}]}"#, &["mlp[0]: \"3\" where a whole number"]),
        (
            r#"{"schema": 1, "masks": [{"skip": {"attention": [16]}}]}"#,
            &["masks[0].skip.attention[0]: layer 16 does not exist", "0 to 15"],
        ),
        (
            r#"{"schema": 1, "masks": [{"experts": {"0": [1]}}]}"#,
            &["masks[0].experts.0", "a number of experts, 1 to 255"],
        ),
        (
            r#"{"schema": 1, "masks": [{"experts": {"2": [1], "3": [1]}}]}"#,
            &["masks[0].experts.3[0]: layer 1 is listed twice"],
        ),
        (
            r#"{"schema": 1, "masks": [{"skip": {"mlp": [1]}, "experts": {"2": [1]}}]}"#,
            &["the MLP of layer 1 is listed under \"skip\" too"],
        ),
        (
            r#"{"schema": 1, "masks": [{"coarse": {"mlp": [99]}}]}"#,
            &["masks[0].coarse.mlp[0]: layer 99 does not exist"],
        ),
        (
            r#"{"schema": 1, "masks": [{"skip": {"mlp": [4]}, "coarse": {"mlp": [4]}}]}"#,
            &["masks[0].coarse.mlp[0]: layer 4 is listed under \"skip\" too"],
        ),
        (r#"{"schema": 1, "masks": [{"steps": [0], "skip": {}}]}"#, &["masks[0]: give either \"steps\" or"]),
        (r#"{"schema": 1, "masks": [{"steps": [0, 16]}]}"#, &["masks[0].steps[1]: layer 16 does not exist"]),
        (r#"{"schema": 1, "masks": [{"steps": [{"mlp": "run"}]}]}"#, &["masks[0].steps[0]: no \"layer\""]),
        (
            r#"{"schema": 1, "masks": [{"steps": [{"layer": 0, "mlp": true}]}]}"#,
            &["steps[0].mlp: true where \"run\", \"coarse\""],
        ),
        (
            r#"{"schema": 1, "masks": [{"agreement": 1.5}]}"#,
            &["masks[0].agreement: 1.5 where a number from 0 to 1"],
        ),
        (
            r#"{"schema": 1, "masks": [{"cost": -1}]}"#,
            &["masks[0].cost: -1 where a number from 0 was expected"],
        ),
        (r#"{"schema": 1, "masks": [{"predicted": 3}]}"#, &["masks[0].predicted: 3 where an object"]),
        (
            r#"{"attention": [1], "mlp": [2]}"#,
            &["attention: an array where {\"attention\": [..], \"mlp\": [..]}"],
        ),
        (r#"{"a": {}}"#, &["a: an object where {\"attention\""]),
        (r#"{"a": {"attention": [1], "mlp": 7}}"#, &["a.mlp: 7 where an array"]),
        (r#"{"a": 3}"#, &["a: 3 where {\"attention\""]),
    ] {
        assert_refused(text, parts);
    }
}

#[test]
fn a_hostile_name_cannot_break_or_flood_the_line() {
    let name = format!("evil\\n\\u001b[2J{}", "x".repeat(10_000));
    assert_refused(format!(r#"{{"{name}": {{"mlp": [99]}}}}"#), &["evil", "layer 99"]);
    assert_refused(
        format!(r#"{{"schema": 1, "masks": [{{"name": "{name}"}}, {{"name": "{name}"}}]}}"#),
        &["second mask"],
    );
    assert_refused(format!(r#"{{"schema": 1, "masks": [{{"skip": "{name}"}}]}}"#), &["skip"]);
}

#[test]
fn a_flood_of_masks_is_refused() {
    let many = |n| format!(r#"{{"schema": 1, "masks": [{}]}}"#, vec!["{}"; n].join(","));
    assert_eq!(parse(&many(1024)).masks.len(), 1024);
    assert_refused(many(1025), &["more than 1024 masks"]);
    let steps = format!(r#"{{"schema": 1, "masks": [{{"steps": {:?}}}]}}"#, vec![0; 4097]);
    assert_refused(steps, &["masks[0].steps: a list of more than 4096 steps"]);
}

#[test]
fn a_name_that_is_not_there_lists_those_that_are() {
    let error = parse(r#"{"a": {"mlp": [1]}, "b": {"mlp": [2]}}"#).pick(Some("c")).unwrap_err().to_string();
    assert!(error.contains("skips.json") && error.contains("`c`") && error.contains("a, b"), "{error}");
}

fn check(text: &str, model: &ModelId) -> Vec<String> {
    parse(text).check_model(model).unwrap()
}

#[test]
fn the_right_model_gives_no_warning() {
    let file = Skips::new(stories(), vec![NamedMask::new("a", RunLayers::all(N))]).to_json();
    assert_eq!(check(&file, &stories()), [""; 0]);
    // The same weights under another name, and files that do not say whose they are.
    assert_eq!(check(&file, &ModelId { name: "renamed".into(), ..stories() }), [""; 0]);
    assert_eq!(check(r#"{"schema": 1, "masks": [{}]}"#, &stories()), [""; 0]);
    assert_eq!(check("[1]", &stories()), [""; 0]);
}

#[test]
fn another_model_is_a_warning_that_names_both() {
    let file = Skips::new(stories(), vec![NamedMask::new("a", RunLayers::all(N))]).to_json();
    let warnings = check(&file, &ModelId { fingerprint: "beef".into(), ..stories() });
    assert_eq!(warnings.len(), 1);
    assert!(["skips.json", "c0ffee", "beef"].iter().all(|p| warnings[0].contains(p)), "{warnings:?}");
    // Without a fingerprint the names must do.
    let no_print = r#"{"schema": 1, "model": {"name": "tinyllama", "arch": "llama"}, "masks": [{}]}"#;
    let warnings = check(no_print, &stories());
    assert!(warnings.len() == 1 && warnings[0].contains("tinyllama") && warnings[0].contains("stories13m"));
}

#[test]
fn another_number_of_layers_is_an_error_only_where_a_layer_is_missing() {
    let file = |layer| {
        format!(
            r#"{{"schema": 1, "model": {{"name": "m", "n_layer": 32}}, "masks": [{{"skip": {{"mlp": [{layer}]}}}}]}}"#
        )
    };
    let warnings = check(&file(15), &stories());
    assert!(
        warnings.len() == 1 && warnings[0].contains("32 layers") && warnings[0].contains("16"),
        "{warnings:?}"
    );
    assert_refused(file(16), &["layer 16 does not exist"]);
    let error = parse(&file(3)).check_model(&ModelId { n_layer: 8, ..stories() }).unwrap_err().to_string();
    assert!(error.contains("16 layers") && error.contains("has 8"), "{error}");
}

fn bits() -> impl Strategy<Value = LayerBits> {
    let bit = |bit| prop_oneof![Just(LayerBits::NONE), Just(bit)];
    let all = [LayerBits::ATTN, LayerBits::MLP, LayerBits::COARSE_ATTN, LayerBits::COARSE_MLP].map(bit);
    all.prop_map(|bits| bits.into_iter().fold(LayerBits::NONE, |a, b| a | b))
}

fn run_layers() -> impl Strategy<Value = RunLayers> {
    let mask = prop::collection::vec(bits(), N).prop_map(RunLayers::mask);
    let steps = prop::collection::vec((0..N, bits()), 0..40)
        .prop_map(|steps| RunLayers::from_steps(N, steps).unwrap());
    prop_oneof![mask, steps]
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(runs in prop::collection::vec(run_layers(), 1..5), cost in 0u32..1000) {
        let mut masks: Vec<_> =
            runs.into_iter().enumerate().map(|(i, mask)| NamedMask::new(format!("mask \"{i}\" é"), mask)).collect();
        // Multiples of 1/1024, which survive decimal digits exactly.
        masks[0].cost = Some(f64::from(cost) / 1024.0);
        masks[0].agreement = Some(1.0);
        masks[0].overlap = Some(0.0);
        masks[0].measured.insert("k".into(), json!([1, {"x": null}]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skips.json");
        Skips::new(stories(), masks.clone()).write(&path).unwrap();
        let read = Skips::read(&path, N).unwrap();
        prop_assert_eq!(read.model, Some(stories()));
        prop_assert_eq!(read.masks, masks);
    }

    #[test]
    fn damage_is_an_error_or_another_mask_but_never_a_panic(at in 0usize..200, byte: u8) {
        let mut text = br#"{"schema": 1, "masks": [{"skip": {"attention": [3, 5], "mlp": [7]}, "cost": 0.5},
            {"steps": [0, 1, {"layer": 1, "mlp": "skip"}]}]}"#.to_vec();
        let at = at % text.len();
        text[at] = byte;
        let _ = Skips::parse("skips.json", &text, N);
    }
}
