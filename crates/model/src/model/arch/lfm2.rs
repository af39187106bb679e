//! LFM2, dense and with experts: short convolutions, and attention on some layers, which queries and keys are normed for.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    b.attends = b.lists_above_zero("attention.head_count_kv")?;
    let kernel = b.size("shortconv.l_cache")?;
    if !(2..=64).contains(&kernel) {
        return Err(b.wrong("shortconv.l_cache", kernel, "between 2 and 64"));
    }
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.last_norm = "token_embd_norm";
    decoder.attention.head_norms = HeadNorms::Each;
    decoder.renormalise_experts();
    if let Some(window) = b.optional_size("attention.sliding_window")? {
        decoder.windows = vec![Some(window as u32); b.dims().n_layer];
    }
    decoder.mixers = b.attends.iter().map(|attends| (!attends).then_some(Mixer::ShortConv(kernel))).collect();
    decoder.build(b)
}
