//! Winogrande's file for llama-perplexity, a CSV of: a number, a sentence with a gap `_`, two words for the gap, and which of
//! them is right, 1 or 2. What stands behind the gap decides, as it is likelier after the right word.

use super::{Ending, Task, Ties, common_prefix, draw, question::encode};
use crate::{Error, Result, Tokenizer};

/// Where both sentences have no more tokens than so behind what they share, the words themselves are scored too.
const FEW: usize = 3;

/// A sentence with a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Sentence {
    /// The line of the file, from 1.
    pub number: usize,
    /// Up to the gap.
    pub before: String,
    /// What could stand there.
    pub choices: [String; 2],
    /// From there on.
    pub after: String,
    /// The right choice, 0 or 1.
    pub right: usize,
}

/// What a file has.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The lines that are tasks.
    pub sentences: Vec<Sentence>,
    /// The others, which llama-perplexity leaves out too: the line's number and what is wrong.
    pub left_out: Vec<(usize, &'static str)>,
}

/// The tasks of a file.
pub fn read(text: &str) -> Result<Read> {
    let mut found = Read { sentences: Vec::new(), left_out: Vec::new() };
    for (i, line) in text.split_inclusive('\n').enumerate() {
        let line = line.strip_suffix('\n').ok_or("no newline ends it");
        match line.and_then(|line| line_of(i + 1, line)) {
            Ok(sentence) => found.sentences.push(sentence),
            Err(what) => found.left_out.push((i + 1, what)),
        }
    }
    match (&found.sentences[..], found.left_out.first()) {
        ([], Some((line, what))) => Err(Error::Input(format!("no tasks of Winogrande; line {line}: {what}"))),
        ([], None) => Err(Error::Input("no tasks of Winogrande: the file is empty".into())),
        _ => Ok(found),
    }
}

fn line_of(number: usize, line: &str) -> Result<Sentence, &'static str> {
    let mut quoted = false;
    let comma = |&(_, byte): &(usize, u8)| {
        quoted ^= byte == b'"';
        byte == b',' && !quoted
    };
    let commas: Vec<usize> = line.bytes().enumerate().filter(comma).map(|(at, _)| at).take(4).collect();
    let [a, b, c, d] = commas[..] else { return Err("fewer than four commas") };
    let sentence = &line[a + 1..b];
    let sentence = sentence.strip_prefix('"').map_or(sentence, |rest| rest.strip_suffix('"').unwrap_or(rest));
    let (before, after) = sentence.split_once('_').ok_or("no _ in the sentence")?;
    let digits = line[d + 1..].trim_start();
    let digits = digits.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    let right = match digits.parse() {
        Ok(right @ 1..=2usize) => right - 1,
        _ => return Err("the answer is not 1 or 2"),
    };
    let choices = [line[b + 1..c].to_string(), line[c + 1..d].to_string()];
    Ok(Sentence { number, before: before.into(), choices, after: after.into(), right })
}

/// `most` of the tasks in the order in which llama-perplexity draws them; all, as they stand, if `most` is 0 or not fewer.
pub fn drawn(sentences: &[Sentence], most: usize) -> Vec<Sentence> {
    draw::some(sentences.len(), most).into_iter().map(|i| sentences[i].clone()).collect()
}

impl Sentence {
    /// In tokens. What follows the gap is scored, but for the sentence's last token; where little follows, all that differs.
    pub fn task(&self, tokenizer: &Tokenizer) -> Result<Task> {
        let Sentence { before, choices, after, .. } = self;
        let tokens = choices.each_ref().map(|choice| encode(tokenizer, &format!("{before}{choice}{after}")));
        let shared = common_prefix(tokens.iter().map(|tokens| &tokens[..]));
        let enough = tokens.iter().all(|tokens| tokens.len() - shared > FEW);
        let bases = choices.each_ref().map(|choice| encode(tokenizer, &format!("{before}{choice}")).len());
        let ending = |(i, (tokens, base)): (usize, (Vec<u32>, usize))| {
            let from = if enough { base } else { shared }.min(tokens.len());
            let last = usize::from(tokens.len() - from > 1);
            Ending { scored: from..tokens.len() - last, first_after_other: i == 1 && from == shared, tokens }
        };
        let endings = tokens.into_iter().zip(bases).enumerate().map(ending).collect();
        Task::new(self.number, endings, vec![self.right == 0, self.right == 1], Ties::Last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_at_commas_outside_quotes() {
        let text = "0,\"Tim, who ran, saw _ .\",Tom,Ann,1\n1,a _ b,x,y,2\r\nhead,line,of,a,table\n2,_,x,y,1";
        let Read { sentences, left_out } = read(text).unwrap();
        assert_eq!((&sentences[0].before[..], &sentences[0].after[..]), ("Tim, who ran, saw ", " ."));
        assert_eq!((sentences[1].right, &sentences[1].choices), (1, &["x".to_string(), "y".to_string()]));
        assert_eq!(left_out, [(3, "no _ in the sentence"), (4, "no newline ends it")]);
        for bad in ["", "\n", "1,a _ b,x,y,3\n", "1,2,3\n"] {
            assert!(read(bad).unwrap_err().to_string().starts_with("no tasks"), "{bad}");
        }
    }
}
