//! The architectures that can be made, and what their layers have beside a llama's.

use crate::gguf::Writer;

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
}

/// Which heads of queries and keys are normed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    None,
    Each,
    All,
}

impl Arch {
    pub const ALL: [Arch; 8] = [
        Arch::Llama,
        Arch::Qwen2,
        Arch::Qwen3,
        Arch::Qwen3Moe,
        Arch::Gemma3,
        Arch::Olmoe,
        Arch::GptOss,
        Arch::Glm4Moe,
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
            Arch::Llama | Arch::Olmoe | Arch::GptOss | Arch::Glm4Moe => 1e-5,
            Arch::Qwen2 | Arch::Qwen3 | Arch::Qwen3Moe | Arch::Gemma3 => 1e-6,
        }
    }

    pub(super) fn needs_experts(self) -> bool {
        matches!(self, Arch::Qwen3Moe | Arch::Olmoe | Arch::GptOss | Arch::Glm4Moe)
    }

    /// llama.cpp takes the width inside an expert for that of an MLP.
    pub(super) fn has_one_width(self) -> bool {
        matches!(self, Arch::Llama | Arch::Olmoe)
    }

    pub(super) fn sees_windows(self) -> bool {
        matches!(self, Arch::Gemma3 | Arch::GptOss)
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
            Arch::Qwen3 | Arch::Qwen3Moe | Arch::Gemma3 => HeadNorms::Each,
            Arch::Olmoe => HeadNorms::All,
            Arch::Llama | Arch::Qwen2 | Arch::GptOss | Arch::Glm4Moe => HeadNorms::None,
        }
    }

    /// The norm before the MLP, by the last part of its name.
    pub(super) fn mlp_norm(self) -> &'static str {
        match self {
            Arch::GptOss | Arch::Glm4Moe => "post_attention_norm",
            _ => "ffn_norm",
        }
    }

    /// Norms between sublayers and the stream, whose weights then say how much is added.
    pub(super) fn norms_after(self) -> Option<[&'static str; 2]> {
        (self == Arch::Gemma3).then_some(["post_attention_norm", "post_ffw_norm"])
    }

    /// The choice of experts has a bias, and one that every row goes through stands beside them.
    pub(super) fn shares_an_expert(self) -> bool {
        self == Arch::Glm4Moe
    }

    /// Numbers of a head that positions turn.
    pub(super) fn turned(self, head_dim: u32) -> u32 {
        if self == Arch::Glm4Moe { head_dim / 2 } else { head_dim }
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
            Arch::Llama | Arch::Qwen2 | Arch::Qwen3 | Arch::Qwen3Moe | Arch::Gemma3 | Arch::Olmoe => {}
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
