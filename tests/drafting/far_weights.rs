//! A machine whose card has the high bits of the weights and whose RAM has the low ones. Its passes are computed here, and take the time
//! that reading takes there. What drafts bring there is held against what the formula says of how often they are accepted.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use spec_run::{
    Batch, Context, Model, Result, RunLayers, Sampler,
    generate::{Generation, Speculation, speculate},
    sampler::SamplerConfig,
    speculation::{Controller, Costs, MaskProposer, Memory, Policy, Proposer, Report},
};
use spec_run_backend::{
    Abilities, Account, Backend, Crossing, Output, Rows, Saved,
    kv::{CellMove, Replay},
};
use spec_run_model::plan::{Op, Step, WeightId};

use crate::{
    common::{coarse, embedded_model},
    running::{Always, encode, request, small, tokenizer},
};

/// Bytes a second that the card and RAM read: those of a card with 1000 GB/s beside RAM with 50, for a model that is so much smaller.
const CARD: f64 = 1000e9 / SMALLER;
const RAM: f64 = 50e9 / SMALLER;
/// A plain step is then long beside what is computed here.
const SMALLER: f64 = 300.0;

/// Waits as that machine would.
struct Divided {
    inner: Box<dyn Backend>,
    model: Arc<Model>,
}

impl Divided {
    /// The head and what drafts read are on the card.
    fn seconds(&self, steps: &[Step]) -> f64 {
        let (mut card, mut ram) = (0, 0);
        for step in steps {
            let bytes = |coarse| {
                self.model.bytes_read(step.op, step.experts, |id| self.inner.weight_bytes(id, coarse))
            };
            let (high, all) = match step.op {
                Op::Head { .. } | Op::Embed { .. } => (bytes(false), bytes(false)),
                _ => (bytes(true), bytes(false)),
            };
            card += high;
            ram += if step.coarse { 0 } else { all - high };
        }
        card as f64 / CARD + ram as f64 / RAM
    }
}

impl Backend for Divided {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn identity(&self) -> String {
        self.inner.identity()
    }

    fn threads(&self) -> usize {
        self.inner.threads()
    }

    fn max_rows(&self) -> usize {
        self.inner.max_rows()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn account(&self) -> Account {
        self.inner.account()
    }

    fn weight_bytes(&self, id: WeightId, coarse: bool) -> u64 {
        self.inner.weight_bytes(id, coarse)
    }

    fn run_segment(&mut self, steps: &[Step], rows: &Rows, crossing: Crossing, output: Output) -> Result<()> {
        let started = Instant::now();
        self.inner.run_segment(steps, rows, crossing, output)?;
        let left = self.seconds(steps) - started.elapsed().as_secs_f64();
        std::thread::sleep(Duration::from_secs_f64(left.max(0.0)));
        Ok(())
    }

    fn replay_states(&mut self, replay: &Replay) {
        self.inner.replay_states(replay);
    }

    fn shift_keys(&mut self, moves: &[Vec<CellMove>], delta: i64) -> Result<()> {
        self.inner.shift_keys(moves, delta)
    }

    fn saved(&self) -> Option<&dyn Saved> {
        self.inner.saved()
    }

    fn saved_mut(&mut self) -> Option<&mut dyn Saved> {
        self.inner.saved_mut()
    }
}

fn run(context: &mut Context, high_bits: &MaskProposer, policy: &mut dyn Policy) -> (Generation, Report) {
    let prompt = encode("Once upon a time there was a little");
    let mut request = request(&prompt, 160);
    request.ignore_eos = true;
    let proposers: &mut [Box<dyn Proposer>] = &mut [Box::new(high_bits.clone())];
    let mut sampler = Sampler::new(SamplerConfig::greedy()).unwrap();
    let mut speculation = Speculation { proposers, policy };
    let goes_on = |_| Ok(std::ops::ControlFlow::Continue(()));
    speculate(context, &tokenizer(), &mut sampler, &request, &mut speculation, goes_on).unwrap()
}

/// Seconds of a pass of one token: the least of some, since other programs only take time away.
fn step_seconds(context: &mut Context, mask: Option<&RunLayers>) -> f64 {
    let mut batch = Batch::prompt(&[7], 0, 9);
    batch.run_layers = mask.cloned();
    let mut timed = || {
        let started = Instant::now();
        context.decode(&batch).unwrap();
        context.remove(9);
        started.elapsed().as_secs_f64()
    };
    (0..5).map(|_| timed()).fold(f64::INFINITY, f64::min)
}

/// What the formula says of drafts whose first k tokens are all accepted with chance `chain[k - 1]`: times plain speed, at the best
/// length, where a draft step takes `step` plain steps and a row of verification nothing.
fn forecast(chain: &[f64], step: f64) -> f64 {
    let tokens = chain.iter().scan(1.0, |tokens, chance| {
        *tokens += chance;
        Some(*tokens)
    });
    (1..).zip(tokens).map(|(k, tokens)| tokens / (f64::from(k) * step + 1.0)).fold(1.0, f64::max)
}

/// Sleeping costs no processor, so a busy machine changes little; and as other work only takes time away, the best of a few runs counts.
#[test]
fn drafts_on_a_card_bring_what_the_formula_says() {
    let model = embedded_model();
    let around = |inner| Box::new(Divided { inner, model: model.clone() }) as Box<dyn Backend>;
    let mut context = small(&model, 256).around_backend(around);
    let n_layer = model.n_layer();
    let layers = coarse(n_layer);
    let high_bits = MaskProposer::new("high bits", layers.clone());

    let (always, report) = run(&mut small(&model, 256), &high_bits, &mut Always { most: 24, others: 0 });
    let rounds = report.by_position[0].0 as f64;
    let chain: Vec<f64> = report.by_position.iter().map(|&(_, accepted)| accepted as f64 / rounds).collect();
    let plain_step = step_seconds(&mut context, None);
    let step = step_seconds(&mut context, Some(&layers)) / plain_step;
    let forecast = forecast(&chain, step);

    let (mut best, mut memory) = (0.0f64, Memory::new());
    for _ in 0..4 {
        // As a context whose weights lie in two places guesses them, of their speeds.
        let mut policy = Controller::new(Costs::guess_of(&[step], 0.9), memory);
        let (drafted, report) = run(&mut context, &high_bits, &mut policy);
        assert_eq!(drafted.tokens, always.tokens);
        let speed = plain_step * drafted.steps as f64 / drafted.decode_seconds;
        println!("{speed:.2} of {forecast:.2} by the formula, a draft step of {step:.3}, {report}");
        best = best.max(speed);
        memory = policy.memory();
        if best > 0.9 * forecast {
            break;
        }
    }
    assert!(forecast >= 3.0, "the formula says {forecast:.2}");
    assert!(
        (0.9..1.1).contains(&(best / forecast)),
        "{best:.2} times plain speed, {forecast:.2} by the formula"
    );
}
