//! Flags for RoPE and YaRN, against llama.cpp: `tests/golden/rope.json`, which rope.cpp made.

use std::{fs, sync::Arc};

use serde::Deserialize;
use serde_json::Value;
use spec_run::{Batch, Gguf, Model, RopeChange, RopeScaling, context::KvType, sampler::top_logprobs};

use crate::common::{context, fixture};

#[derive(Deserialize)]
struct Case {
    model: String,
    flags: String,
    /// The likeliest tokens behind the prompt and their log-probabilities.
    top: Vec<(usize, f64)>,
}

fn change(flags: &str) -> RopeChange {
    let mut change = RopeChange::default();
    let words: Vec<&str> = flags.split_whitespace().collect();
    for pair in words.chunks(2) {
        let number = || Some(pair[1].parse::<f32>().unwrap());
        match pair[0] {
            "--rope-scaling" => {
                change.scaling = Some(match pair[1] {
                    "none" => RopeScaling::None,
                    "linear" => RopeScaling::Linear,
                    _ => RopeScaling::Yarn,
                });
            }
            "--rope-scale" => change.freq_scale = number().map(|scale| 1.0 / scale),
            "--rope-freq-scale" => change.freq_scale = number(),
            "--rope-freq-base" => change.freq_base = number(),
            "--yarn-orig-ctx" => change.orig_ctx = number().map(|ctx| ctx as u32),
            "--yarn-ext-factor" => change.ext_factor = number(),
            "--yarn-attn-factor" => change.attn_factor = number(),
            "--yarn-beta-slow" => change.beta_slow = number(),
            "--yarn-beta-fast" => change.beta_fast = number(),
            other => panic!("{other}"),
        }
    }
    change
}

/// Of fourteen architectures, some with YaRN or windows of their own: what each flag does to which rotation.
#[test]
fn rotations_are_changed_as_llama_cpps() {
    const TEST: &str = "rotations_are_changed_as_llama_cpps";
    let cases: Vec<Case> = serde_json::from_str(include_str!("../golden/rope.json")).unwrap();
    assert_eq!(cases.len(), 140);
    let mut wrong = Vec::new();
    let mut moved = 0;
    for case in &cases {
        let Some(path) = fixture(TEST, &format!("archs/{}.gguf", case.model)) else { return };
        let expected = fs::read_to_string(path.with_extension("json")).unwrap();
        let prompt: Vec<u32> =
            serde_json::from_value(serde_json::from_str::<Value>(&expected).unwrap()["prompt"].clone())
                .unwrap();
        let gguf = Arc::new(Gguf::open(&path).unwrap());
        let model = Arc::new(Model::load_turning(gguf, &change(&case.flags)).unwrap());
        let mut context = context(&model, |c| {
            (c.n_ctx, c.threads) = (128, 1);
            (c.key_type, c.value_type) = (KvType::F32, KvType::F32);
        });
        let mut batch = Batch::new();
        for (at, &token) in prompt.iter().enumerate() {
            batch.push(token, at as u32, 0, at + 1 == prompt.len());
        }
        context.decode(&batch).unwrap();
        let logits = context.logits(0);
        let all = top_logprobs(logits, logits.len());
        let of = |token: usize| all.iter().find(|(id, _)| *id as usize == token).unwrap().1;
        let off =
            case.top.iter().map(|&(token, want)| (f64::from(of(token)) - want).abs()).fold(0.0, f64::max);
        let plain = cases.iter().find(|other| other.model == case.model && other.flags.is_empty()).unwrap();
        moved += usize::from(case.top != plain.top);
        // llama.cpp looks activations of some up in tables of halves.
        if off > 2e-3 {
            wrong.push(format!("{} {}: off by {off}", case.model, case.flags));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(moved > 100, "{moved} of the flags change something");
}

/// YaRN by other numbers makes it a model of a longer context.
#[test]
fn yarn_makes_the_context_longer() {
    let trained = |change: RopeChange| {
        let gguf = Arc::new(spec_run::embedded::open().unwrap());
        Model::load_turning(gguf, &change).unwrap().n_ctx_train
    };
    let plain = trained(RopeChange::default());
    let yarn =
        RopeChange { scaling: Some(RopeScaling::Yarn), freq_scale: Some(0.25), ..RopeChange::default() };
    assert_eq!(trained(yarn), 4 * plain);
    assert_eq!(trained(RopeChange { orig_ctx: Some(100), ..yarn }), 400);
    assert_eq!(trained(RopeChange { scaling: Some(RopeScaling::Linear), ..yarn }), plain);
}

#[test]
fn numbers_that_turn_nothing_are_refused() {
    let load = |change: RopeChange| {
        Model::load_turning(Arc::new(spec_run::embedded::open().unwrap()), &change)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let said = load(RopeChange { freq_base: Some(-1.0), ..RopeChange::default() });
    assert_eq!(said, "`rope_freq_base` -1: a positive number is needed, or none for the file's");
    let said = load(RopeChange { ext_factor: Some(f32::NAN), ..RopeChange::default() });
    assert!(said.starts_with("`yarn_ext_factor` NaN: "), "{said}");
}
