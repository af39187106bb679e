//! Plain decoding: a prompt in, one token after another out, until something says stop.

use std::{ops::ControlFlow, time::Instant};

use crate::{
    Batch, Context, Error, Result, Sampler, Tokenizer,
    kv::TAKEN_BACK,
    sampler::{SamplerConfig, top_logprobs},
    scores::Want,
};

const SEQ: u32 = 0;

/// What is to be generated.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The tokens to go on from; at least one.
    pub prompt: &'a [u32],
    /// The most tokens to make; `None` goes on until the text or the context ends.
    pub max_tokens: Option<usize>,
    /// Go on after an end-of-text token.
    pub ignore_eos: bool,
    /// When the context is full, keep this many tokens of its start, drop half of the rest and go on.
    pub shift_keep: Option<usize>,
    /// How many of the likeliest tokens to report at each position.
    pub logprobs: usize,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A token that ends a text was chosen.
    EndOfText,
    /// As many tokens as were asked for are there.
    MaxTokens,
    /// The context has no more room.
    ContextFull,
    /// The caller asked for it.
    Interrupted,
}

/// What was generated.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Without the end-of-text token that ended it.
    pub tokens: Vec<u32>,
    /// Per token the likeliest candidates before sampling.
    pub logprobs: Vec<Vec<(u32, f32)>>,
    /// How long the prompt took.
    pub prefill_seconds: f64,
    /// How long the tokens took.
    pub decode_seconds: f64,
    /// Decode steps that `decode_seconds` covers, or would by plain decoding.
    pub steps: usize,
    /// Why it ended.
    pub stop: Stop,
}

impl Request<'_> {
    /// Whether the prompt can be evaluated in this context.
    pub fn check(&self, context: &Context) -> Result<()> {
        let (n, n_ctx) = (self.prompt.len(), context.kv().capacity());
        if n == 0 {
            return Err(Error::Input("the prompt has no tokens: give some text with `prompt`".into()));
        }
        if n > n_ctx {
            return Err(Error::Input(format!(
                "the prompt has {n} tokens, the context holds {n_ctx}: use `n_ctx` {} or more, or a shorter prompt",
                n + 1
            )));
        }
        Ok(())
    }

    /// What of a row's logits it needs.
    pub(crate) fn want(&self, sampler: &SamplerConfig) -> Want {
        if self.logprobs > 0 { Want::Logits } else { sampler.want() }
    }
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
    request.check(context)?;
    context.remove(SEQ);
    let want = request.want(sampler.config());
    let started = Instant::now();
    context.decode_for(&Batch::prompt(request.prompt, 0, SEQ), want)?;
    request.prompt.iter().for_each(|&token| sampler.accept(token));
    let mut out = Generation {
        tokens: Vec::new(),
        logprobs: Vec::new(),
        prefill_seconds: started.elapsed().as_secs_f64(),
        decode_seconds: 0.0,
        steps: 0,
        stop: Stop::MaxTokens,
    };
    let started = Instant::now();
    while request.max_tokens.is_none_or(|most| out.tokens.len() < most) {
        let token = sampler.choose(context.scores(0));
        if tokenizer.is_eog(token) && !request.ignore_eos {
            out.stop = Stop::EndOfText;
            break;
        }
        if request.logprobs > 0 {
            out.logprobs.push(top_logprobs(context.logits(0), request.logprobs));
        }
        sampler.accept(token);
        out.tokens.push(token);
        if on_token(token)?.is_break() {
            out.stop = Stop::Interrupted;
            break;
        }
        if request.max_tokens == Some(out.tokens.len()) {
            break;
        }
        if context.kv().free_cells() == 0 && !make_room(context, request)? {
            out.stop = Stop::ContextFull;
            break;
        }
        context.decode_for(&Batch::prompt(&[token], context.kv().next_pos(SEQ), SEQ), want)?;
        out.steps += 1;
    }
    out.decode_seconds = started.elapsed().as_secs_f64();
    Ok(out)
}

/// Context shift, where it was asked for and there is something to drop.
pub(crate) fn make_room(context: &mut Context, request: &Request) -> Result<bool> {
    let Some(keep) = request.shift_keep else { return Ok(false) };
    let len = context.kv().len(SEQ);
    let drop = dropped(len.saturating_sub(keep), context.model().plan.widest_window());
    if drop == 0 {
        return Ok(false);
    }
    context.shift(SEQ, keep, drop)?;
    Ok(true)
}

/// How much of a text that may be dropped goes: half, or less where the rest would not fill a window, so that rows do not
/// see what came long before it. A window of nearly all of the text would have it shifted all the time.
fn dropped(text: usize, window: Option<u32>) -> usize {
    let left = window.map_or(0, |window| window as usize + TAKEN_BACK);
    let least = if left <= text / 4 * 3 { left } else { 0 };
    (text / 2).min(text - least)
}
