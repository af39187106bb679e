//! Speculative decoding: the model drafts for itself and checks the draft in one pass.
//!
//! ```text
//! text ─ proposers ─ offers ─ Policy ─ draft (sequence 1, a fork: no copy) ─ verify (sequence 0, k + 1 rows)
//!   └──────────────────────── accepted + 1 tokens ──────────────────────────── accept ┘
//! ```
//!
//! The output is that of [`generate`](crate::generate::generate), token for token: a row's logits are the same bits in any batch,
//! and a token is chosen by them, the text before it and its own random number. The full model evaluates nothing twice: the next
//! round starts from the verified cells. A draft needs a free cell for each of its tokens, and has fewer tokens where there are
//! fewer cells. On a GPU that holds the whole model, a greedy round whose length is chosen beforehand ([`Policy::length`]) is one
//! submission: the GPU itself feeds the draft's steps into each other and into the verification.
//!
//! The parts are public. The loop by hand, for a greedy text drafted by the first six layers:
//!
//! ```
//! # mod spec_run {
//! #     pub use {spec_run_backend::scores, spec_run_engine::speculation, spec_run_gguf::{Error, embedded}};
//! #     pub use {spec_run_model::{Batch, Model}, spec_run_runtime::{Context, ContextConfig}};
//! # }
//! use spec_run::{
//!     Batch, Context, ContextConfig, Model, embedded,
//!     scores::greedy,
//!     speculation::{DRAFT, MaskProposer, TARGET, accept},
//! };
//!
//! let model = std::sync::Arc::new(Model::load(std::sync::Arc::new(embedded::open()?))?);
//! let exit = MaskProposer::exit(model.n_layer(), 6);
//! let mut context = Context::new(model, &ContextConfig::default())?;
//! let mut text = vec![1, 413, 441, 261, 386];
//! context.decode(&Batch::prompt(&text, 0, TARGET))?;
//! text.push(greedy(context.logits(0)));
//! while text.len() < 60 {
//!     // All but the last token is in the cache.
//!     let evaluated = text.len() as u32 - 1;
//!     context.fork(TARGET, DRAFT);
//!     let (mut draft, mut last) = (Vec::new(), text[text.len() - 1]);
//!     for pos in evaluated..evaluated + 3 {
//!         context.decode(&Batch::prompt(&[last], pos, DRAFT).with_layers(exit.layers().clone()))?;
//!         last = greedy(context.logits(0));
//!         draft.push(last);
//!     }
//!     context.remove(DRAFT);
//!     let mut batch = Batch::new();
//!     let rows = text.last().copied().into_iter().chain(draft.iter().copied());
//!     (evaluated..).zip(rows).for_each(|(pos, token)| batch.push(token, pos, TARGET, true));
//!     context.decode(&batch)?;
//!     let outcome = accept(&draft, |row| greedy(context.logits(row)));
//!     text.extend(&draft[..outcome.accepted]);
//!     text.push(outcome.next);
//!     context.truncate(TARGET, text.len() - 1)?;
//! }
//! # let mut plain = vec![1, 413, 441, 261, 386];
//! # context.remove(TARGET);
//! # context.decode(&Batch::prompt(&plain, 0, TARGET))?;
//! # while plain.len() < text.len() {
//! #     plain.push(greedy(context.logits(0)));
//! #     context.decode(&Batch::prompt(&plain[plain.len() - 1..], plain.len() as u32 - 1, TARGET))?;
//! # }
//! # assert_eq!(text, plain);
//! # Ok::<(), spec_run::Error>(())
//! ```

pub mod accept;
pub mod acceptance;
mod arm;
pub mod candidates;
pub mod controller;
pub mod costs;
pub mod frequent;
pub mod learned;
mod plain_steps;
pub mod policy;
pub mod proposer;
mod report;

pub use accept::{Verdict, accept};
pub use arm::Memory;
pub use controller::Controller;
pub use costs::Costs;
pub use policy::{
    Drafted, Fixed, Guide, Offer, Policy, Prefix, Ready, Round, RoundChoice, SourceInfo, SourceKind, Speedup,
};
pub use proposer::{
    Apart, ExitsProposer, HeadProposer, HeadSource, LayerPasses, Left, MaskProposer, ModelProposer,
    ModelSource, MtpProposer, NgramProposer, Passes, Proposer, ReadsRows, Supply, TrainedSource,
};
pub use report::{Report, Undrafted};

use crate::batch::SeqId;

/// The sequence of the text.
pub const TARGET: SeqId = 0;
/// The sequence of a draft. It is empty between rounds, and so are a few dozen sequences after it.
pub const DRAFT: SeqId = 1;

/// A token of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub id: u32,
    /// The source that had drafted it.
    pub drafted_by: Option<usize>,
}
