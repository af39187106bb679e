//! Drafts of a small head, with other tokens in the place of the first: exact whatever the head says.

use std::{ops::ControlFlow, sync::Arc};

use spec_run::{
    Context, Model, Tokenizer,
    engine::MakeProposers,
    generate::{Request, Speculation, speculate},
    sampler::Sampler,
    speculation::{Controller, Costs, HeadSource, Memory, Proposer, Report, SourceKind},
};

use crate::{
    common::{
        context, embedded_model, families, five_layers, load,
        noise::{head, source},
    },
    running::{Always, drafted, greedy, plain, request, same, samplers, three_together},
};

fn small(model: &Arc<Model>, n_ctx: u32) -> Context {
    context(model, |c| (c.n_ctx, c.threads) = (n_ctx, 1))
}

const PROMPT: [u32; 6] = [1, 403, 407, 261, 378, 396];

#[test]
fn texts_are_plain_decodings_whatever_a_head_says() {
    let models = [embedded_model(), load(std::path::Path::new(five_layers()))];
    let families = families::families().iter().filter(|family| family.name.starts_with("gemma"));
    let (mut others, mut models_tried) = (0, 0);
    for model in models.into_iter().chain(families.map(|family| family.model.clone())) {
        let mut context = small(&model, 128);
        let Some(source) = source(&model, &context) else { continue };
        models_tried += 1;
        let prompt = PROMPT.map(|token| token % model.n_vocab() as u32);
        let mut request = request(&prompt, 70);
        request.ignore_eos = true;
        for sampler in samplers() {
            let expected = plain(&mut context, &sampler, &request, usize::MAX);
            for (most, of_others) in [(1, 0), (3, 0), (1, 1), (2, 4), (1, 4), (5, 2)] {
                let policy = Always { most, others: of_others };
                let (found, report) = drafted(
                    &mut context,
                    &sampler,
                    &request,
                    usize::MAX,
                    Box::new(source.proposer()),
                    policy,
                );
                let when = format!("{}, {sampler:?}, {most} and {of_others}", model.name);
                same(&found, &expected, &when);
                assert!(report.drafting.rounds > 20, "{when}: {:?}", report.drafting);
                assert_eq!(report.drafting.others.0 > 0, of_others > 0, "{when}");
                others += report.drafting.others.1;
            }
        }
    }
    println!("{others} others were accepted on {models_tried} models");
    assert!(others >= 20 && models_tried >= 2, "{others} others were accepted on {models_tried} models");
}

#[test]
fn a_text_ends_where_it_ends_without_a_head() {
    let model = embedded_model();
    let expected_of = |n_ctx: u32, request: &Request, most: usize| {
        plain(&mut small(&model, n_ctx), &greedy(), request, most)
    };
    for (n_ctx, tokens, most) in
        [(20, 70, usize::MAX), (21, 70, usize::MAX), (128, 9, usize::MAX), (128, 70, 7), (128, 70, 8)]
    {
        let mut request = request(&PROMPT, tokens);
        request.ignore_eos = true;
        let expected = expected_of(n_ctx, &request, most);
        for (most_drafted, others) in [(1, 3), (3, 2), (2, 0)] {
            let mut context = small(&model, n_ctx);
            let source = source(&model, &context).unwrap();
            let policy = Always { most: most_drafted, others };
            let (found, _) =
                drafted(&mut context, &greedy(), &request, most, Box::new(source.proposer()), policy);
            same(
                &found,
                &expected,
                &format!("{n_ctx} cells, {tokens} tokens, ended after {most}: {most_drafted}, {others}"),
            );
        }
    }
}

/// Several texts in one engine, each of which may be drafted.
#[test]
fn texts_together_are_what_they_are_alone() {
    let model = embedded_model();
    let open = || {
        let context = small(&model, 512);
        let source = source(&model, &context).unwrap();
        let make: MakeProposers = Box::new(move || vec![Box::new(source.proposer()) as Box<dyn Proposer>]);
        (context, make)
    };
    three_together(open, SourceKind::Head);
}

/// By a policy that decides by itself: what it learns of other tokens in the place of the first changes no text.
#[test]
fn the_controller_spends_rows_on_other_tokens_where_they_are_right() {
    let model = embedded_model();
    let mut context = small(&model, 256);
    let source = source(&model, &context).unwrap();
    let infos = [source.proposer().info(&context)];
    let mut request = request(&PROMPT, 120);
    request.ignore_eos = true;
    let expected = plain(&mut context, &greedy(), &request, usize::MAX);
    let controller = Controller::new(Costs::frozen(&infos), Memory::new());
    let (found, report): (_, Report) =
        drafted(&mut context, &greedy(), &request, usize::MAX, Box::new(source.proposer()), controller);
    same(&found, &expected, "by the controller");
    assert!(report.drafting.rounds > 0);
}

/// Its matrices hold numbers, but what they make of a row is none.
#[test]
fn a_head_that_computes_no_numbers_drafts_nothing() {
    let model = embedded_model();
    let mut context = small(&model, 64);
    let (mut head, tables) = head(&model).unwrap();
    head.weights.numbers_mut().iter_mut().for_each(|x| *x *= 1e30);
    let source = HeadSource::new(&head, tables, &context).unwrap();
    let mut request = request(&PROMPT, 12);
    request.ignore_eos = true;
    let expected = plain(&mut context, &greedy(), &request, usize::MAX);
    let policy = Always { most: 2, others: 2 };
    let (found, report) =
        drafted(&mut context, &greedy(), &request, usize::MAX, Box::new(source.proposer()), policy);
    same(&found, &expected, "a head without numbers");
    assert_eq!(report.drafting.rounds, 0);
}

#[test]
fn the_first_round_of_a_text_has_nothing_to_go_on_from() {
    let model = embedded_model();
    let mut context = small(&model, 64);
    // The prompt's passes leave no rows.
    let source = source(&model, &context).unwrap();
    let mut policy = Always { most: 2, others: 0 };
    let mut sampler = Sampler::new(greedy()).unwrap();
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let proposers = &mut [Box::new(source.proposer()) as Box<dyn Proposer>];
    let mut speculation = Speculation { proposers, policy: &mut policy };
    let mut request = request(&PROMPT, 12);
    request.ignore_eos = true;
    let watch = |_| Ok(ControlFlow::Continue(()));
    let (_, report) =
        speculate(&mut context, &tokenizer, &mut sampler, &request, &mut speculation, watch).unwrap();
    assert_eq!(report.undrafted.nothing, 1, "{report:?}");
}
