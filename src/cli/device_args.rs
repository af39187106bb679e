//! The flags that say on which device what runs.

use std::path::{Path, PathBuf};

use clap::Args;
use etcetera::{BaseStrategy, base_strategy::choose_native_strategy};

use super::size;
use crate::{
    Error, Model, Result,
    backend::{self, Device},
    context::{ContextConfig, GpuVariant},
    placement::{Speeds, Wishes},
};

#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// cpu, or a GPU by its number or a part of its name, as `spec-run devices` lists them [default: a hardware
    /// GPU if there is one]
    #[arg(long, value_name = "NAME", default_value = "auto", hide_default_value = true)]
    device: String,
    /// -ngl: how many layers, from the last one, go to the GPU; more than there are: the head too [default: what
    /// fits]
    #[arg(long, value_name = "N")]
    n_gpu_layers: Option<u32>,
    /// The most of the GPU's memory to take: 20GiB, 512MiB, or auto
    #[arg(long, value_name = "SIZE", default_value = "auto", hide_default_value = true)]
    vram: String,
    /// The most RAM for weights; what is beyond stays in the file and is read when it is needed
    #[arg(long, value_name = "SIZE")]
    ram: Option<String>,
    /// Fail where a plan does not fit the GPU after all, instead of taking a smaller one
    #[arg(long)]
    strict: bool,
    /// Which of the GPU's kernels: plain, or dot4, f16, coop and subgroups, with commas between them [default: what a
    /// short trial finds right and fastest]
    #[arg(long, value_name = "NAMES", default_value = "auto", hide_default_value = true)]
    gpu_variant: GpuVariant,
    /// Where compiled kernels and the trial's outcome are kept; none keeps nothing [default: the user's cache
    /// directory]
    #[arg(long, value_name = "DIR")]
    gpu_cache: Option<PathBuf>,
    /// Time every kernel of the GPU and print a table at the end; slower
    #[arg(long)]
    profile: bool,
    /// Print what would go where, and end
    #[arg(long)]
    dry_run: bool,
}

impl DeviceArgs {
    pub fn check(&self) -> Result<()> {
        self.wishes().map(drop)
    }

    pub fn device(&self) -> Device {
        match self.device.to_lowercase().as_str() {
            "auto" => Device::Auto,
            "cpu" => Device::Cpu,
            _ => Device::Named(self.device.clone()),
        }
    }

    pub fn wishes(&self) -> Result<Wishes> {
        let size = |flag: &str, text: &str| {
            size::parse(text).ok_or_else(|| {
                Error::Usage(format!("{flag} {text}: a size is a number with a unit, as in 20GiB or 512MiB"))
            })
        };
        let vram = if self.vram == "auto" { None } else { Some(size("--vram", &self.vram)?) };
        let ram = self.ram.as_deref().map(|text| size("--ram", text)).transpose()?;
        Ok(Wishes { gpu_layers: self.n_gpu_layers, vram, ram, strict: self.strict, ..Wishes::default() })
    }

    pub fn gpu_variant(&self) -> GpuVariant {
        self.gpu_variant
    }

    pub fn gpu_cache(&self) -> Option<PathBuf> {
        gpu_cache(self.gpu_cache.as_deref())
    }

    pub fn profile(&self) -> bool {
        self.profile
    }

    /// With --dry-run: what would go where. The caller is done then.
    pub fn dry_run(&self, model: &Model, config: &ContextConfig) -> Result<Option<String>> {
        if !self.dry_run {
            return Ok(None);
        }
        let placement = backend::plan(model, config)?;
        let Speeds { vram, ram, file, .. } = Speeds::ASSUMED;
        let speeds =
            format!("{:.0}, {:.0} and {:.0} GB/s from VRAM, RAM and file", vram / 1e9, ram / 1e9, file / 1e9);
        Ok(Some(format!("{placement}at {speeds} {}\n", placement.predict(&Speeds::ASSUMED))))
    }
}

/// The directory that was asked for, or the user's own; `none` is none.
pub fn gpu_cache(asked: Option<&Path>) -> Option<PathBuf> {
    match asked {
        Some(none) if none == Path::new("none") => None,
        Some(directory) => Some(directory.into()),
        None => Some(choose_native_strategy().ok()?.cache_dir().join("spec-run").join("gpu")),
    }
}
