//! Qwen2 and Qwen2.5: biases on queries, keys and values (the file carries them), halves rotate.

use super::decoder::{self, Style};
use crate::{
    Result,
    model::Builder,
    plan::{Plan, RopePairs},
};

pub fn build(b: &mut Builder) -> Result<Plan> {
    decoder::plan(b, &Style { pairs: RopePairs::Halves, head_norms: false, qkv_biases: true })
}
