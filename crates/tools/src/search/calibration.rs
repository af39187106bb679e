//! The text that masks are judged on: given, or written by the model itself.
//!
//! Half of the judged positions lead the search. The other half it never sees: of thousands of masks the best
//! one on the first half is partly lucky there, and what is promised of it must not be.

use std::ops::Range;

use crate::{
    Batch, Context, Error, Result, Sampler, Tokenizer, batch::SeqId, hash::fnv1a, sampler::SamplerConfig,
    tokenizer::EncodeOptions,
};

/// Texts that are written at the same time.
const WRITERS: usize = 4;
/// What a written text must have to be of use, and from where on it is judged.
const SHORTEST: usize = 24;
const WRITTEN_FROM: usize = 8;
/// A chunk of a given text begins in the middle of something; its first quarter is only read.
const GIVEN_FROM: usize = 4;
/// Below this, one position is worth more than any difference between masks.
pub const FEWEST_POSITIONS: usize = 64;
/// Above this, a search would not end in a year.
const MOST_POSITIONS: usize = 1 << 28;
const SHORTEST_CHUNK: usize = 32;

/// How much of which text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CalibrationSettings {
    /// Tokens in a chunk, or the most that one written text has.
    pub chunk: usize,
    /// Positions to judge, the two halves together.
    pub positions: usize,
}

impl CalibrationSettings {
    /// Errors name the setting and its range.
    pub fn check(&self) -> Result<()> {
        if self.chunk < SHORTEST_CHUNK {
            return Err(Error::Usage(format!(
                "`chunk` {}: search needs chunks of at least {SHORTEST_CHUNK} tokens",
                self.chunk
            )));
        }
        if self.positions < FEWEST_POSITIONS {
            return Err(Error::Usage(format!(
                "`positions` {}: fewer than {FEWEST_POSITIONS} tell nothing",
                self.positions
            )));
        }
        if self.positions > MOST_POSITIONS {
            return Err(Error::Usage(format!("`positions` {}: at most {MOST_POSITIONS}", self.positions)));
        }
        if self.cells() > (u32::MAX - 1024) as usize {
            return Err(Error::Usage(format!(
                "`chunk` {}: too large for the chunks of a search",
                self.chunk
            )));
        }
        Ok(())
    }

    /// The most that its texts can take together, whatever their lengths, where a text in which the positions of a range are
    /// judged takes `of_text`.
    pub(super) fn most_in_texts(&self, written: bool, of_text: impl Fn(Range<usize>) -> usize) -> usize {
        let from = if written { WRITTEN_FROM } else { self.chunk / GIVEN_FROM };
        let shortest = if written { SHORTEST.min(self.chunk) } else { self.chunk };
        let a_position = (shortest..=self.chunk).map(|n| of_text(from..n - 1) as f64 / (n - 1 - from) as f64);
        // The last text may be judged in part.
        (a_position.fold(0.0, f64::max) * self.positions as f64) as usize + of_text(from..self.chunk - 1)
    }

    /// Cells that texts of these settings can take.
    pub fn cells(&self) -> usize {
        self.positions.saturating_mul(2).saturating_add((WRITERS + 1).saturating_mul(self.chunk))
    }
}

/// Consecutive positions of one text. The row at a position predicts the token after it, which is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The index of the text.
    pub text: usize,
    /// The first position.
    pub from: usize,
    /// The position after the last.
    pub to: usize,
}

impl Span {
    /// The number of positions.
    pub fn len(&self) -> usize {
        self.to - self.from
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }
}

/// Texts that masks are judged on.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The texts.
    pub texts: Vec<Vec<u32>>,
    /// Positions that the search sees.
    pub search: Vec<Span>,
    /// Positions for the proof.
    pub held_out: Vec<Span>,
}

impl Calibration {
    /// Chunks of a text, spread over it; `bos` takes the place of each one's first token.
    pub fn from_text(tokens: &[u32], bos: Option<u32>, settings: &CalibrationSettings) -> Result<Self> {
        settings.check()?;
        let chunk = settings.chunk;
        let chunks = tokens.len() / chunk;
        if chunks == 0 {
            return Err(Error::Input(format!(
                "the calibration text has {} tokens, a chunk needs {chunk}: a longer text or a smaller `chunk`",
                tokens.len()
            )));
        }
        let from = chunk / GIVEN_FROM;
        let taken = settings.positions.div_ceil(chunk - 1 - from).min(chunks);
        let texts: Vec<Vec<u32>> = (0..taken)
            .map(|i| {
                let mut text = tokens[i * chunks / taken * chunk..][..chunk].to_vec();
                text[0] = bos.unwrap_or(text[0]);
                text
            })
            .collect();
        Ok(Self::new(texts, from, settings.positions))
    }

    /// Texts that the model writes with the program's own sampling defaults and a fixed seed.
    pub fn written_by(
        context: &mut Context,
        tokenizer: &Tokenizer,
        settings: &CalibrationSettings,
        mut progress: impl FnMut(usize) -> Result<()>,
    ) -> Result<Self> {
        settings.check()?;
        let start = match tokenizer.bos() {
            Some(bos) => vec![bos],
            None => tokenizer.encode("\n", EncodeOptions { add_special: false, parse_special: false }),
        };
        if start.is_empty() {
            return Err(Error::Input(
                "the vocabulary has nothing that a text could start with: give a calibration `text`".into(),
            ));
        }
        let judged = |text: &Vec<u32>| text.len().saturating_sub(1 + WRITTEN_FROM);
        let sampler =
            |i: usize| Sampler::new(SamplerConfig { seed: Some(1 + i as u32), ..Default::default() });
        let mut samplers = (0..WRITERS).map(sampler).collect::<Result<Vec<_>>>()?;
        let mut writing = vec![start.clone(); WRITERS];
        let mut texts: Vec<Vec<u32>> = Vec::new();
        // A model that only ever writes a word or two would keep us here for ever.
        let mut discarded = 0;
        while texts.iter().map(judged).sum::<usize>() < settings.positions {
            let mut batch = Batch::new();
            for (seq, text) in writing.iter().enumerate() {
                let known = context.kv().len(seq as SeqId);
                for (pos, &token) in text.iter().enumerate().skip(known) {
                    batch.push(token, pos as u32, seq as SeqId, pos + 1 == text.len());
                }
            }
            context.decode(&batch)?;
            for (seq, text) in writing.iter_mut().enumerate() {
                let token = samplers[seq].sample(context.logits(seq));
                samplers[seq].accept(token);
                let ended = tokenizer.is_eog(token);
                if !ended {
                    text.push(token);
                }
                if ended || text.len() == settings.chunk {
                    let text = std::mem::replace(text, start.clone());
                    context.remove(seq as SeqId);
                    if text.len() >= SHORTEST {
                        texts.push(text);
                    } else {
                        discarded += 1;
                    }
                }
            }
            if discarded > settings.positions {
                return Err(Error::Input(
                    "the model ends its texts after a few words: give a calibration `text`".into(),
                ));
            }
            let underway = writing.iter().chain(&texts).map(judged).sum::<usize>();
            progress(underway.min(settings.positions))?;
        }
        (0..WRITERS).for_each(|seq| context.remove(seq as SeqId));
        Ok(Self::new(texts, WRITTEN_FROM, settings.positions))
    }

    fn new(texts: Vec<Vec<u32>>, judged_from: usize, positions: usize) -> Self {
        let all = texts.iter().enumerate().map(|(text, tokens)| Span {
            text,
            from: judged_from,
            to: tokens.len() - 1,
        });
        let all: Vec<Span> = first(all, positions).0;
        let half = all.iter().map(Span::len).sum::<usize>() / 2;
        let (search, held_out) = first(all, half);
        Calibration { texts, search, held_out }
    }

    /// Tokens of all texts.
    pub fn tokens(&self) -> usize {
        self.texts.iter().map(Vec::len).sum()
    }

    /// Names texts and positions; equal names, equal judgements.
    pub fn fingerprint(&self) -> String {
        let texts = self.texts.iter().flat_map(|t| std::iter::once(t.len() as u32).chain(t.iter().copied()));
        let spans = self.search.iter().chain(&self.held_out);
        let spans = spans.flat_map(|s| [s.text as u32, s.from as u32, s.to as u32]);
        format!("{:016x}", fnv1a(texts.chain(spans).flat_map(u32::to_le_bytes)))
    }
}

/// The first `count` positions of some spans, and the rest.
fn first(spans: impl IntoIterator<Item = Span>, mut count: usize) -> (Vec<Span>, Vec<Span>) {
    let (mut taken, mut rest) = (Vec::new(), Vec::new());
    for span in spans {
        let cut = span.from + span.len().min(count);
        count -= cut - span.from;
        taken.push(Span { to: cut, ..span });
        rest.push(Span { from: cut, ..span });
    }
    taken.retain(|s| !s.is_empty());
    rest.retain(|s| !s.is_empty());
    (taken, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(tokens: usize, chunk: usize, positions: usize) -> Result<Calibration> {
        let tokens: Vec<u32> = (0..tokens as u32).collect();
        Calibration::from_text(&tokens, Some(9999), &CalibrationSettings { chunk, positions })
    }

    #[test]
    fn halves_do_not_overlap_and_have_the_asked_size() {
        let calibration = given(10_000, 128, 500).unwrap();
        let places = |spans: &[Span]| -> Vec<(usize, usize)> {
            spans.iter().flat_map(|s| (s.from..s.to).map(|pos| (s.text, pos))).collect()
        };
        let (search, held_out) = (places(&calibration.search), places(&calibration.held_out));
        assert_eq!((search.len(), held_out.len()), (250, 250));
        assert!(search.iter().all(|place| !held_out.contains(place)));
        // Every judged position has a next token and a quarter of a chunk before it.
        assert!(search.iter().chain(&held_out).all(|&(_, pos)| (32..127).contains(&pos)));
        assert!(calibration.texts.iter().all(|text| text[0] == 9999 && text.len() == 128));
        assert!(calibration.texts.last().unwrap()[1] > 8000, "chunks are spread over the text");
    }

    #[test]
    fn a_short_text_gives_what_it_has() {
        let calibration = given(100, 64, 1000).unwrap();
        assert_eq!(calibration.texts.len(), 1);
        assert_eq!(calibration.search, [Span { text: 0, from: 16, to: 39 }]);
        assert_eq!(calibration.held_out, [Span { text: 0, from: 39, to: 63 }]);
    }

    #[test]
    fn a_text_below_one_chunk_is_an_error_that_says_so() {
        let error = given(99, 128, 500).unwrap_err().to_string();
        assert!(error.contains("99 tokens") && error.contains("128"), "{error}");
        assert!(given(1000, 8, 500).is_err() && given(1000, 128, 10).is_err());
    }

    #[test]
    fn fingerprints_tell_texts_and_positions_apart() {
        let names = [(1000, 128, 200), (1001, 64, 200), (1000, 128, 201)]
            .map(|(tokens, chunk, positions)| given(tokens, chunk, positions).unwrap().fingerprint());
        assert!(names[0] != names[1] && names[0] != names[2], "{names:?}");
    }
}
