//! The last word on a mask: what the speculative loop itself makes of it, beside plain decoding.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{
    Member,
    candidate::Candidate,
    costs::{Case, PassCosts, Timing},
    family::Proof,
};
use crate::{
    Context, Result, Sampler, Tokenizer,
    generate::{Request, Speculation, speculate},
    measure::stats::Spread,
    sampler::SamplerConfig,
    speculation::{Fixed, MaskProposer, Proposer, TARGET},
};

/// Time for all masks together, at most; where it is short, the first few are measured.
const SECONDS: f64 = 20.0;
const MOST_TOKENS: usize = 1024;
const FEWEST_TOKENS: usize = 64;
/// Of one prompt; short enough that several prompts are seen.
const TOKENS_A_PROMPT: usize = 64;

/// Greedy text, with drafts of the predicted length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Against plain decoding, on the same prompts in alternation: the median over the prompts.
    pub speedup: f64,
    /// The ends of the middle half of the prompts' speedups, if there were several.
    #[serde(default)]
    pub quartiles: Option<[f64; 2]>,
    /// By the proof, and what passes cost in the same minutes: a machine is not always equally fast.
    pub predicted: f64,
    /// Tokens a second.
    pub tok_s: f64,
    /// The length of the drafts.
    pub draft_len: usize,
    /// The share of drafted tokens that were accepted.
    pub acceptance: f64,
    /// Tokens that joined the text per round.
    pub tokens_per_round: f64,
    /// Tokens that were generated.
    pub tokens: usize,
}

/// Whether an earlier run measured every member, with the drafts that it would have now.
pub fn cover(earlier: &[(Candidate, Measured)], members: &[&Member], costs: &PassCosts) -> bool {
    members.iter().all(|member| {
        let draft_len = member.proof.greedy(costs).draft_len;
        earlier.iter().any(|(c, measured)| *c == member.candidate && measured.draft_len == draft_len)
    })
}

#[derive(Default)]
struct Sums {
    /// Tokens per second, text by text.
    speeds: Vec<f64>,
    seconds: f64,
    tokens: usize,
    rounds: usize,
    drafted: usize,
    accepted: usize,
}

/// Between samples by their distance, as R and NumPy do by default.
fn quartiles(mut samples: Vec<f64>) -> Option<[f64; 2]> {
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = share * (samples.len() - 1) as f64;
        let (below, above) = (samples[rank.floor() as usize], samples[rank.ceil() as usize]);
        below + rank.fract() * (above - below)
    };
    (samples.len() > 1).then(|| [at(0.25), at(0.75)])
}

fn allowed(most_seconds: Option<f64>) -> f64 {
    most_seconds.map_or(SECONDS, |most| most.min(SECONDS))
}

/// Masks for which there is time.
pub fn affordable(costs: &PassCosts, most_seconds: Option<f64>) -> usize {
    ((allowed(most_seconds) / costs.step_seconds) as usize / FEWEST_TOKENS).saturating_sub(1)
}

/// Generates from the prompts with each mask and without any. Nothing if no text comes of them.
pub fn measure(
    context: &mut Context,
    tokenizer: &Tokenizer,
    prompts: &[Vec<u32>],
    members: &[&Member],
    costs: &PassCosts,
    most_seconds: Option<f64>,
) -> Result<Vec<Measured>> {
    let started = Instant::now();
    let affordable = allowed(most_seconds) / costs.step_seconds / (members.len() + 1) as f64;
    let tokens = (affordable as usize).min(MOST_TOKENS);
    if prompts.is_empty() || members.is_empty() {
        return Ok(Vec::new());
    }
    let mut sums: Vec<Sums> = (0..=members.len()).map(|_| Sums::default()).collect();
    // The first touch of caches and buffers is nobody's.
    generate(context, tokenizer, &prompts[0], None, &mut Sums::default())?;
    let draft_lens: Vec<usize> = members.iter().map(|m| m.proof.greedy(costs).draft_len).collect();
    let mut cases = costs.cases();
    let first_mask = cases.len();
    cases.extend(members.iter().map(|m| Case::Draft(m.candidate.mask())));
    let mut timing = Timing::new(cases);
    let rounds = (tokens / TOKENS_A_PROMPT).max(1);
    for round in 0..rounds {
        // Prompts and timings are not in what was expected.
        if round > 0 && most_seconds.is_some_and(|most| started.elapsed().as_secs_f64() > most) {
            break;
        }
        let prompt = &prompts[round % prompts.len()];
        for (i, sums) in sums.iter_mut().enumerate() {
            let draft = i.checked_sub(1).map(|m| (members[m], draft_lens[m]));
            generate(context, tokenizer, prompt, draft, sums)?;
        }
        // The text that was made is as deep as any.
        let depth = context.kv().len(TARGET);
        timing.turn(context, (TARGET, depth))?;
    }
    let seconds = timing.seconds();
    let now = costs.retimed(&seconds[..first_mask]);
    let steps = seconds[first_mask..].iter().map(|step| step / seconds[0]);
    let predicted: Vec<f64> = std::iter::zip(members, steps)
        .zip(&draft_lens)
        .map(|((member, cost), &k)| Proof { cost, ..member.proof.clone() }.at(&now, k))
        .collect();
    let measured = |((s, draft_len), predicted): ((&Sums, usize), f64)| Measured {
        predicted,
        quartiles: quartiles(std::iter::zip(&s.speeds, &sums[0].speeds).map(|(a, b)| a / b).collect()),
        speedup: Spread::of_ratios(&s.speeds, &sums[0].speeds).median,
        tok_s: s.tokens as f64 / s.seconds,
        draft_len,
        acceptance: s.accepted as f64 / (s.drafted as f64).max(1.0),
        tokens_per_round: s.tokens as f64 / s.rounds as f64,
        tokens: s.tokens,
    };
    // Texts that ended at once would measure nothing.
    let any = sums.iter().all(|s| s.tokens > 0);
    Ok(if any { sums[1..].iter().zip(draft_lens).zip(predicted).map(measured).collect() } else { Vec::new() })
}

fn generate(
    context: &mut Context,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    draft: Option<(&Member, usize)>,
    sums: &mut Sums,
) -> Result<()> {
    let mut proposers: Vec<Box<dyn Proposer>> = draft
        .iter()
        .map(|(m, _)| Box::new(MaskProposer::new(&m.name, m.candidate.mask())) as Box<dyn Proposer>)
        .collect();
    let mut policy = Fixed { max: draft.map_or(0, |(_, len)| len), ..Fixed::default() };
    let request = Request { max_tokens: Some(TOKENS_A_PROMPT), ..Request::new(prompt) };
    let mut sampler = Sampler::new(SamplerConfig::greedy())?;
    let mut speculation = Speculation { proposers: &mut proposers, policy: &mut policy };
    let (made, report) = speculate(context, tokenizer, &mut sampler, &request, &mut speculation, |_| {
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    // The first token comes from the prompt's pass.
    let tokens = made.tokens.len().saturating_sub(1);
    if tokens > 0 {
        sums.speeds.push(tokens as f64 / made.decode_seconds);
    }
    sums.tokens += tokens;
    sums.seconds += made.decode_seconds;
    sums.rounds += report.drafting.rounds + report.plain_steps;
    sums.drafted += report.drafting.drafted;
    sums.accepted += report.drafting.accepted;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::quartiles;

    #[test]
    fn quartiles_are_those_of_numpy() {
        // numpy.percentile([1, 2, 4, 8], [25, 75]) is [1.75, 5].
        assert_eq!(quartiles(vec![8.0, 1.0, 4.0, 2.0]), Some([1.75, 5.0]));
        assert_eq!(quartiles(vec![1.0]), None);
    }
}
