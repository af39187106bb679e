//! Tasks with a known answer: what is shared is no other sum.

use std::ops::ControlFlow;

use spec_run::{
    Batch, Context, ContextConfig, Error, RunLayers,
    eval::{
        agreement::LogProbs,
        tasks::{Ending, Room, Task, Ties, score},
    },
};

use crate::common::{families::families, tokens};

/// An ending by itself, token by token.
fn alone(context: &mut Context, ending: &Ending, mask: Option<&RunLayers>) -> f64 {
    context.remove_all();
    let mut sum = 0.0;
    for (pos, pair) in ending.tokens.windows(2).enumerate() {
        let mut batch = Batch::new();
        batch.push(pair[0], pos as u32, 0, true);
        batch.run_layers = mask.cloned();
        context.decode(&batch).unwrap();
        if ending.scored.contains(&(pos + 1)) {
            sum += LogProbs::new(context.logits(0)).at(pair[1] as usize);
        }
    }
    sum / ending.scored.len() as f64
}

/// Three tasks that share more and less, of two to four endings.
fn tasks(n_vocab: usize) -> Vec<Task> {
    let task = |(number, shared, lengths): (usize, usize, &[usize])| {
        let text = tokens(shared, number as u64, n_vocab);
        let ending = |(i, &length): (usize, &usize)| {
            let mut all = text.clone();
            all.push(i as u32);
            all.extend(tokens(length - 1, (10 * number + i) as u64, n_vocab));
            Ending { scored: shared - i % 2..all.len(), tokens: all, first_after_other: false }
        };
        let endings = lengths.iter().enumerate().map(ending).collect();
        let right = (0..lengths.len()).map(|i| i == 1).collect();
        Task::new(number, endings, right, Ties::First).unwrap()
    };
    [(1, 30, &[5, 1, 9][..]), (2, 3, &[2, 2]), (3, 70, &[4, 3, 70, 1])].map(task).into()
}

#[test]
fn endings_are_scored_as_if_each_were_alone() {
    for family in families() {
        let dims = &family.model;
        let tasks = tasks(dims.n_vocab());
        let mask = RunLayers::all(dims.n_layer()).skip_attn(1).skip_mlp(0);
        let room = Room::of(&tasks);
        for cells in [room.cells, 1000] {
            let config = ContextConfig {
                n_ctx: cells,
                sequences: room.sequences,
                swa_full: true,
                ..ContextConfig::default()
            };
            let mut context = Context::new(family.model.clone(), &config).unwrap();
            let go_on = |_, _| Ok(ControlFlow::Continue(()));
            let answers = score(&mut context, &tasks, Some(&mask), go_on).unwrap();
            for (task, answer) in tasks.iter().zip(&answers) {
                let masked = answer.masked.as_ref().unwrap();
                for (mask, choice) in [(None, &answer.full), (Some(&mask), masked)] {
                    let scores = task.endings.iter().map(|ending| alone(&mut context, ending, mask));
                    let scores: Vec<f64> = scores.collect();
                    assert_eq!(choice.scores, scores, "{} task {}", family.name, task.number);
                    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    assert_eq!((choice.scores[choice.ending], choice.right), (best, choice.ending == 1));
                }
            }
            if cells == room.cells {
                let first = score(&mut context, &tasks, None, |_, _| Ok(ControlFlow::Break(()))).unwrap();
                assert!(first.len() < 3 && first[0].full == answers[0].full && first[0].masked.is_none());
            }
        }
        let config =
            ContextConfig { n_ctx: room.cells - 1, sequences: room.sequences, ..ContextConfig::default() };
        let mut small = Context::new(family.model.clone(), &config).unwrap();
        let go_on = |_, _| Ok(ControlFlow::Continue(()));
        let Err(Error::Input(said)) = score(&mut small, &tasks, None, go_on) else {
            panic!("{}", family.name)
        };
        assert!(said.starts_with("task 3 takes 148 tokens"), "{said}");
    }
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let ending = |tokens: &[u32], from: usize| Ending {
        tokens: tokens.into(),
        scored: from..tokens.len(),
        first_after_other: false,
    };
    let new = |endings: &[Ending]| Task::new(7, endings.into(), vec![true; endings.len()], Ties::First);
    for (endings, part) in [
        (vec![ending(&[1, 2], 1)], "task 7: fewer than two endings"),
        (vec![ending(&[1, 2], 0), ending(&[2, 3], 0)], "task 7: nothing stands before"),
        (vec![ending(&[1, 2], 2), ending(&[1, 2, 3], 2)], "task 7: an ending is the beginning"),
    ] {
        let said = new(&endings).unwrap_err().to_string();
        assert!(said.starts_with(part), "{said}");
    }
}
