//! One file for each family of architectures. A new one is a new file and a line in [`ALL`].

mod apertus;
mod arcee;
mod bailing;
mod bert;
mod cohere;
mod deepseek2;
mod dflash;
mod eagle3;
mod ernie;
mod exaone;
mod falcon;
mod falcon_h1;
mod gemma;
mod gemma4;
mod glm4;
mod glm4moe;
mod gpt2;
mod gpt_oss;
mod granite;
mod hunyuan;
mod jina_bert_v2;
mod lfm2;
mod llama;
mod mamba2;
mod minimax;
mod mistral3;
mod modern_bert;
mod muse_glimmer;
mod nemotron;
mod nemotron_h;
mod nomic_bert;
mod olmo2;
mod olmoe;
mod phi;
mod qwen2;
mod qwen3;
mod qwen35;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;

use prelude::*;

/// What the architectures' files use.
mod prelude {
    pub(super) use crate::{
        Result,
        model::{
            Block, Builder, DraftsFor, Markov,
            blocks::*,
            builder::Body,
            rope::{self, Source, Stretch},
        },
        plan::{
            Activation, Buf, EmbedBy, Gating, Inject, LayerOps, Linear, Mtp, Norm, NormKind, Op, Parts,
            RopePairs, Temperature,
        },
    };
}

pub type Build = fn(&mut Builder) -> Result<Body>;

/// `general.architecture` and who builds its plan.
pub const ALL: &[(&str, Build)] = &[
    ("apertus", apertus::build),
    ("arcee", arcee::build),
    ("bailingmoe2", bailing::build),
    ("bert", bert::build),
    ("dots1", bailing::build),
    ("cohere2", cohere::build_2),
    ("command-r", cohere::build),
    ("deepseek2", deepseek2::build),
    ("ernie4_5", ernie::build),
    ("ernie4_5-moe", ernie::build),
    ("exaone", exaone::build_3),
    ("exaone4", exaone::build_4),
    ("falcon", falcon::build),
    ("falcon-h1", falcon_h1::build),
    ("gemma", gemma::build),
    ("gemma2", gemma::build_2),
    ("gemma3", gemma::build_3),
    ("gemma4", gemma4::build),
    ("gemma-embedding", gemma::build_embedding),
    ("glm4", glm4::build),
    ("glm4moe", glm4moe::build),
    ("gpt2", gpt2::build),
    ("gpt-oss", gpt_oss::build),
    ("granite", granite::build),
    ("granitehybrid", granite::build_hybrid),
    ("granitemoe", granite::build_moe),
    ("minicpm", granite::build_minicpm),
    ("hunyuan-dense", hunyuan::build),
    ("hunyuan-moe", hunyuan::build),
    ("internlm2", llama::build),
    ("jina-bert-v2", jina_bert_v2::build),
    ("jina-bert-v3", nomic_bert::build_plain),
    ("lfm2", lfm2::build),
    ("lfm2moe", lfm2::build),
    ("llama", llama::build),
    ("mamba2", mamba2::build),
    ("minimax-m2", minimax::build_m2),
    ("mistral3", mistral3::build),
    ("mistral4", deepseek2::build_mistral_4),
    ("modern-bert", modern_bert::build),
    ("muse-glimmer", muse_glimmer::build),
    ("nemotron", nemotron::build),
    ("nemotron_h", nemotron_h::build),
    ("nemotron_h_moe", nemotron_h::build),
    ("nomic-bert", nomic_bert::build),
    ("nomic-bert-moe", nomic_bert::build_plain),
    ("olmo2", olmo2::build),
    ("olmoe", olmoe::build),
    ("phi2", phi::build_2),
    ("phi3", phi::build_3),
    ("phimoe", phi::build_3),
    ("qwen2", qwen2::build),
    ("qwen2moe", qwen2::build),
    ("qwen3", qwen3::build),
    ("qwen3moe", qwen3::build),
    ("qwen3next", qwen35::build_next),
    ("qwen35", qwen35::build),
    ("qwen35moe", qwen35::build),
    ("qwen3vl", qwen3::build),
    ("qwen3vlmoe", qwen3::build),
    ("seed_oss", seed_oss::build),
    ("smollm3", smollm3::build),
    ("stablelm", stablelm::build),
    ("starcoder2", starcoder2::build),
];

/// The same of files that have no model, but a head which drafts for one.
const HEADS: &[(&str, Build)] = &[("dflash", dflash::build), ("eagle3", eagle3::build)];

/// The name that is most like another.
pub fn nearest(arch: &str) -> &'static str {
    let alike = |name: &str| strsim::jaro_winkler(arch, name);
    let best = ALL.iter().map(|(name, _)| *name).max_by(|a, b| alike(a).total_cmp(&alike(b)));
    best.expect("there are some")
}

pub fn find(arch: &str) -> Option<Build> {
    ALL.iter().find(|(name, _)| *name == arch).map(|(_, build)| *build)
}

pub fn find_head(arch: &str) -> Option<Build> {
    HEADS.iter().find(|(name, _)| *name == arch).map(|(_, build)| *build)
}
