//! Rows that are taken out of passes on a GPU, and the head that drafts from them.

use std::{ops::ControlFlow, path::Path};

use spec_run::{
    Batch, Context, ContextConfig, Sampler, Tokenizer, embedded,
    generate::{Request, generate},
    placement::UnitSet,
    sampler::SamplerConfig,
};

use crate::{
    common::{
        five_layers, gpu,
        in_floats::{f32_cache, in_floats, relative_error},
        load, noise, with_logits,
    },
    drafted,
};

/// All of the model on the GPU, and its first layers alone.
fn places(layers: usize) -> [Option<UnitSet>; 2] {
    [None, Some(UnitSet { head: false, mtp: false, ..UnitSet::all(layers) })]
}

/// Logits and taps of each row.
fn decoded(context: &mut Context, tokens: &[u32], at_once: usize, taps: &[usize]) -> Vec<[Vec<f32>; 2]> {
    context.remove_all();
    let mut all = Vec::new();
    for (part, tokens) in tokens.chunks(at_once).enumerate() {
        let batch = with_logits(tokens, (part * at_once) as u32);
        context.decode(&Batch { taps: taps.to_vec(), ..batch }).unwrap();
        let row = |i: usize| [context.logits(i).to_vec(), context.taps(i).to_vec()];
        all.extend((0..tokens.len()).map(row));
    }
    all
}

fn is_same(a: &[f32], b: &[f32]) -> bool {
    a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()))
}

#[test]
fn taps_of_a_gpu_change_no_logits_and_are_the_cpus_to_rounding() {
    let Some(device) = gpu::device("taps_of_a_gpu_change_no_logits_and_are_the_cpus_to_rounding") else {
        return;
    };
    let model = in_floats(&load(Path::new(five_layers())));
    let layers = model.n_layer();
    let taps = [1, 3, layers];
    // More rows than a pass gives out by itself come out in pieces.
    let tokens: Vec<u32> = (0..40).map(|i| 5 + i * 37 % 500).collect();
    let small = |c: &mut ContextConfig| {
        f32_cache(c);
        c.n_ctx = 64;
    };
    let cpu = decoded(&mut crate::common::context(&model, small), &tokens, 8, &taps);
    for on_gpu in places(layers) {
        let mut context = gpu::on(&device, &model, |c| {
            small(c);
            c.placement.on_gpu = on_gpu.clone();
        });
        let plain = decoded(&mut context, &tokens, 40, &[]);
        for at_once in [1, 3, 40] {
            let tapped = decoded(&mut context, &tokens, at_once, &taps);
            for (i, (tapped, plain)) in tapped.iter().zip(&plain).enumerate() {
                let when = format!("row {i} of {at_once} at once, {on_gpu:?}");
                assert!(is_same(&tapped[0], &plain[0]), "{when}");
                assert_eq!(tapped[1].len(), cpu[i][1].len(), "{when}");
                let error = relative_error(&tapped[1], &cpu[i][1]);
                assert!(error < 1e-4, "{when}: {error}");
            }
        }
    }
}

#[test]
fn what_a_head_drafts_for_a_gpu_is_plain_decodings_text() {
    let Some(device) = gpu::device("what_a_head_drafts_for_a_gpu_is_plain_decodings_text") else { return };
    let tokenizer = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
    let model = load(Path::new(five_layers()));
    let request =
        Request { max_tokens: Some(30), ignore_eos: true, ..Request::new(&[1, 403, 407, 261, 378, 396]) };
    for temp in [0.0, 0.8] {
        let config = SamplerConfig { temp, seed: Some(5), ..SamplerConfig::default() };
        let sampler = || Sampler::new(config.clone()).unwrap();
        for on_gpu in places(model.n_layer()) {
            let mut context = gpu::on(&device, &model, |c| {
                c.n_ctx = 64;
                c.placement.on_gpu = on_gpu.clone();
            });
            let go_on = |_: u32| Ok(ControlFlow::Continue(()));
            let expected = generate(&mut context, &tokenizer, &mut sampler(), &request, go_on).unwrap();
            let source = noise::source(&model, &context).unwrap();
            let proposer = Box::new(source.proposer());
            let (found, report) = drafted(&mut context, &tokenizer, &mut sampler(), &request, proposer);
            assert_eq!(found.tokens, expected.tokens, "{temp}, {on_gpu:?}");
            assert!(report.drafting.rounds > 10, "{temp}, {on_gpu:?}: {:?}", report.drafting);
        }
    }
}

/// Its texts are many rows at once, and what passes cost is measured there.
#[cfg(feature = "fit")]
#[test]
fn a_head_is_not_fitted_on_a_gpu() {
    use spec_run::fit::{FitConfig, Prompts, fit};

    let Some(device) = gpu::device("a_head_is_not_fitted_on_a_gpu") else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = load(Path::new(five_layers()));
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let prompts = Prompts::asked(&model.gguf, &tokenizer, None).unwrap();
    let config = FitConfig {
        time: std::time::Duration::from_secs(5),
        states: folder.path().join("states"),
        most_bytes: 1 << 20,
        resume: false,
    };
    for on_gpu in places(model.n_layer()) {
        let mut context = gpu::on(&device, &model, |c| {
            c.n_ctx = 64;
            c.placement.on_gpu = on_gpu.clone();
        });
        let refused =
            fit(&mut context, &tokenizer, &prompts, &config, &mut |_| false).err().unwrap().to_string();
        assert!(refused.contains("a head is fitted on the CPU"), "{refused}");
    }
}
