//! Qwen3 (dense): queries and keys are normed per head, halves rotate.

use super::decoder::{self, Style};
use crate::{
    Result,
    model::Builder,
    plan::{Plan, RopePairs},
};

pub fn build(b: &mut Builder) -> Result<Plan> {
    decoder::plan(b, &Style { pairs: RopePairs::Halves, head_norms: true, qkv_biases: false })
}
