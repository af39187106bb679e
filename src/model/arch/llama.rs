//! Llama 1, 2, 3.x, Mistral and everything else that calls itself `llama`: neighbours rotate.

use super::decoder::{self, Style};
use crate::{
    Result,
    model::Builder,
    plan::{Plan, RopePairs},
};

pub fn build(b: &mut Builder) -> Result<Plan> {
    decoder::plan(b, &Style { pairs: RopePairs::Neighbours, head_norms: false, qkv_biases: false })
}
