//! Ministral 3 and Devstral 2: a llama whose queries grow with the position, beyond the context that it was first
//! trained for.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    if let Some(scale) = b.positive_or_none("attention.temperature_scale")? {
        let first = b.optional_size("rope.scaling.original_context_length")?;
        let length = first.unwrap_or(b.n_ctx_train() as usize) as f32;
        decoder.attention.temperature = Some(Temperature { length, scale });
    }
    decoder.renormalise_experts();
    decoder.build(b)
}
