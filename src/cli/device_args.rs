//! The flags that say on which device what runs.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Once,
};

use clap::Args;
use etcetera::{BaseStrategy, base_strategy::choose_native_strategy};

use super::{off_gpu_args::OffGpuArgs, output::warning, placement_arg::PlacementArg, plan, size};
use crate::{
    Error, Gguf, Model, Result,
    backend::cpu::cores::Cores,
    context::{ContextConfig, Device, GpuVariant, Planes, Streaming},
    measure::speeds,
    placement::{
        Acceptance, Basis, HighBits, PlacementRequest,
        forecast::{Known, Origin},
        of_high_bits,
    },
    plan::Unit,
    quant::GgmlType,
    runtime,
};

#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// cpu, a GPU by its number or a part of its name, or several by their numbers, as 0,1: what does not fit the
    /// first goes to the next; `spec-run devices` lists them [default: a hardware GPU if there is one]
    #[arg(long, value_name = "NAME", default_value = "auto", hide_default_value = true)]
    device: Device,
    /// -ngl: how many layers, from the last one, go to the GPU: a number, more than there are for the head too, all, or
    /// auto for what fits; fewer go where so many do not fit, unless --strict
    #[arg(
        long,
        alias = "gpu-layers",
        value_name = "N",
        default_value = "auto",
        allow_negative_numbers = true
    )]
    #[arg(value_parser = parse_layers)]
    n_gpu_layers: GpuLayers,
    /// The most of the GPU's memory to take, of each of several: 20GiB, 512MiB, or auto
    #[arg(long, value_name = "SIZE", default_value = "auto", hide_default_value = true)]
    vram: String,
    /// -ts: of several GPUs, which share of the layers each gets, as 3,1 [default: the first what fits it, and so on]
    #[arg(long, value_name = "N,N,..", value_parser = parse_split)]
    tensor_split: Option<Split>,
    /// The most RAM for weights; what is beyond stays in the file, is read for each pass and not kept [default: what
    /// is free]
    #[arg(long, value_name = "SIZE")]
    ram: Option<String>,
    /// What comes first into the GPU's memory, where not all fits: layers (whole ones, the last first), auto (those, or
    /// what drafts run where that should be faster), or a file that --dry-run --json has written, to have it again.
    /// GPU and CPU round differently: texts are the same where the placement is
    #[arg(
        long,
        value_name = "auto|layers|FILE",
        default_value = "auto",
        hide_default_value = true,
        conflicts_with = "n_gpu_layers"
    )]
    placement: PlacementArg,
    #[command(flatten)]
    off_gpu: OffGpuArgs,
    /// Fail where a plan does not fit the GPU after all, instead of taking a smaller one
    #[arg(long)]
    strict: bool,
    /// From how many tokens at once on (of an expert: that chose it) the GPU multiplies with what lies in RAM, which is sent
    /// to it for that: a number, never, or auto for where that is measured to be faster. The products are the CPU's to the bit
    #[arg(long, value_name = "auto|never|N", default_value = "auto", hide_default_value = true)]
    #[arg(value_parser = parse_streaming)]
    stream_rows: Streaming,
    /// Which of the GPU's kernels: plain, dot4 or coop [default: what a short trial finds right and fastest]
    #[arg(long, value_name = "NAME", default_value = "auto", hide_default_value = true)]
    #[arg(value_parser = runtime::gpu_variant)]
    gpu_variant: GpuVariant,
    /// Where compiled kernels and the trial's outcome are kept; none keeps nothing [default: the user's cache
    /// directory]
    #[arg(long, value_name = "DIR")]
    gpu_cache: Option<PathBuf>,
    /// Time every kernel of the GPU and print a table at the end; slower
    #[arg(long)]
    profile: bool,
    /// Print what would go where and how fast that may be, and end
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    speeds: SpeedArgs,
}

/// Of -ngl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuLayers {
    Auto,
    Last(u32),
}

pub fn parse_layers(text: &str) -> Result<GpuLayers, String> {
    match text {
        "auto" | "-1" => Ok(GpuLayers::Auto),
        "all" | "-2" => Ok(GpuLayers::Last(u32::MAX)),
        number => number
            .parse()
            .map(GpuLayers::Last)
            .map_err(|_| "a number of layers, all (-2) or auto (-1)".to_string()),
    }
}

fn parse_streaming(text: &str) -> Result<Streaming, String> {
    match text {
        "auto" => Ok(Streaming::Measured),
        "never" => Ok(Streaming::Never),
        number => match number.parse() {
            Ok(rows) if rows > 0 => Ok(Streaming::From(rows)),
            _ => Err("a number of tokens from 1 on, never or auto".to_string()),
        },
    }
}

/// Of -ts.
#[derive(Clone, Debug, PartialEq)]
struct Split(Vec<f32>);

fn parse_split(text: &str) -> Result<Split, String> {
    let share =
        |text: &str| text.trim().parse().ok().filter(|&share: &f32| share >= 0.0 && share.is_finite());
    let shares: Option<Vec<f32>> =
        text.split([',', '/']).filter(|part| !part.trim().is_empty()).map(share).collect();
    shares
        .filter(|shares| !shares.is_empty())
        .map(Split)
        .ok_or_else(|| "numbers from 0 on, one for each GPU, as 3,1".into())
}

#[derive(Args, Clone, Debug)]
pub struct SpeedArgs {
    /// What forecasts rest on: GB a second from the GPU's memory, RAM and the file, as 1000,50,3. Three more may follow: GB a
    /// second over the bus, and 10^12 multiplications a second of the GPU and of the CPU, as 12,10,0.8. - for one that is not
    /// known [default: the first three are measured]
    #[arg(long, value_name = "VRAM,RAM,FILE[,..]", allow_hyphen_values = true, value_parser = parse_speeds)]
    speeds: Option<Speeds>,
    /// What forecasts rest on: the chance of a draft's first, second, third .. token to be accepted once those before it are,
    /// as 0.84,0.75,0.79; the last one holds for all that follow [default: what the mask's file promises, else what was
    /// measured on real models, else 0.75]
    #[arg(long, value_name = "P,..", value_delimiter = ',', value_parser = parse_chance)]
    accept: Vec<f64>,
}

fn parse_chance(text: &str) -> Result<f64, String> {
    let chance = text.trim().parse().ok().filter(|chance| (0.0..=1.0).contains(chance));
    chance.ok_or_else(|| "chances from 0 to 1, as 0.84,0.75,0.79".into())
}

/// GB a second of VRAM, RAM, file and bus; 10^12 multiplications a second of GPU and CPU.
type Speeds = [Option<f64>; 6];

/// Multiplications that a card makes in the time in which it reads a byte. An RTX 3090 can make 19 of floats, other consumers' cards
/// with 24 GB more. Our products of 16 rows reached half of what an H200 can.
const PRODUCTS_PER_BYTE: f64 = 10.0;

fn parse_speeds(text: &str) -> Result<Speeds, String> {
    let one = |speed: &str| match speed.trim() {
        "-" => Some(None),
        number => number.parse().ok().filter(|&gb: &f64| gb > 0.0 && gb.is_finite()).map(Some),
    };
    let speeds: Option<Vec<_>> = text.split(',').map(one).collect();
    let wanted = "three numbers of GB a second, from the GPU's memory, RAM and the file, as 1000,50,3, and up to three more: GB a second over the bus, 10^12 multiplications a second of GPU and CPU";
    let all = |mut speeds: Vec<_>| {
        let enough = speeds.len() >= 3;
        speeds.resize(speeds.len().max(6), None);
        speeds.try_into().ok().filter(|_| enough)
    };
    speeds.and_then(all).ok_or_else(|| wanted.to_string())
}

impl SpeedArgs {
    /// What a forecast for this machine rests on; `gguf` is a file whose disk is to be measured.
    pub fn basis(&self, threads: usize, gguf: Option<&Gguf>, known: KnownAcceptance) -> Basis {
        let given = self.speeds.unwrap_or_default();
        let [vram, ram, file, bus, ..] = given.map(|gb| gb.map(|gb| Known::given(1e9 * gb)));
        let [.., gpu_products, cpu_products] = given.map(|products| products.map(|n| Known::given(1e12 * n)));
        let default = Basis::default();
        let of_card = vram.map(|vram| Known::assumed(PRODUCTS_PER_BYTE * vram.value));
        let threads = if threads == 0 { Cores::here().default_threads() } else { threads };
        let ram = ram.or_else(|| speeds::of_ram(threads).ok().map(Known::measured));
        let file = file.or_else(|| speeds::of_file(gguf?).map(Known::measured));
        let told = (!self.accept.is_empty()).then(|| Acceptance::new(&self.accept, Origin::Given));
        Basis {
            vram: vram.unwrap_or(default.vram),
            ram: ram.unwrap_or(default.ram),
            file: file.unwrap_or(default.file),
            bus: bus.unwrap_or(default.bus),
            gpu_products: gpu_products.or(of_card).unwrap_or(default.gpu_products),
            cpu_products: cpu_products.unwrap_or(default.cpu_products),
            acceptance: told.or(known.acceptance).unwrap_or(default.acceptance),
            by_two_bits: told.or(known.by_two_bits).unwrap_or(default.by_two_bits),
            ..default
        }
    }
}

pub fn size(flag: &str, text: &str) -> Result<u64> {
    size::parse(text).ok_or_else(|| {
        Error::Usage(format!("{flag} {text}: a size is a number with a unit, as in 20GiB or 512MiB"))
    })
}

impl DeviceArgs {
    /// What -ngl asks for; nothing, and a warning, where there is no GPU and none was asked for by name.
    fn gpu_layers(&self) -> Option<u32> {
        let GpuLayers::Last(layers) = self.n_gpu_layers else { return None };
        let why = match self.device {
            _ if layers == 0 || self.strict || self.vram != "auto" => return Some(layers),
            Device::Named(_) | Device::Several(_) => return Some(layers),
            Device::Auto if has_gpu() => return Some(layers),
            Device::Auto => "no hardware GPU was found",
            Device::Cpu => "--device asks for none",
        };
        static WARNED: Once = Once::new();
        let given = if layers == u32::MAX { "all".into() } else { layers.to_string() };
        WARNED.call_once(|| warning!("-ngl {given}: {why}, so everything runs on the CPU"));
        None
    }

    /// What -ts asks for; nothing, and a warning, where there are not several GPUs. All zero is nothing, as in llama.cpp.
    fn split(&self) -> Result<Option<Vec<f32>>> {
        let Some(Split(shares)) = &self.tensor_split else { return Ok(None) };
        match &self.device {
            Device::Several(gpus) if shares.len() > gpus.len() => Err(Error::Usage(format!(
                "-ts: shares for {} GPUs, and --device names {}",
                shares.len(),
                gpus.len()
            ))),
            Device::Several(_) => Ok(Some(shares.clone()).filter(|shares| shares.iter().any(|&s| s > 0.0))),
            _ => {
                static WARNED: Once = Once::new();
                WARNED.call_once(|| {
                    warning!("-ts changes nothing: one GPU is used; --device 0,1 names several")
                });
                Ok(None)
            }
        }
    }

    pub fn check(&self) -> Result<()> {
        self.placement_request().map(drop)
    }

    pub fn device(&self) -> Device {
        self.device.clone()
    }

    pub fn placement_request(&self) -> Result<PlacementRequest> {
        let vram = if self.vram == "auto" { None } else { Some(size("--vram", &self.vram)?) };
        let ram = self.ram.as_deref().map(|text| size("--ram", text)).transpose()?;
        Ok(PlacementRequest {
            gpu_layers: self.gpu_layers(),
            vram,
            split: self.split()?,
            ram,
            strict: self.strict,
            ..PlacementRequest::default()
        })
    }

    /// The same for a model, with where its parts are to go.
    pub fn placement_request_for(&self, model: &Model) -> Result<PlacementRequest> {
        let mut request = self.placement_request()?;
        let units: Vec<Unit> = model.plan.units().map(|(unit, _)| unit).collect();
        let with_experts: Vec<bool> =
            (0..model.n_layer()).map(|layer| units.contains(&Unit::Experts(layer))).collect();
        self.placement.add_to(&mut request, &model.id(), &with_experts)?;
        request.off_gpu = self.off_gpu.resolve(model)?;
        Ok(request)
    }

    pub fn streaming(&self) -> Streaming {
        self.stream_rows
    }

    pub fn gpu_variant(&self) -> GpuVariant {
        self.gpu_variant
    }

    pub fn gpu_cache(&self) -> Option<PathBuf> {
        gpu_cache(self.gpu_cache.as_deref())
    }

    /// Whether the user has said where kernels are kept.
    pub fn names_cache(&self) -> bool {
        self.gpu_cache.is_some()
    }

    pub fn profile(&self) -> bool {
        self.profile
    }

    /// `promised` is what the draft's mask says of how often it is right.
    pub fn basis(&self, model: &Model, config: &ContextConfig, promised: Option<f64>) -> Basis {
        let promised = promised.map(|chance| Acceptance::new(&[chance.clamp(0.0, 1.0)], Origin::Promised));
        let known = measured(model, config);
        let known = KnownAcceptance { acceptance: promised.or(known.acceptance), ..known };
        self.speeds.basis(config.threads, Some(&model.gguf), known)
    }

    /// Whether --dry-run is given.
    #[cfg(feature = "server")]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// With --dry-run: prints what would go where. The caller is done then.
    pub fn dry_run(
        &self,
        model: &Model,
        config: &ContextConfig,
        promised: Option<f64>,
        json: bool,
    ) -> Result<bool> {
        if self.dry_run {
            let plans = runtime::plan(model, config, self.basis(model, config, promised))?;
            plan::print(&plans, Some(model.id()), json)?;
        }
        Ok(self.dry_run)
    }
}

/// How often drafts stand, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownAcceptance {
    pub acceptance: Option<Acceptance>,
    /// Of drafts by two bits of all weights.
    pub by_two_bits: Option<Acceptance>,
}

/// What was measured of such drafts on real models.
pub fn measured(model: &Model, config: &ContextConfig) -> KnownAcceptance {
    let mask = config.placement.draft.as_ref().filter(|_| config.planes == Some(Planes::All));
    let mut bytes: HashMap<GgmlType, u64> = HashMap::new();
    model.weights.iter().for_each(|weight| *bytes.entry(weight.ty()).or_default() += weight.bytes);
    let most = bytes.iter().max_by_key(|(_, bytes)| **bytes);
    let of = |high| of_high_bits(mask?, model.n_layer(), *most?.0, high);
    KnownAcceptance { acceptance: of(HighBits::Most), by_two_bits: of(HighBits::Two) }
}

fn has_gpu() -> bool {
    let gpus = runtime::gpus().filter(|gpus| gpus.may_have_hardware());
    gpus.is_some_and(|gpus| gpus.hardware().is_ok_and(|found| !found.is_empty()))
}

/// The directory that was asked for, or the user's own; `none` is none.
pub fn gpu_cache(asked: Option<&Path>) -> Option<PathBuf> {
    match asked {
        Some(none) if none == Path::new("none") => None,
        Some(directory) => Some(directory.into()),
        None => Some(choose_native_strategy().ok()?.cache_dir().join("spec-run").join("gpu")),
    }
}

#[cfg(test)]
mod tests {
    use super::{GpuLayers, Split, Streaming, parse_layers, parse_speeds, parse_split, parse_streaming};

    #[test]
    fn streaming_is_a_number_of_rows_or_a_word() {
        assert_eq!(parse_streaming("auto"), Ok(Streaming::Measured));
        assert_eq!(parse_streaming("never"), Ok(Streaming::Never));
        assert_eq!(parse_streaming("64"), Ok(Streaming::From(64)));
        for bad in ["", "0", "-1", "some", "1.5"] {
            assert!(parse_streaming(bad).unwrap_err().contains("never or auto"), "{bad}");
        }
    }

    #[test]
    fn shares_are_numbers() {
        assert_eq!(parse_split("3,1"), Ok(Split(vec![3.0, 1.0])));
        assert_eq!(parse_split("0.5/0.25,0"), Ok(Split(vec![0.5, 0.25, 0.0])));
        for bad in ["", ",", "a", "1,-1", "inf", "1;2"] {
            assert!(parse_split(bad).unwrap_err().contains("as 3,1"), "{bad}");
        }
    }

    #[test]
    fn layers_are_a_number_or_a_word() {
        for (text, layers) in [
            ("0", GpuLayers::Last(0)),
            ("99", GpuLayers::Last(99)),
            ("all", GpuLayers::Last(u32::MAX)),
            ("-2", GpuLayers::Last(u32::MAX)),
            ("auto", GpuLayers::Auto),
            ("-1", GpuLayers::Auto),
        ] {
            assert_eq!(parse_layers(text), Ok(layers), "{text}");
        }
        for bad in ["", "-3", "many", "1.5", "99999999999"] {
            assert!(parse_layers(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn speeds_are_three_numbers_or_dashes_and_up_to_three_more() {
        assert_eq!(parse_speeds("1000,-, 2.5"), Ok([Some(1000.0), None, Some(2.5), None, None, None]));
        assert_eq!(parse_speeds("1,2,3,25"), Ok([Some(1.0), Some(2.0), Some(3.0), Some(25.0), None, None]));
        assert_eq!(parse_speeds("1,2,3,-,9,0.5").unwrap()[3..], [None, Some(9.0), Some(0.5)]);
        for bad in ["", "1,2", "1,2,3,4,5,6,7", "fast,1,1", "0,1,1", "-1,1,1", "inf,1,1"] {
            assert!(parse_speeds(bad).unwrap_err().contains("1000,50,3"), "{bad}");
        }
    }
}
