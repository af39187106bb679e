//! Embeddings: vectors that represent texts, and scores of how well two texts fit.
//!
//! ```text
//! texts ─ passes, many texts in each ─ rows as the last layer leaves them ─ last norm ─ pooling ─┬ projections ─ vectors
//!                                                                                                 └ classifier ── scores
//! ```
//!
//! A vector has the same bits whatever other texts are in the pass, because a row depends on its text alone.

mod dense;
mod passes;
mod rank;
mod rows;
mod vectors;
mod worker;

pub use crate::model::Pooling;
pub use rank::Pairs;
pub use vectors::{cosine, normalize};
pub use worker::{Asked, Handle, Listener, Worker};

use self::{
    dense::Matrix,
    passes::passes,
    rank::Ranker,
    rows::{LastNorm, pool},
};
use crate::{Batch, Context, ContextConfig, Error, Model, Result};

/// The embedding of one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// One vector; with [`Pooling::None`] one for each token, and with [`Pooling::Rank`] a score for each label.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of the text.
    pub tokens: usize,
}

/// The limits of texts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    tokens: usize,
    /// Whether all of a text has to be in one pass.
    in_one_pass: bool,
    n_vocab: usize,
}

impl Limits {
    /// An error if a text cannot be evaluated.
    pub fn check(&self, text: &[u32]) -> Result<()> {
        let (tokens, most) = (text.len(), self.tokens);
        if tokens == 0 {
            return Err(Error::Input("an empty text: there is nothing to make an embedding of".into()));
        }
        if tokens > most {
            return Err(match self.in_one_pass {
                true => Error::Input(format!(
                    "the input ({tokens} tokens) is too large to process: the model sees a text in one pass, of at most {most} tokens; shorten it, or give a larger `n_ubatch`"
                )),
                false => Error::Input(format!(
                    "the input ({tokens} tokens) is too large to process: a text may have {most}; shorten it, or give a larger `n_ctx`, if the model was trained for it"
                )),
            });
        }
        let n_vocab = self.n_vocab;
        match text.iter().find(|&&token| token as usize >= n_vocab) {
            Some(token) => Err(Error::Batch(format!("token {token} is not in the vocabulary of {n_vocab}"))),
            None => Ok(()),
        }
    }
}

/// Makes embeddings in a context of its own.
pub struct Embedder {
    context: Context,
    pooling: Pooling,
    norm: Option<LastNorm>,
    projections: Vec<Matrix>,
    ranker: Option<Ranker>,
}

impl Embedder {
    /// Prepares a context's configuration for a model's embeddings: layers with a window keep all cells, and where rows see what comes
    /// after them, a text may have no more tokens than a pass.
    pub fn prepare(config: &mut ContextConfig, model: &Model) {
        config.swa_full = true;
        if model.sees_both_ways() {
            // Nothing is reused from pass to pass.
            config.n_ubatch = config.n_ubatch.max(1);
            config.n_ctx = config.n_ctx.min(u32::try_from(config.n_ubatch).unwrap_or(u32::MAX));
        }
    }

    /// Without `pooling` rows are pooled as the model's file says, or else their mean is taken.
    pub fn new(mut context: Context, pooling: Option<Pooling>) -> Result<Self> {
        context.remove_all();
        let model = context.model().clone();
        let pooling = pooling.or(model.pooling()).unwrap_or(Pooling::Mean);
        let ranker = match pooling {
            Pooling::Rank => Some(Ranker::new(&model)?),
            _ => None,
        };
        let projections = model.tail.projections.iter().map(|dense| Matrix::new(&model, dense)).collect();
        Ok(Embedder { norm: LastNorm::new(&model), context, pooling, projections, ranker })
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// How a text's rows become its embedding.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Numbers of a vector.
    pub fn width(&self) -> usize {
        match (&self.ranker, self.projections.last()) {
            (Some(ranker), _) => ranker.labels(),
            (None, Some(last)) => last.rows(),
            (None, None) => self.context.model().plan.dims.dim,
        }
    }

    /// Tokens that a text may have.
    pub fn most_tokens(&self) -> usize {
        let cells = self.context.kv().capacity();
        let plan = &self.context.model().plan;
        let most = cells.min(plan.most_positions.unwrap_or(cells));
        if plan.bidirectional { most.min(self.context.rows_at_once()) } else { most }
    }

    /// The most tokens of a pass with several texts.
    pub fn tokens_at_once(&self) -> usize {
        self.context.rows_at_once().min(self.context.kv().capacity())
    }

    /// The limits of texts.
    pub fn limits(&self) -> Limits {
        let most = self.most_tokens();
        let model = self.context.model();
        Limits {
            tokens: most,
            in_one_pass: model.plan.bidirectional && most == self.context.rows_at_once(),
            n_vocab: model.n_vocab(),
        }
    }

    /// An error if a text cannot be evaluated.
    pub fn check(&self, text: &[u32]) -> Result<()> {
        self.limits().check(text)
    }
    /// The embeddings of texts, each as it would be alone.
    pub fn embed<T: AsRef<[u32]>>(&mut self, texts: &[T]) -> Result<Vec<Embedding>> {
        texts.iter().try_for_each(|text| self.check(text.as_ref()))?;
        let lens: Vec<usize> = texts.iter().map(|text| text.as_ref().len()).collect();
        let mut made = Vec::with_capacity(texts.len());
        let states = |n: usize| self.context.kv().has_states_for(n);
        for pass in passes(&lens, self.tokens_at_once(), states) {
            let result = self.pass(&texts[pass.clone()], &mut made);
            (0..pass.len()).for_each(|seq| self.context.remove(seq as u32));
            result?;
        }
        Ok(made)
    }

    fn pass<T: AsRef<[u32]>>(&mut self, texts: &[T], made: &mut Vec<Embedding>) -> Result<()> {
        let mut batch = Batch::new();
        for (seq, text) in (0..).zip(texts) {
            (0..).zip(text.as_ref()).for_each(|(pos, &token)| batch.push(token, pos, seq, false));
        }
        batch.keep_hidden = Some(self.context.model().n_layer());
        self.context.decode(&batch)?;
        let mut first = 0;
        for text in texts {
            let tokens = text.as_ref().len();
            made.push(Embedding { vectors: self.vectors(first..first + tokens)?, tokens });
            first += tokens;
        }
        Ok(())
    }

    /// The vectors of one text from its rows in the last pass.
    fn vectors(&self, rows: std::ops::Range<usize>) -> Result<Vec<Vec<f32>>> {
        let row = |i: usize| match &self.norm {
            Some(norm) => norm.of(self.context.hidden(i)),
            None => self.context.hidden(i).to_vec(),
        };
        let pooling = self.ranker.as_ref().map_or(self.pooling, |ranker| ranker.reads);
        let mut vectors = pool(rows, row, pooling);
        for vector in &mut vectors {
            if let Some(ranker) = &self.ranker {
                *vector = ranker.scores(vector);
            }
            for matrix in &self.projections {
                *vector = matrix.times(vector);
            }
        }
        match vectors.iter().flatten().all(|x| x.is_finite()) {
            true => Ok(vectors),
            false => Err(Error::model(
                self.context.model().gguf.name(),
                "the embedding has numbers that are none (NaN): the file is damaged, or the model overflows; convert or download it again",
            )),
        }
    }
}
