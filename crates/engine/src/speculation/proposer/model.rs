//! A draft model: another model with the same vocabulary reads the text in a context of its own, and drafts its continuation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Apart, Passes, Proposer, RAM_SPEED, Supply, read_texts::ReadTexts};
use crate::{
    Batch, Context, Error, Model, Result, Tokenizer,
    batch::SeqId,
    scores::{Scores, Want},
    speculation::policy::{SourceInfo, SourceKind},
};

/// Cells for tokens that are still to come, and for drafts.
const ROOM: usize = 32;

/// A draft model that is ready for the texts of a context.
#[derive(Clone)]
pub struct ModelSource(Arc<DraftModel>);

struct DraftModel {
    name: String,
    n_vocab: usize,
    texts: Mutex<Texts>,
}

/// The draft model's context, and the texts in its cache.
struct Texts {
    context: Context,
    read: ReadTexts,
}

impl ModelSource {
    /// Opens the context of a draft model, if its vocabulary is that of the model that it drafts for.
    pub fn open(
        model: &Model,
        vocabulary: &Tokenizer,
        of_model: &Tokenizer,
        context: impl FnOnce() -> Result<Context>,
    ) -> Result<Self> {
        if let Some(why) = vocabulary.differs_from(of_model) {
            let what = format!("it cannot draft, its vocabulary is not the model's: {why}");
            return Err(Error::model(model.gguf.name(), what));
        }
        let (name, n_vocab) = (model.name.clone(), model.n_vocab());
        let texts = Mutex::new(Texts { context: context()?, read: ReadTexts::default() });
        Ok(ModelSource(Arc::new(DraftModel { name, n_vocab, texts })))
    }

    /// The proposer for one text.
    pub fn proposer(&self) -> ModelProposer {
        let seq = self.0.texts().read.add();
        ModelProposer { seq, model: self.0.clone(), failed: false, late: Vec::new() }
    }
}

impl DraftModel {
    /// After a panic the cache can still be used: it may only have wrong drafts.
    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drafts for one text with a model.
pub struct ModelProposer {
    model: Arc<DraftModel>,
    seq: SeqId,
    /// Whether a pass has failed, so that it cannot go on.
    failed: bool,
    /// Tokens that have to be evaluated before the next step's token.
    late: Vec<u32>,
}

impl ModelProposer {
    /// Evaluates tokens after those that are evaluated already.
    fn evaluate<T>(&mut self, mut batch: Batch, want: Want, look: impl FnOnce(&Context) -> T) -> Option<T> {
        let mut texts = self.model.texts();
        let Texts { context, read } = &mut *texts;
        let known = read.tokens(self.seq);
        let is_known = batch.rows.iter().all(|row| (row.token as usize) < self.model.n_vocab);
        if self.failed || !is_known || context.kv().room() < batch.rows.len() {
            return None;
        }
        batch.rows.iter_mut().for_each(|row| row.pos += known.len() as u32);
        if context.decode_for(&batch, want).is_err() {
            self.failed = true;
            return None;
        }
        known.extend(batch.rows.iter().map(|row| row.token));
        Some(look(context))
    }
}

impl Apart for ModelProposer {
    fn n_vocab(&self) -> usize {
        self.model.n_vocab
    }

    fn read(&mut self, text: &[u32]) {
        self.begin(text, 0);
        let late = std::mem::take(&mut self.late);
        let mut batch = Batch::prompt(&late, 0, self.seq);
        if let Some(last) = batch.rows.last_mut() {
            last.logits = false;
            self.evaluate(batch, Want::Top(1), |_| ());
        }
    }

    fn begin(&mut self, text: &[u32], _most: usize) {
        let before = &text[..text.len() - 1];
        let mut texts = self.model.texts();
        let Texts { context, read } = &mut *texts;
        let same = read.begin(context, self.seq, before);
        self.failed |= same.is_none();
        self.late = before[same.unwrap_or(0)..].to_vec();
        read.make_room(context, self.seq, self.late.len() + ROOM);
    }

    fn step(&mut self, token: u32, want: Want, look: &mut dyn FnMut(Scores)) -> bool {
        let mut late = std::mem::take(&mut self.late);
        late.push(token);
        self.evaluate(Batch::prompt(&late, 0, self.seq), want, |context| look(context.scores(0))).is_some()
    }
}

impl Drop for ModelProposer {
    fn drop(&mut self) {
        let mut texts = self.model.texts();
        let Texts { context, read } = &mut *texts;
        read.end(context, self.seq);
    }
}

impl Proposer for ModelProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        let seconds = |context: &Context| {
            context.bytes_read(None) as f64 / context.weights_read_speed().unwrap_or(RAM_SPEED)
        };
        let cost = seconds(&self.model.texts().context) / seconds(context);
        let name = format!("draft model {}", self.model.name);
        SourceInfo { name, kind: SourceKind::Model, cost, chance: 0.7, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        let has_room = text.len() < self.model.texts().context.kv().capacity();
        if has_room && !self.failed { Supply::Any } else { Supply::Nothing }
    }

    fn passes(&self) -> Option<Passes<'_>> {
        Some(Passes::Apart)
    }

    fn apart(&mut self) -> Option<&mut dyn Apart> {
        Some(self)
    }
}
