//! HellaSwag's file for llama-perplexity: six lines a task. The text, the number of the right ending from 0, four endings.

use super::{Question, draw};
use crate::{Error, Result};

/// Tasks that llama-perplexity takes where nothing else is said.
pub const USUAL: usize = 400;
const LINES: usize = 6;
const ENDINGS: usize = 4;

/// All tasks of a file.
pub fn read(text: &str) -> Result<Vec<Question>> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What ends with the last line is no line more.
    lines.pop_if(|last| last.is_empty());
    if lines.is_empty() || !lines.len().is_multiple_of(LINES) {
        return Err(Error::Input(format!(
            "{} lines, and each task of HellaSwag has {LINES}: the text, the number of the right ending, four endings",
            lines.len()
        )));
    }
    let task = |(i, lines): (usize, &[&str])| {
        let right = lines[1].trim().parse().ok().filter(|&right: &usize| right < ENDINGS);
        let right = right.ok_or_else(|| {
            Error::Input(format!(
                "line {}: not the number of an ending, which is 0 to {}",
                LINES * i + 2,
                ENDINGS - 1
            ))
        })?;
        Ok(Question {
            number: i + 1,
            context: lines[0].into(),
            endings: lines[2..].iter().map(|ending| ending.to_string()).collect(),
            right: (0..ENDINGS).map(|ending| ending == right).collect(),
        })
    };
    lines.chunks(LINES).enumerate().map(task).collect()
}

/// `most` of the tasks, or all, in the order in which llama-perplexity draws them.
pub fn drawn(tasks: &[Question], most: usize) -> Vec<Question> {
    draw::shuffled(tasks.len(), most).into_iter().map(|i| tasks[i].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_lines_are_a_task() {
        let tasks = read("A: b\n2\nc\nd\ne\nf\nG\n0\nh\ni\nj\n").unwrap_err().to_string();
        assert!(tasks.starts_with("11 lines"), "{tasks}");
        let tasks = read("A: b\n2\nc\nd\ne\nf\nG\n0\nh\ni\nj\nk\n").unwrap();
        assert_eq!((tasks.len(), &tasks[0].context[..], &tasks[1].endings[3][..]), (2, "A: b", "k"));
        assert_eq!(tasks[0].right, [false, false, true, false]);
        let wrong = read("A\n4\nc\nd\ne\nf").unwrap_err().to_string();
        assert!(wrong.starts_with("line 2: "), "{wrong}");
    }
}
