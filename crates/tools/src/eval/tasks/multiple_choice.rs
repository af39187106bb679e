//! Multiple choice, in llama-perplexity's binary format.
//!
//! ```text
//! tasks  position of each in the file         32-bit integers
//! for each: question, answers, other answers
//! question, an answer: bytes in it, UTF-8     a 32-bit integer
//! answers: how many, the answers, for each whether it is right (1)   32-bit integers
//! ```
//!
//! The other answers, of which several may be right, are read over.

use super::{Question, draw};
use crate::{Error, Result};

/// More answers of a task are taken for damage, as in llama-perplexity.
const MOST_ANSWERS: u32 = 100;

/// `most` of the tasks of a file in the order in which llama-perplexity draws them; all, in the file's order, if `most` is 0
/// or not fewer.
pub fn read(file: &[u8], most: usize) -> Result<Vec<Question>> {
    let mut reader = Reader { file, at: 0 };
    let wrong =
        |what: &str| Error::Input(format!("{what}: not a file of multiple choice tasks, or it is cut off"));
    let n = reader.number().filter(|&n| n > 0).ok_or_else(|| wrong("no tasks"))? as usize;
    if n > file.len() / 4 {
        return Err(wrong(&format!("{n} tasks in {} bytes", file.len())));
    }
    let positions: Option<Vec<u32>> = (0..n).map(|_| reader.number()).collect();
    let positions = positions.ok_or_else(|| wrong("no positions of tasks"))?;
    let in_order = most == 0 || most >= n;
    let task = |i: usize| {
        if !in_order {
            reader.at = positions[i] as usize;
        }
        let at = reader.at;
        reader.task(i + 1).ok_or_else(|| wrong(&format!("task {} at byte {at}", i + 1)))
    };
    let tasks: Vec<Question> = draw::some(n, most).into_iter().map(task).collect::<Result<_>>()?;
    tasks.iter().try_for_each(check)?;
    Ok(tasks)
}

fn check(task: &Question) -> Result<()> {
    let what = match task {
        task if task.context.is_empty() => "an empty question",
        task if task.endings.is_empty() => "no answers",
        task if task.endings.iter().any(String::is_empty) => "an empty answer",
        _ => return Ok(()),
    };
    Err(Error::Input(format!("task {}: {what}", task.number)))
}

struct Reader<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let bytes = self.file.get(self.at..)?.get(..n)?;
        self.at += n;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.bytes(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn text(&mut self) -> Option<String> {
        let n = self.number()?;
        String::from_utf8(self.bytes(n as usize)?.to_vec()).ok()
    }

    fn answers(&mut self) -> Option<(Vec<String>, Vec<bool>)> {
        let n = self.number().filter(|&n| n <= MOST_ANSWERS)?;
        let answers = (0..n).map(|_| self.text()).collect::<Option<_>>()?;
        let right = (0..n).map(|_| self.number().map(|label| label == 1)).collect::<Option<_>>()?;
        Some((answers, right))
    }

    fn task(&mut self, number: usize) -> Option<Question> {
        let context = self.text()?;
        let (endings, right) = self.answers()?;
        self.answers()?;
        Some(Question { number, context, endings, right })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    }

    /// A task with these answers, the first of them right, as the format says.
    fn file(tasks: &[(&str, &[&str])]) -> Vec<u8> {
        let (mut positions, mut body) = (Vec::new(), Vec::new());
        let start = 4 + 4 * tasks.len();
        for (question, answers) in tasks {
            positions.push((start + body.len()) as u32);
            text(&mut body, question);
            body.extend((answers.len() as u32).to_le_bytes());
            answers.iter().for_each(|answer| text(&mut body, answer));
            (0..answers.len()).for_each(|i| body.extend(u32::from(i == 0).to_le_bytes()));
            body.extend(0u32.to_le_bytes());
        }
        let mut out = (tasks.len() as u32).to_le_bytes().to_vec();
        positions.iter().for_each(|position| out.extend(position.to_le_bytes()));
        out.extend(body);
        out
    }

    #[test]
    fn what_was_written_is_read_and_what_is_cut_off_is_not() {
        let whole = file(&[("Why?", &["a", "bc"]), ("Where is it?", &["here", "there", "gone"])]);
        let tasks = read(&whole, 0).unwrap();
        assert_eq!((tasks[1].number, &tasks[1].context[..], tasks[1].endings.len()), (2, "Where is it?", 3));
        assert_eq!(tasks[1].right, [true, false, false]);
        let one = read(&whole, 1).unwrap();
        assert!(one.len() == 1 && tasks.contains(&one[0]));
        for n in 0..whole.len() {
            let message = read(&whole[..n], 0).unwrap_err().to_string();
            assert!(message.contains("cut off"), "{n}: {message}");
        }
        for bad in [file(&[("", &["a", "b"])]), file(&[("q", &["a", ""])]), file(&[("q", &[])])] {
            assert!(read(&bad, 0).unwrap_err().to_string().starts_with("task 1: "));
        }
    }
}
