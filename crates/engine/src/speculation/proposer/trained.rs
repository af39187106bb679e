//! The common part of heads that were trained for a model. Such a head has a context of its own, and reads the rows that full passes
//! of the model leave before some layers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DflashProposer, EagleProposer, Proposer, markov::Markov, read_texts::ReadTexts};
use crate::{
    Batch, Context, Error, Gguf, Model, Result,
    batch::{Row, SeqId},
    model::Block,
    scores::{Scores, Top, Want},
};

/// The most rows that wait for a draft. Beyond them the first are dropped, and the head attends to fewer tokens.
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
    /// For a head that drafts a block at once.
    pub block: Option<Block>,
    /// For a head whose logits in a block also depend on the token before.
    pub markov: Option<Markov>,
    pub n_vocab: usize,
    texts: Mutex<Texts>,
}

pub(super) struct Texts {
    pub context: Context,
    /// By sequence, the tokens of its rows, as far as none is missing.
    read: ReadTexts,
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
        let texts = Mutex::new(Texts { context, read: ReadTexts::default() });
        Ok(TrainedSource(Arc::new(Trained { taps, tokens, block, markov, n_vocab: of.n_vocab(), texts })))
    }

    /// The proposer for one text.
    pub fn proposer(&self) -> Box<dyn Proposer> {
        let text = HeadState::new(self.0.clone());
        match self.0.block {
            None => Box::new(EagleProposer::new(text)),
            Some(block) => Box::new(DflashProposer::new(text, block)),
        }
    }
}

impl Trained {
    /// After a panic the cache can still be used: it may only have wrong drafts.
    pub fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows its scores as scores of the model's tokens.
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
    /// How many of its cells are the text's, and not a draft's.
    certain: usize,
    /// Whether a pass has failed, so that it cannot go on.
    pub failed: bool,
}

impl HeadState {
    fn new(head: Arc<Trained>) -> Self {
        let seq = head.texts().read.add();
        HeadState { head, seq, late: Late::default(), certain: 0, failed: false }
    }

    /// If it has nothing of its text yet, it begins with the rows of these tokens that other texts have left.
    pub fn begin_with(&mut self, tokens: &[u32]) {
        if self.certain > 0 || !self.late.rows.is_empty() {
            return;
        }
        let mut texts = self.head.texts();
        let Texts { context, read } = &mut *texts;
        self.certain = read.begin(context, self.seq, tokens).unwrap_or(0);
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
        let mut texts = head.texts();
        self.certain = self.late.cut(&mut texts, self.seq, self.certain);
        let batch = batch(std::mem::take(&mut self.late));
        let is_made = self.evaluate_in(&mut texts.context, &batch, want, read);
        if is_made {
            self.certain += batch.rows.len();
            let known = texts.read.tokens(self.seq);
            for row in &batch.rows {
                if row.pos as usize == known.len() {
                    known.push(row.token);
                }
            }
        }
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
        let mut texts = self.head.texts();
        let Texts { context, read } = &mut *texts;
        // Drafts do not stay.
        let known = read.tokens(self.seq).len();
        match known > 0 && context.kv().len(self.seq) >= known && context.truncate(self.seq, known).is_ok() {
            true => read.end(context, self.seq),
            false => read.forget(context, self.seq),
        }
    }
}

/// Rows of a text that are still to be evaluated, and their inputs.
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

    /// Drops the first rows if there are more than may wait.
    pub fn let_go(&mut self) {
        let gone = self.rows.len().saturating_sub(MOST_WAITING);
        let width = self.before.len() / self.rows.len().max(1);
        self.rows.drain(..gone);
        self.before.drain(..gone * width);
    }

    /// Removes what drafts left after the first `certain` cells of a sequence. Removes all cells if these rows do not follow them or
    /// there is no room. Returns the cells that are left.
    fn cut(&self, Texts { context, read }: &mut Texts, seq: SeqId, certain: usize) -> usize {
        let mut left = certain;
        let goes_on = context.kv().len(seq) >= certain && context.truncate(seq, certain).is_ok();
        let is_behind = |row: &Row| row.pos >= context.kv().next_pos(seq);
        if !goes_on || !self.rows.first().is_none_or(is_behind) {
            read.forget(context, seq);
            left = 0;
        }
        // Other texts are evaluated again when they go on.
        let wanted = self.rows.len() + ROOM;
        read.make_room(context, seq, wanted);
        if context.kv().free_cells() < wanted {
            read.forget(context, seq);
            left = 0;
        }
        left
    }
}
