//! The head that predicts one token more (MTP): llama.cpp's numbers for it, and the same bits however its rows are made.

use serde_json::Value;
use spec_run::{
    Batch, Context,
    batch::{Mtp, Row},
};

use crate::common::{
    bits, context,
    families::{exactly, log_probabilities},
    mtp::{Sample, samples},
    parts::Parts,
};

/// With keys and values in f32.
fn exact(sample: &Sample) -> Context {
    context(&sample.model, |config| {
        exactly(config);
        config.mtp = true;
    })
}

/// How far log-probabilities are from theirs.
fn off(logits: &[f32], theirs: &Value) -> f32 {
    let theirs = theirs["logprobs"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32);
    let pairs = std::iter::zip(log_probabilities(logits), theirs).filter(|(_, x)| *x > -12.0);
    pairs
        .map(|(ours, theirs)| (ours - theirs).abs())
        .fold(0.0, |worst, off| if off.is_nan() { f32::INFINITY } else { f32::max(worst, off) })
}

/// Evaluates a text, and gives what the last layer leaves of each token.
fn left_of(context: &mut Context, text: &[u32]) -> Vec<f32> {
    context.remove(0);
    let layers = context.model().n_layer();
    context.decode(&Batch { keep_hidden: Some(layers), ..Batch::prompt(text, 0, 0) }).unwrap();
    (0..text.len()).flat_map(|i| context.hidden(i).to_vec()).collect()
}

/// Rows of the head for the tokens of a text at these places.
fn rows(context: &Context, text: &[u32], left: &[f32], places: std::ops::Range<usize>) -> Batch {
    let dim = left.len() / text.len();
    assert_eq!(context.kv().len(0), text.len());
    let row = |pos: usize| Row { token: text[pos], pos: pos as u32, seq: 0, logits: true };
    let before = left[(places.start - 1) * dim..(places.end - 1) * dim].to_vec();
    Batch { rows: places.map(row).collect(), mtp: Some(Mtp { before, after_itself: false }), ..Batch::new() }
}

#[test]
fn heads_for_one_token_more_have_llama_cpps_numbers() {
    let mut wrong = Vec::new();
    for sample in samples() {
        let mut context = exact(&sample);
        let text = sample.prompt();
        let left = left_of(&mut context, &text);
        context.decode(&rows(&context, &text, &left, 1..text.len())).unwrap();
        let mut worst = 0.0f32;
        for (pos, theirs) in sample.json["rows"].as_object().unwrap() {
            let pos: usize = pos.parse().unwrap();
            worst = worst.max(off(context.logits(pos - 1), theirs));
        }
        // Then by what it left of its own rows, each for the token that llama.cpp's chose before.
        let last = text.len() - 1;
        let mut token = sample.json["rows"][&last.to_string()]["id"].as_u64().unwrap() as u32;
        let mut before = context.hidden(last - 1).to_vec();
        for (i, theirs) in sample.json["chain"].as_array().unwrap().iter().enumerate() {
            let row = Row { token, pos: (text.len() + i) as u32, seq: 0, logits: true };
            let mtp = Some(Mtp { before, after_itself: true });
            context.decode(&Batch { rows: vec![row], mtp, ..Batch::new() }).unwrap();
            worst = worst.max(off(context.logits(0), theirs));
            token = theirs["id"].as_u64().unwrap() as u32;
            before = context.hidden(0).to_vec();
        }
        println!("{}: {worst:.1e}", sample.name);
        if worst > 2e-3 {
            wrong.push(format!("{} is off by {worst:.1e}", sample.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn rows_of_the_head_have_the_same_bits_in_any_batch_and_change_nothing_else() {
    for sample in samples() {
        let (name, text) = (sample.name, sample.prompt());
        let mut context = context(&sample.model, |config| config.mtp = true);
        let left = left_of(&mut context, &text);
        let all =
            |context: &Context| (0..text.len() - 1).map(|i| bits(context.logits(i))).collect::<Vec<_>>();
        context.decode(&rows(&context, &text, &left, 1..text.len())).unwrap();
        let expected = all(&context);
        for (size, threads) in [(1, 1), (3, 2), (17, 3)] {
            let mut context = crate::common::context(&sample.model, |config| {
                (config.mtp, config.threads) = (true, threads);
            });
            assert!(left_of(&mut context, &text) == left, "{name}: what the last layer leaves");
            for begin in (1..text.len()).step_by(size) {
                let places = begin..text.len().min(begin + size);
                context.decode(&rows(&context, &text, &left, places.clone())).unwrap();
                for (i, place) in places.enumerate() {
                    assert!(
                        bits(context.logits(i)) == expected[place - 1],
                        "{name}: {place}, batches of {size}"
                    );
                }
            }
            // The text goes on as if nothing had been.
            let next = Batch::prompt(&[9, 8], text.len() as u32, 0);
            context.decode(&next).unwrap();
            let with = bits(context.logits(0));
            let mut plain = crate::common::context(&sample.model, |_| {});
            assert!(!plain.has_mtp());
            plain.decode(&Batch::prompt(&text, 0, 0)).unwrap();
            plain.decode(&next).unwrap();
            assert!(bits(plain.logits(0)) == with, "{name}: the text after rows of the head");
        }
    }
}

#[test]
fn batches_that_the_head_cannot_take_are_refused() {
    let sample = samples().next().unwrap();
    let mut context = exact(&sample);
    let text = sample.prompt();
    let left = left_of(&mut context, &text);
    let good = rows(&context, &text, &left, 1..9);
    let mut refused = |batch: Batch, words: &str| {
        let error = context.decode(&batch).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let mtp = |before: Vec<f32>| Some(Mtp { before, after_itself: false });
    refused(Batch { mtp: mtp(vec![0.0; 3]), ..good.clone() }, "3 hidden numbers for 8 rows of 64");
    refused(Batch { keep_hidden: Some(4), ..good.clone() }, "keeps and resumes nothing");
    let mut far = good.clone();
    far.rows[0].token = 512;
    refused(far, "token 512 is not in the vocabulary of 512");
    let mut plain = crate::common::context(&sample.model, |_| {});
    let error = plain.decode(&good).unwrap_err().to_string();
    assert!(error.contains("no head for one token more here"), "{error}");
}

/// With a number that makes heads of layers or layers of heads, the model would be another one.
#[test]
fn a_count_of_heads_that_is_not_the_tensors_is_told_by_its_key() {
    for sample in samples() {
        let key = format!("{}.nextn_predict_layers", sample.model.arch);
        for (count, words) in
            [(0u32, "at least 1: block 4 is a head"), (2, "at most 1: block 3 is no head"), (5, "less than")]
        {
            let error = Parts::of(&sample.model.gguf).with(&key, count).refused("another model");
            assert!(error.contains(&format!("`{key}` is {count}")) && error.contains(words), "{error}");
        }
    }
}
