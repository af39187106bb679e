//! Generates one text in one context, by plain decoding or with drafts.

use std::ops::ControlFlow;

pub use crate::engine::{Generation, Request, Stop, TokenScore};
use crate::{
    Context, Result, Sampler, Tokenizer,
    engine::{Event, Lane, TextSpec, TextState, alone},
    speculation::{DRAFT, Fixed, Policy, Proposer, Report, TARGET, Token},
};

/// The sources of drafts, and the policy that decides about them.
pub struct Speculation<'a> {
    /// What can draft.
    pub proposers: &'a mut [Box<dyn Proposer>],
    /// Decides on each round.
    pub policy: &'a mut dyn Policy,
}

/// Evaluates the prompt on sequence 0 and samples from there. `on_token` sees each token as it is chosen and
/// may end the run.
pub fn generate(
    context: &mut Context,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    request: &Request,
    mut on_token: impl FnMut(u32) -> Result<ControlFlow<()>>,
) -> Result<Generation> {
    let policy = &mut Fixed { max: 0, ..Fixed::default() };
    let mut nothing = Speculation { proposers: &mut [], policy };
    let (made, _) =
        speculate(context, tokenizer, sampler, request, &mut nothing, |token| on_token(token.id))?;
    Ok(made)
}

/// As [`generate`], faster: evaluates the prompt on sequence 0 and goes on from there in
/// rounds. `on_token` sees each token once it is certain and may end the run.
pub fn speculate(
    context: &mut Context,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    request: &Request,
    speculation: &mut Speculation,
    mut on_token: impl FnMut(Token) -> Result<ControlFlow<()>>,
) -> Result<(Generation, Report)> {
    request.check(context)?;
    let sources: Vec<_> = speculation.proposers.iter().map(|p| p.info(context)).collect();
    speculation.policy.start(&sources);
    let spec = TextSpec::of(request.clone(), tokenizer, TARGET, DRAFT);
    let mut text =
        TextState::new(spec, sampler, Report::new(sources)).drafted_by(speculation.proposers, context);
    let Speculation { proposers, policy, .. } = speculation;
    let mut lane = Lane { text: &mut text, sampler, proposers, policy: &mut **policy };
    alone::run(context, &mut lane, &mut |_, event| match event {
        Event::Token { token, .. } => on_token(token),
        Event::Begun { .. } | Event::Evaluated(_) | Event::Ended(_) => Ok(ControlFlow::Continue(())),
    })?;
    let TextState { out, mut report, .. } = text;
    report.finish(speculation.policy);
    Ok((out, report))
}
