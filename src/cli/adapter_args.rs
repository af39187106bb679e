//! The flags of what is put beside a model: LoRA adapters and control vectors, in llama.cpp's words.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches, error::ErrorKind};

use crate::{ContextConfig, control::ControlVector, lora::LoraFile};

/// As they are parsed.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Adapters")]
struct Flags {
    /// Apply a LoRA adapter; several with commas, or by several flags
    #[arg(long, value_name = "FILE,..", value_delimiter = ',')]
    lora: Vec<PathBuf>,
    /// The same with so much of it
    #[arg(long, value_name = "FILE:SCALE,..", value_delimiter = ',', value_parser = parse_scaled)]
    lora_scaled: Vec<Scaled>,
    /// Add the directions of a control vector behind layers; several with commas, or by several flags
    #[arg(long, value_name = "FILE,..", value_delimiter = ',')]
    control_vector: Vec<PathBuf>,
    /// The same with so much of it; below 0 it points the other way
    #[arg(long, value_name = "FILE:SCALE,..", value_delimiter = ',', value_parser = parse_scaled)]
    control_vector_scaled: Vec<Scaled>,
    /// The first and the last layer behind which they are added [default: all]
    #[arg(long, value_names = ["FIRST", "LAST"], num_args = 2)]
    control_vector_layer_range: Vec<usize>,
}

/// A file, and how much of it.
#[derive(Clone, Debug)]
struct Scaled {
    path: PathBuf,
    scale: f32,
}

fn parse_scaled(text: &str) -> Result<Scaled, String> {
    let wanted = "a file and a number are needed, as adapter.gguf:0.5";
    let (path, scale) = text.rsplit_once(':').ok_or(wanted)?;
    match scale.parse::<f32>() {
        Ok(scale) if scale.is_finite() && !path.is_empty() => Ok(Scaled { path: path.into(), scale }),
        _ => Err(wanted.into()),
    }
}

/// The files in the order of the command line, whichever flag names them: clients know adapters by their number.
#[derive(Clone, Debug)]
pub struct AdapterArgs {
    loras: Vec<Scaled>,
    vectors: Vec<Scaled>,
    layers: Option<RangeInclusive<usize>>,
}

impl AdapterArgs {
    /// Texts have nothing of any adapter until somebody asks for it.
    pub fn without_applying(&mut self) {
        self.loras.iter_mut().for_each(|lora| lora.scale = 0.0);
    }

    pub fn apply(&self, config: ContextConfig) -> ContextConfig {
        let lora = |Scaled { path, scale }: Scaled| LoraFile { path, scale };
        let vector = |Scaled { path, scale }: Scaled| ControlVector { path, scale };
        ContextConfig {
            loras: self.loras.iter().cloned().map(lora).collect(),
            control_vectors: self.vectors.iter().cloned().map(vector).collect(),
            control_layers: self.layers.clone(),
            ..config
        }
    }
}

/// What two flags name, in their order.
fn in_order(matches: &ArgMatches, plain: &str, scaled: &str) -> Vec<Scaled> {
    let indices = |id: &str| matches.indices_of(id).into_iter().flatten();
    let paths = matches.get_many::<PathBuf>(plain).into_iter().flatten();
    let plain = indices(plain).zip(paths.map(|path| Scaled { path: path.clone(), scale: 1.0 }));
    let scaled = indices(scaled).zip(matches.get_many::<Scaled>(scaled).into_iter().flatten().cloned());
    let mut all: Vec<(usize, Scaled)> = plain.chain(scaled).collect();
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, file)| file).collect()
}

impl FromArgMatches for AdapterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let range: Vec<usize> =
            matches.get_many("control_vector_layer_range").into_iter().flatten().copied().collect();
        let layers = match range[..] {
            // In llama.cpp 0 is the last one that there is.
            [first, 0] => Some(first..=usize::MAX),
            [first, last] if first <= last => Some(first..=last),
            [first, last] => {
                let what = format!(
                    "--control-vector-layer-range {first} {last}: the first layer is behind the last\n"
                );
                return Err(clap::Error::raw(ErrorKind::ValueValidation, what));
            }
            _ => None,
        };
        Ok(AdapterArgs {
            loras: in_order(matches, "lora", "lora_scaled"),
            vectors: in_order(matches, "control_vector", "control_vector_scaled"),
            layers,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for AdapterArgs {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}
