//! The head that predicts one token more, on a GPU.

use std::ops::ControlFlow;

use spec_run::{
    Batch, Context, ContextConfig, Sampler, Tokenizer,
    batch::{Mtp, Row},
    embedded,
    generate::{Request, generate},
    placement::UnitSet,
    sampler::SamplerConfig,
    speculation::MtpProposer,
};

use crate::{
    common::{
        gpu,
        in_floats::{f32_cache, in_floats, relative_error},
        mtp::samples,
    },
    drafted,
};

fn floats(context: &mut Context, text: &[u32]) -> Vec<Vec<f32>> {
    context.remove_all();
    let layers = context.model().n_layer();
    context.decode(&Batch { keep_hidden: Some(layers), ..Batch::prompt(text, 0, 0) }).unwrap();
    let before: Vec<f32> = (0..text.len() - 1).flat_map(|i| context.hidden(i).to_vec()).collect();
    let row = |pos: usize| Row { token: text[pos], pos: pos as u32, seq: 0, logits: true };
    let mtp = Some(Mtp { before, after_itself: false });
    context.decode(&Batch { rows: (1..text.len()).map(row).collect(), mtp, ..Batch::new() }).unwrap();
    let mut rows: Vec<Vec<f32>> = (0..text.len() - 1).map(|i| context.logits(i).to_vec()).collect();
    // Then one by what was left of its own last row.
    let before = context.hidden(text.len() - 2).to_vec();
    let row = Row { token: 7, pos: text.len() as u32, seq: 0, logits: true };
    let mtp = Some(Mtp { before, after_itself: true });
    context.decode(&Batch { rows: vec![row], mtp, ..Batch::new() }).unwrap();
    rows.push(context.logits(0).to_vec());
    rows
}

#[test]
fn heads_for_one_token_more_are_right_to_rounding() {
    let Some(device) = gpu::device("heads_for_one_token_more_are_right_to_rounding") else { return };
    for sample in samples() {
        let model = in_floats(&sample.model);
        let text = &sample.prompt()[..24];
        let mtp = |c: &mut ContextConfig| {
            f32_cache(c);
            c.mtp = true;
        };
        let expected = floats(&mut crate::common::context(&model, mtp), text);
        let found = floats(&mut gpu::on(&device, &model, mtp), text);
        for (row, (found, expected)) in std::iter::zip(&found, &expected).enumerate() {
            let error = relative_error(found, expected);
            assert!(error < 1e-4, "{}, row {row}: {error}", sample.name);
        }
    }
}

/// Nor does the head change what is where: where it finds no room beside all of the model, it is left out.
#[test]
fn greedy_text_is_plain_decodings_on_a_gpu_too() {
    let Some(device) = gpu::device("greedy_text_is_plain_decodings_on_a_gpu_too") else { return };
    // Texts go on whatever they say.
    let tokenizer = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
    for sample in samples() {
        let model = sample.with_a_good_head();
        let text = sample.prompt();
        let request = Request { max_tokens: Some(24), ignore_eos: true, ..Request::new(&text[..16]) };
        let sampler = || Sampler::new(SamplerConfig { temp: 0.0, ..SamplerConfig::default() }).unwrap();
        let layers = model.n_layer();
        let first = UnitSet { embed: false, head: false, mtp: false, ..UnitSet::all(layers) };
        for on_gpu in [None, Some(first)] {
            let open = |mtp| {
                gpu::on(&device, &model, |c| {
                    (c.n_ctx, c.mtp) = (128, mtp);
                    c.placement.on_gpu = on_gpu.clone();
                })
            };
            let mut plain = open(false);
            let expected =
                generate(&mut plain, &tokenizer, &mut sampler(), &request, |_| Ok(ControlFlow::Continue(())));
            let mut context = open(true);
            assert_eq!(context.placement().on_gpu(), plain.placement().on_gpu(), "{}", sample.name);
            assert_eq!(context.has_mtp(), on_gpu.is_none(), "{}", sample.name);
            if on_gpu.is_some() {
                continue;
            }
            let sampler = &mut sampler();
            let (found, report) = drafted(&mut context, &tokenizer, sampler, &request, Box::new(MtpProposer));
            assert_eq!(found.tokens, expected.unwrap().tokens, "{}", sample.name);
            assert!(report.drafting.accepted > 0, "{}: {:?}", sample.name, report.drafting);
        }
    }
}
