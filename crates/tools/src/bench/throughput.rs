//! Prompts and generations of given lengths at given depths, as llama-bench measures them.

use std::{fmt, time::Instant};

use super::subject::random_tokens;
use crate::{Batch, Context, Result, batch::SeqId, scores::Want};

/// Holds what lies before a test.
const BASE: SeqId = 0;
const WORK: SeqId = 1;

/// A prompt, then tokens one after another, with `depth` tokens before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    pub prompt: usize,
    pub generated: usize,
    pub depth: usize,
}

impl Test {
    /// Cells of the cache that it takes.
    pub fn cells(&self) -> usize {
        // The depth's own cells are shared with the copy that the test goes on from.
        self.depth + self.prompt + self.generated
    }
}

/// llama-bench's names: pp512, tg128, pp512+tg128, and @ d4096.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match (self.prompt, self.generated) {
            (prompt, 0) => write!(f, "pp{prompt}")?,
            (0, generated) => write!(f, "tg{generated}")?,
            (prompt, generated) => write!(f, "pp{prompt}+tg{generated}")?,
        }
        if self.depth > 0 { write!(f, " @ d{}", self.depth) } else { Ok(()) }
    }
}

/// Seconds of each repetition; fewer than asked for where `interrupted` says so. One more run comes first, which does
/// not count.
pub fn measure(
    context: &mut Context,
    test: Test,
    repetitions: usize,
    interrupted: impl Fn() -> bool,
) -> Result<Vec<f64>> {
    let tokens = random_tokens(test.cells(), context.model().plan.dims.n_vocab);
    context.remove(BASE);
    if test.depth > 0 {
        let mut before = Batch::prompt(&tokens[..test.depth], 0, BASE);
        before.rows.iter_mut().for_each(|row| row.logits = false);
        context.decode(&before)?;
    }
    let mut seconds = Vec::new();
    for repetition in 0..=repetitions {
        if interrupted() {
            break;
        }
        let (prompt, generated) = tokens[test.depth..].split_at(test.prompt);
        context.fork(BASE, WORK);
        let started = Instant::now();
        if !prompt.is_empty() {
            context.decode_for(&Batch::prompt(prompt, test.depth as u32, WORK), Want::Top(1))?;
        }
        for (i, &token) in generated.iter().enumerate() {
            let pos = test.depth + test.prompt + i;
            context.decode_for(&Batch::prompt(&[token], pos as u32, WORK), Want::Top(1))?;
        }
        if repetition > 0 {
            seconds.push(started.elapsed().as_secs_f64());
        }
        context.remove(WORK);
    }
    context.remove(BASE);
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::Test;

    #[test]
    fn names_are_llama_benchs() {
        let name = |prompt, generated, depth| Test { prompt, generated, depth }.to_string();
        assert_eq!(name(512, 0, 0), "pp512");
        assert_eq!(name(0, 128, 4096), "tg128 @ d4096");
        assert_eq!(name(5, 6, 0), "pp5+tg6");
    }
}
