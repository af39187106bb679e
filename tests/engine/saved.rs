//! What is in the cache goes to bytes and comes back, in the same context or another one, and nobody can tell.

use std::{ops::ControlFlow, sync::Arc};

use crate::common::{bits, context, embedded_model, families::families, fixture, load, tokens};
use spec_run::{
    Batch, Context, Engine, EngineConfig, Job, Model, RunLayers, Tokenizer,
    context::KvType,
    engine::{Ended, Event, Request, SavedText},
    sampler::SamplerConfig,
};

/// The bits of what follows `text` after some more tokens.
fn goes_on(context: &mut Context, seq: u32, more: &[u32]) -> Vec<u32> {
    let pos = context.kv().next_pos(seq);
    context.decode(&Batch::prompt(more, pos, seq)).unwrap();
    bits(context.logits(0))
}

/// All architectures, those with windows among them, which have forgotten a part of so long a text.
#[test]
fn texts_come_back_bit_for_bit() {
    let (mut partly, mut checked) = (0, 0);
    for family in families() {
        let model = &family.model;
        checked += 1;
        let has_windows = model.plan.attentions.iter().any(|spec| spec.window.is_some());
        let most = model.plan.most_positions.unwrap_or(usize::MAX).min(1200);
        let text = tokens(most - 20, 5, model.n_vocab());
        let more = tokens(9, 6, model.n_vocab());
        let fresh = || context(model, |c| (c.n_ctx, c.n_ubatch, c.sequences) = (2 * most as u32, 64, 2));
        let mut from = fresh();
        for (n, part) in text.chunks(100).enumerate() {
            from.decode(&Batch::prompt(part, 100 * n as u32, 3)).unwrap();
        }
        let saved = from.save(3).unwrap().expect("a CPU gives what it has");
        let expected = goes_on(&mut from, 3, &more);
        let mut to = fresh();
        // Other cells than before.
        to.decode(&Batch::prompt(&more, 0, 1)).unwrap();
        to.load(7, text.len(), &saved).unwrap();
        assert_eq!(to.save(7).unwrap().as_ref(), Some(&saved), "{}", family.name);
        let first = u32::from_le_bytes(saved[4..8].try_into().unwrap()) as usize;
        partly += usize::from(has_windows && (1..text.len()).contains(&first));
        assert!(goes_on(&mut to, 7, &more) == expected, "{}", family.name);
        to.remove(7);
        let free = to.kv().free_cells();
        for (count, bytes) in [
            (text.len(), &saved[..saved.len() - 1]),
            (text.len(), &saved[..3]),
            (text.len() - 1, &saved[..]),
            (text.len(), &[saved.clone(), vec![0]].concat()[..]),
            (3 * most, &saved[..]),
        ] {
            assert!(to.load(7, count, bytes).is_err(), "{}: {count}, {}", family.name, bytes.len());
            assert!(to.kv().is_empty(7) && to.kv().free_cells() == free, "{}", family.name);
        }
    }
    assert!(partly > 0 || checked == 0, "none of {checked} had forgotten a part");
}

#[test]
fn texts_come_back_in_every_type_of_keys_and_values() {
    let model = embedded_model();
    let (text, more) = (tokens(70, 5, model.n_vocab()), tokens(9, 6, model.n_vocab()));
    for (keys, values) in KvType::ALL.into_iter().zip(KvType::ALL.into_iter().rev()) {
        let fresh = || context(&model, |c| (c.key_type, c.value_type) = (keys, values));
        let mut from = fresh();
        from.decode(&Batch::prompt(&text, 0, 3)).unwrap();
        let saved = from.save(3).unwrap().expect("a CPU gives what it has");
        let expected = goes_on(&mut from, 3, &more);
        let mut to = fresh();
        to.decode(&Batch::prompt(&more, 0, 1)).unwrap();
        to.load(7, text.len(), &saved).unwrap();
        assert!(goes_on(&mut to, 7, &more) == expected, "{keys} {values}");
    }
}

#[test]
fn only_whole_texts_are_saved() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    context.decode(&Batch::prompt(&[1, 2, 3, 4, 5, 6], 2, 0)).unwrap();
    assert!(context.save(0).is_err(), "it does not begin at 0");
    context.remove_all();
    context
        .decode(&Batch::prompt(&[1, 2, 3], 0, 0).with_layers(RunLayers::exit(model.n_layer(), 2)))
        .unwrap();
    assert!(context.save(0).is_err(), "it was not evaluated by the whole model");
}

fn engine(model: &Arc<Model>) -> Engine {
    let tokenizer = Arc::new(Tokenizer::from_gguf(&model.gguf).unwrap());
    let config = EngineConfig { texts: 2, ..EngineConfig::default() };
    Engine::new(context(model, |c| c.n_ctx = 600), tokenizer, config)
}

fn job(prompt: Vec<u32>, slot: Option<usize>) -> Job {
    let sampler = SamplerConfig { seed: Some(7), ..SamplerConfig::default() };
    let request = Request { max_tokens: Some(20), ignore_eos: true, ..Request::new(&prompt) };
    Job { sampler, slot, ..Job::new(request) }
}

fn made(engine: &mut Engine, job: Job) -> Ended {
    engine.session(job).unwrap().finish().unwrap()
}

#[test]
fn a_slots_text_goes_on_in_another_engine() {
    goes_on_in_another_engine(&embedded_model());
    for name in ["qwen35", "lfm2", "mamba2", "falcon-h1"] {
        let file = format!("archs/{name}.gguf");
        let Some(file) = fixture("a_slots_text_goes_on_in_another_engine", &file) else { return };
        goes_on_in_another_engine(&load(&file));
    }
}

fn goes_on_in_another_engine(model: &Arc<Model>) {
    let mut first = engine(model);
    let prompt = tokens(40, 3, model.n_vocab());
    let ended = made(&mut first, job(prompt.clone(), Some(1)));
    let saved = first.save_slot(1).unwrap();
    assert_eq!(saved.tokens.len(), 59, "all but the last token");
    assert!(first.save_slot(0).unwrap().tokens.is_empty() && first.save_slot(2).is_err());
    let mut more = [prompt, ended.generation.tokens].concat();
    more.extend([5, 6, 7]);
    let expected = made(&mut engine(model), job(more.clone(), None));
    for (without_cells, cached) in [(false, 59), (true, 59)] {
        let mut second = engine(model);
        let mut text = SavedText::from_bytes(&saved.to_bytes()).unwrap();
        if without_cells {
            text.cells = None;
        }
        assert_eq!(second.restore_slot(0, text).unwrap(), 59);
        second.run();
        let other = made(&mut second, job(more.clone(), Some(1)));
        assert_eq!(other.cached, 0, "slot 1 has nothing of slot 0");
        let ended = made(&mut second, job(more.clone(), Some(0)));
        assert_eq!((ended.cached, &ended.generation.tokens), (cached, &expected.generation.tokens));
        assert!(second.erase_slot(0).unwrap() > 59);
        assert_eq!(made(&mut second, job(more.clone(), Some(0))).cached, 0);
        let nothing = made(&mut second, Job { reuses: false, ..job(more.clone(), None) });
        assert_eq!((nothing.cached, nothing.generation.tokens), (0, expected.generation.tokens.clone()));
    }
    let mut foreign = saved.clone();
    foreign.cells.as_mut().unwrap().form.push('x');
    let told = first.restore_slot(0, foreign).unwrap_err().to_string();
    assert!(told.contains("another model"), "{told}");
    let mut cut = saved;
    cut.cells.as_mut().unwrap().bytes.pop();
    assert!(first.restore_slot(0, cut).is_err());
    assert!(first.session(job(vec![1], Some(2))).is_err(), "there are two slots");
}

/// A job that wants a slot waits for it while others go on, and a slot that is busy is left alone.
#[test]
fn a_slot_has_one_text_at_a_time() {
    let model = embedded_model();
    let mut engine = engine(&model);
    let ends: Arc<std::sync::Mutex<Vec<usize>>> = Arc::default();
    for (n, slot) in [Some(1), Some(1), None].into_iter().enumerate() {
        let ends = ends.clone();
        let listener = move |event: Event| {
            if let Event::Ended(_) = event {
                ends.lock().unwrap().push(n);
            }
            ControlFlow::Continue(())
        };
        engine.submit(job(tokens(10, n as u64, 2000), slot), Box::new(listener)).unwrap();
    }
    engine.step();
    let status = engine.status();
    assert_eq!((status.running, status.waiting), (2, 1));
    assert!(status.slots.iter().all(|slot| slot.job.is_some() && slot.prompt == 10), "{status:?}");
    assert!(engine.save_slot(1).is_err() && engine.erase_slot(1).is_err());
    engine.run();
    assert_eq!(ends.lock().unwrap().last(), Some(&1));
    let done = engine.status().done;
    assert!(done.passes >= 40 && done.texts > done.passes && done.longest == 29, "{done:?}");
}

/// How likely the chosen token was is told although others were likelier, and what the samplers left sums to 1.
#[test]
fn the_chosen_tokens_probability_is_its_own() {
    let model = embedded_model();
    let vocabulary = model.n_vocab();
    for after in [false, true] {
        let scores: Arc<std::sync::Mutex<Vec<_>>> = Arc::default();
        let heard = scores.clone();
        let listener = move |event: Event| {
            if let Event::Token { token, score } = event {
                heard.lock().unwrap().push((token.id, score.expect("it was asked for")));
            }
            ControlFlow::Continue(())
        };
        let sampler = SamplerConfig { seed: Some(3), temp: 1.5, top_k: 5, ..SamplerConfig::default() };
        let mut engine = engine(&model);
        for logprobs in [1, vocabulary] {
            let mut job = Job { sampler: sampler.clone(), ..job(vec![1, 413], None) };
            (job.request.logprobs, job.request.logprobs_after_sampling) = (logprobs, after);
            engine.submit(job, Box::new(listener.clone())).unwrap();
            engine.run();
        }
        let scores = scores.lock().unwrap();
        let (few, all) = scores.split_at(20);
        assert!(few.iter().any(|(id, score)| score.likely[0].0 != *id), "always the likeliest");
        for ((id, score), (same, known)) in few.iter().zip(all) {
            assert_eq!(id, same);
            let found = known.likely.iter().find(|(other, _)| other == id).expect("all are told").1;
            assert_eq!(score.logprob.to_bits(), found.to_bits());
            assert_eq!((score.likely.len(), score.likely[0]), (1, known.likely[0]));
            let sum: f64 = known.likely.iter().map(|(_, logprob)| f64::from(*logprob).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-4, "{sum}");
            assert_eq!(known.likely.len() <= 5, after);
        }
    }
}
