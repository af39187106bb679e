//! The flags that fetch a model, and the bar that shows how far that is.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    common::print,
    output::{note, warning},
    verbosity::{Verbosity, verbosity},
};
use crate::{
    Error, Result,
    hub::{self, Progress, Settings},
};

#[derive(Args, Clone, Debug)]
pub struct HubArgs {
    /// -hf: a model of the Hugging Face hub, downloaded once [default quantization: Q4_K_M, then Q8_0, then the first]
    #[arg(long, value_name = "USER/NAME[:QUANT]", conflicts_with = "model_url")]
    hf_repo: Option<String>,
    /// -hff: the file of that repository, instead of a quantization
    #[arg(long, value_name = "FILE", requires = "hf_repo")]
    hf_file: Option<String>,
    /// -mu: a model by its address, downloaded once, to -m if that is given
    #[arg(long, value_name = "URL")]
    model_url: Option<String>,
    /// -hft: the hub's token, for gated and private repositories [default: HF_TOKEN, or what `hf auth login` kept]
    #[arg(long, value_name = "TOKEN", hide_default_value = true)]
    hf_token: Option<String>,
    /// Take what was downloaded before, and ask nothing of the network
    #[arg(long)]
    offline: bool,
    /// -cl: list the models that were downloaded from the hub, and end
    #[arg(long)]
    cache_list: bool,
}

impl HubArgs {
    pub fn is_given(&self) -> bool {
        self.hf_repo.is_some() || self.model_url.is_some() || self.cache_list
    }

    fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::from_env()?;
        settings.offline |= self.offline;
        settings.token = self.hf_token.clone().or(settings.token);
        Ok(settings)
    }

    /// The files of the model, as far as that is known without asking anybody. `target` is -m.
    pub fn files(&self, target: Option<&Path>) -> Vec<PathBuf> {
        // What is wrong with the settings is said when a model is fetched.
        let Ok(settings) = self.settings() else { return Vec::new() };
        match (&self.hf_repo, &self.model_url) {
            (Some(repo), _) => hub::repository_files(repo, &settings),
            (None, Some(address)) => hub::url_files(address, target, &settings),
            (None, None) => Vec::new(),
        }
    }

    /// Where what drafts lies, once it is there: of another repository, or the head of the model's own.
    pub fn fetch_draft(&self, repository: Option<&str>) -> Result<Option<PathBuf>> {
        let Some(name) = repository.or(self.hf_repo.as_deref()) else { return Ok(None) };
        hub::draft(name, repository.is_none(), &self.settings()?, &Bar(ProgressBar::hidden())).map(Some)
    }

    /// Where the model lies, once it is there. `target` is -m.
    pub fn fetch(&self, target: Option<&Path>) -> Result<PathBuf> {
        let settings = self.settings()?;
        if self.cache_list {
            let models = hub::cached(&settings);
            print(models.iter().map(|model| format!("{model}\n")).collect::<String>())?;
            std::process::exit(0);
        }
        let bar = Bar(ProgressBar::hidden());
        match (&self.hf_repo, &self.model_url) {
            (Some(_), _) if target.is_some() => {
                Err(Error::Usage("-m and --hf-repo: one model at a time; leave one of them out".into()))
            }
            (Some(repo), _) => hub::repository(repo, self.hf_file.as_deref(), &settings, &bar),
            (None, Some(address)) => hub::url(address, target, &settings, &bar),
            (None, None) => Err(Error::Usage("--hf-repo USER/NAME or --model-url URL is missing".into())),
        }
    }
}

struct Bar(ProgressBar);

impl Progress for Bar {
    fn begins(&self, name: &str, have: u64, total: Option<u64>) {
        let template = match total {
            Some(_) => "downloading {msg} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
            None => "downloading {msg} {bytes}, {bytes_per_sec}",
        };
        self.0.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        self.0.set_message(name.to_string());
        self.0.set_length(total.unwrap_or(0));
        self.0.reset();
        self.0.set_position(have);
        self.0.reset_eta();
        if io::stderr().is_terminal() && verbosity() >= Verbosity::Normal {
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        } else {
            let size = total.map_or(String::new(), |bytes| format!(" ({:.1} MB)", bytes as f64 / 1e6));
            note!("downloading {name}{size} ...");
        }
    }

    fn has(&self, bytes: u64) {
        self.0.set_position(bytes);
    }

    fn ends(&self) {
        self.0.finish_and_clear();
    }

    fn warn(&self, message: &str) {
        warning!("{message}");
    }
}
