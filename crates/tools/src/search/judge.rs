//! What a candidate's drafts are like: the masked model on positions of a text, seeing what a draft would see.
//!
//! The first row of a draft on each judged position is its first drafted token, exactly. A masked pass over a whole
//! text, as perplexity makes it, is harsher: there every key comes from a masked pass. Drafts further on are judged
//! in the same way, along what the full model would have continued with: those are the tokens that the earlier
//! drafts had to get right.

use std::ops::Range;

use super::{
    calibration::{Calibration, CalibrationSettings, Span},
    candidate::Candidate,
    score::{Score, Verdict},
};
use crate::{
    Batch, Context, ContextConfig, Result,
    batch::SeqId,
    eval::{
        agreement::{Comparison, LogProbs, Reference, TOP},
        drafts::{self, Draft, MOST_ROWS},
        marks::{self, Marks, STATES_OF_FORKS},
    },
    rng::Rng,
    sampler::{Distribution, SamplerConfig, distribution},
};

/// Where steps are measured; texts are taken out when they are read.
const MIDDLE: SeqId = 0;
/// Positions whose continuations are made at a time; each needs cells for its tokens meanwhile.
const CONTINUED_AT_ONCE: usize = 64;

/// Judges candidates on positions numbered from 0. Equal questions get equal answers.
pub trait Judge {
    /// How many positions there are.
    fn positions(&self) -> usize;

    /// How a candidate fares on some of them.
    fn score(&mut self, candidate: &Candidate, positions: Range<usize>) -> Result<Score>;
}

/// Cells that a judge needs beside those of its texts.
pub fn extra_cells(drafts: usize) -> usize {
    MOST_ROWS.max(CONTINUED_AT_ONCE * drafts)
}

/// States of recurrent layers that it needs beside a text's: [`ContextConfig::extra_states`](crate::ContextConfig::extra_states).
/// Texts that the model has `written` may be short, and then marks are in more of them.
pub fn extra_states(settings: &CalibrationSettings, written: bool) -> usize {
    settings.most_in_texts(written, |judged| marks::states_at(judged, 0)) + STATES_OF_FORKS
}

/// Gives a context the room that a judge takes, with texts of these settings and drafts of up to so many tokens: they begin
/// everywhere in texts that are there already.
pub fn make_room(config: &mut ContextConfig, settings: &CalibrationSettings, drafts: usize, written: bool) {
    config.n_ctx = u32::try_from(settings.cells() + extra_cells(drafts)).unwrap_or(u32::MAX);
    config.swa_full = true;
    config.extra_states = extra_states(settings, written);
}

/// Judges candidates by the model itself.
pub struct ModelJudge<'a> {
    field: Field<'a>,
    calibration: Calibration,
    /// In the order of judging: shuffled, so that the first few stand for all.
    search: Vec<Place>,
    /// In the order of the text.
    held_out: Vec<Place>,
    continued: Vec<Continuation>,
}

struct Place {
    text: usize,
    pos: usize,
    full: Reference,
}

impl Place {
    fn draft<'a>(&self, tokens: &'a [u32]) -> Draft<'a> {
        Draft { text: self.text as SeqId, pos: self.pos, tokens }
    }
}

/// What the full model does from a position on.
struct Continuation {
    /// The text's token at the position, then the full model's first choices, one after another.
    tokens: Vec<u32>,
    /// What it says after each of them.
    full: Vec<Reference>,
    /// And what sampling with the program's defaults would draw from.
    sampled: Vec<Distribution>,
}

/// How the drafts of a candidate fare, over all held-out positions.
pub struct Drafts {
    pub first: Score,
    /// Per text: chances of acceptance by position and draft, of greedy drafts (0 or 1) and of sampled ones.
    pub greedy: Vec<Vec<Vec<f32>>>,
    pub sampled: Vec<Vec<Vec<f32>>>,
}

impl<'a> ModelJudge<'a> {
    /// Evaluates the texts in full; what drafts go back to stays in the cache.
    pub fn new(context: &'a mut Context, calibration: Calibration) -> Result<Self> {
        let mut field = Field::new(context, calibration.texts.len() as SeqId);
        let mut references = field.read(&calibration)?;
        let mut places = |spans: &[Span]| -> Vec<Place> {
            let all = spans.iter().flat_map(|s| (s.from..s.to).map(|pos| (s.text, pos)));
            let place = |(text, pos): (usize, usize)| {
                let full = references[text][pos].take().expect("spans do not overlap");
                Place { text, pos, full }
            };
            all.map(place).collect()
        };
        let mut search = places(&calibration.search);
        let held_out = places(&calibration.held_out);
        shuffle(&mut search);
        Ok(ModelJudge { field, calibration, search, held_out, continued: Vec::new() })
    }

    /// The context that it evaluates in.
    pub fn context(&mut self) -> &mut Context {
        self.field.context
    }

    /// Beginnings of texts that end where held-out positions begin, for who wants to go on from there. Nothing of
    /// the judge's own is left in the context then.
    pub fn into_prompts(mut self) -> (&'a mut Context, Vec<Vec<u32>>) {
        self.field.context.remove(MIDDLE);
        self.field.marks.remove(self.field.context);
        let spans = self.calibration.held_out.iter().filter(|s| s.from > 0);
        let prompts = spans.map(|s| self.calibration.texts[s.text][..s.from].to_vec()).collect();
        (self.field.context, prompts)
    }

    /// Positions that the search never sees.
    pub fn held_out(&self) -> usize {
        self.held_out.len()
    }

    /// Gives up held-out positions, at the ends of their spans, until about so many are left.
    pub fn hold_out(&mut self, positions: usize) {
        let all = self.held_out.len();
        if positions >= all {
            return;
        }
        for span in &mut self.calibration.held_out {
            span.to = span.from + (span.len() * positions / all).max(1);
        }
        let spans = &self.calibration.held_out;
        let kept =
            |place: &Place| spans.iter().any(|s| s.text == place.text && (s.from..s.to).contains(&place.pos));
        self.held_out.retain(kept);
        self.continued.clear();
    }

    /// A sequence with about half a text on it, and its length: where steps are measured.
    pub fn middle(&mut self) -> Result<(SeqId, usize)> {
        let middle = self.calibration.texts.first().map_or(0, |text| text.len() / 2);
        let nearest = self.search.iter().min_by_key(|p| (p.pos.abs_diff(middle), p.text, p.pos));
        let Some(place) = nearest else { return Ok((MIDDLE, 0)) };
        self.field.fork(place, MIDDLE)?;
        Ok((MIDDLE, place.pos))
    }

    /// Rounds of up to `depth` drafts from every held-out position.
    pub fn drafts(&mut self, candidate: &Candidate, depth: usize) -> Result<Drafts> {
        self.make_continuations(depth)?;
        let config = sampled_config();
        let drafts = |i: usize| self.held_out[i].draft(&self.continued[i].tokens[..depth]);
        let drafts: Vec<Draft> = (0..self.held_out.len()).map(drafts).collect();
        let (texts, continued, places) = (&self.calibration.texts, &self.continued, &self.held_out);
        let rows = self.field.drafts(candidate, &drafts, |i, j, logits| {
            let verdict = verdict(&continued[i].full[j], logits, next_token(texts, &places[i]));
            let sampled = continued[i].sampled[j].agreement(&distribution(&config, logits, &[]));
            (verdict, sampled as f32)
        })?;
        let mut out = Drafts { first: Score::default(), greedy: Vec::new(), sampled: Vec::new() };
        rows.iter().for_each(|row| out.first.push(&row[0].0));
        let mut rows = rows.into_iter();
        for span in &self.calibration.held_out {
            let of_span: Vec<_> = rows.by_ref().take(span.len()).collect();
            let greedy = |(v, _): &(Verdict, f32)| if v.agreed { 1.0 } else { 0.0 };
            out.greedy.push(of_span.iter().map(|row| row.iter().map(greedy).collect()).collect());
            out.sampled.push(of_span.iter().map(|row| row.iter().map(|r| r.1).collect()).collect());
        }
        Ok(out)
    }

    fn make_continuations(&mut self, depth: usize) -> Result<()> {
        if self.continued.first().is_some_and(|c| c.tokens.len() >= depth) {
            return Ok(());
        }
        self.continued.clear();
        for places in self.held_out.chunks(CONTINUED_AT_ONCE.min(marks::most_forks(self.field.context))) {
            let texts = &self.calibration.texts;
            self.continued.extend(self.field.continuations(texts, places, depth)?);
        }
        Ok(())
    }
}

impl Judge for ModelJudge<'_> {
    fn positions(&self) -> usize {
        self.search.len()
    }

    fn score(&mut self, candidate: &Candidate, positions: Range<usize>) -> Result<Score> {
        let (texts, places) = (&self.calibration.texts, &self.search[positions]);
        let tokens: Vec<u32> = places.iter().map(|p| texts[p.text][p.pos]).collect();
        let drafts: Vec<Draft> =
            std::iter::zip(places, tokens.chunks(1)).map(|(p, tokens)| p.draft(tokens)).collect();
        let rows = self.field.drafts(candidate, &drafts, |i, _, logits| {
            verdict(&places[i].full, logits, next_token(texts, &places[i]))
        })?;
        let mut score = Score::default();
        rows.iter().flatten().for_each(|verdict| score.push(verdict));
        Ok(score)
    }
}

fn next_token(texts: &[Vec<u32>], place: &Place) -> u32 {
    texts[place.text][place.pos + 1]
}

fn verdict(full: &Reference, logits: &[f32], next: u32) -> Verdict {
    let masked = LogProbs::new(logits);
    let Comparison { agreed, overlap, kl } = Comparison::with_reference(full, &masked);
    Verdict { agreed, overlap, kl, nll: -masked.at(next as usize) }
}

fn sampled_config() -> SamplerConfig {
    SamplerConfig::default()
}

/// Always in the same way.
fn shuffle<T>(items: &mut [T]) {
    let mut rng = Rng::new(0);
    for i in (1..items.len()).rev() {
        items.swap(i, (rng.next_f64() * (i + 1) as f64) as usize);
    }
}

/// The context with the texts in it.
struct Field<'a> {
    context: &'a mut Context,
    marks: Marks,
    rows_at_once: usize,
}

impl<'a> Field<'a> {
    fn new(context: &'a mut Context, texts: SeqId) -> Self {
        let rows_at_once = drafts::rows_at_once(context);
        Field { context, marks: Marks::new(texts.max(MIDDLE + 1)), rows_at_once }
    }

    /// Makes a sequence that ends where a place is.
    fn fork(&mut self, place: &Place, seq: SeqId) -> Result<()> {
        self.marks.fork(self.context, place.text as SeqId, place.pos, seq)
    }

    fn drafts<T: Send>(
        &mut self,
        candidate: &Candidate,
        drafts: &[Draft],
        see: impl Fn(usize, usize, &[f32]) -> T + Sync,
    ) -> Result<Vec<Vec<T>>> {
        drafts::pass(self.context, &self.marks, &candidate.mask(), drafts, see)
    }

    /// The full model's word on every judged position, by text and position.
    fn read(&mut self, calibration: &Calibration) -> Result<Vec<Vec<Option<Reference>>>> {
        let mut references = Vec::new();
        let rows_at_once = self.rows_at_once.min(marks::most_rows(self.context));
        for (seq, text) in calibration.texts.iter().enumerate() {
            let spans = calibration.search.iter().chain(&calibration.held_out);
            let spans: Vec<&Span> = spans.filter(|s| s.text == seq).collect();
            let judged = |pos: usize| spans.iter().any(|s| (s.from..s.to).contains(&pos));
            self.context.remove(seq as SeqId);
            let mut of_text = vec![None; text.len()];
            for start in (0..text.len()).step_by(rows_at_once) {
                let end = text.len().min(start + rows_at_once);
                let mut batch = Batch::new();
                for (pos, &token) in text.iter().enumerate().take(end).skip(start) {
                    batch.push(token, pos as u32, seq as SeqId, judged(pos));
                }
                self.context.decode(&batch)?;
                if (start..end).any(judged) {
                    self.marks.set(self.context, seq as SeqId, start..end);
                }
                for (i, pos) in (start..end).filter(|&pos| judged(pos)).enumerate() {
                    let reference = Reference::new(self.context.logits(i), TOP);
                    if !reference.is_sound() {
                        return Err(self.context.not_a_number(pos as u32));
                    }
                    of_text[pos] = Some(reference);
                }
            }
            self.context.remove(seq as SeqId);
            references.push(of_text);
        }
        Ok(references)
    }

    /// Lets the full model go on greedily from each place.
    fn continuations(
        &mut self,
        texts: &[Vec<u32>],
        places: &[Place],
        depth: usize,
    ) -> Result<Vec<Continuation>> {
        let config = sampled_config();
        let mut out: Vec<Continuation> = places
            .iter()
            .map(|p| Continuation {
                tokens: vec![texts[p.text][p.pos]],
                full: Vec::new(),
                sampled: Vec::new(),
            })
            .collect();
        let forks = self.marks.forks()..;
        for (fork, place) in forks.clone().zip(places) {
            self.fork(place, fork)?;
        }
        for step in 0..depth {
            // Also the first step, whose references are known: its logits are not.
            let mut forks = forks.clone();
            for (chunk, continued) in places.chunks(self.rows_at_once).zip(out.chunks_mut(self.rows_at_once))
            {
                let mut batch = Batch::new();
                for ((place, c), fork) in chunk.iter().zip(&*continued).zip(&mut forks) {
                    batch.push(c.tokens[step], (place.pos + step) as u32, fork, true);
                }
                self.context.decode(&batch)?;
                for (i, c) in continued.iter_mut().enumerate() {
                    let logits = self.context.logits(i);
                    let full = Reference::new(logits, TOP);
                    c.tokens.push(full.best);
                    c.full.push(full);
                    c.sampled.push(distribution(&config, logits, &[]));
                }
            }
        }
        forks.take(places.len()).for_each(|fork| self.context.remove(fork));
        Ok(out)
    }
}
