//! Ling 2 and dots.llm1: experts as the file's keys say (sigmoid, a bias for the choice, groups, a scale) with a shared one
//! beside them, after a few layers without; queries and keys are normed per head.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.attention.head_norms = HeadNorms::Each;
    decoder.share_expert(Shared::Plain);
    decoder.build(b)
}
