//! The architectures that can be made, and what their layers have beside a llama's.

use crate::gguf::{Array, Value, Writer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// With experts: Mixtral.
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Gemma3,
    Olmoe,
    GptOss,
    Glm4Moe,
    Qwen35,
    Lfm2,
    Deepseek2,
}

/// Which heads of queries and keys are normed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    None,
    Each,
    All,
}

impl Arch {
    pub const ALL: [Arch; 11] = [
        Arch::Llama,
        Arch::Qwen2,
        Arch::Qwen3,
        Arch::Qwen3Moe,
        Arch::Gemma3,
        Arch::Olmoe,
        Arch::GptOss,
        Arch::Glm4Moe,
        Arch::Qwen35,
        Arch::Lfm2,
        Arch::Deepseek2,
    ];

    /// `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Llama => "llama",
            Arch::Qwen2 => "qwen2",
            Arch::Qwen3 => "qwen3",
            Arch::Qwen3Moe => "qwen3moe",
            Arch::Gemma3 => "gemma3",
            Arch::Olmoe => "olmoe",
            Arch::GptOss => "gpt-oss",
            Arch::Glm4Moe => "glm4moe",
            Arch::Qwen35 => "qwen35",
            Arch::Lfm2 => "lfm2",
            Arch::Deepseek2 => "deepseek2",
        }
    }

    pub fn names() -> String {
        Arch::ALL.map(Arch::name).join(", ")
    }

    pub(super) fn with_experts() -> String {
        let with = Arch::ALL.into_iter().filter(|&arch| arch == Arch::Llama || arch.needs_experts());
        with.map(Arch::name).collect::<Vec<_>>().join(", ")
    }

    pub(super) const fn norm_eps(self) -> f32 {
        match self {
            Arch::Llama | Arch::Olmoe | Arch::GptOss | Arch::Glm4Moe | Arch::Lfm2 => 1e-5,
            Arch::Qwen2 | Arch::Qwen3 | Arch::Qwen3Moe | Arch::Gemma3 | Arch::Qwen35 | Arch::Deepseek2 => {
                1e-6
            }
        }
    }

    pub(super) fn needs_experts(self) -> bool {
        matches!(self, Arch::Qwen3Moe | Arch::Olmoe | Arch::GptOss | Arch::Glm4Moe | Arch::Deepseek2)
    }

    /// llama.cpp takes the width inside an expert for that of an MLP.
    pub(super) fn has_one_width(self) -> bool {
        matches!(self, Arch::Llama | Arch::Olmoe)
    }

    pub(super) fn sees_windows(self) -> bool {
        matches!(self, Arch::Gemma3 | Arch::GptOss)
    }

    pub(super) fn is_recurrent(self) -> bool {
        matches!(self, Arch::Qwen35 | Arch::Lfm2)
    }

    pub(super) fn has_latents(self) -> bool {
        self == Arch::Deepseek2
    }

    /// Layers behind the last, trained to predict the token after the next.
    pub(super) fn predicts_further(self) -> bool {
        self == Arch::Qwen35
    }

    /// Each head's queries come with as many numbers that its result is gated by.
    pub(super) fn gates_heads(self) -> bool {
        self == Arch::Qwen35
    }

    /// Biases on queries, keys and values.
    pub(super) fn has_qkv_biases(self) -> bool {
        matches!(self, Arch::Qwen2 | Arch::GptOss | Arch::Glm4Moe)
    }

    /// Biases on all other matrices, and sinks.
    pub(super) fn has_all_biases(self) -> bool {
        self == Arch::GptOss
    }

    pub(super) fn head_norms(self) -> HeadNorms {
        match self {
            Arch::Qwen3 | Arch::Qwen3Moe | Arch::Gemma3 | Arch::Qwen35 | Arch::Lfm2 => HeadNorms::Each,
            Arch::Olmoe => HeadNorms::All,
            Arch::Llama | Arch::Qwen2 | Arch::GptOss | Arch::Glm4Moe | Arch::Deepseek2 => HeadNorms::None,
        }
    }

    /// The norm before the MLP, by the last part of its name.
    pub(super) fn mlp_norm(self) -> &'static str {
        match self {
            Arch::GptOss | Arch::Glm4Moe | Arch::Qwen35 => "post_attention_norm",
            _ => "ffn_norm",
        }
    }

    /// Norms between sublayers and the stream, whose weights then say how much is added.
    pub(super) fn norms_after(self) -> Option<[&'static str; 2]> {
        (self == Arch::Gemma3).then_some(["post_attention_norm", "post_ffw_norm"])
    }

    /// The norm before the head.
    pub(super) fn last_norm(self) -> &'static str {
        if self == Arch::Lfm2 { "token_embd_norm.weight" } else { "output_norm.weight" }
    }

    pub(super) fn biases_the_choice_of_experts(self) -> bool {
        self == Arch::Glm4Moe
    }

    /// Experts that every row goes through, beside those that it chooses: one of so many times the width.
    pub(super) fn shared_experts(self) -> u32 {
        match self {
            Arch::Glm4Moe => 1,
            Arch::Deepseek2 => 2,
            _ => 0,
        }
    }

    /// The share of a head's numbers that positions turn, where these come first: one in so many.
    pub(super) fn turns_one_in(self) -> u32 {
        match self {
            Arch::Glm4Moe => 2,
            Arch::Qwen35 => 4,
            _ => 1,
        }
    }

    pub(super) fn describe_to(self, writer: &mut Writer) {
        match self {
            Arch::GptOss => {
                writer
                    .set("gpt-oss.rope.scaling.type", "yarn")
                    .set("gpt-oss.rope.scaling.factor", 32.0f32)
                    .set("gpt-oss.rope.scaling.original_context_length", 4096u32);
            }
            Arch::Glm4Moe => {
                writer
                    .set("glm4moe.expert_shared_count", 1u32)
                    .set("glm4moe.expert_gating_func", 2u32)
                    .set("glm4moe.expert_weights_norm", true)
                    .set("glm4moe.expert_weights_scale", 1.0f32);
            }
            // Positions in a picture have four parts; in a text they are alike.
            Arch::Qwen35 => {
                let sections = Value::Array(Array::I32(vec![11, 11, 10, 0]));
                writer.set("qwen35.rope.dimension_sections", sections);
            }
            Arch::Deepseek2 => {
                writer
                    .set("deepseek2.expert_shared_count", 2u32)
                    .set("deepseek2.expert_gating_func", 1u32)
                    .set("deepseek2.expert_weights_scale", 1.0f32)
                    .set("deepseek2.rope.scaling.type", "yarn")
                    .set("deepseek2.rope.scaling.factor", 40.0f32)
                    .set("deepseek2.rope.scaling.original_context_length", 4096u32)
                    .set("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f32);
            }
            Arch::Llama
            | Arch::Qwen2
            | Arch::Qwen3
            | Arch::Qwen3Moe
            | Arch::Gemma3
            | Arch::Olmoe
            | Arch::Lfm2 => {}
        }
    }
}

impl std::str::FromStr for Arch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Arch::ALL.into_iter().find(|arch| arch.name() == name);
        found.ok_or_else(|| format!("there is {}", Arch::names()))
    }
}
