//! The GPU backend on whatever adapter there is; Mesa's llvmpipe will do.

#[path = "../common/mod.rs"]
mod common;

mod cli;
mod embeddings;
mod mtp;

mod families;
mod hybrid;
mod lora;
mod model;
mod nvfp4;
mod planes;
mod recording;
mod rounds;
mod several;
mod taps;
mod trained;

use std::ops::ControlFlow;

use spec_run::{
    Context, Sampler, Tokenizer,
    generate::{Generation, Request, Speculation, speculate},
    speculation::{Fixed, Proposer, Report},
};

/// A text with drafts of three tokens.
fn drafted(
    context: &mut Context,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    request: &Request,
    proposer: Box<dyn Proposer>,
) -> (Generation, Report) {
    let mut policy = Fixed { max: 3, ..Fixed::default() };
    let mut speculation = Speculation { proposers: &mut [proposer], policy: &mut policy };
    let go_on = |_| Ok(ControlFlow::Continue(()));
    speculate(context, tokenizer, sampler, request, &mut speculation, go_on).unwrap()
}
