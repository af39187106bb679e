//! The sizes of a model: of well-known ones by name, and the metadata that states them.

use super::arch::Arch;
use crate::{Error, Result, gguf::Writer};

/// Far beyond any model; keeps products of two sizes within 64 bits.
const LARGEST: u32 = 1 << 24;
const MOST_LAYERS: u32 = 4096;
const MOST_EXPERTS: u32 = 4096;

#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub arch: Arch,
    pub layers: u32,
    pub dim: u32,
    pub ffn: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub vocab: u32,
    /// The context that the file says it was trained for.
    pub ctx: u32,
    /// The table of embeddings is the head as well.
    pub tied: bool,
    pub rope_base: f32,
    pub norm_eps: f32,
    /// Cells that a layer with a window sees.
    pub window: u32,
    pub experts: Option<Experts>,
}

/// In the place of a layer's MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    pub count: u32,
    /// So many for each row.
    pub used: u32,
    /// Width inside each.
    pub ffn: u32,
    /// The first layers have none.
    pub dense_layers: u32,
}

#[rustfmt::skip]
const PRESETS: &[(&str, Shape)] = {
    const fn shape(arch: Arch, sizes: [u32; 3], heads: [u32; 3], ends: [u32; 2], tied: bool, rope_base: f32) -> Shape {
        let ([layers, dim, ffn], [vocab, ctx]) = (sizes, ends);
        let [heads, kv_heads, head_dim] = heads;
        let norm_eps = arch.norm_eps();
        Shape { arch, layers, dim, ffn, heads, kv_heads, head_dim, vocab, ctx, tied, rope_base, norm_eps, window: 0, experts: None }
    }
    const fn window(window: u32, shape: Shape) -> Shape {
        Shape { window, ..shape }
    }
    const fn experts(used: u32, count: u32, ffn: u32, shape: Shape) -> Shape {
        let dense_layers = if matches!(shape.arch, Arch::Glm4Moe) { 1 } else { 0 };
        Shape { experts: Some(Experts { count, used, ffn, dense_layers }), ..shape }
    }
    use Arch::{Gemma3, Glm4Moe, GptOss, Llama, Olmoe, Qwen2, Qwen3, Qwen3Moe};
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

    pub fn q_width(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.head_dim)
    }

    pub fn kv_width(&self) -> u64 {
        u64::from(self.kv_heads) * u64::from(self.head_dim)
    }

    /// The experts of a layer, if it has some.
    pub(super) fn experts_of(&self, layer: u32) -> Option<Experts> {
        self.experts.filter(|experts| layer >= experts.dense_layers)
    }

    pub(super) fn check(&self) -> Result<()> {
        let experts = self.experts.map(|Experts { count, used, ffn, dense_layers: _ }| {
            [("experts", count, MOST_EXPERTS), ("experts_used", used, count), ("expert_ffn", ffn, LARGEST)]
        });
        let sizes = [
            ("layers", self.layers, MOST_LAYERS),
            ("dim", self.dim, LARGEST),
            ("ffn", self.ffn, LARGEST),
            ("heads", self.heads, 1 << 16),
            ("kv_heads", self.kv_heads, 1 << 16),
            ("head_dim", self.head_dim, 1 << 12),
            ("vocab", self.vocab, LARGEST),
            ("ctx", self.ctx, i32::MAX as u32),
        ];
        for (name, size, most) in sizes.into_iter().chain(experts.into_iter().flatten()) {
            if size == 0 || size > most {
                return Err(Error::Usage(format!("`{name}` {size}: give 1 to {most}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (heads, kv) = (self.heads, self.kv_heads);
            return Err(Error::Usage(format!("`kv_heads` {kv}: must divide the {heads} heads")));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(Error::Usage(format!("`head_dim` {}: must be even, for rotation", self.head_dim)));
        }
        if self.arch.needs_experts() != self.experts.is_some() && self.arch != Arch::Llama {
            let name = self.arch.name();
            return Err(Error::Usage(match self.experts {
                None => format!("`{name}` has experts: give `experts`, `experts_used` and `expert_ffn`"),
                Some(_) => format!("`experts`: `{name}` has none, take {}", Arch::with_experts()),
            }));
        }
        if self.arch.sees_windows() != (self.window > 0) {
            let name = self.arch.name();
            return Err(Error::Usage(match self.window {
                0 => format!("`{name}` has layers that see a window: give `window`"),
                _ => format!("`window`: layers of `{name}` see all cells"),
            }));
        }
        Ok(())
    }

    pub(super) fn describe_to(&self, writer: &mut Writer) {
        let arch = self.arch.name();
        let in_experts = self.experts.filter(|_| self.arch.has_one_width()).map(|experts| experts.ffn);
        let mut number = |key: &str, value: u32| {
            writer.set(&format!("{arch}.{key}"), value);
        };
        number("vocab_size", self.vocab);
        number("context_length", self.ctx);
        number("embedding_length", self.dim);
        number("block_count", self.layers);
        number("feed_forward_length", in_experts.unwrap_or(self.ffn));
        number("attention.head_count", self.heads);
        number("attention.head_count_kv", self.kv_heads);
        number("attention.key_length", self.head_dim);
        number("attention.value_length", self.head_dim);
        number("rope.dimension_count", self.arch.turned(self.head_dim));
        if self.window > 0 {
            number("attention.sliding_window", self.window);
        }
        if let Some(Experts { count, used, ffn, dense_layers }) = self.experts {
            number("expert_count", count);
            number("expert_used_count", used);
            number("expert_feed_forward_length", ffn);
            if dense_layers > 0 {
                number("leading_dense_block_count", dense_layers);
            }
        }
        self.arch.describe_to(writer);
        writer.set(&format!("{arch}.rope.freq_base"), self.rope_base);
        writer.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), self.norm_eps);
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

    #[test]
    fn a_shape_that_cannot_be_says_what_is_wrong() {
        let good = Shape::preset("llama-1b").unwrap();
        let message = |shape: Shape| shape.check().unwrap_err().to_string();
        assert!(message(Shape { layers: 0, ..good.clone() }).contains("`layers` 0"));
        assert!(message(Shape { vocab: u32::MAX, ..good.clone() }).contains("`vocab` 4294967295"));
        assert!(message(Shape { kv_heads: 5, ..good.clone() }).contains("`kv_heads` 5"));
        assert!(message(Shape { head_dim: 63, ..good }).contains("`head_dim` 63"));
        let olmoe = Shape::preset("olmoe-1b-7b").unwrap();
        let experts = olmoe.experts.unwrap();
        assert!(message(Shape { experts: None, ..olmoe.clone() }).contains("`olmoe` has experts"));
        let more = Experts { used: 65, ..experts };
        assert!(message(Shape { experts: Some(more), ..olmoe.clone() }).contains("`experts_used` 65"));
        assert!(message(Shape { window: 8, ..olmoe }).contains("`window`"));
        let qwen = Shape::preset("qwen3-4b").unwrap();
        assert!(message(Shape { experts: Some(experts), ..qwen }).contains("`qwen3` has none"));
    }
}
