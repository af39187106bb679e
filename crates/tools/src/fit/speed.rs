//! What a head brings: tokens of a round over what the round costs, in plain steps of this machine.

use std::time::Instant;

use super::judge::Ranks;
use crate::{
    Batch, Context, Result,
    head::{HeadShape, Tables},
    scores::Want,
};

/// Rows of a verification at most.
pub const MOST_ROWS: usize = 6;
/// Each number of rows is timed so often; the fastest counts, since what disturbs only adds.
const TIMES: usize = 7;
/// Tokens before those rows.
const BEFORE: usize = 64;

/// What passes cost.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Passes of 1, 2 and more rows, in plain steps.
    pub rows: [f64; MOST_ROWS],
    /// A head's first step, and one that follows it, by the bytes that they read.
    pub steps: [f64; 2],
}

/// Drafts as paths of ranks; a tree's rows are verified together.
const DRAFTS: [(&str, &[&[u8]]); 7] = [
    ("1 token", &[&[0]]),
    ("2 tokens", &[&[0], &[0, 0]]),
    ("3 tokens", &[&[0], &[0, 0], &[0, 0, 0]]),
    ("2 choices", &[&[0], &[1]]),
    ("3 choices", &[&[0], &[1], &[2]]),
    ("4 choices", &[&[0], &[1], &[2], &[3]]),
    ("3 choices and a second token", &[&[0], &[0, 0], &[1], &[2]]),
];

/// The best draft for some texts.
#[derive(Clone, Debug)]
pub struct Best {
    pub draft: &'static str,
    /// Times plain decoding.
    pub speed: f64,
}

impl Costs {
    /// Timed in a context, which is empty afterwards; `tokens` are those that the output matrix has for drafts.
    pub fn measure(context: &mut Context, shape: &HeadShape, tables: &Tables, tokens: usize) -> Result<Self> {
        context.remove_all();
        let n_vocab = context.model().n_vocab();
        let token = |i: usize| (i.wrapping_mul(7919) % n_vocab) as u32;
        let before: Vec<u32> = (0..BEFORE).map(token).collect();
        context.decode(&Batch::prompt(&before, 0, 0))?;
        let mut seconds = [f64::INFINITY; MOST_ROWS];
        for _ in 0..TIMES {
            for (n, least) in seconds.iter_mut().enumerate() {
                let mut batch = Batch::new();
                (0..=n).for_each(|i| batch.push(token(i), (BEFORE + i) as u32, 0, true));
                let started = Instant::now();
                context.decode_for(&batch, Want::Top(1))?;
                *least = least.min(started.elapsed().as_secs_f64());
                context.truncate(0, BEFORE)?;
            }
        }
        context.remove_all();
        let all = context.bytes_read(None) as f64;
        let rows = tokens as u64 * tables.output_row_bytes();
        Ok(Costs {
            rows: seconds.map(|of_rows| of_rows / seconds[0]),
            steps: [true, false].map(|first| (shape.step_bytes(first) + rows) as f64 / all),
        })
    }

    /// The draft that is predicted to be fastest.
    pub fn best(&self, ranks: &Ranks) -> Best {
        let speeds = DRAFTS.iter().map(|(draft, paths)| {
            let depth = paths.iter().map(|path| path.len()).max().unwrap_or(0);
            let drafting = self.steps[0] + (depth - 1) as f64 * self.steps[1];
            Best { draft, speed: ranks.tokens_a_round(paths) / (drafting + self.rows[paths.len()]) }
        });
        speeds.max_by(|a, b| a.speed.total_cmp(&b.speed)).expect("there are drafts")
    }
}
