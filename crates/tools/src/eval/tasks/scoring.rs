//! Which ending the model finds likeliest, in full and under a mask.

use std::ops::ControlFlow;

use super::{Task, Ties};
use crate::{
    Batch, Context, Error, Result, RunLayers,
    batch::{Row, SeqId},
    eval::agreement::LogProbs,
};

/// Logits of one pass, in bytes, and its rows.
const LOGITS_BYTES: usize = 64 << 20;
const MOST_ROWS: usize = 512;

/// What a context must have for some tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Cells for the longest of them. With more, several tasks share a pass.
    pub cells: u32,
    /// Sequences of the one with most endings.
    pub sequences: usize,
}

impl Room {
    /// What these tasks take.
    pub fn of(tasks: &[Task]) -> Self {
        let cells = tasks.iter().map(cells_of).max().unwrap_or(0);
        let endings = tasks.iter().map(|task| task.endings.len()).max().unwrap_or(0);
        Room { cells: u32::try_from(cells).unwrap_or(u32::MAX), sequences: 1 + endings }
    }
}

/// An ending's last token is evaluated only where its logits are wanted.
fn cells_of(task: &Task) -> usize {
    task.shared + task.endings.iter().map(|ending| ending.tokens.len() - task.shared).sum::<usize>()
}

/// What a model chose of a task's endings.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// For each ending the mean log-probability of the tokens that are scored; NaN where none is.
    pub scores: Vec<f64>,
    /// The ending with the best.
    pub ending: usize,
    /// Whether that is right.
    pub right: bool,
}

impl Choice {
    fn new(task: &Task, sums: &[f64]) -> Self {
        let mean = |(sum, ending): (&f64, &super::Ending)| sum / ending.scored.len() as f64;
        let scores: Vec<f64> = sums.iter().zip(&task.endings).map(mean).collect();
        let better = |best: usize, i: usize| match task.ties {
            Ties::First => scores[i] > scores[best],
            // No number is not better than any.
            Ties::Last => scores[best].partial_cmp(&scores[i]).is_none_or(|order| order.is_le()),
        };
        let ending = (1..scores.len()).fold(0, |best, i| if better(best, i) { i } else { best });
        Choice { ending, right: task.right[ending], scores }
    }
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The model's choice.
    pub full: Choice,
    /// That of the model under the mask, if there is one.
    pub masked: Option<Choice>,
}

/// Scores the tasks in their order, once it is known that the context has room for each. Then `on_tasks` is told how many are done, of all; it may end the run early.
pub fn score(
    context: &mut Context,
    tasks: &[Task],
    mask: Option<&RunLayers>,
    mut on_tasks: impl FnMut(usize, usize) -> Result<ControlFlow<()>>,
) -> Result<Vec<Answer>> {
    let mut answers = Vec::with_capacity(tasks.len());
    context.remove_all();
    check_room(context, tasks)?;
    while answers.len() < tasks.len() {
        let group = together(context, &tasks[answers.len()..]);
        let full = choices(context, group, None)?;
        let masked = match mask {
            Some(mask) => choices(context, group, Some(mask))?.into_iter().map(Some).collect(),
            None => vec![None; group.len()],
        };
        answers.extend(full.into_iter().zip(masked).map(|(full, masked)| Answer { full, masked }));
        if on_tasks(answers.len(), tasks.len())?.is_break() {
            break;
        }
    }
    Ok(answers)
}

/// Whether there is room for the longest task: later it would cost what was scored before its turn.
fn check_room(context: &Context, tasks: &[Task]) -> Result<()> {
    let room = context.kv().free_cells();
    match tasks.iter().max_by_key(|task| cells_of(task)) {
        Some(longest) if cells_of(longest) > room => Err(Error::Input(format!(
            "task {} takes {} tokens and the context holds {room}: a larger `n_ctx`",
            longest.number,
            cells_of(longest)
        ))),
        _ => Ok(()),
    }
}

/// The first of the tasks, and as many behind it as have room beside it and make a pass that is not too long. States of
/// recurrent layers are there for one task.
fn together<'a>(context: &Context, tasks: &'a [Task]) -> &'a [Task] {
    if !context.model().plan.mixers.is_empty() {
        return &tasks[..1];
    }
    let most = context.kv().free_cells().min(MOST_ROWS);
    let mut cells = cells_of(&tasks[0]);
    let fits = |task: &&Task| {
        cells += cells_of(task);
        cells <= most
    };
    &tasks[..1 + tasks[1..].iter().take_while(fits).count()]
}

/// A row to evaluate, and what its logits are asked for: tokens, each of an ending of a task.
struct Asked {
    row: Row,
    of: Vec<(usize, usize, u32)>,
}

fn choices(context: &mut Context, tasks: &[Task], mask: Option<&RunLayers>) -> Result<Vec<Choice>> {
    let mut sums: Vec<Vec<f64>> = tasks.iter().map(|task| vec![0.0; task.endings.len()]).collect();
    // A sequence for what a task's endings share, and one for each of them.
    let first_seq = |t: usize| tasks[..t].iter().map(|task| 1 + task.endings.len()).sum::<usize>() as SeqId;
    let shared: Vec<Asked> =
        tasks.iter().enumerate().flat_map(|(t, task)| shared_rows(t, task, first_seq(t))).collect();
    evaluate(context, &shared, mask, &mut sums)?;
    let mut rest = Vec::new();
    for (t, task) in tasks.iter().enumerate() {
        let seq = first_seq(t);
        for e in 0..task.endings.len() {
            let own = seq + 1 + e as SeqId;
            context.fork(seq, own);
            rest.extend(ending_rows(t, task, e, own));
        }
    }
    evaluate(context, &rest, mask, &mut sums)?;
    context.remove_all();
    Ok(tasks.iter().zip(&sums).map(|(task, sums)| Choice::new(task, sums)).collect())
}

/// What all endings of a task begin with.
fn shared_rows(t: usize, task: &Task, seq: SeqId) -> impl Iterator<Item = Asked> {
    let goes_on = task.endings[0].tokens.len() > task.shared;
    (0..task.shared).map(move |pos| {
        let asks = |&(_, ending): &(usize, &super::Ending)| {
            let next = pos + 1;
            // Where the first ending goes on, what comes after it is another row.
            let elsewhere = ending.first_after_other && next == ending.scored.start && goes_on;
            ending.scored.contains(&next) && !elsewhere
        };
        let of =
            task.endings.iter().enumerate().filter(asks).map(|(e, ending)| (t, e, ending.tokens[pos + 1]));
        let of: Vec<_> = of.collect();
        let row = Row { token: task.endings[0].tokens[pos], pos: pos as u32, seq, logits: !of.is_empty() };
        Asked { row, of }
    })
}

/// What an ending has by itself.
fn ending_rows(t: usize, task: &Task, e: usize, seq: SeqId) -> impl Iterator<Item = Asked> {
    let ending = &task.endings[e];
    (task.shared..ending.tokens.len()).filter_map(move |pos| {
        let mut of = Vec::new();
        if ending.scored.contains(&(pos + 1)) {
            of.push((t, e, ending.tokens[pos + 1]));
        }
        let last = pos + 1 == ending.tokens.len();
        if last && e == 0 {
            let odd = task.endings.iter().enumerate().filter(|(_, other)| other.first_after_other);
            of.extend(
                odd.filter(|(_, other)| !other.scored.is_empty())
                    .map(|(o, other)| (t, o, other.tokens[other.scored.start])),
            );
        }
        // What nobody asks for matters only to what comes behind it.
        let wanted = !last || !of.is_empty();
        wanted.then(|| Asked {
            row: Row { token: ending.tokens[pos], pos: pos as u32, seq, logits: !of.is_empty() },
            of,
        })
    })
}

/// Evaluates rows, as many at once as memory for logits allows.
fn evaluate(
    context: &mut Context,
    rows: &[Asked],
    mask: Option<&RunLayers>,
    sums: &mut [Vec<f64>],
) -> Result<()> {
    let n_vocab = context.model().n_vocab();
    let most = (LOGITS_BYTES / (4 * n_vocab)).clamp(1, MOST_ROWS);
    let mut rest = rows;
    while !rest.is_empty() {
        let mut outputs = 0;
        let fits = |asked: &&Asked| {
            outputs += usize::from(asked.row.logits);
            outputs <= most
        };
        let (piece, after) = rest.split_at(rest.iter().take_while(fits).count());
        let rows = piece.iter().map(|asked| asked.row).collect();
        context.decode(&Batch { rows, run_layers: mask.cloned(), ..Batch::new() })?;
        for (i, asked) in piece.iter().filter(|asked| asked.row.logits).enumerate() {
            let logprobs = LogProbs::new(context.logits(i));
            for &(task, ending, token) in &asked.of {
                let found = logprobs.at(token as usize);
                if found.is_nan() {
                    return Err(context.not_a_number(asked.row.pos));
                }
                sums[task][ending] += found;
            }
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::Ending, *};
    use crate::{ContextConfig, Model};

    #[test]
    fn a_task_without_room_is_refused_before_any_is_scored() {
        let ending = |len: usize, last: u32| {
            let tokens = std::iter::repeat_n(5, len).chain([last]).collect();
            Ending { tokens, scored: len..len + 1, first_after_other: false }
        };
        let task = |number, len| {
            Task::new(number, vec![ending(len, 6), ending(len, 7)], vec![true, false], Ties::First).unwrap()
        };
        let config = ContextConfig { n_ctx: 32, sequences: 3, ..ContextConfig::default() };
        let mut context = Context::new(Model::embedded().unwrap(), &config).unwrap();
        let mut scored = 0;
        let tasks = [task(1, 25), task(2, 25), task(3, 60)];
        let answers = score(&mut context, &tasks, None, |done, _| {
            scored = done;
            Ok(ControlFlow::Continue(()))
        });
        let error = answers.unwrap_err().to_string();
        assert_eq!((error.contains("task 3 takes 62 tokens"), scored), (true, 0), "{error}");
    }

    fn task(ties: Ties, endings: usize, scored: usize) -> Result<Task> {
        let ending =
            |last: u32| Ending { tokens: vec![1, 2, last], scored: 1..1 + scored, first_after_other: false };
        Task::new(1, (0..endings as u32).map(ending).collect(), vec![true; endings], ties)
    }

    fn choice(ties: Ties, sums: &[f64], scored: usize) -> usize {
        Choice::new(&task(ties, sums.len(), scored).unwrap(), sums).ending
    }

    #[test]
    fn the_likeliest_is_chosen_and_of_equals_the_one_that_the_task_says() {
        for ties in [Ties::First, Ties::Last] {
            assert_eq!(choice(ties, &[-4.0, -1.0, -2.0], 1), 1);
        }
        assert_eq!((choice(Ties::First, &[-1.0, -1.0], 1), choice(Ties::Last, &[-1.0, -1.0], 1)), (0, 1));
        // Nothing is scored, so both are no number.
        assert_eq!(choice(Ties::Last, &[0.0, 0.0], 0), 1);
        assert!(task(Ties::First, 2, 0).is_err());
    }
}
