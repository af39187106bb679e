//! The encoder of BERT: layers of a decoder that read the stream as it is and whose norms stand behind the sums, where rows
//! see their whole text. It gives no logits.

use super::{Decoder, embed, whole_norm};
use crate::{
    Result,
    model::{Builder, builder::Body},
    plan::{Buf, EmbedBy, LayerOps, NormKind, Op, Parts},
};

pub struct Encoder {
    pub decoder: Decoder,
    /// A table of positions is added to the tokens.
    pub places: bool,
}

impl Encoder {
    pub fn new(mut decoder: Decoder) -> Self {
        decoder.norm = NormKind::Layer;
        (decoder.attn_norm, decoder.ffn_norm) = (None, None);
        (decoder.attention.input, decoder.mlp.input) = (Buf::X, Buf::X);
        if let Some(experts) = &mut decoder.experts {
            experts.input = Buf::X;
        }
        Encoder { decoder, places: false }
    }

    pub fn build(&self, b: &mut Builder) -> Result<Body> {
        b.plan.bidirectional = true;
        let embed = self.embed(b)?;
        let layers = (0..b.dims().n_layer).map(|l| self.layer(b, l)).collect::<Result<_>>()?;
        Ok(Body { embed, layers, head: None, mtp: None })
    }

    fn embed(&self, b: &mut Builder) -> Result<Vec<Op>> {
        let dim = b.dims().dim;
        let mut ops = vec![embed(b, 1.0)?];
        let add = |table, by| Op::Embed { table, by, dst: Buf::X, scale: 1.0, add: true };
        if b.has("token_types.weight") {
            // Texts are all of the first type.
            let types = b.rows_of("token_types.weight").unwrap_or(1);
            ops.push(add(b.matrix("token_types.weight", types, dim)?, EmbedBy::First));
        }
        if self.places {
            let places = b.rows_of("position_embd.weight")?;
            b.plan.most_positions = Some(places);
            ops.push(add(b.matrix("position_embd.weight", places, dim)?, EmbedBy::Position));
        }
        ops.push(whole_norm(b.norm(NormKind::Layer, "token_embd_norm", dim)?, Buf::X, Buf::X, false));
        Ok(ops)
    }

    fn layer(&self, b: &mut Builder, l: usize) -> Result<LayerOps> {
        let dim = b.dims().dim;
        let norm = |b: &mut Builder, part: &str| -> Result<Op> {
            let norm = b.norm(NormKind::Layer, &format!("blk.{l}.{part}"), dim)?;
            Ok(whole_norm(norm, Buf::X, Buf::X, false))
        };
        let mut ops = self.decoder.layer(b, l)?;
        ops.attn.push(norm(b, "attn_output_norm")?);
        if b.has(&format!("blk.{l}.attn_norm_2.weight")) {
            // What came to the layer is added once more.
            let before = b.buffer("before attention", dim)?;
            let whole = Parts { every: dim, from: 0 };
            let keep = Op::Take { src: Buf::X, from: whole, group: dim, dst: before, to: whole };
            ops.attn.insert(0, keep);
            ops.attn.push(Op::Add { src: before, dst: Buf::X, scale: 1.0, gate: None });
            ops.attn.push(norm(b, "attn_norm_2")?);
        }
        ops.mlp.push(norm(b, "layer_output_norm")?);
        Ok(ops)
    }
}
