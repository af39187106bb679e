//! The model writes: many texts in one pass, each with the states that the passes leave of its tokens.

use super::store::{BEST, Store, Text};
use crate::{
    Batch, Context, Result, Sampler, Tokenizer,
    batch::SeqId,
    head::{HeadShape, Tables, over_rms},
    sampler::SamplerConfig,
    scores,
};

/// Rows of a prompt in one pass.
const PROMPT_ROWS: usize = 256;
/// A text that repeats itself so long is ended: there is nothing more to learn from it.
const LOOP: usize = 64;
/// And the longest part that is repeated.
const LONGEST_PERIOD: usize = 16;
/// What half floats can keep.
const MOST_STATE: f32 = 6e4;

/// A text that is to be written.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub prompt: Vec<u32>,
    pub temp: f32,
    pub seed: u32,
    pub held_out: bool,
    pub most_tokens: usize,
}

/// What writes.
pub struct Author<'a> {
    context: &'a mut Context,
    tokenizer: &'a Tokenizer,
    tables: &'a Tables,
    layers: Vec<usize>,
    at_once: usize,
    going: Vec<Going>,
    next_seq: SeqId,
}

/// A text in the making.
struct Going {
    text: Text,
    most_tokens: usize,
    sampler: Sampler,
    seq: SeqId,
    /// The token that is evaluated next.
    last: u32,
    states: Vec<f32>,
}

/// How writing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Nobody wanted more.
    Enough,
    /// No more states can be kept.
    Full,
}

impl<'a> Author<'a> {
    /// Up to `at_once` texts in a pass; the context has room for them.
    pub fn new(
        context: &'a mut Context,
        tokenizer: &'a Tokenizer,
        tables: &'a Tables,
        shape: &HeadShape,
        at_once: usize,
    ) -> Self {
        context.remove_all();
        let layers = shape.taps.iter().copied().chain([tables.model().n_layer()]).collect();
        Author { context, tokenizer, tables, layers, at_once, going: Vec::new(), next_seq: 0 }
    }

    /// Writes what is assigned until nothing is, or `goes_on` says no, which hears of what is kept and of how many tokens are in
    /// the making. All texts are in the store in the end, those that were cut short too.
    pub fn write(
        mut self,
        assignments: &mut dyn Iterator<Item = Assignment>,
        store: &mut Store,
        goes_on: &mut dyn FnMut(&Store, usize) -> bool,
    ) -> Result<Written> {
        while goes_on(store, self.going.iter().map(|going| going.text.tokens.len()).sum()) {
            while self.going.len() < self.at_once
                && let Some(assignment) = assignments.next()
            {
                self.begin(assignment)?;
            }
            if self.going.is_empty() {
                break;
            }
            self.step()?;
            for i in (0..self.going.len()).rev() {
                if self.has_ended(&self.going[i]) {
                    let going = self.going.swap_remove(i);
                    self.context.remove(going.seq);
                    if !store.add(going.text, &going.states)? {
                        return Ok(Written::Full);
                    }
                }
            }
        }
        for going in self.going.drain(..) {
            self.context.remove(going.seq);
            if !store.add(going.text, &going.states)? {
                return Ok(Written::Full);
            }
        }
        Ok(Written::Enough)
    }

    fn begin(&mut self, assignment: Assignment) -> Result<()> {
        let Assignment { prompt, temp, seed, held_out, most_tokens } = assignment;
        let config = if temp > 0.0 {
            SamplerConfig { temp, seed: Some(seed), ..SamplerConfig::default() }
        } else {
            SamplerConfig::greedy()
        };
        let mut sampler = Sampler::new(config)?;
        sampler.begin(&prompt);
        let seq = self.next_seq;
        self.next_seq += 1;
        let (&last, before) = prompt.split_last().expect("a prompt has a token");
        for (i, part) in before.chunks(PROMPT_ROWS).enumerate() {
            let mut batch = Batch::prompt(part, (i * PROMPT_ROWS) as u32, seq);
            batch.rows.iter_mut().for_each(|row| row.logits = false);
            self.context.decode(&batch)?;
        }
        let text = Text { prompt, temp, held_out, ..Text::default() };
        self.going.push(Going { text, most_tokens, sampler, seq, last, states: Vec::new() });
        Ok(())
    }

    /// One token more of each text.
    fn step(&mut self) -> Result<()> {
        let mut batch = Batch { taps: self.layers.clone(), ..Batch::new() };
        for going in &self.going {
            batch.push(going.last, self.context.kv().next_pos(going.seq), going.seq, true);
        }
        self.context.decode(&batch)?;
        for (i, going) in self.going.iter_mut().enumerate() {
            keep_states(self.tables, self.context.taps(i), &mut going.states);
            if going.text.held_out {
                let best = scores::best(self.context.logits(i), BEST);
                going.text.best.extend(best.into_iter().map(|(token, _)| token));
            }
            going.last = going.sampler.choose(self.context.scores(i));
            going.sampler.accept(going.last);
            going.text.tokens.push(going.last);
        }
        Ok(())
    }

    fn has_ended(&self, going: &Going) -> bool {
        let tokens = &going.text.tokens;
        tokens.len() >= going.most_tokens || self.tokenizer.is_eog(going.last) || is_loop(tokens)
    }
}

/// Residuals over their root mean square, and the final state as the output matrix meets it.
fn keep_states(tables: &Tables, taps: &[f32], states: &mut Vec<f32>) {
    let dim = tables.dim();
    let begin = states.len();
    states.resize(begin + taps.len(), 0.0);
    let (residuals, last) = taps.split_at(taps.len() - dim);
    let (over, final_state) = states[begin..].split_at_mut(taps.len() - dim);
    residuals.chunks_exact(dim).zip(over.chunks_exact_mut(dim)).for_each(|(tap, out)| over_rms(tap, out));
    tables.final_state(last, final_state);
    final_state.iter_mut().for_each(|x| *x = x.clamp(-MOST_STATE, MOST_STATE));
}

/// Whether a text ends with the same few tokens again and again.
fn is_loop(tokens: &[u32]) -> bool {
    let Some(begin) = tokens.len().checked_sub(LOOP) else { return false };
    let tail = &tokens[begin..];
    (1..=LONGEST_PERIOD).any(|period| tail[period..] == tail[..LOOP - period])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_seen_and_texts_are_not_taken_for_them() {
        let repeated: Vec<u32> = (0..200).map(|i| if i < 90 { i } else { i % 7 }).collect();
        assert!(!is_loop(&repeated[..150]));
        assert!(is_loop(&repeated));
        assert!(is_loop(&[5; 64]) && !is_loop(&[5; 63]));
        assert!(!is_loop(&(0..200).map(|i| i % 17).collect::<Vec<_>>()));
    }
}
