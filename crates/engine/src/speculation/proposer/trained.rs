//! Heads that others trained for a model: what all of them have. Such a head has a context of its own, and reads what full passes of
//! the model leave of every token before some layers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DflashProposer, EagleProposer, Proposer, markov::Markov};
use crate::{
    Batch, Context, Error, Gguf, Model, Result,
    batch::{Row, SeqId},
    model::Block,
    scores::{Scores, Top, Want},
};

/// Rows that wait for a draft, at most. Beyond them the first are let go, and the head attends to fewer tokens.
const MOST_WAITING: usize = 64;
/// Cells for tokens that are still to come, and for drafts.
const ROOM: usize = 32;

/// A head that is ready for the texts of a context.
#[derive(Clone)]
pub struct TrainedSource(Arc<Trained>);

pub(super) struct Trained {
    /// The model's layers that it reads.
    pub taps: Vec<usize>,
    /// The token of each of its logits; `None` where these are the model's tokens.
    tokens: Option<Vec<u32>>,
    /// It drafts a block at once.
    pub block: Option<Block>,
    /// What tokens of a block add to each other's logits.
    pub markov: Option<Markov>,
    pub n_vocab: usize,
    texts: Mutex<Texts>,
}

pub(super) struct Texts {
    pub context: Context,
    next: SeqId,
}

impl TrainedSource {
    /// Opens the head of a file for a model, in the context that `open` makes, which is to have
    /// [`ContextConfig::mtp`](crate::ContextConfig::mtp).
    pub fn open(gguf: &Gguf, of: &Model, open: impl FnOnce(&Arc<Model>) -> Result<Context>) -> Result<Self> {
        let model = Arc::new(Model::load_head(gguf, of)?);
        let context = open(&model)?;
        if model.has_mtp() && !context.has_mtp() {
            return Err(Error::model(
                gguf.name(),
                "no room for all of it in one place: give it another device",
            ));
        }
        let of_model = model.drafts_for().expect("it is a head");
        let (taps, tokens, block) = (of_model.taps.clone(), of_model.tokens.clone(), of_model.block);
        let markov = block.and_then(|block| block.markov).map(|markov| Markov::new(model.clone(), markov));
        let texts = Mutex::new(Texts { context, next: 0 });
        Ok(TrainedSource(Arc::new(Trained { taps, tokens, block, markov, n_vocab: of.n_vocab(), texts })))
    }

    /// What drafts for one text.
    pub fn proposer(&self) -> Box<dyn Proposer> {
        let text = HeadState::new(self.0.clone());
        match self.0.block {
            None => Box::new(EagleProposer::new(text)),
            Some(block) => Box::new(DflashProposer::new(text, block)),
        }
    }
}

impl Trained {
    /// What a panic has left is a cache like any other: what is wrong in it is drafts.
    pub fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its logits say of the model's tokens.
    pub fn look(&self, scores: Scores, look: &mut dyn FnMut(Scores)) {
        match (&self.tokens, scores) {
            (None, scores) => look(scores),
            (Some(tokens), Scores::All(logits)) => {
                let mut all = vec![f32::NEG_INFINITY; self.n_vocab];
                std::iter::zip(tokens, logits).for_each(|(&token, &logit)| all[token as usize] = logit);
                look(Scores::All(&all));
            }
            (Some(tokens), Scores::Top(Top { best, log_sum })) => {
                let best = best.iter().map(|&(place, logit)| (tokens[place as usize], logit)).collect();
                look(Scores::Top(&Top { best, log_sum: *log_sum }));
            }
        }
    }
}

/// A head's state of one text.
pub(super) struct HeadState {
    pub head: Arc<Trained>,
    pub seq: SeqId,
    pub late: Late,
    /// Its cells that are the text's and no draft's.
    certain: usize,
    /// It cannot go on: a pass has failed.
    pub failed: bool,
}

impl HeadState {
    fn new(head: Arc<Trained>) -> Self {
        let seq = {
            let mut texts = head.texts();
            texts.next += 1;
            texts.next
        };
        HeadState { head, seq, late: Late::default(), certain: 0, failed: false }
    }

    /// Evaluates a batch if there is room for it. `read` gets the context, which has the results.
    pub fn evaluate(&mut self, batch: &Batch, want: Want, read: impl FnOnce(&Context)) -> bool {
        let head = self.head.clone();
        self.evaluate_in(&mut head.texts().context, batch, want, read)
    }

    /// Evaluates the rows that wait, in the batch that `batch` makes of them.
    pub fn evaluate_late(
        &mut self,
        batch: impl FnOnce(Late) -> Batch,
        want: Want,
        read: impl FnOnce(&Context),
    ) -> bool {
        let head = self.head.clone();
        let context = &mut head.texts().context;
        self.certain = self.late.cut(context, self.seq, self.certain);
        let batch = batch(std::mem::take(&mut self.late));
        let is_made = self.evaluate_in(context, &batch, want, read);
        self.certain += if is_made { batch.rows.len() } else { 0 };
        is_made
    }

    fn evaluate_in(
        &mut self,
        context: &mut Context,
        batch: &Batch,
        want: Want,
        read: impl FnOnce(&Context),
    ) -> bool {
        if self.failed || batch.rows.is_empty() || context.kv().room() < batch.rows.len() {
            return false;
        }
        self.failed = context.decode_for(batch, want).is_err();
        if !self.failed {
            read(context);
        }
        !self.failed
    }
}

impl Drop for HeadState {
    fn drop(&mut self) {
        self.head.texts().context.remove(self.seq);
    }
}

/// Rows of a text that are still to be evaluated, and what they are made of.
#[derive(Default)]
pub(super) struct Late {
    pub rows: Vec<Row>,
    pub before: Vec<f32>,
}

impl Late {
    pub fn push(&mut self, row: Row, before: &[f32]) {
        self.rows.push(row);
        self.before.extend_from_slice(before);
    }

    /// No more than may wait.
    pub fn let_go(&mut self) {
        let gone = self.rows.len().saturating_sub(MOST_WAITING);
        let width = self.before.len() / self.rows.len().max(1);
        self.rows.drain(..gone);
        self.before.drain(..gone * width);
    }

    /// Forgets what drafts left behind the first `certain` cells of a sequence; and all of them, if these rows do not go on from there
    /// or there is no room. Gives the cells that are left.
    fn cut(&self, context: &mut Context, seq: SeqId, certain: usize) -> usize {
        let mut left = certain;
        let goes_on = context.kv().len(seq) >= certain && context.truncate(seq, certain).is_ok();
        let is_behind = |row: &Row| row.pos >= context.kv().next_pos(seq);
        if !goes_on || !self.rows.first().is_none_or(is_behind) {
            context.remove(seq);
            left = 0;
        }
        // Other texts are seen anew when they go on.
        if context.kv().free_cells() < self.rows.len() + ROOM {
            context.remove_all();
            left = 0;
        }
        left
    }
}
