//! ERNIE 4.5: a llama, and the larger ones with experts whose choice has a bias, maybe with a shared one beside them, in the
//! layers after the first few.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    decoder.renormalise_experts();
    if b.u32("expert_shared_feed_forward_length")?.unwrap_or(0) > 0 {
        decoder.share_expert(Shared::Plain);
    }
    decoder.build(b)
}
