//! One file per architecture. A new one is a new file and a line in [`ALL`].

mod decoder;
mod llama;
mod qwen2;
mod qwen3;

use super::Builder;
use crate::{Result, plan::Plan};

pub type Build = fn(&mut Builder) -> Result<Plan>;

/// `general.architecture` and who builds its plan.
pub const ALL: &[(&str, Build)] = &[("llama", llama::build), ("qwen2", qwen2::build), ("qwen3", qwen3::build)];

pub fn find(arch: &str) -> Option<Build> {
    ALL.iter().find(|(name, _)| *name == arch).map(|(_, build)| *build)
}
