//! Drafts of the head that predicts one token more: exact whatever it says, and as often accepted as its rows over the whole
//! text say.

use std::{ops::ControlFlow, sync::Arc};

use spec_run::{
    Batch, Context, Model,
    batch::{Mtp, Row},
    eval::perplexity::{Draft, PerplexitySettings, Tally, perplexity},
    speculation::{Fixed, MtpProposer},
};

use crate::{
    common::{context, mtp::samples, with_logits},
    running::{drafted, fixed, greedy, plain, request, same},
};

fn small(model: &Arc<Model>, n_ctx: u32) -> Context {
    // What is accepted is compared with what the head says of all tokens.
    context(model, |c| (c.n_ctx, c.threads, c.mtp, c.shortlists) = (n_ctx, 1, true, false))
}

#[test]
fn greedy_text_is_plain_decodings_whatever_the_head_says() {
    for sample in samples() {
        for (model, is_good) in [(sample.model.clone(), false), (sample.with_a_good_head(), true)] {
            let mut context = context(&model, |c| (c.n_ctx, c.threads, c.mtp) = (160, 1, true));
            let prompt = &sample.prompt()[..20];
            let mut request = request(prompt, 60);
            request.ignore_eos = true;
            let expected = plain(&mut context, &greedy(), &request, usize::MAX);
            for max in [1, 2, 3, 5, 8, 16] {
                let (found, report) =
                    drafted(&mut context, &greedy(), &request, usize::MAX, Box::new(MtpProposer), fixed(max));
                let when = format!("{}, good {is_good}, drafts of {max}", sample.name);
                same(&found, &expected, &when);
                assert!(report.drafting.drafted >= 30, "{when}: {:?}", report.drafting);
                let accepted = report.drafting.acceptance().unwrap();
                println!("{when}: {accepted:.2}");
                assert!(!is_good || max > 2 || accepted > 0.2, "{when}: {accepted}");
            }
        }
    }
}

/// What the head says of each token of a text, its rows made at once.
fn guesses(model: &Arc<Model>, text: &[u32]) -> Vec<u32> {
    let mut context = small(model, 160);
    let layers = Some(model.n_layer());
    context.decode(&Batch { keep_hidden: layers, ..Batch::prompt(text, 0, 0) }).unwrap();
    let before: Vec<f32> = (0..text.len() - 1).flat_map(|i| context.hidden(i).to_vec()).collect();
    let row = |pos: usize| Row { token: text[pos], pos: pos as u32, seq: 0, logits: true };
    let mtp = Some(Mtp { before, after_itself: false });
    context.decode(&Batch { rows: (1..text.len()).map(row).collect(), mtp, ..Batch::new() }).unwrap();
    (0..text.len() - 1).map(|i| context.scores(i).greedy()).collect()
}

/// A draft begins with what the head says where its rows of all the text before are there: those of the prompt, of accepted
/// drafts, and of plain steps between.
#[test]
fn a_draft_begins_with_what_the_head_says_after_the_whole_text() {
    for sample in samples() {
        let model = sample.with_a_good_head();
        let prompt = sample.prompt();
        let mut request = request(&prompt, 80);
        request.ignore_eos = true;
        let expected = plain(&mut small(&model, 160), &greedy(), &request, usize::MAX);
        let text: Vec<u32> = prompt.iter().chain(&expected.tokens).copied().collect();
        let guesses = guesses(&model, &text);
        let (mut accepted, mut drafts) = (0, 0);
        // The last token that is known, at first what the prompt gave; the last one of all is never drafted.
        let (mut known, last) = (prompt.len(), text.len() - 1);
        while known + 2 <= last {
            drafts += 1;
            let is_right = guesses[known - 1] == text[known + 1];
            accepted += usize::from(is_right);
            known += 1 + usize::from(is_right);
        }
        let proposer = Box::new(MtpProposer);
        let (found, report) =
            drafted(&mut small(&model, 160), &greedy(), &request, usize::MAX, proposer, fixed(1));
        same(&found, &expected, sample.name);
        println!("{}: {accepted} of {drafts}", sample.name);
        assert_eq!(
            (report.drafting.accepted, report.drafting.drafted),
            (accepted, drafts),
            "{}",
            sample.name
        );
        assert!(accepted > 10 && accepted < drafts, "{}: {accepted} of {drafts}", sample.name);
    }
}

#[test]
fn a_full_context_ends_drafts_of_the_head_as_it_ends_the_text() {
    for sample in samples() {
        let model = sample.with_a_good_head();
        let prompt = sample.prompt();
        let mut request = request(&prompt, 80);
        request.ignore_eos = true;
        let n_ctx = prompt.len() as u32 + 13;
        let expected = plain(&mut small(&model, n_ctx), &greedy(), &request, usize::MAX);
        for policy in [fixed(2), fixed(9), Fixed { max: 9, min: 1, p_min: 0.5 }] {
            let mut context = small(&model, n_ctx);
            let proposer = Box::new(MtpProposer);
            let (found, _) = drafted(&mut context, &greedy(), &request, usize::MAX, proposer, policy);
            same(&found, &expected, sample.name);
        }
    }
}

/// Of the positions that perplexity scores, the second half of a chunk.
#[test]
fn its_agreement_on_a_text_is_how_often_it_says_what_the_model_says() {
    for sample in samples() {
        let model = sample.with_a_good_head();
        let text = sample.prompt();
        let guesses = guesses(&model, &text);
        let mut full = small(&model, 160);
        let batch = with_logits(&text, 0);
        full.decode(&batch).unwrap();
        let places = text.len() / 2..text.len() - 1;
        let agreed = places.clone().filter(|&pos| full.scores(pos).greedy() == guesses[pos - 1]).count();
        let settings =
            PerplexitySettings { n_ctx: text.len(), bos: None, draft: Some(Draft::Mtp), max_chunks: None };
        let mut context = small(&model, settings.cells() as u32);
        let on = |_: &Tally| Ok(ControlFlow::Continue(()));
        let tally = perplexity(&mut context, &text, &settings, Tally::default(), on).unwrap();
        let beside = tally.against_full.unwrap();
        println!("{}: {agreed} of {}", sample.name, tally.tokens);
        assert_eq!(tally.tokens as usize, places.len());
        let found = beside.sums.agreement(tally.tokens) * tally.tokens as f64;
        assert!((found - agreed as f64).abs() < 1e-9, "{}: {found}, not {agreed}", sample.name);
        assert!((0.0..1.0).contains(&beside.sums.overlap(tally.tokens)) && beside.full != tally.nll);
    }
}
