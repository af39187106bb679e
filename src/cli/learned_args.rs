//! The flags about what is remembered from run to run.

use std::path::PathBuf;

use clap::Args;
use etcetera::{BaseStrategy, base_strategy::choose_native_strategy};

use crate::speculation::learned::Store;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Speculation")]
pub struct LearnedArgs {
    /// Neither use nor keep what was learnt of costs and acceptance in earlier runs
    #[arg(long)]
    no_learn: bool,
    /// Where that is kept [default: the user's cache directory]
    #[arg(long, value_name = "DIR", conflicts_with = "no_learn")]
    learn_dir: Option<PathBuf>,
}

impl LearnedArgs {
    /// Whether nothing is to be kept.
    pub fn is_off(&self) -> bool {
        self.no_learn
    }

    /// `None` if nothing is to be kept, or there is no home to keep it in.
    pub fn store(&self) -> Option<Store> {
        if self.no_learn {
            return None;
        }
        let default = || Some(cache()?.join("learned"));
        self.learn_dir.clone().or_else(default).map(Store::new)
    }
}

/// What this program keeps of its own; `None` if there is no home to keep it in.
pub fn cache() -> Option<PathBuf> {
    Some(choose_native_strategy().ok()?.cache_dir().join("spec-run"))
}
