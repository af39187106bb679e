//! Makes one text that has the context for itself. It goes on while weights are still being rearranged.

use std::time::{Duration, Instant};

use super::{
    Lane, OnEvent,
    round::{self, Terms},
    trial,
};
use crate::{Context, Error, Result, speculation::costs::Together};

/// Rows of a prompt at once, where a head reads what layers leave of each.
const PART: usize = 512;
/// How long each token may wait for weights to be rearranged: too short to be noticed, long enough to be done after few tokens.
const PACKING: Duration = Duration::from_millis(100);

/// Evaluates the prompt and goes on until the text ends.
pub fn run(context: &mut Context, lane: &mut Lane, hear: OnEvent) -> Result<()> {
    context.remove(lane.text.spec.seq);
    let started = Instant::now();
    trial::prepare(lane);
    let tokens = lane.text.spec.request.prompt.len();
    // What layers leave of a part is read before the next part is evaluated.
    let chunk = if lane.reads_prompts() { PART } else { tokens };
    let mut together = Together::default();
    while lane.text.prompt.is_some() && !lane.text.has_ended() {
        let terms = Terms { chunk, drafts: false };
        round::round(context, std::slice::from_mut(lane), &terms, &mut together, hear)?;
    }
    // With the first token, which comes from the prompt's scores.
    lane.text.out.prefill_seconds = started.elapsed().as_secs_f64() - lane.text.callback_seconds;
    lane.policy.saw_prompt(tokens, lane.text.out.prefill_seconds);
    let started = Instant::now();
    while !lane.text.has_ended() {
        lane.text.out.packing_seconds += pack_more(context)?;
        lane.text.make_room(context, true)?;
        if lane.text.has_ended() {
            break;
        }
        let drafts = context.is_packed();
        lane.text.report.undrafted.packing += usize::from(!drafts);
        let terms = Terms { chunk, drafts };
        round::round(context, std::slice::from_mut(lane), &terms, &mut together, hear)?;
    }
    if let Some(why) = lane.text.fault.take() {
        return Err(Error::Input(why));
    }
    lane.text.out.stop = lane.text.stop.expect("the loop has ended");
    lane.text.out.decode_seconds = started.elapsed().as_secs_f64() - lane.text.out.packing_seconds;
    Ok(())
}

/// Rearranges more of the weights that are still as in the file, and returns the seconds that it took.
fn pack_more(context: &mut Context) -> Result<f64> {
    if context.is_packed() {
        return Ok(0.0);
    }
    let started = Instant::now();
    context.pack_more(PACKING)?;
    Ok(started.elapsed().as_secs_f64())
}
