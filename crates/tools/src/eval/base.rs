//! What a model says of each token of a text, kept in a file for others to be compared with: the format of llama.cpp's
//! `llama-perplexity --kl-divergence-base`, which either program reads.
//!
//! ```text
//! "_logits_"  n_ctx  n_vocab  chunks                          three 32-bit integers
//! tokens of all chunks                                        32-bit integers
//! for each scored position: step, least, n_vocab steps (, 0)  two f32, then 16-bit integers, an even number
//! ```
//!
//! The log-probability of a token is `least + step · steps`. What is more than 16 below the likeliest counts as that.

use std::{
    fs::File,
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use super::perplexity::SHORTEST_CHUNK;
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"_logits_";
const STEPS: f32 = 65535.0;
/// Tokens that are less likely than the likeliest by more than this are all alike.
const RANGE: f32 = 16.0;

/// What such a file is of.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseText {
    /// Tokens in a chunk.
    pub n_ctx: usize,
    /// The vocabulary.
    pub n_vocab: usize,
    /// Those of whole chunks, before the first of each is replaced.
    pub tokens: Vec<u32>,
}

impl BaseText {
    /// How many chunks they are.
    pub fn chunks(&self) -> usize {
        self.tokens.len() / self.n_ctx
    }

    /// Positions of a chunk that are scored.
    pub fn scored(&self) -> usize {
        self.n_ctx - 1 - self.n_ctx / 2
    }

    /// Bytes of a position.
    fn row_bytes(&self) -> usize {
        2 * (4 + self.n_vocab.next_multiple_of(2))
    }
}

/// Writes such a file, position by position.
pub struct BaseWriter<W> {
    out: W,
    row: Vec<u8>,
    n_vocab: usize,
}

impl<W: Write> BaseWriter<W> {
    /// Writes what it is of.
    pub fn new(mut out: W, text: &BaseText) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        for n in [text.n_ctx, text.n_vocab, text.chunks()] {
            out.write_all(&(n as u32).to_le_bytes())?;
        }
        for token in &text.tokens {
            out.write_all(&token.to_le_bytes())?;
        }
        Ok(BaseWriter { out, row: Vec::with_capacity(text.row_bytes()), n_vocab: text.n_vocab })
    }

    /// Writes the next scored position.
    pub fn add(&mut self, logits: &[f32]) -> io::Result<()> {
        assert_eq!(logits.len(), self.n_vocab, "logits of another vocabulary");
        let max = logits.iter().fold(f32::NEG_INFINITY, |max, &l| max.max(l));
        let min = logits.iter().fold(f32::INFINITY, |min, &l| min.min(l)).max(max - RANGE);
        let sum: f64 = logits.iter().map(|&l| f64::from((l - max).exp())).sum();
        let step = (max - min) / STEPS;
        let least = min - max - sum.ln() as f32;
        self.row.clear();
        self.row.extend(step.to_le_bytes());
        self.row.extend(least.to_le_bytes());
        for &logit in logits {
            let steps =
                if step > 0.0 && logit > min { ((logit - min) / step).round_ties_even() } else { 0.0 };
            self.row.extend((steps as u16).to_le_bytes());
        }
        if self.n_vocab % 2 == 1 {
            self.row.extend([0; 2]);
        }
        self.out.write_all(&self.row)
    }

    /// Gives back what it wrote to.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// What a position was.
pub struct BaseRow<'a> {
    step: f32,
    least: f32,
    steps: &'a [u8],
}

impl BaseRow<'_> {
    /// The natural logarithm of a token's probability.
    pub fn at(&self, token: usize) -> f32 {
        let steps = u16::from_le_bytes([self.steps[2 * token], self.steps[2 * token + 1]]);
        self.step * f32::from(steps) + self.least
    }
}

/// Reads such a file, position by position.
pub struct BaseReader {
    path: PathBuf,
    text: BaseText,
    rest: BufReader<File>,
    row: Vec<u8>,
}

impl BaseReader {
    /// Reads what it is of. Its rows must all be there.
    pub fn open(path: &Path) -> Result<Self> {
        let wrong = |what: String| Error::Input(format!("{}: {what}", path.display()));
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let there = file.metadata().map_err(|e| Error::io(path, e))?.len();
        let mut rest = BufReader::new(file);
        let mut header = [0; 20];
        let whole = rest.read_exact(&mut header).is_ok();
        if !whole || header[..8] != *MAGIC {
            return Err(wrong(
                "no log-probabilities of a model, as llama-perplexity or spec-run keep them".into(),
            ));
        }
        let number =
            |i: usize| u32::from_le_bytes(header[8 + 4 * i..12 + 4 * i].try_into().expect("four bytes"));
        let [n_ctx, n_vocab, chunks] = [0, 1, 2].map(|i| number(i) as usize);
        let sound = |n: usize| (1..=i32::MAX as usize).contains(&n);
        if n_ctx < SHORTEST_CHUNK || ![n_ctx, n_vocab, chunks].into_iter().all(sound) {
            return Err(wrong(format!(
                "{chunks} chunks of {n_ctx} tokens of a vocabulary of {n_vocab}: the file is damaged"
            )));
        }
        let mut text = BaseText { n_ctx, n_vocab, tokens: Vec::new() };
        let positions = u128::from(chunks as u64) * text.scored() as u128;
        let wanted = 20 + 4 * chunks as u128 * n_ctx as u128 + positions * text.row_bytes() as u128;
        if u128::from(there) < wanted {
            return Err(wrong(format!(
                "{there} bytes, and {chunks} chunks of {n_ctx} tokens take {wanted}: the file is cut off"
            )));
        }
        let mut tokens = vec![0; 4 * chunks * n_ctx];
        rest.read_exact(&mut tokens).map_err(|e| Error::io(path, e))?;
        text.tokens = tokens.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        if let Some(token) = text.tokens.iter().find(|&&token| token as usize >= n_vocab) {
            return Err(wrong(format!("token {token} of a vocabulary of {n_vocab}: the file is damaged")));
        }
        let row = vec![0; text.row_bytes()];
        Ok(BaseReader { path: path.into(), text, rest, row })
    }

    /// What it is of.
    pub fn text(&self) -> &BaseText {
        &self.text
    }

    /// The next scored position.
    pub fn next_row(&mut self) -> Result<BaseRow<'_>> {
        self.rest.read_exact(&mut self.row).map_err(|e| Error::io(&self.path, e))?;
        let [step, least] =
            [0, 4].map(|at| f32::from_le_bytes(self.row[at..at + 4].try_into().expect("four bytes")));
        if !step.is_finite() || !least.is_finite() {
            return Err(Error::Input(format!(
                "{}: a log-probability that is no number: the file is damaged",
                self.path.display()
            )));
        }
        Ok(BaseRow { step, least, steps: &self.row[8..] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(text: &BaseText, rows: &[&[f32]]) -> tempfile::NamedTempFile {
        let mut writer = BaseWriter::new(Vec::new(), text).unwrap();
        rows.iter().for_each(|row| writer.add(row).unwrap());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), writer.finish().unwrap()).unwrap();
        file
    }

    #[test]
    fn what_was_written_is_read_to_half_a_step() {
        let text = BaseText { n_ctx: 8, n_vocab: 5, tokens: vec![1, 2, 3, 4, 0, 1, 2, 3] };
        let rows: [&[f32]; 3] = [&[0.0, 1.0, -2.0, 30.0, 29.5], &[0.5; 5], &[-1.0, -9.0, -3.0, -4.0, -5.0]];
        let file = file_of(&text, &rows);
        let mut reader = BaseReader::open(file.path()).unwrap();
        assert_eq!(reader.text(), &text);
        for row in rows {
            let sum: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
            let read = reader.next_row().unwrap();
            let max = row.iter().fold(f32::MIN, |max, &l| max.max(l));
            for (token, &logit) in row.iter().enumerate() {
                let expected = f64::from(logit.max(max - RANGE)) - sum.ln();
                let off = f64::from(read.at(token)) - expected;
                assert!(off.abs() <= 0.5 * 16.0 / 65535.0 + 1e-5, "{token} of {row:?}: {off}");
            }
        }
        assert!(reader.next_row().is_err());
    }

    #[test]
    fn damaged_files_are_told_of() {
        let text = BaseText { n_ctx: 8, n_vocab: 4, tokens: vec![1, 2, 3, 0, 0, 1, 2, 3] };
        let whole = std::fs::read(file_of(&text, &[&[0.0; 4], &[1.0; 4], &[2.0; 4]])).unwrap();
        let error_of = |bytes: &[u8]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            BaseReader::open(file.path()).err().map(|e| e.to_string())
        };
        assert_eq!(error_of(&whole), None);
        let changed = |at: usize, to: u32| {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
            error_of(&bytes).unwrap()
        };
        assert!(error_of(&whole[..whole.len() - 1]).unwrap().contains("cut off"));
        assert!(error_of(&whole[..19]).unwrap().contains("no log-probabilities"));
        assert!(error_of(b"GGUF and much more than twenty bytes").unwrap().contains("no log-probabilities"));
        assert!(changed(8, 3).contains("damaged") && changed(12, 0).contains("damaged"));
        assert!(changed(16, u32::MAX).contains("damaged") && changed(16, 1 << 30).contains("cut off"));
        assert!(changed(24, 4).contains("token 4 of a vocabulary of 4"));
    }
}
