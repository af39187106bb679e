//! OLMoE: experts whose weights keep what the others had of the softmax; queries and keys are normed over all heads together.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.attention.head_norms = HeadNorms::Together;
    decoder.build(b)
}
