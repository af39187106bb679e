//! The sizes of a model, and the metadata that states them.

use super::arch::Arch;
use crate::{
    Error, Result,
    gguf::{Array, Value, Writer},
};

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
    /// In the place of most layers' attention.
    pub recurrent: Option<Recurrent>,
    /// Keys and values are made of it.
    pub latent: Option<Latent>,
    /// Layers behind the last, each trained to predict one token further.
    pub further: u32,
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

/// Layers that keep a state in the place of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrent {
    /// All but each fourth.
    GatedDelta {
        /// Tokens that the convolution sees.
        kernel: u32,
        heads: u32,
        key_heads: u32,
        /// Numbers of a head's key, and of its value.
        head_dim: u32,
    },
    /// All but these.
    ShortConv { kernel: u32, attention: &'static [u32] },
}

impl Recurrent {
    const ATTENTION_EVERY: u32 = 4;

    fn has(self, layer: u32) -> bool {
        match self {
            Recurrent::GatedDelta { .. } => !(layer + 1).is_multiple_of(Self::ATTENTION_EVERY),
            Recurrent::ShortConv { attention, .. } => !attention.contains(&layer),
        }
    }
}

/// What all heads' keys and values are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    pub rank: u32,
    /// Numbers of a key that positions turn; they lie beside the latent, and all heads have the same.
    pub turned: u32,
    /// Numbers of a head's value.
    pub value: u32,
}

impl Shape {
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

    /// What a layer has in the place of attention, if it does. Those behind the last have attention.
    pub(super) fn recurrent_at(&self, layer: u32) -> Option<Recurrent> {
        self.recurrent.filter(|recurrent| layer < self.layers && recurrent.has(layer))
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
        self.check_mixers()?;
        if self.arch.sees_windows() != (self.window > 0) {
            let name = self.arch.name();
            return Err(Error::Usage(match self.window {
                0 => format!("`{name}` has layers that see a window: give `window`"),
                _ => format!("`window`: layers of `{name}` see all cells"),
            }));
        }
        Ok(())
    }

    /// Sizes that only known shapes have.
    fn check_mixers(&self) -> Result<()> {
        let name = self.arch.name();
        let has_one = |has: bool, needs: bool, what: &str| match (has, needs) {
            (false, true) => {
                Err(Error::Usage(format!("`{name}` has {what}: begin with a known shape of it")))
            }
            (true, false) => Err(Error::Usage(format!("`{name}` has no {what}: begin with another shape"))),
            _ => Ok(()),
        };
        has_one(self.recurrent.is_some(), self.arch.is_recurrent(), "recurrent layers")?;
        has_one(self.latent.is_some(), self.arch.has_latents(), "latents")?;
        if self.further > 0 && !self.arch.predicts_further() {
            return Err(Error::Usage(format!("`{name}` has no layers that predict further tokens")));
        }
        if let Some(Latent { turned, .. }) = self.latent.filter(|latent| latent.turned >= self.head_dim) {
            let head = self.head_dim;
            return Err(Error::Usage(format!("`head_dim` {head}: must be more than the {turned} that turn")));
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
        number("block_count", self.layers + self.further);
        number("feed_forward_length", in_experts.unwrap_or(self.ffn));
        number("attention.head_count", self.heads);
        self.describe_heads_to(&mut number);
        if self.further > 0 {
            number("nextn_predict_layers", self.further);
        }
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
        if let Some(Recurrent::ShortConv { .. }) = self.recurrent {
            let kv_heads = |layer| if self.recurrent_at(layer).is_some() { 0 } else { self.kv_heads };
            let each = (0..self.layers).map(kv_heads).collect();
            writer.set(&format!("{arch}.attention.head_count_kv"), Value::Array(Array::U32(each)));
        }
        self.arch.describe_to(writer);
        writer.set(&format!("{arch}.rope.freq_base"), self.rope_base);
        writer.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), self.norm_eps);
    }
}

impl Shape {
    fn describe_heads_to(&self, number: &mut impl FnMut(&str, u32)) {
        match self.latent {
            Some(Latent { rank, turned, value }) => {
                // The usual keys have the sizes of what is stored: one latent for all heads.
                number("attention.head_count_kv", 1);
                number("attention.key_length", rank + turned);
                number("attention.value_length", rank);
                number("attention.key_length_mla", self.head_dim);
                number("attention.value_length_mla", value);
                number("attention.kv_lora_rank", rank);
                number("rope.dimension_count", turned);
            }
            None => {
                number("attention.head_count_kv", self.kv_heads);
                number("attention.key_length", self.head_dim);
                number("attention.value_length", self.head_dim);
                number("rope.dimension_count", self.head_dim / self.arch.turns_one_in());
            }
        }
        match self.recurrent {
            Some(Recurrent::GatedDelta { kernel, heads, key_heads, head_dim }) => {
                number("ssm.conv_kernel", kernel);
                number("ssm.state_size", head_dim);
                number("ssm.group_count", key_heads);
                number("ssm.time_step_rank", heads);
                number("ssm.inner_size", heads * head_dim);
                number("full_attention_interval", Recurrent::ATTENTION_EVERY);
            }
            Some(Recurrent::ShortConv { kernel, .. }) => number("shortconv.l_cache", kernel),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(message(Shape { experts: Some(experts), ..qwen.clone() }).contains("`qwen3` has none"));
        assert!(message(Shape { further: 1, ..qwen.clone() }).contains("further"));
        let hybrid = Shape::preset("qwen3.5-4b").unwrap();
        let recurrent = hybrid.recurrent;
        assert!(message(Shape { recurrent: None, ..hybrid }).contains("`qwen35` has recurrent layers"));
        assert!(message(Shape { recurrent, ..qwen.clone() }).contains("`qwen3` has no recurrent layers"));
        let deepseek = Shape::preset("deepseek-v2-lite").unwrap();
        let latent = deepseek.latent;
        assert!(message(Shape { latent, ..qwen }).contains("`qwen3` has no latents"));
        assert!(message(Shape { head_dim: 64, ..deepseek }).contains("`head_dim` 64"));
    }
}
