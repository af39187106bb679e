//! MiniMax-M2: experts by sigmoid with a bias for the choice; queries and keys are normed over all heads together, half of
//! each head turns.

use super::prelude::*;

pub fn build_m2(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.attention.head_norms = HeadNorms::Together;
    decoder.renormalise_experts();
    decoder.build(b)
}
