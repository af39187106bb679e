//! Drafts of heads that others trained, EAGLE-3, DFlash and DSpark: what llama.cpp drafts with them, and texts that are exact whatever is drafted.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::Value;
use spec_run::{
    Batch, Context, ContextConfig, Error, Gguf, Model,
    engine::MakeProposers,
    gguf,
    scores::{Scores, Want},
    speculation::{
        Apart, Fixed, Left, Passes, Proposer, ReadsRows, SourceInfo, SourceKind, Supply, TrainedSource,
    },
};

use crate::{
    common::{bits, context, embedded_model, five_layers, fixture, in_floats::f32_cache, load, parts::Parts},
    running::{Always, drafted, fixed, greedy, plain, request, same, samplers, three_together},
};

const HEADS: [&str; 7] = [
    "eagle-shares-tables",
    "eagle-own-tables",
    "dflash-two-layers",
    "dflash-one-layer",
    "dspark-two-layers",
    "dspark-one-layer",
    "dspark-of-some-tokens",
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/trained").join(name)
}

fn model() -> Arc<Model> {
    load(Path::new(five_layers()))
}

fn small(model: &Arc<Model>, n_ctx: u32) -> Context {
    context(model, |c| {
        (c.n_ctx, c.threads) = (n_ctx, 1);
        f32_cache(c);
    })
}

fn whole(name: &str) -> Gguf {
    Gguf::open(&golden(&format!("{name}.gguf"))).unwrap()
}

fn source(name: &str, n_ctx: u32) -> TrainedSource {
    opened(&whole(name), &model(), n_ctx).unwrap()
}

fn opened(gguf: &Gguf, of: &Model, n_ctx: u32) -> Result<TrainedSource, Error> {
    TrainedSource::open(gguf, of, |head| {
        let mut config = ContextConfig { n_ctx, threads: 1, mtp: true, ..ContextConfig::default() };
        f32_cache(&mut config);
        Context::new(head.clone(), &config)
    })
}

/// A drafted token, and how sure of it the head is among its ten best.
type Drafted = (u32, f64);

/// Keeps what each draft says.
struct Kept {
    inner: Box<dyn Proposer>,
    rounds: Arc<Mutex<Vec<Vec<Drafted>>>>,
}

impl Proposer for Kept {
    fn info(&self, context: &Context) -> SourceInfo {
        self.inner.info(context)
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        self.inner.supply(text)
    }

    fn passes(&self) -> Option<Passes<'_>> {
        self.inner.passes()
    }

    fn apart(&mut self) -> Option<&mut dyn Apart> {
        Some(self)
    }

    fn reader(&mut self) -> Option<&mut dyn ReadsRows> {
        self.inner.reader()
    }
}

impl Kept {
    fn inner(&mut self) -> &mut dyn Apart {
        self.inner.apart().unwrap()
    }
}

impl Apart for Kept {
    fn n_vocab(&self) -> usize {
        512
    }

    fn read(&mut self, text: &[u32]) {
        self.inner().read(text);
    }

    fn begin(&mut self, text: &[u32], most: usize) {
        self.rounds.lock().unwrap().push(Vec::new());
        self.inner().begin(text, most);
    }

    fn step(&mut self, token: u32, _: Want, look: &mut dyn FnMut(Scores)) -> bool {
        let rounds = self.rounds.clone();
        self.inner().step(token, Want::Logits, &mut |scores| {
            let Scores::All(logits) = scores else { panic!("all logits were wanted") };
            let mut best: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
            best.sort_by(|a, b| b.total_cmp(a));
            let share = 1.0 / best[..10].iter().map(|logit| (logit - best[0]).exp()).sum::<f64>();
            rounds.lock().unwrap().last_mut().unwrap().push((scores.greedy(), share));
            look(scores);
        })
    }
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn heads_draft_what_they_draft_in_llama_cpp() {
    let golden: Value =
        serde_json::from_str(&std::fs::read_to_string(golden("drafts.json")).unwrap()).unwrap();
    let prompt = ids(&golden["prompt"]);
    // llama-server cannot read the last one yet.
    for name in &HEADS[..6] {
        let expected = &golden["heads"][*name];
        let text = ids(&expected["text"]);
        // With few tokens left it would draft less.
        let mut request = request(&prompt, text.len() + 10);
        request.ignore_eos = true;
        let rounds = Arc::new(Mutex::new(Vec::new()));
        let kept = Kept { inner: source(name, 512).proposer(), rounds: rounds.clone() };
        let policy = Fixed { max: 5, min: 5, p_min: 0.0 };
        let (ran, _) =
            drafted(&mut small(&model(), 128), &greedy(), &request, usize::MAX, Box::new(kept), policy);
        assert!(ran.tokens.starts_with(&text), "{name}: {:?}", ran.tokens);
        let (rounds, expected) = (rounds.lock().unwrap(), expected["rounds"].as_array().unwrap());
        assert!(rounds.len() >= expected.len() && expected.len() > 30, "{name}: {}", rounds.len());
        for (round, (found, expected)) in rounds.iter().zip(expected).enumerate() {
            for (&(token, share), expected) in found.iter().zip(expected.as_array().unwrap()) {
                assert_eq!(
                    u64::from(token),
                    expected[0].as_u64().unwrap(),
                    "{name}, round {round}: {found:?}"
                );
                let expected = expected[1].as_f64().unwrap();
                // They are written with three digits.
                assert!(
                    (share - expected).abs() < 0.002,
                    "{name}, round {round}: {share}, by llama.cpp {expected}"
                );
            }
        }
    }
}

#[test]
fn texts_are_plain_decodings_whatever_a_head_says() {
    let prompt = [1, 403, 407, 261, 378, 396];
    let mut context = small(&model(), 128);
    let mut request = request(&prompt, 70);
    request.ignore_eos = true;
    for sampler in samplers() {
        let expected = plain(&mut context, &sampler, &request, usize::MAX);
        for name in HEADS {
            // One with room for all, and one with less than the text needs.
            for (most, n_ctx) in [(1, 256), (3, 256), (8, 256), (3, 40)] {
                let proposer = source(name, n_ctx).proposer();
                let (found, report) =
                    drafted(&mut context, &sampler, &request, usize::MAX, proposer, fixed(most));
                let when = format!("{name}, temperature {}, drafts of {most}, {n_ctx} cells", sampler.temp);
                same(&found, &expected, &when);
                assert!(report.drafting.rounds > 20, "{when}: {:?}", report.drafting);
            }
        }
    }
}

/// The rows that it goes on from are those of the branch that was accepted.
#[test]
fn other_choices_of_a_head_are_verified_beside_its_first() {
    let model = model();
    let mut request = request(&[1, 403, 407, 261], 80);
    request.ignore_eos = true;
    let mut context = small(&model, 128);
    let expected = plain(&mut context, &greedy(), &request, usize::MAX);
    for (most, others) in [(1, 3), (3, 2)] {
        let proposer = source("eagle-shares-tables", 256).proposer();
        let policy = Always { most, others };
        let (found, report) = drafted(&mut context, &greedy(), &request, usize::MAX, proposer, policy);
        same(&found, &expected, &format!("drafts of {most}, {others} others"));
        assert!(report.drafting.rounds > 20, "{:?}", report.drafting);
    }
}

/// Prompts are read in parts, between other texts' tokens, and by cells that other texts want too.
#[test]
fn texts_together_are_what_they_are_alone() {
    let model = model();
    for name in HEADS {
        for cells in [512, 70] {
            let open = || {
                let source = source(name, cells);
                let make: MakeProposers = Box::new(move || vec![source.proposer()]);
                (small(&model, 512), make)
            };
            three_together(open, SourceKind::Head);
        }
    }
}

/// A prompt that is evaluated in parts leaves the same rows.
#[test]
fn a_head_sees_long_prompts_whole() {
    let prompt: Vec<u32> = (0..1100).map(|i| 3 + (i * 7 + i / 50) % 500).collect();
    let steps = |name, begin: usize| {
        let mut head = source(name, 2048).proposer();
        let mut context = small(&model(), 2048);
        let mut said = Vec::new();
        for part in [&prompt[..begin], &prompt[begin..]].iter().filter(|part| !part.is_empty()) {
            let pos = context.kv().next_pos(0);
            let taps = head.reader().unwrap().layers(5);
            context.decode(&Batch { taps, ..Batch::prompt(part, pos, 0) }).unwrap();
            let rows: Vec<&[f32]> = (0..part.len()).map(|i| context.taps(i)).collect();
            head.reader().unwrap().see(Left {
                before: &prompt[..pos as usize],
                tokens: part,
                pos,
                rows: &rows,
            });
            head.apart().unwrap().read(&[]);
        }
        head.apart().unwrap().begin(&prompt, 4);
        let mut token = 9;
        for _ in 0..4 {
            let mut next = 0;
            head.apart().unwrap().step(token, Want::Logits, &mut |scores| {
                let Scores::All(logits) = scores else { panic!("all logits were wanted") };
                next = scores.greedy();
                said.push(bits(logits));
            });
            token = next;
        }
        said
    };
    for name in HEADS {
        let whole = steps(name, 0);
        assert_eq!(whole.len(), 4, "{name}");
        assert!([1, 512, 1099].into_iter().all(|begin| steps(name, begin) == whole), "{name}");
    }
}

/// The numbers of a tensor of floats.
fn floats(gguf: &Gguf, name: &str) -> Vec<f32> {
    let bytes = gguf.bytes(gguf.tensor(name).unwrap());
    bytes.as_chunks::<4>().0.iter().map(|&x| f32::from_le_bytes(x)).collect()
}

/// By the formula: what a token adds to the logits behind it is its row of one matrix times the other.
#[test]
fn a_dspark_head_adds_a_row_of_a_product_to_its_logits() {
    let prompt: Vec<u32> = (3..40).collect();
    let tokens = [7, 300, 7, 42];
    for name in ["dspark-two-layers", "dspark-of-some-tokens"] {
        let whole = whole(name);
        let (of_token, to_logits) = (floats(&whole, "markov_w1.weight"), floats(&whole, "markov_w2.weight"));
        let rank = of_token.len() / 512;
        let drafted: Vec<usize> = match whole.tensor("d2t") {
            None => (0..512).collect(),
            Some(d2t) => {
                let ids = whole.bytes(d2t).as_chunks::<8>().0;
                ids.iter().map(|&id| i64::from_le_bytes(id) as usize).collect()
            }
        };
        let logits = |gguf: &Gguf| {
            let mut head = opened(gguf, &model(), 256).unwrap().proposer();
            let mut context = small(&model(), 128);
            let taps = head.reader().unwrap().layers(5);
            context.decode(&Batch { taps, ..Batch::prompt(&prompt, 0, 0) }).unwrap();
            let rows: Vec<&[f32]> = (0..prompt.len()).map(|i| context.taps(i)).collect();
            head.reader().unwrap().see(Left { before: &[], tokens: &prompt, pos: 0, rows: &rows });
            head.apart().unwrap().begin(&prompt, tokens.len());
            let mut found = Vec::new();
            for token in tokens {
                head.apart().unwrap().step(token, Want::Logits, &mut |scores| {
                    let Scores::All(logits) = scores else { panic!("all logits were wanted") };
                    found.push(logits.to_vec());
                });
            }
            found
        };
        let nothing = vec![0; 4 * to_logits.len()];
        let without = logits(&with_bytes(name, "markov_w2.weight", &nothing));
        for ((with, without), token) in std::iter::zip(logits(&whole), without).zip(tokens) {
            let row = &of_token[token as usize * rank..][..rank];
            for (to, &of) in to_logits.chunks_exact(rank).zip(&drafted) {
                let added = to.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
                let found = f64::from(with[of]) - f64::from(without[of]);
                assert!((found - added).abs() < 1e-4, "{name}: {found} for {added}");
            }
        }
    }
}

/// As with a conversation: the model has most of the prompt in its cache, so the head sees the rest alone.
#[test]
fn a_head_has_what_an_earlier_text_showed_it_of_a_prompt() {
    let prompt: Vec<u32> = (0..60).map(|i| 3 + (i * 7) % 500).collect();
    let mut context = small(&model(), 128);
    for name in HEADS {
        // Shows the head a prompt from some row on, and gives the logits of a draft.
        let mut steps = |source: &TrainedSource, from: usize| {
            let mut head = source.proposer();
            let reader = head.reader().unwrap();
            let taps = reader.layers(5);
            context.remove_all();
            context.decode(&Batch { taps, ..Batch::prompt(&prompt, 0, 0) }).unwrap();
            let rows: Vec<&[f32]> = (from..prompt.len()).map(|i| context.taps(i)).collect();
            let (before, tokens) = prompt.split_at(from);
            reader.see(Left { before, tokens, pos: from as u32, rows: &rows });
            head.apart().unwrap().read(&prompt);
            head.apart().unwrap().begin(&prompt, 3);
            let mut found = Vec::new();
            for token in [9, 41, 300] {
                head.apart().unwrap().step(token, Want::Logits, &mut |scores| {
                    let Scores::All(logits) = scores else { panic!("all logits were wanted") };
                    found.push(bits(logits));
                });
            }
            found
        };
        let head = source(name, 256);
        let whole = steps(&head, 0);
        assert_eq!(steps(&head, 40), whole, "{name}");
        assert_ne!(steps(&source(name, 256), 40), whole, "{name}: another head has seen nothing before");
    }
}

/// A head with another key.
fn with_key(name: &str, key: &str, value: impl Into<gguf::Value>) -> Gguf {
    Parts::of(&whole(name)).with(key, value).gguf("head.gguf")
}

/// A head with other bytes at the beginning of a tensor.
fn with_bytes(name: &str, tensor: &str, begin: &[u8]) -> Gguf {
    let mut parts = Parts::of(&whole(name));
    parts.tensor(tensor).bytes[..begin.len()].copy_from_slice(begin);
    parts.gguf("head.gguf")
}

#[test]
fn heads_that_cannot_be_are_one_line() {
    let of = model();
    let wrong = |head: &Gguf, of: &Model, what: &str| {
        let error = opened(head, of, 64).err().unwrap_or_else(|| panic!("{what} is expected")).to_string();
        assert!(error.contains(what) && error.lines().count() == 1, "{error}");
    };
    use gguf::Value;

    let list = |layers: &[u32]| Value::from(layers.to_vec());
    let (eagle, dflash, dspark) = ("eagle-own-tables", "dflash-one-layer", "dspark-of-some-tokens");
    for (name, key, value, what) in [
        (eagle, "eagle3.target_layers", list(&[1, 2]), "three layers"),
        (eagle, "eagle3.target_layers", list(&[3, 2, 1]), "ascending"),
        (eagle, "eagle3.target_layers", list(&[0, 2, 3]), "from 1 on"),
        (eagle, "eagle3.target_layers", list(&[2, 3, 6]), "layers [2, 3, 6]"),
        (eagle, "eagle3.target_hidden_size", Value::U32(32), "shape"),
        (eagle, "eagle3.block_count", Value::U32(2), "must be 1"),
        (dflash, "tokenizer.ggml.mask_token_id", Value::U32(512), "below 512"),
        (dflash, "dflash.attention.sliding_window", Value::U32(64), "windows"),
        (dflash, "dflash.hyper_connection_count", Value::U32(4), "hyper-connections"),
        (dflash, "dflash.hidden_activation", "relu".into(), "silu or gelu"),
        (dspark, "dflash.block_size", Value::U32(0), "between 1 and"),
        (dspark, "dflash.sample_from_anchor", Value::U32(1), "sample_from_anchor"),
    ] {
        wrong(&with_key(name, key, value), &of, what);
    }
    wrong(&with_bytes(eagle, "d2t", &512i64.to_le_bytes()), &of, "below 512");
    wrong(&with_bytes(eagle, "d2t", &(-1i64).to_le_bytes()), &of, "`d2t`");
    let head = whole(eagle);
    // Rows of 288 numbers, and 2048 tokens.
    wrong(&head, &embedded_model(), "cannot draft for");
    let test = "heads_that_cannot_be_are_one_line";
    if let Some(recurrent) = fixture(test, "archs/mamba2.gguf") {
        wrong(&head, &load(&recurrent), "more goes from layer to layer");
    }
    let alone = Model::load(Arc::new(head)).err().expect("it is no model").to_string();
    assert!(alone.contains("draft model") && alone.lines().count() == 1, "{alone}");
}

/// Numbers that are none cost drafts, and no text.
#[test]
fn a_head_that_is_damaged_drafts_nothing_that_counts() {
    let model = model();
    let mut request = request(&[1, 403, 407, 261], 40);
    request.ignore_eos = true;
    let mut context = small(&model, 128);
    let expected = plain(&mut context, &greedy(), &request, usize::MAX);
    let head = with_bytes("eagle-own-tables", "fc.weight", &f32::NAN.to_le_bytes());
    let proposer = opened(&head, &model, 256).unwrap().proposer();
    let (found, _) = drafted(&mut context, &greedy(), &request, usize::MAX, proposer, fixed(4));
    same(&found, &expected, "with a head of NaN");
}
