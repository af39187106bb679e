//! A small head of a model's own that drafts: it reads states which the full model has computed anyway, and predicts the
//! tokens after the next one. It has no attention and no cache.
//!
//! ```text
//! taps of token t (residual before some layers, final state), embedding of token t+1 ─ step ─ out ─ logits of token t+2
//! out, embedding of token t+2 ─ step ─ out ─ logits of token t+3, and so on
//! ```
//!
//! The first step is `r = fuse · taps + embed · e + bias`, a later one `r = again · out + again_bias + embed · e + bias` of the
//! step before. Then `out = r + down(silu(gate · u) ⊙ up · u)` with `u = [r / rms(r); e]`, and the logits are the model's own
//! output matrix times `out · scale`. It is made for one model by `fit`, and knows nothing of the engine.

mod drafter;
mod file;
pub(crate) mod products;
mod shape;
mod tables;
mod vocabulary;
mod weights;

pub use drafter::{Candidate, Drafter, Origin, PackedHead, read_taps};
pub use file::{Head, Made, default_path, find_default};
pub use products::{Together, alone};
pub use shape::{HeadShape, Part};
pub use tables::Tables;
pub use vocabulary::Vocabulary;
pub use weights::Weights;

/// Added to a mean of squares, so that its root is never zero.
pub const EPS: f32 = 1e-6;

/// `x` over its root mean square.
pub fn over_rms(x: &[f32], out: &mut [f32]) {
    let scale = 1.0 / (mean_square(x) + EPS).sqrt();
    out.iter_mut().zip(x).for_each(|(out, x)| *out = x * scale);
}

/// The mean of the squares.
pub fn mean_square(x: &[f32]) -> f32 {
    x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32
}
