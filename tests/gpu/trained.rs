//! Heads that others trained, on a GPU.

use std::{ops::ControlFlow, path::Path};

use spec_run::{
    Batch, Context, Gguf, Sampler, Tokenizer, embedded,
    generate::{Request, generate},
    sampler::SamplerConfig,
    scores::{Scores, Want},
    speculation::{Left, TrainedSource},
};

use crate::{
    common::{
        context, five_layers, gpu,
        in_floats::{f32_cache, relative_error},
        load,
    },
    drafted,
};

fn source(name: &str, device: Option<&str>) -> TrainedSource {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/trained/{name}.gguf"));
    let model = load(Path::new(five_layers()));
    let open = |head: &_| {
        let edit = |c: &mut spec_run::ContextConfig| {
            (c.n_ctx, c.mtp) = (128, true);
            f32_cache(c);
        };
        Ok(device.map_or_else(|| context(head, edit), |device| gpu::on(device, head, edit)))
    };
    TrainedSource::open(&Gguf::open(&file).unwrap(), &model, open).unwrap()
}

/// The logits of a draft's steps behind a prompt, by rows that the CPU has left of it.
fn logits(source: &TrainedSource) -> Vec<Vec<f32>> {
    let prompt: Vec<u32> = (0..40).map(|i| 3 + i * 7).collect();
    let mut on_cpu: Context = context(&load(Path::new(five_layers())), f32_cache);
    let mut head = source.proposer();
    on_cpu.decode(&Batch { taps: head.reader().unwrap().layers(5), ..Batch::prompt(&prompt, 0, 0) }).unwrap();
    let rows: Vec<&[f32]> = (0..prompt.len()).map(|i| on_cpu.taps(i)).collect();
    head.reader().unwrap().see(Left { before: &[], tokens: &prompt, pos: 0, rows: &rows });
    head.apart().unwrap().begin(&prompt, 3);
    let mut all = Vec::new();
    for token in [9, 41, 300] {
        let made = head.apart().unwrap().step(token, Want::Logits, &mut |scores| {
            let Scores::All(logits) = scores else { panic!("all logits were wanted") };
            all.push(logits.iter().copied().filter(|logit| logit.is_finite()).collect());
        });
        assert!(made);
    }
    all
}

#[test]
fn trained_heads_are_right_to_rounding() {
    let Some(device) = gpu::device("trained_heads_are_right_to_rounding") else { return };
    for name in [
        "eagle-shares-tables",
        "eagle-own-tables",
        "dflash-two-layers",
        "dflash-one-layer",
        "dspark-two-layers",
        "dspark-of-some-tokens",
    ] {
        let expected = logits(&source(name, None));
        let found = logits(&source(name, Some(&device)));
        for (step, (found, expected)) in std::iter::zip(&found, &expected).enumerate() {
            let error = relative_error(found, expected);
            assert!(error < 1e-4, "{name}, step {step}: {error}");
        }
    }
}

#[test]
fn texts_drafted_by_trained_heads_on_a_gpu_are_plain_decodings() {
    let Some(device) = gpu::device("texts_drafted_by_trained_heads_on_a_gpu_are_plain_decodings") else {
        return;
    };
    let model = load(Path::new(five_layers()));
    // Texts go on whatever they say.
    let tokenizer = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
    let prompt: Vec<u32> = (0..16).map(|i| 3 + i * 7).collect();
    let request = Request { max_tokens: Some(24), ignore_eos: true, ..Request::new(&prompt) };
    let sampler = || Sampler::new(SamplerConfig { temp: 0.0, ..SamplerConfig::default() }).unwrap();
    let mut context = gpu::on(&device, &model, |c| c.n_ctx = 128);
    let go_on = |_| Ok(ControlFlow::Continue(()));
    let expected = generate(&mut context, &tokenizer, &mut sampler(), &request, go_on).unwrap();
    for name in ["eagle-shares-tables", "dflash-two-layers"] {
        let proposer = source(name, Some(&device)).proposer();
        let (found, report) = drafted(&mut context, &tokenizer, &mut sampler(), &request, proposer);
        assert_eq!(found.tokens, expected.tokens, "{name}");
        assert!(report.drafting.rounds > 5, "{name}: {:?}", report.drafting);
    }
}
