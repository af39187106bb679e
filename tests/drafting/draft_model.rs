//! Drafts of another model, in a context of its own: exact whatever it says.

use std::sync::Arc;

use spec_run::{
    Context, Model, Tokenizer,
    engine::MakeProposers,
    sampler::SamplerConfig,
    speculation::{ModelSource, Proposer, SourceKind},
};

use crate::{
    common::{context, embedded_model, fixture, load},
    speculation::{drafted, fixed, greedy, plain, request, same, three_together},
};

const PROMPT: [u32; 6] = [1, 403, 407, 261, 378, 396];

fn small(model: &Arc<Model>, n_ctx: u32) -> Context {
    context(model, |c| (c.n_ctx, c.threads) = (n_ctx, 1))
}

fn vocabulary(model: &Model) -> Tokenizer {
    Tokenizer::from_gguf(&model.gguf).unwrap()
}

/// A draft model beside the embedded one, with room for so many tokens.
fn source(draft: &Arc<Model>, n_ctx: u32) -> ModelSource {
    ModelSource::new(small(draft, n_ctx), &vocabulary(draft), &vocabulary(&embedded_model())).unwrap()
}

fn samplers() -> [SamplerConfig; 3] {
    let drawn =
        |temp: f32, top_k: usize| SamplerConfig { temp, top_k, seed: Some(5), ..SamplerConfig::default() };
    [greedy(), drawn(0.8, 40), drawn(1.2, 0)]
}

#[test]
fn texts_are_plain_decodings_whatever_a_draft_model_says() {
    let model = embedded_model();
    let mut drafts = vec![("itself", model.clone())];
    let test = "texts_are_plain_decodings_whatever_a_draft_model_says";
    drafts.extend(fixture(test, "models/stories13m-q2_k.gguf").map(|path| ("of two bits", load(&path))));
    let mut context = small(&model, 128);
    let mut request = request(&PROMPT, 70);
    request.ignore_eos = true;
    for sampler in samplers() {
        let expected = plain(&mut context, &sampler, &request, usize::MAX);
        for (name, draft) in &drafts {
            let source = source(draft, 256);
            for most in [1, 3, 8] {
                let proposer = Box::new(source.proposer());
                let (found, report) =
                    drafted(&mut context, &sampler, &request, usize::MAX, proposer, fixed(most));
                let when = format!("{name}, temperature {}, drafts of {most}", sampler.temp);
                same(&found, &expected, &when);
                let tally = report.drafting;
                assert!(tally.rounds > 5 && tally.accepted > 0, "{when}: {tally:?}");
                // It says what the model says, as it is the model.
                assert!(*name != "itself" || tally.accepted == tally.drafted, "{when}: {tally:?}");
            }
        }
    }
}

/// Its cache is too small for the text, or for that of several texts.
#[test]
fn a_draft_model_without_room_drafts_nothing_more() {
    let model = embedded_model();
    let mut context = small(&model, 128);
    let mut request = request(&PROMPT, 60);
    request.ignore_eos = true;
    let expected = plain(&mut context, &greedy(), &request, usize::MAX);
    for n_ctx in [1, 6, 30] {
        let source = source(&model, n_ctx);
        let (found, report) =
            drafted(&mut context, &greedy(), &request, usize::MAX, Box::new(source.proposer()), fixed(4));
        same(&found, &expected, &format!("{n_ctx} cells"));
        assert_eq!(report.drafting.accepted > 0, n_ctx > 6, "{n_ctx} cells: {:?}", report.drafting);
        assert!(report.plain_steps > 20, "{n_ctx} cells: {report:?}");
    }
}

#[test]
fn texts_together_are_what_they_are_alone() {
    let model = embedded_model();
    // One with room for all, and one in which each text takes the others' room.
    for cells in [256, 90] {
        let source = source(&model, cells);
        let make: MakeProposers = Box::new(move || vec![Box::new(source.proposer()) as Box<dyn Proposer>]);
        let accepted = three_together(small(&model, 512), make, SourceKind::Model);
        assert!(accepted > 0, "{cells} cells");
    }
}

#[test]
fn a_model_of_another_vocabulary_cannot_draft() {
    let other =
        load(&spec_run_fixtures::fixture("drafting", "models/stories260K.gguf").expect("the archive has it"));
    let (own, others) = (vocabulary(&embedded_model()), vocabulary(&other));
    assert_eq!(own.differs_from(&own), None);
    let why = own.differs_from(&others).expect("512 tokens are not 32000");
    assert!(why.contains("512") && others.differs_from(&own).is_some(), "{why}");
    let refused = ModelSource::new(small(&other, 64), &others, &own);
    let refused = refused.err().expect("it cannot draft").to_string();
    assert!(refused.contains("cannot draft") && refused.lines().count() == 1, "{refused}");
}
