//! Layers with windows keep fewer cells than the context has, and nobody can tell but by the memory: everything that a
//! sequence can go through gives the bits that it gives where all cells are kept.

use std::sync::Arc;

use crate::common::{bits, context, families::families, fixture, load, tokens};
use spec_run::{Batch, Context, ContextConfig, Gguf, Model, RunLayers, context::TAKEN_BACK, mask::LayerBits};

/// The fixtures with windows, and one in which layers have different ones.
fn models() -> Vec<(String, Arc<Model>)> {
    let has_windows = |model: &Model| model.plan.attentions.iter().any(|spec| spec.window.is_some());
    let mut models: Vec<_> = families()
        .iter()
        .filter(|family| has_windows(&family.model))
        .map(|family| (family.name.clone(), family.model.clone()))
        .collect();
    let path = fixture("windows", "archs/llama.gguf").unwrap();
    assert!(models.len() >= 8, "{} fixtures have windows", models.len());
    let mut mixed = Model::load(Arc::new(Gguf::open(&path).unwrap())).unwrap();
    for (spec, window) in
        mixed.plan.attentions.iter_mut().zip([Some(7), Some(200), None, Some(40)].into_iter().cycle())
    {
        spec.window = window;
    }
    models.push(("several windows".into(), Arc::new(mixed)));
    models
}

/// A context for a few texts, of which windows keep a part.
fn small(config: &mut ContextConfig) {
    (config.n_ctx, config.n_ubatch, config.sequences, config.extra_slots) = (2400, 64, 2, 2);
}

/// The logits of the last two rows of each batch so far.
#[derive(Default, PartialEq)]
struct Log(Vec<Vec<u32>>);

impl Log {
    fn decode(
        &mut self,
        context: &mut Context,
        mask: Option<&RunLayers>,
        text: &[u32],
        pos: usize,
        seq: u32,
    ) {
        let mut batch = Batch { run_layers: mask.cloned(), ..Batch::new() };
        for (i, &token) in text.iter().enumerate() {
            batch.push(token, (pos + i) as u32, seq, i + 2 >= text.len());
        }
        context.decode(&batch).unwrap();
        (0..text.len().min(2)).for_each(|i| self.0.push(bits(context.logits(i))));
    }
}

/// Where two logs part, to say so.
fn parts(a: &Log, b: &Log) -> Option<usize> {
    std::iter::zip(&a.0, &b.0).position(|(a, b)| a != b).or((a.0.len() != b.0.len()).then_some(a.0.len()))
}

/// Long texts in uneven pieces, drafts on forks under all kinds of masks, wrong tokens that are taken back, a prefix that
/// goes another way, and a context shift.
fn story(context: &mut Context, model: &Model) -> Log {
    let n_layer = model.n_layer();
    let mut log = Log::default();
    let text = tokens(1500, 3, model.n_vocab());
    let other = tokens(1500, 4, model.n_vocab());
    let without = |bits: LayerBits| {
        let of = |layer| if layer % 2 == 1 { LayerBits::FULL.without(bits) } else { LayerBits::FULL };
        RunLayers::mask((0..n_layer).map(of).collect())
    };
    let masks = [
        RunLayers::exit(n_layer, 1),
        without(LayerBits::ATTN),
        without(LayerBits::FULL),
        RunLayers::from_steps(n_layer, [0, 1, 1, 0].map(|layer| (layer, LayerBits::FULL))).unwrap(),
    ];
    let mut at = 0;
    for (round, size) in [300, 1, 7, 64, 65, 200, 3, 130, 1, 20, 90].into_iter().enumerate() {
        log.decode(context, None, &text[at..at + size], at, 0);
        at += size;
        let mask = &masks[round % masks.len()];
        // A draft; another one beside it, further on.
        context.fork(0, 1);
        for pos in at..at + 4 {
            log.decode(context, Some(mask), &text[pos..=pos], pos, 1);
        }
        context.fork(1, 2);
        log.decode(context, Some(mask), &text[at + 4..at + 12], at + 4, 2);
        context.remove(2);
        context.remove(1);
        // Rows of which most are wrong, and cuts as far as they can always go.
        let wrong = [&text[at..=at], &other[..63]].concat();
        log.decode(context, None, &wrong, at, 0);
        at += 1;
        context.truncate(0, at).unwrap();
        let back = (TAKEN_BACK - 64).min(at);
        context.truncate(0, at - back).unwrap();
        log.decode(context, None, &text[at - back..at], at - back, 0);
        // A second text that goes its own way.
        let len = context.kv().len(7);
        log.decode(context, None, &other[len..len + 40], len, 7);
    }
    // The first text goes on from a fork, without the sequence that it began on.
    context.fork(0, 3);
    context.remove(0);
    log.decode(context, None, &text[at..at + 50], at, 3);
    // Shifts, with the first tokens kept and without; a fork stays as it is.
    context.remove(7);
    context.fork(3, 4);
    context.shift(3, 4, 300).unwrap();
    let pos = context.kv().next_pos(3) as usize;
    log.decode(context, None, &other[..90], pos, 3);
    log.decode(context, None, &text[at + 50..at + 70], at + 50, 4);
    context.remove(4);
    context.shift(3, 0, 200).unwrap();
    let pos = context.kv().next_pos(3) as usize;
    log.decode(context, None, &other[90..200], pos, 3);
    log
}

#[test]
fn windows_that_forget_change_no_bit() {
    for (name, model) in models() {
        let all = story(&mut context(&model, |c| (small(c), c.swa_full = true).1), &model);
        assert!(all.0.len() > 100);
        for (threads, n_ubatch) in [(1, 64), (3, 17)] {
            let mut context = context(&model, |c| {
                small(c);
                (c.threads, c.n_ubatch) = (threads, n_ubatch);
            });
            let some = story(&mut context, &model);
            assert_eq!(parts(&some, &all), None, "{name}, {threads} threads");
            assert!(!context.kv().can_truncate(3, 100), "{name} keeps everything");
        }
    }
}

/// Going back further than the cells do is an error that changes nothing; the text can be had again from its start.
#[test]
fn what_windows_have_forgotten_is_known() {
    for (name, model) in models() {
        let mut context = context(&model, small);
        let text = tokens(900, 5, model.n_vocab());
        let mut log = Log::default();
        log.decode(&mut context, None, &text[..800], 0, 0);
        for (len, can) in [(800, true), (800 - TAKEN_BACK, true), (100, false), (1, false), (0, true)] {
            assert_eq!(context.kv().can_truncate(0, len), can, "{name}: {len}");
        }
        let error = context.truncate(0, 100).unwrap_err().to_string();
        assert!(
            error.contains("100 tokens") && error.contains("`swa_full`") && !error.contains('\n'),
            "{error}"
        );
        let error = context.shift(0, 5, 790).unwrap_err().to_string();
        assert!(error.contains("window"), "{error}");
        assert_eq!(context.kv().len(0), 800, "{name}");
        log.decode(&mut context, None, &text[800..], 800, 0);
        context.truncate(0, 0).unwrap();
        let mut again = Log::default();
        again.decode(&mut context, None, &text[..800], 0, 0);
        again.decode(&mut context, None, &text[800..], 800, 0);
        assert_eq!(parts(&again, &log), None, "{name}");
    }
}

/// Rows that rest on the way to a layer and go on later find their windows as they left them.
#[test]
fn rows_resume_within_windows() {
    let mut resumed = 0;
    let models = models();
    if models.is_empty() {
        return;
    }
    for (name, model) in models {
        let text = tokens(900, 6, model.n_vocab());
        let mut context = context(&model, small);
        if !context.keeps_hidden() {
            continue;
        }
        let mut whole = Log::default();
        whole.decode(&mut context, None, &text[..890], 0, 0);
        whole.decode(&mut context, None, &text[890..], 890, 0);
        context.truncate(0, 890).unwrap();
        let layer = 2;
        context.fork(0, 1);
        let mut hidden = Vec::new();
        for (pos, &token) in text.iter().enumerate().skip(890) {
            let mut batch = Batch::prompt(&[token], pos as u32, 1);
            batch.run_layers = Some(RunLayers::exit(model.n_layer(), layer));
            batch.keep_hidden = Some(layer);
            context.decode(&batch).unwrap();
            hidden.extend_from_slice(context.hidden(0));
        }
        context.fork(1, 0);
        context.remove(1);
        let mut batch = Batch::prompt(&text[890..], 890, 0);
        batch.rows[8].logits = true;
        context.decode(&batch.resuming(layer, hidden)).unwrap();
        for i in 0..2 {
            assert!(bits(context.logits(i)) == whole.0[2 + i], "{name}: row {i}");
        }
        // Far back there is nothing to go on with.
        let old = Batch::prompt(&text[..1], 20, 0).resuming(layer, vec![0.0; model.plan.dims.dim]);
        let error = context.decode(&old).unwrap_err().to_string();
        assert!(error.contains("position 20") && error.contains("window"), "{name}: {error}");
        resumed += 1;
    }
    assert!(resumed >= 5, "{resumed} of the models keep rows");
}

/// More texts than were asked for are refused where the cells of windows do not suffice.
#[test]
fn too_many_texts_are_one_clear_line() {
    let Some(path) = fixture("too_many_texts_are_one_clear_line", "archs/gemma3.gguf") else { return };
    let model = load(&path);
    let mut context = context(&model, |c| (c.n_ctx, c.n_ubatch) = (8000, 64));
    let text = tokens(400, 7, model.n_vocab());
    let mut log = Log::default();
    let error = (0..9).find_map(|seq| context.decode(&Batch::prompt(&text, 0, seq)).err().map(|e| (seq, e)));
    let (refused, error) = error.expect("nine texts do not fit");
    let error = error.to_string();
    assert!(
        error.contains("window of 16") && error.contains("`sequences`") && !error.contains('\n'),
        "{error}"
    );
    assert!(refused >= 1 && context.kv().len(refused) == 0 && context.kv().len(refused - 1) == 400);
    // The others go on.
    log.decode(&mut context, None, &text[..4], 400, 0);
}
