//! GLM-4.5 to 4.7: experts by sigmoid with a shared one beside them, after a few layers without; biases on queries, keys
//! and values, half of each head turns, and the larger models norm queries and keys per head.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.ffn_norm = Some("post_attention_norm");
    if b.has("blk.0.attn_q_norm.weight") {
        decoder.attention.head_norms = HeadNorms::Each;
    }
    if let Some(experts) = &mut decoder.experts {
        // Files that were made before the key came.
        if b.u32("expert_gating_func")?.unwrap_or(0) == 0 {
            experts.gating = Gating::Sigmoid;
        }
        if b.u32("expert_shared_count")?.unwrap_or(0) > 0 {
            experts.shared = Shared::Plain;
        }
    }
    decoder.has_mtp = true;
    decoder.build(b)
}
