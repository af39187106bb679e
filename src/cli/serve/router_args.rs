//! The flags of a server that has several models.

use std::path::PathBuf;

use clap::Args;

use super::{ServeArgs, catalog::Catalog};
use crate::{
    Error, Result,
    cli::device_args,
    server::{Limits, Models},
};

/// As llama-server.
const MOST_MODELS: usize = 4;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Several models")]
pub struct RouterArgs {
    /// A folder of models: .gguf files, and folders with a model each. A request names the model that answers it
    #[arg(long, value_name = "FOLDER")]
    models_dir: Option<PathBuf>,
    /// A file of models with their flags: sections [NAME] of lines `flag = value`, and [*] for all
    #[arg(long, value_name = "FILE")]
    models_preset: Option<PathBuf>,
    /// How many models are loaded at once; the longest unused goes when another is asked for. 0: as many as fit [default: 4]
    #[arg(long, value_name = "N")]
    models_max: Option<usize>,
    /// The memory that loaded models may take together, as 20GiB [default: what is free]
    #[arg(long, value_name = "SIZE")]
    models_memory: Option<String>,
    /// Load a model when a request names it (this is the default)
    #[arg(long, overrides_with = "no_models_autoload")]
    models_autoload: bool,
    /// Load models only when /models/load is asked to
    #[arg(long)]
    no_models_autoload: bool,
}

impl RouterArgs {
    /// Whether there are to be several models.
    pub fn is_wanted(&self) -> bool {
        self.models_dir.is_some()
            || self.models_preset.is_some()
            || self.models_max.is_some()
            || self.models_memory.is_some()
    }

    /// The models, and what is said of them at the start.
    pub fn models(&self, args: &ServeArgs) -> Result<(Models, String)> {
        if !args.engine.model.is_embedded() {
            return Err(Error::Usage(
                "-m, -hf or -mu beside --models-dir, --models-preset, --models-max or --models-memory: with these, requests name \
                 the model; put it into the folder or the preset file"
                    .into(),
            ));
        }
        if args.engine.context.device.is_dry_run() {
            return Err(Error::Usage("--dry-run: it is for one model; name that with -m".into()));
        }
        args.check()?;
        let bytes = self.models_memory.as_deref().map(|text| device_args::size("--models-memory", text));
        let most = self.models_max.unwrap_or(MOST_MODELS);
        let limits = Limits { most: Some(most).filter(|&most| most > 0), bytes: bytes.transpose()? };
        let catalog = Catalog { folder: self.models_dir.clone(), presets: self.models_preset.clone() };
        let count = catalog.list()?.len();
        let autoload = self.models_autoload || !self.no_models_autoload;
        let models = Models::many(Box::new(move || catalog.list()), limits, autoload)?;
        let s = if count == 1 { "" } else { "s" };
        Ok((models, format!("{count} model{s}, loaded when they are asked for")))
    }
}
