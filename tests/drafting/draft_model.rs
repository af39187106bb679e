//! Drafts of another model, in a context of its own: exact whatever it says.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use spec_run::{
    Context, Model, Sampler, Tokenizer,
    engine::MakeProposers,
    generate::{Speculation, speculate},
    gguf::{Array, Value},
    quant::GgmlType,
    scores::{Scores, Want},
    speculation::{Apart, ModelProposer, ModelSource, Passes, Proposer, SourceInfo, SourceKind, Supply},
};

use crate::{
    common::{bits, context, embedded_model, five_layers, fixture, load, parts::Parts, retyped},
    running::{drafted, fixed, greedy, plain, request, same, samplers, three_together},
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
    let of_model = vocabulary(&embedded_model());
    ModelSource::open(draft, &vocabulary(draft), &of_model, || Ok(small(draft, n_ctx))).unwrap()
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

/// Reads the whole text anew for each draft.
struct Anew {
    source: ModelSource,
    proposer: ModelProposer,
}

impl Proposer for Anew {
    fn info(&self, context: &Context) -> SourceInfo {
        self.proposer.info(context)
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        self.proposer = self.source.proposer();
        self.proposer.supply(text)
    }

    fn passes(&self) -> Option<Passes<'_>> {
        self.proposer.passes()
    }

    fn apart(&mut self) -> Option<&mut dyn Apart> {
        Some(&mut self.proposer)
    }
}

/// Where a drafted token was rejected, or another text begins, it goes on from the text and not from what it has read before.
#[test]
fn a_draft_model_forgets_what_was_rejected() {
    let model = embedded_model();
    let draft = retyped(&model, |tensor| match tensor.ty {
        GgmlType::Q8_0 => GgmlType::Q4_0,
        other => other,
    });
    // The second text is another one, but for its first tokens.
    let drafts = |mut proposers: [Box<dyn Proposer>; 1]| {
        [PROMPT, [1, 403, 310, 1250, 263, 931]].map(|prompt| {
            let mut request = request(&prompt, 60);
            request.ignore_eos = true;
            let (mut context, mut policy) = (small(&model, 128), fixed(3));
            let mut speculation = Speculation { proposers: &mut proposers, policy: &mut policy };
            let mut sampler = Sampler::new(greedy()).unwrap();
            let go_on = |_| Ok(ControlFlow::Continue(()));
            let tokenizer = vocabulary(&model);
            let (_, report) =
                speculate(&mut context, &tokenizer, &mut sampler, &request, &mut speculation, go_on).unwrap();
            (report.drafting.drafted, report.drafting.accepted, report.by_position)
        })
    };
    let source = source(&draft, 256);
    let kept = drafts([Box::new(source.proposer())]);
    let anew = drafts([Box::new(Anew { proposer: source.proposer(), source })]);
    assert_eq!(kept, anew);
    let some_rejected = |(drafted, accepted, _): &(usize, usize, _)| 0 < *accepted && accepted < drafted;
    assert!(kept.iter().all(some_rejected), "{kept:?}");
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
        let open = || {
            let source = source(&model, cells);
            let make: MakeProposers =
                Box::new(move || vec![Box::new(source.proposer()) as Box<dyn Proposer>]);
            (small(&model, 512), make)
        };
        let accepted = three_together(open, SourceKind::Model);
        assert!(accepted > 0, "{cells} cells");
    }
}

#[test]
fn a_model_of_another_vocabulary_cannot_draft() {
    let other =
        load(&spec_run_fixtures::fixture("drafting", "models/stories260K.gguf").expect("the archive has it"));
    let (own, others) = (vocabulary(&embedded_model()), vocabulary(&other));
    assert_eq!(own.differs_from(&own), None);
    let why = own.differs_from(&others).expect("512 tokens are not 2048");
    assert!(why.contains("512") && others.differs_from(&own).is_some(), "{why}");
    let refused = ModelSource::open(&other, &others, &own, || panic!("what cannot draft is not opened"));
    let refused = refused.err().expect("it cannot draft").to_string();
    assert!(refused.contains("cannot draft") && refused.lines().count() == 1, "{refused}");
}

/// What llama.cpp looks at, one thing changed at a time.
#[test]
fn vocabularies_differ_by_their_special_tokens_and_their_texts() {
    let model = load(Path::new(five_layers()));
    let own = vocabulary(&model);
    let differs = |key: &str, value: Value| {
        vocabulary(&Parts::of(&model.gguf).with(key, value).model("edited")).differs_from(&own)
    };
    let id = |name: &str, id: u32| differs(&format!("tokenizer.ggml.{name}_token_id"), Value::U32(id));
    assert_eq!(id("eos", own.eos().unwrap()), None);
    assert_eq!(id("eos", 7).unwrap(), format!("EOS is 7 in one and {} in the other", own.eos().unwrap()));
    assert_eq!(id("bos", 7).unwrap(), format!("BOS is 7 in one and {} in the other", own.bos().unwrap()));
    let texts = |changed: u32| {
        let text = |token: u32| if token == changed { "other" } else { own.token_text(token) };
        let all = (0..own.vocab_size() as u32).map(text).collect();
        differs("tokenizer.ggml.tokens", Value::Array(Array::String(all)))
    };
    assert_eq!(texts(u32::MAX), None);
    // The first few are named as a model likes.
    assert_eq!(texts(1), None);
    assert!(texts(300).unwrap().starts_with("token 300 is "), "{:?}", texts(300));
}

/// A conversation comes back with every turn. What a draft says is the same whatever was read before it.
#[test]
fn a_text_that_begins_alike_is_drafted_as_if_it_were_new() {
    let model = embedded_model();
    let turn = |turns: u32| -> Vec<u32> { (0..40 * turns).map(|i| 3 + i * 7 % 1000).collect() };
    let said = |source: &ModelSource, turn: &[u32]| {
        let mut proposer = source.proposer();
        proposer.read(turn);
        proposer.begin(turn, 3);
        let mut logits = Vec::new();
        let made = proposer.step(9, Want::Logits, &mut |scores| {
            let Scores::All(all) = scores else { panic!("all logits were wanted") };
            logits = bits(all);
        });
        assert!(made);
        logits
    };
    // One in which ended texts stay, and one with no room for them.
    let (kept, tight) = (source(&model, 512), source(&model, 160));
    for turns in [1, 2, 3, 1] {
        let turn = turn(turns);
        let anew = said(&source(&model, 512), &turn);
        assert!(said(&kept, &turn) == anew && said(&tight, &turn) == anew, "turn {turns}");
    }
}
