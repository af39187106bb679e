//! Drafts by layers whose steps check what a cheaper source guesses: the same drafts in fewer steps.

use std::sync::Arc;

use spec_run::{
    Context, Model, RunLayers, Tokenizer,
    generate::{Request, Speculation, speculate},
    sampler::{Sampler, SamplerConfig},
    speculation::{
        Drafted, Guide, MaskProposer, NgramProposer, Offer, Policy, Proposer, Ready, Report, Round,
        RoundChoice, SourceInfo, SourceKind, Speedup, Supply,
    },
};

use crate::{
    common::{coarse, context, embedded_model, families, five_layers, load, noise::source},
    running::{greedy, plain, request},
};

/// Always drafts by layers, and has so many guesses checked.
struct ByLayers {
    most: usize,
    guesses: usize,
}

impl Policy for ByLayers {
    fn start(&mut self, _: &[SourceInfo]) {}

    fn choose(&mut self, offers: &[Offer]) -> RoundChoice {
        match offers.iter().find(|offer| offer.source == 1) {
            Some(offer) => RoundChoice::Draft { source: 1, most: offer.most.min(self.most) },
            None => RoundChoice::Plain,
        }
    }

    fn draft_more(&self, _: usize, so_far: &[Drafted], _: bool) -> bool {
        so_far.len() < self.most
    }

    fn checks(&self, source: usize, guide: &Guide, guesses: &[Drafted]) -> bool {
        assert_eq!((source, guide.source), (1, 0));
        guesses.len() <= self.guesses
    }

    fn record(&mut self, round: &Round) {
        assert!(round.draft_steps <= round.drafted.len());
        assert_eq!(round.draft_steps == 0, round.drafted.is_empty());
    }

    fn off_reason(&self) -> Option<String> {
        None
    }

    fn speedup(&self) -> Speedup {
        Speedup::default()
    }
}

/// Guesses what a text goes on with, every `wrong`-th token as something else.
struct Knows {
    text: Vec<u32>,
    wrong: usize,
    next: usize,
}

impl Proposer for Knows {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: "knows".into(), kind: SourceKind::Other, cost: 0.0, chance: 0.6, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        self.next = text.len();
        match self.text.len().saturating_sub(self.next) {
            0 => Supply::Nothing,
            tokens => Supply::Found(Ready { tokens, match_len: 9 }),
        }
    }

    fn tokens(&mut self, _: &[u32]) -> Vec<u32> {
        let known = self.text.iter().enumerate().skip(self.next);
        known.map(|(place, &token)| if place % self.wrong == 0 { token ^ 1 } else { token }).collect()
    }
}

fn small(model: &Arc<Model>) -> Context {
    context(model, |c| (c.n_ctx, c.threads) = (160, 1))
}

/// The tokens, and what drafting them took.
fn by_layers(
    context: &mut Context,
    sampler: &SamplerConfig,
    request: &Request,
    guide: Box<dyn Proposer>,
    mask: &RunLayers,
    mut policy: ByLayers,
) -> (Vec<u32>, Report) {
    let mut sampler = Sampler::new(sampler.clone()).unwrap();
    let tokenizer = Tokenizer::from_gguf(&embedded_model().gguf).unwrap();
    let mask = MaskProposer::new("mask", mask.clone()).keeping_nothing();
    let proposers = &mut [guide, Box::new(mask) as Box<dyn Proposer>];
    let mut speculation = Speculation { proposers, policy: &mut policy };
    let go_on = |_| Ok(std::ops::ControlFlow::Continue(()));
    let (generation, report) =
        speculate(context, &tokenizer, &mut sampler, request, &mut speculation, go_on).unwrap();
    (generation.tokens, report)
}

type MakeGuide<'m> = &'m dyn Fn(&Context) -> Option<Box<dyn Proposer>>;

const PROMPT: [u32; 6] = [1, 403, 407, 261, 378, 396];

#[test]
fn guesses_save_steps_and_change_neither_drafts_nor_text() {
    let models = [embedded_model(), load(std::path::Path::new(five_layers()))];
    let families = families::families().iter().filter(|family| family.name.starts_with("gemma"));
    let mut saved = 0;
    for model in models.into_iter().chain(families.map(|family| family.model.clone())) {
        let (mut context, n_layer) = (small(&model), model.n_layer());
        let whole = RunLayers::all(n_layer);
        let masks = [(n_layer / 2..n_layer).fold(whole.clone(), |mask, l| mask.skip_mlp(l)), coarse(n_layer)];
        let prompt = PROMPT.map(|token| token % model.n_vocab() as u32);
        let mut request = request(&prompt, 60);
        request.ignore_eos = true;
        let drawn = SamplerConfig { temp: 0.8, seed: Some(5), ..SamplerConfig::default() };
        for sampler in [greedy(), drawn] {
            let expected = plain(&mut context, &sampler, &request, usize::MAX).tokens;
            let text = [&prompt[..], &expected].concat();
            for mask in &masks {
                let guides: [MakeGuide; 4] = [
                    &|_| Some(Box::new(Knows { text: text.clone(), wrong: usize::MAX, next: 0 })),
                    &|_| Some(Box::new(Knows { text: text.clone(), wrong: 3, next: 0 })),
                    &|_| Some(Box::new(NgramProposer::new(1, 8))),
                    &|context| Some(Box::new(source(&model, context)?.proposer())),
                ];
                for (which, guide) in guides.iter().enumerate() {
                    let when = format!("{}, temperature {}, guide {which}", model.name, sampler.temp);
                    let mut run = |guesses: usize| {
                        let guide = guide(&context)?;
                        let policy = ByLayers { most: 7, guesses };
                        Some(by_layers(&mut context, &sampler, &request, guide, mask, policy))
                    };
                    let Some((alone, without)) = run(0) else { continue };
                    assert_eq!(alone, expected, "{when}");
                    let drafts = |report: &Report| {
                        let tally = &report.drafting;
                        (tally.rounds, tally.drafted, tally.accepted, report.by_position.clone())
                    };
                    assert_eq!(without.drafting.draft_steps, without.drafting.drafted, "{when}");
                    for guesses in [1, 4] {
                        let (guided, with) = run(guesses).expect("as before");
                        assert_eq!(guided, expected, "{when}, {guesses} guesses");
                        assert_eq!(drafts(&with), drafts(&without), "{when}, {guesses} guesses");
                        let (steps, tokens) = (with.drafting.draft_steps, with.drafting.drafted);
                        saved += tokens - steps;
                        // Who knows the text is right as often as the draft is: at least half of what such guesses can save.
                        if which == 0 {
                            let right = with.drafting.accepted * guesses / (guesses + 1);
                            assert!(
                                2 * (tokens - steps) >= right,
                                "{when}: {steps} steps for {tokens} tokens"
                            );
                        }
                    }
                }
            }
        }
    }
    assert!(saved > 1000, "{saved} steps were saved");
}
