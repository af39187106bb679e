//! A text that has the context for itself.

use std::time::{Duration, Instant};

use super::{
    Lane, OnTextEvent, Stop, TextState, request,
    round::{self, Terms},
    trial,
};
use crate::{Batch, Context, Error, Result, speculation::costs::Together};

/// Rows of a prompt at once, where something is to be made of each.
const PART: usize = 512;
/// How long a token may wait for weights to be rearranged: hardly to be felt, and so few tokens come before it is done.
const PACKING: Duration = Duration::from_millis(100);

/// Evaluates the prompt and goes on until the text ends.
pub fn run(context: &mut Context, lane: &mut Lane, prompt: &[u32], hear: OnTextEvent) -> Result<()> {
    let seq = lane.text.spec.seq;
    context.remove(seq);
    let started = Instant::now();
    trial::prepare(lane);
    let mut batch = Batch::prompt(prompt, 0, seq);
    batch.rows.last_mut().expect("a prompt has tokens").logits = true;
    if lane.reads_prompts() {
        // What layers leave of a part is looked at before the next.
        let last = batch.rows.split_off(PART * ((prompt.len() - 1) / PART));
        let parts = std::mem::replace(&mut batch.rows, last);
        for rows in parts.chunks(PART) {
            let mut part = Batch { rows: rows.to_vec(), ..Batch::new() };
            evaluate_part(context, lane, &mut part)?;
            lane.text.make_unseen(context)?;
            lane.read_rows();
        }
    }
    evaluate_part(context, lane, &mut batch)?;
    lane.sampler.begin(prompt);
    lane.show_prompt();
    lane.text.row = 0;
    lane.text.out.prefill_seconds = started.elapsed().as_secs_f64();
    lane.policy.saw_prompt(prompt.len(), lane.text.out.prefill_seconds);
    let started = Instant::now();
    if lane.text.stop.is_none() {
        // The first token comes from the prompt's scores.
        lane.judge(context, None, 0, hear)?;
    }
    // It belongs to the prompt, and takes the place of its scores.
    let unseen = Instant::now();
    lane.text.make_unseen(context)?;
    let unseen = unseen.elapsed().as_secs_f64();
    lane.text.out.prefill_seconds += unseen;
    let mut together = Together::default();
    while lane.text.stop.is_none() {
        lane.text.out.packing_seconds += pack_more(context)?;
        if context.kv().free_cells() == 0 && !make_room(context, lane.text)? {
            lane.text.stop = Some(Stop::ContextFull);
            break;
        }
        let drafts = context.is_packed();
        lane.text.report.undrafted.packing += usize::from(!drafts);
        let terms = Terms { chunk: 0, drafts };
        round::round(context, std::slice::from_mut(lane), &terms, &mut together, hear)?;
    }
    if let Some(why) = lane.text.fault.take() {
        return Err(Error::Input(why));
    }
    lane.text.out.stop = lane.text.stop.expect("the loop has ended");
    lane.text.out.decode_seconds = started.elapsed().as_secs_f64() - unseen - lane.text.out.packing_seconds;
    Ok(())
}

/// Evaluates rows of the prompt, and shows what is left of them to what drafts.
fn evaluate_part(context: &mut Context, lane: &mut Lane, part: &mut Batch) -> Result<()> {
    lane.ask_of_prompt(part, context);
    context.decode_for(part, lane.text.want)?;
    lane.text.add_unseen(&part.rows, context, 0);
    let tokens: Vec<u32> = part.rows.iter().map(|row| row.token).collect();
    lane.show_rows(context, &tokens, part.rows[0].pos, |i| i);
    Ok(())
}

/// Rearranges more of the weights that are still as the file has them; and the seconds that it took.
fn pack_more(context: &mut Context) -> Result<f64> {
    if context.is_packed() {
        return Ok(0.0);
    }
    let started = Instant::now();
    context.pack_more(PACKING)?;
    Ok(started.elapsed().as_secs_f64())
}

/// Context shift, where it was asked for and there is something to drop.
fn make_room(context: &mut Context, text: &TextState) -> Result<bool> {
    let Some(keep) = text.spec.shift_keep else { return Ok(false) };
    request::shift(context, text.spec.seq, keep)
}
