//! Jina's BERT 2: nobody is told positions, but scores fall with the distance; queries and keys are normed in some, and the MLP's
//! gate goes through GELU.

use super::prelude::*;

/// A head's score loses at most so many halvings for each place.
const MOST: f32 = 8.0;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, None)?;
    decoder.attention.slopes = Some(b.slopes(decoder.attention.heads.n_head, MOST));
    if b.has("blk.0.attn_q_norm.weight") {
        decoder.attention.head_norms = HeadNorms::Together;
        decoder.attention.norm_kind = NormKind::Layer;
    }
    let both_in_one = b.rows_of("blk.0.ffn_up.weight")? == 2 * decoder.ffn[0];
    decoder.mlp.gated = both_in_one || b.has("blk.0.ffn_gate.weight");
    decoder.activate(Activation::Gelu);
    Encoder::new(decoder).build(b)
}
