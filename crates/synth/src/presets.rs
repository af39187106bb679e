//! The shapes of well-known models, by name.

use super::{
    arch::Arch,
    shape::{Experts, Latent, Recurrent, Shape},
};

#[rustfmt::skip]
const PRESETS: &[(&str, Shape)] = {
    const fn shape(arch: Arch, sizes: [u32; 3], heads: [u32; 3], ends: [u32; 2], tied: bool, rope_base: f32) -> Shape {
        let ([layers, dim, ffn], [vocab, ctx]) = (sizes, ends);
        let [heads, kv_heads, head_dim] = heads;
        let norm_eps = arch.norm_eps();
        Shape { arch, layers, dim, ffn, heads, kv_heads, head_dim, vocab, ctx, tied, rope_base, norm_eps, window: 0, experts: None, recurrent: None, latent: None, further: 0 }
    }
    const fn window(window: u32, shape: Shape) -> Shape {
        Shape { window, ..shape }
    }
    const fn experts(used: u32, count: u32, ffn: u32, shape: Shape) -> Shape {
        let dense_layers = if matches!(shape.arch, Arch::Glm4Moe | Arch::Deepseek2) { 1 } else { 0 };
        Shape { experts: Some(Experts { count, used, ffn, dense_layers }), ..shape }
    }
    const fn delta(heads: u32, shape: Shape) -> Shape {
        Shape { recurrent: Some(Recurrent::GatedDelta { kernel: 4, heads, key_heads: 16, head_dim: 128 }), further: 1, ..shape }
    }
    const fn convolutions(attention: &'static [u32], shape: Shape) -> Shape {
        Shape { recurrent: Some(Recurrent::ShortConv { kernel: 3, attention }), ..shape }
    }
    const fn latent(rank: u32, turned: u32, value: u32, shape: Shape) -> Shape {
        Shape { latent: Some(Latent { rank, turned, value }), ..shape }
    }
    use Arch::{Deepseek2, Gemma3, Glm4Moe, GptOss, Lfm2, Llama, Olmoe, Qwen2, Qwen3, Qwen3Moe, Qwen35};
    &[
        ("llama-1b",     shape(Llama, [22, 2048,  5632], [32,  4,  64], [ 32000,   2048], false, 1e4)),
        ("llama-7b",     shape(Llama, [32, 4096, 11008], [32, 32, 128], [ 32000,   4096], false, 1e4)),
        ("llama-8b",     shape(Llama, [32, 4096, 14336], [32,  8, 128], [128256, 131072], false, 5e5)),
        ("llama-70b",    shape(Llama, [80, 8192, 28672], [64,  8, 128], [128256, 131072], false, 5e5)),
        ("llama-3.2-1b", shape(Llama, [16, 2048,  8192], [32,  8,  64], [128256, 131072], true, 5e5)),
        ("llama-3.2-3b", shape(Llama, [28, 3072,  8192], [24,  8, 128], [128256, 131072], true, 5e5)),
        ("mistral-7b",   shape(Llama, [32, 4096, 14336], [32,  8, 128], [ 32768,  32768], false, 1e6)),
        ("mixtral-8x7b", experts(2, 8, 14336, shape(Llama, [32, 4096, 14336], [32, 8, 128], [32000, 32768], false, 1e6))),
        ("qwen2.5-0.5b", shape(Qwen2, [24, 896,  4864], [14,  2,  64], [151936,  32768], true, 1e6)),
        ("qwen2.5-1.5b", shape(Qwen2, [28, 1536,  8960], [12,  2, 128], [151936,  32768], true, 1e6)),
        ("qwen2.5-7b",   shape(Qwen2, [28, 3584, 18944], [28,  4, 128], [152064,  32768], false, 1e6)),
        ("qwen2.5-32b",  shape(Qwen2, [64, 5120, 27648], [40,  8, 128], [152064,  32768], false, 1e6)),
        ("qwen2.5-72b",  shape(Qwen2, [80, 8192, 29568], [64,  8, 128], [152064,  32768], false, 1e6)),
        ("qwen3-0.6b",   shape(Qwen3, [28, 1024,  3072], [16,  8, 128], [151936,  40960], true, 1e6)),
        ("qwen3-1.7b",   shape(Qwen3, [28, 2048,  6144], [16,  8, 128], [151936,  40960], true, 1e6)),
        ("qwen3-4b",     shape(Qwen3, [36, 2560,  9728], [32,  8, 128], [151936,  40960], true, 1e6)),
        ("qwen3-8b",     shape(Qwen3, [36, 4096, 12288], [32,  8, 128], [151936,  40960], false, 1e6)),
        ("qwen3-14b",    shape(Qwen3, [40, 5120, 17408], [40,  8, 128], [151936,  40960], false, 1e6)),
        ("qwen3-32b",    shape(Qwen3, [64, 5120, 25600], [64,  8, 128], [151936,  40960], false, 1e6)),
        ("qwen3-30b-a3b",   experts(8, 128,  768, shape(Qwen3Moe, [48, 2048,  6144], [32, 4, 128], [151936, 40960], false, 1e6))),
        ("qwen3-235b-a22b", experts(8, 128, 1536, shape(Qwen3Moe, [94, 4096, 12288], [64, 4, 128], [151936, 40960], false, 1e6))),
        ("gemma3-1b",    window( 512, shape(Gemma3, [26, 1152,  6912], [ 4,  1, 256], [262144,  32768], true, 1e6))),
        ("gemma3-4b",    window(1024, shape(Gemma3, [34, 2560, 10240], [ 8,  4, 256], [262208, 131072], true, 1e6))),
        ("gemma3-12b",   window(1024, shape(Gemma3, [48, 3840, 15360], [16,  8, 256], [262208, 131072], true, 1e6))),
        ("gemma3-27b",   window(1024, shape(Gemma3, [62, 5376, 21504], [32, 16, 128], [262208, 131072], true, 1e6))),
        ("olmoe-1b-7b",  experts(8, 64, 1024, shape(Olmoe, [16, 2048, 1024], [16, 16, 128], [50304, 4096], false, 1e4))),
        ("gpt-oss-20b",  window(128, experts(4,  32, 2880, shape(GptOss, [24, 2880, 2880], [64, 8, 64], [201088, 131072], false, 1.5e5)))),
        ("gpt-oss-120b", window(128, experts(4, 128, 2880, shape(GptOss, [36, 2880, 2880], [64, 8, 64], [201088, 131072], false, 1.5e5)))),
        ("glm-4.5-air",  experts(8, 128, 1408, shape(Glm4Moe, [46, 4096, 10944], [96, 8, 128], [151552, 131072], false, 1e6))),
        ("qwen3.5-0.8b", delta(16, shape(Qwen35, [24, 1024,  3584], [ 8,  2, 256], [248320, 262144], true, 1e7))),
        ("qwen3.5-2b",   delta(16, shape(Qwen35, [24, 2048,  6144], [ 8,  2, 256], [248320, 262144], true, 1e7))),
        ("qwen3.5-4b",   delta(32, shape(Qwen35, [32, 2560,  9216], [16,  4, 256], [248320, 262144], true, 1e7))),
        ("qwen3.5-27b",  delta(48, shape(Qwen35, [64, 5120, 17408], [24,  4, 256], [248320, 262144], false, 1e7))),
        ("lfm2-1.2b",    convolutions(&[2, 5, 8, 10, 12, 14], shape(Lfm2, [16, 2048, 8192], [32, 8, 64], [65536, 128000], true, 1e6))),
        ("deepseek-v2-lite", latent(512, 64, 128, experts(6, 64, 1408, shape(Deepseek2, [27, 2048, 10944], [16, 16, 192], [102400, 163840], false, 1e4)))),
    ]
};

impl Shape {
    /// The shape of a public model; names are as in [`Shape::preset_names`].
    pub fn preset(name: &str) -> Option<Shape> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, shape)| shape.clone())
    }

    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_hold_together() {
        for (name, shape) in PRESETS {
            shape.check().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        assert_eq!(Shape::preset("llama-2000b"), None);
    }
}
