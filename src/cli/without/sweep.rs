//! In the place of `sweep` in a build without the search, whose tools price what a sweep finds.

#![expect(dead_code, reason = "what a sweep is asked for is not looked at")]

use std::path::Path;

use crate::{Context, Error, Result, eval::perplexity::Settings};

pub use crate::eval::sweep::cells;

#[derive(Clone, Copy, Debug)]
pub enum Over {
    Layers { attn: bool, mlp: bool },
    Exits,
}

pub struct Job<'a> {
    pub over: Over,
    pub csv: Option<&'a Path>,
    pub json: bool,
}

pub fn run(_: &Job, _: &mut Context, _tokens: &[u32], _: &Settings) -> Result<()> {
    Err(Error::Usage("this build is without sweeps of masks: they need the feature \"search\"".into()))
}
