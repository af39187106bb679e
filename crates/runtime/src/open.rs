//! Opens the backend that a configuration asks for. Nothing is changed silently: a GPU that was asked for and cannot
//! be used is an error, and a plan that does not fit is replaced by a smaller one with a note.

#[cfg(test)]
mod tests;

use std::{str::FromStr, sync::Arc};

use crate::{
    Error, Model, Result,
    backend::{
        Backend, Speeds,
        cpu::{CpuBackend, CpuConfig},
        gpu::{AnyGpu, Chosen, Gpu, GpuConfig, GpuVariant, Gpus, OpenedGpu},
    },
    config::{ContextConfig, Streaming},
    gpus::{gpus, left_out},
    hybrid::{HybridBackend, Part},
    kv::StateBytes,
    lora::Loras,
    placement::{
        self, Apart, Basis, First, HeadForecast, Place, Placement, PlacementChoice, PlacementRequest,
        PromptForecast, Side, forecast::Forecast,
    },
    plan::UnitSet,
    planned::{GpuRoom, Machine, ModelSizes, Planned, cpu_overhead, plan_mtp, rooms, vram},
};

/// Which device runs a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// A hardware GPU if there is one, else the CPU.
    Auto,
    /// An adapter by its number in the list of `spec-run devices`, or by a part of its name.
    Named(String),
    /// Adapters by their numbers: what does not fit the first goes to the next. One that is there twice is opened twice, and
    /// its memory is shared.
    Several(Vec<usize>),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_cpu = |name: &str| matches!(name, "cpu" | "none");
        let lower = text.to_lowercase();
        let pieces: Vec<&str> = lower.split(',').map(str::trim).collect();
        let numbers: Vec<usize> = pieces.iter().filter_map(|piece| piece.parse().ok()).collect();
        // Names may have commas, too.
        if pieces.len() > 1
            && numbers.len() + pieces.iter().filter(|piece| is_cpu(piece)).count() == pieces.len()
        {
            if numbers.len() < pieces.len() {
                return Err("several devices are GPUs by their numbers, as 0,1: what these have no room for is the CPU's anyway".into());
            }
            let twice = |(i, number): &(usize, &usize)| numbers[..*i].contains(number);
            return match numbers.iter().enumerate().find(twice) {
                Some((_, number)) => Err(format!("GPU {number} is named twice: each GPU once, as 0,1")),
                None => Ok(Device::Several(numbers)),
            };
        }
        Ok(match lower.as_str() {
            "auto" => Device::Auto,
            name if is_cpu(name) => Device::Cpu,
            _ => Device::Named(text.into()),
        })
    }
}

/// A backend, and what it was opened with.
pub struct Opened {
    /// The model as it is run.
    pub model: Arc<Model>,
    pub backend: Box<dyn Backend>,
    pub placement: Placement,
    /// What differs from the plan, in a sentence each.
    pub notes: Vec<String>,
    /// How fast the GPU is, where one is used and was measured.
    pub speeds: Option<Speeds>,
}

/// Each smaller plan takes this share of the memory of the one before.
const NEXT_PLAN: f64 = 0.85;
const MOST_PLANS: usize = 8;

/// The placements that are possible, and the one that would be opened.
pub struct Plans {
    /// The one that would be opened.
    pub chosen: Placement,
    /// Without regard to a draft.
    pub whole_layers: Placement,
    /// The parts that a draft runs come first into the fast memory.
    pub drafted_first: Placement,
    /// The low planes are in RAM, where drafts read the high planes alone.
    pub apart: Option<Apart>,
    /// What heads would give that the model may get, where something drafts.
    pub heads: Vec<HeadForecast>,
    /// What the choice rests on.
    pub basis: Basis,
    /// Where there are recurrent layers. It is part of the placements' bytes too.
    pub states: Option<StateBytes>,
    /// Where the GPU may multiply many rows with matrices that are in RAM.
    pub prompt: Option<PromptForecast>,
}

impl Plans {
    pub fn forecast(&self) -> Forecast {
        let heads = self.heads.clone();
        Forecast::new(&self.whole_layers, &self.drafted_first, self.apart.as_ref(), heads, self.basis)
    }

    /// These plans, with those of another draft that puts low planes in RAM. The other is chosen where it is expected to be faster.
    pub fn or_apart(self, other: Plans) -> Self {
        let Plans { apart: Some(apart), heads, .. } = other else { return self };
        let basis = Basis { acceptance: apart.acceptance, ..self.basis };
        let side = Side::of(&apart.placement, &basis);
        let [whole_layers, drafted] =
            [&self.whole_layers, &self.drafted_first].map(|placement| Side::of(placement, &self.basis));
        let chosen = match side.rate > self.chosen.rate(&self.basis) {
            true => {
                let choice =
                    PlacementChoice { first: First::Planes, whole_layers, drafted, planes: Some(side) };
                Placement { choice: Some(choice), ..apart.placement.clone() }
            }
            false => self.chosen,
        };
        Plans { chosen, apart: Some(apart), heads, ..self }
    }
}

/// What would be opened, without opening it.
pub fn plan(model: &Model, config: &ContextConfig, basis: Basis) -> Result<Plans> {
    let mut found = adapters(config)?;
    if config.device == Device::Auto {
        found.truncate(1);
    }
    let speeds = match found.first() {
        Some(found) => found.speeds(config.gpu_cache.as_deref())?,
        None => None,
    };
    let basis = with_measured(basis, speeds);
    plans(model, config, basis, rooms(&config.placement, &found, &[]))
}

/// Bytes of RAM that a context would take: for weights, keys, values and buffers. Nothing stays in the file, unless the
/// placement asks for that.
pub fn memory_needed(model: &Model, config: &ContextConfig) -> Result<u64> {
    let mut found = adapters(config)?;
    if config.device == Device::Auto {
        found.truncate(1);
    }
    let request = PlacementRequest {
        ram: Some(config.placement.ram.unwrap_or(u64::MAX / 2)),
        ..config.placement.clone()
    };
    let machine = Machine::with(rooms(&request, &found, &[]));
    let with_mtp = config.mtp.then(|| model.with_mtp());
    let planned = plan_mtp(model, with_mtp.as_ref(), config, &request, &machine, &Basis::default)?;
    let buffers = cpu_overhead(model, config, planned.max_rows, &planned.placement.on_cpu());
    Ok(planned.placement.bytes_in_ram().saturating_add(buffers))
}

/// The basis, with the measured speeds of a GPU.
fn with_measured(basis: Basis, speeds: Option<Speeds>) -> Basis {
    speeds.map_or(basis, |Speeds { read, round_trip }| basis.with_measured(read, round_trip))
}

/// The same for another machine, whose GPU, if it has one, has `config.placement.vram`. No device is looked for.
pub fn plan_elsewhere(model: &Model, config: &ContextConfig, basis: Basis) -> Result<Plans> {
    let vram = config.placement.vram.filter(|&vram| vram > 0);
    if vram.is_some() && gpus().is_none() {
        // Without the feature it is not known what a GPU would hold.
        return Err(left_out());
    }
    let room = vram.map(|vram| GpuRoom { number: 0, vram, shares_memory: false, is_hardware: true });
    plans(model, config, basis, room.into_iter().collect())
}

fn plans(model: &Model, config: &ContextConfig, basis: Basis, rooms: Vec<GpuRoom>) -> Result<Plans> {
    let is_alone = rooms.len() == 1;
    let machine = Machine::with(rooms);
    let with_mtp = config.mtp.then(|| model.with_mtp());
    let planned = plan_mtp(model, with_mtp.as_ref(), config, &config.placement, &machine, &|| basis)?;
    let model = with_mtp.as_ref().filter(|_| planned.mtp).unwrap_or(model);
    let (chosen, streams) = (planned.placement, planned.streams);
    let prompt = streams.then(|| chosen.prompt(basis, planned.max_rows));
    let sizes = ModelSizes { model, config, layout: config.kv_layout(&model.plan) };
    let parts = placement::parts(model, &sizes, config.placement.draft.as_ref());
    let place = |request: &PlacementRequest| placement::place(parts.clone(), request, chosen.budgets);
    let whole_layers = place(&PlacementRequest { draft: None, ..config.placement.clone() })?;
    let drafted_first = place(&config.placement)?;
    let apart = match chosen.first {
        First::Planes => {
            let high = chosen.planes_apart().high;
            let acceptance = basis.of_drafts_by(high).acceptance;
            Some(Apart { placement: chosen.clone(), high, acceptance })
        }
        _ if is_alone => Apart::of(&parts, &config.placement, chosen.budgets, &basis),
        _ => None,
    };
    let heads = match config.placement.draft {
        Some(_) => {
            let without_draft = PlacementRequest { draft: None, ..config.placement.clone() };
            placement::head_forecasts(
                (model.plan.dims, &parts),
                chosen.budgets,
                &basis,
                |budgets| placement::place(parts.clone(), &without_draft, budgets),
                |budgets| Apart::of(&parts, &config.placement, budgets, &basis).filter(|_| is_alone),
            )
        }
        None => Vec::new(),
    };
    let mixers = &model.plan.mixers;
    let layout = config.kv_layout(&model.plan);
    let states = (!mixers.is_empty()).then(|| StateBytes::new(mixers.iter(), &layout));
    Ok(Plans { chosen, whole_layers, drafted_first, apart, heads, basis, states, prompt })
}

/// Hears how a model is loaded, and gives the speeds by which parts are placed.
pub trait Loading: Sync {
    /// A device is used for the first time: its kernels are tried and its speed is measured, which takes a moment.
    fn trying(&self, _device: &str) {}

    /// How fast weights are read. Only asked for where something depends on it.
    fn basis(&self) -> Basis {
        Basis::default()
    }

    /// The placement, before anything is loaded. Called again where it did not fit and a smaller one is tried.
    fn planned(&self, _: &Placement) {}

    /// How many bytes of weights are ready, of how many. Called from several threads.
    fn ready(&self, _ready: u64, _total: u64) {}
}

/// Nobody listens.
impl Loading for () {}

/// Nobody listens, but the speeds are known.
impl Loading for Basis {
    fn basis(&self) -> Basis {
        *self
    }
}

pub fn open(
    model: Arc<Model>,
    config: &ContextConfig,
    loras: &Arc<Loras>,
    loading: &dyn Loading,
) -> Result<Opened> {
    let (candidates, note) = adapters_for(&model, config, loras)?;
    // A GPU's kernels do several operations at once, so that the plan has to have the adapters' operations.
    let (model, loras) = match candidates.is_empty() || loras.all().is_empty() {
        true => (model, loras.clone()),
        false => (loras.in_plan(&model)?, Arc::default()),
    };
    let with_mtp = config.mtp.then(|| Arc::new(model.with_mtp()));
    let of = |planned: &Planned| with_mtp.as_ref().filter(|_| planned.mtp).unwrap_or(&model);
    let kernels = |found: &AnyGpu| kernels(config, &**found, loading);
    let (found, note) = match config.device {
        Device::Auto => {
            let (found, fallback) = first_right(candidates, kernels, |found| found.describe())?;
            (found.into_iter().collect(), note.or(fallback))
        }
        _ => (all_right(candidates, kernels)?, note),
    };
    let (found, kernels): (Vec<AnyGpu>, Vec<Chosen>) =
        found.into_iter().map(|right| (right.gpu, right.kernels)).unzip();
    let gpus: Vec<(&dyn Gpu, GpuVariant)> =
        found.iter().map(|found| &**found).zip(kernels.iter().map(|of| of.variant)).collect();
    // Of several GPUs, the speeds of the first.
    let speeds = kernels.first().and_then(|of| of.speeds);
    let plan = |request: &PlacementRequest, most: &[Option<u64>]| {
        let basis = || with_measured(loading.basis(), speeds);
        let machine = Machine::with(rooms(request, &found, most));
        plan_mtp(&model, with_mtp.as_deref(), config, request, &machine, &basis)
    };
    let progress = |ready, total| loading.ready(ready, total);
    let open = |planned: &Planned| {
        loading.planned(&planned.placement);
        try_open(of(planned), config, &loras, &gpus, planned, &progress)
    };
    let smaller = !found.is_empty() && !config.placement.strict;
    let mut request = config.placement.clone();
    if note.is_some() && found.is_empty() {
        (request.gpu_layers, request.vram, request.on_gpu) = (None, None, None);
    }
    let gpu_bytes = |planned: &Planned| planned.placement.bytes_on_each_gpu();
    let (planned, backend, mut notes) = first_that_fits(&request, smaller, plan, gpu_bytes, open)?;
    notes.extend(note);
    let model = of(&planned).clone();
    Ok(Opened { model, backend, placement: planned.placement, notes, speeds })
}

/// Which kernels a GPU runs.
fn kernels(config: &ContextConfig, found: &dyn Gpu, loading: &dyn Loading) -> Result<Chosen> {
    let budget = vram(&config.placement, found);
    let trying = || loading.trying(found.name());
    found.choose_kernels(config.gpu_variant, config.gpu_cache.as_deref(), budget, &trying)
}

/// Opens what was planned. If that does not fit after all and `smaller` allows it, opens the first smaller plan that fits.
/// Also gives the notes about that. `plan` takes the most bytes that each GPU may give, where there is such a limit.
fn first_that_fits<P, T>(
    request: &PlacementRequest,
    smaller: bool,
    plan: impl Fn(&PlacementRequest, &[Option<u64>]) -> Result<P>,
    gpu_bytes: impl Fn(&P) -> Vec<Option<u64>>,
    open: impl Fn(&P) -> Result<T>,
) -> Result<(P, T, Vec<String>)> {
    let mut request = request.clone();
    let mut most = Vec::new();
    let mut notes = Vec::new();
    for plans_left in (0..MOST_PLANS).rev() {
        let planned = match plan(&request, &most) {
            // A request for all layers means as many as fit, unless it has a budget or is strict.
            Err(Error::Memory(_)) if smaller && request.gpu_layers.is_some() && request.vram.is_none() => {
                request.gpu_layers = None;
                notes.push("more layers were asked for than fit the GPU; what fits goes there".into());
                continue;
            }
            planned => planned?,
        };
        match open(&planned) {
            Ok(opened) => return Ok((planned, opened, notes)),
            Err(Error::Memory(what)) if smaller && plans_left > 0 => {
                let less = |taken: u64| (taken as f64 * NEXT_PLAN) as u64;
                most = gpu_bytes(&planned).into_iter().map(|taken| taken.map(less)).collect();
                (request.gpu_layers, request.on_gpu) = (None, None);
                notes.push(format!("{what}; taking less of the GPU"));
            }
            Err(e) => return Err(e),
        }
    }
    unreachable!("the last plan opens or fails")
}

/// The GPUs to use for a model, and a note where a GPU was asked for that cannot run it.
fn adapters_for(
    model: &Model,
    config: &ContextConfig,
    loras: &Loras,
) -> Result<(Vec<AnyGpu>, Option<String>)> {
    let found = adapters(config)?;
    if found.is_empty() {
        return Ok((found, None));
    }
    if let Some(note) = loras.only_by_themselves(model) {
        return Ok((Vec::new(), Some(note)));
    }
    match (a_way()?.check(model), &config.device) {
        (Ok(()), _) => Ok((found, None)),
        (Err(e), Device::Named(_) | Device::Several(_)) => Err(e),
        (Err(e), Device::Cpu | Device::Auto) => {
            Ok((Vec::new(), Some(format!("all of it runs on the CPU: {e}"))))
        }
    }
}

/// The GPU interface, or an error in a build without one.
fn a_way() -> Result<&'static dyn Gpus> {
    gpus().ok_or_else(left_out)
}

/// A GPU, and kernels that compute correctly on it.
struct Right<T> {
    gpu: T,
    kernels: Chosen,
}

/// The GPUs that were named, with their kernels. It is an error if the kernels of one are wrong.
fn all_right<T>(named: Vec<T>, kernels: impl Fn(&T) -> Result<Chosen>) -> Result<Vec<Right<T>>> {
    let with_kernels = |gpu: T| match kernels(&gpu)? {
        Chosen { refusal: Some(refusal), .. } => Err(Error::Device(refusal)),
        kernels => Ok(Right { gpu, kernels }),
    };
    named.into_iter().map(with_kernels).collect()
}

/// The first GPU whose kernels are right, and a note where that is not the first in the list. The same GPU may be there again
/// through another interface with a better driver.
fn first_right<T>(
    candidates: Vec<T>,
    kernels: impl Fn(&T) -> Result<Chosen>,
    describe: impl Fn(&T) -> String,
) -> Result<(Option<Right<T>>, Option<String>)> {
    let mut refused = None;
    for gpu in candidates {
        let kernels = kernels(&gpu)?;
        match &kernels.refusal {
            Some(refusal) => _ = refused.get_or_insert(refusal.clone()),
            None => {
                let note = refused.map(|refusal| format!("{refusal}; {} is used instead", describe(&gpu)));
                return Ok((Some(Right { gpu, kernels }), note));
            }
        }
    }
    Ok((None, refused.map(|refusal| format!("all of it runs on the CPU: {refusal}"))))
}

/// The GPUs to use, none for the CPU alone. With [`Device::Auto`] those of which one will be used, the best candidate first.
fn adapters(config: &ContextConfig) -> Result<Vec<AnyGpu>> {
    let PlacementRequest { gpu_layers, vram, .. } = config.placement;
    let asked_for = gpu_layers.is_some_and(|n| n > 0) || vram.is_some_and(|v| v > 0);
    if gpu_layers == Some(0) || vram == Some(0) {
        return Ok(Vec::new());
    }
    let one = |found: AnyGpu| vec![found];
    match &config.device {
        Device::Cpu if asked_for => Err(Error::Usage(
            "`gpu_layers` and `vram` are for a GPU, `device` says cpu: leave one of them out".into(),
        )),
        Device::Cpu => Ok(Vec::new()),
        Device::Named(name) => a_way()?.named(name).map(one),
        Device::Several(numbers) => a_way()?.numbered(numbers),
        Device::Auto if asked_for => match a_way()?.hardware()? {
            // The error says what is missing.
            none if none.is_empty() => a_way()?.first().map(one),
            all => Ok(all),
        },
        // A machine without any GPU is the usual case.
        Device::Auto => match gpus().filter(|gpus| gpus.may_have_hardware()) {
            Some(gpus) => gpus.hardware(),
            None => Ok(Vec::new()),
        },
    }
}

fn try_open(
    model: &Arc<Model>,
    config: &ContextConfig,
    loras: &Arc<Loras>,
    gpus: &[(&dyn Gpu, GpuVariant)],
    planned: &Planned,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Box<dyn Backend>> {
    let &Planned { ref placement, max_rows, streams, .. } = planned;
    let cpu = |held: UnitSet| {
        CpuBackend::new(
            model.clone(),
            &CpuConfig {
                layout: config.kv_layout(&model.plan),
                max_rows,
                threads: config.threads,
                prompt_threads: config.prompt_threads,
                binding: config.binding,
                key_type: config.key_type,
                value_type: config.value_type,
                isa: config.isa,
                planes: config.planes,
                pack_later: config.pack_later && !placement.uses(Place::Vram),
                runs: placement.on_cpu(),
                held,
                by_planes: placement.planes_apart(),
                prefetch: placement.uses(Place::File),
                read_chosen: config.read_chosen,
                loras: loras.clone(),
            },
            progress,
        )
    };
    if !placement.uses(Place::Vram) {
        return Ok(Box::new(cpu(placement.in_ram())?));
    }
    let quiet = |_, _| ();
    let whole = !placement.is_divided();
    let gpu = |(found, variant): (&dyn Gpu, GpuVariant), held: &UnitSet, budget| {
        let gpu_config = GpuConfig {
            layout: config.kv_layout(&model.plan),
            max_rows,
            key_type: config.key_type,
            value_type: config.value_type,
            held: held.clone(),
            by_planes: placement.planes_apart(),
            budget,
            profile: config.profile,
            widths: config.gpu_widths,
            variant,
            cache: config.gpu_cache.clone(),
        };
        found.open(model.clone(), &gpu_config, if whole { progress } else { &quiet })
    };
    let opened: Vec<(Box<dyn OpenedGpu>, UnitSet)> = match &placement.shares[..] {
        [] => {
            let held = placement.on_gpu();
            vec![(gpu(gpus[0], &held, placement.budgets.vram.unwrap_or(u64::MAX / 2))?, held)]
        }
        shares => std::iter::zip(gpus, shares)
            .filter(|(_, share)| !share.is_empty())
            .map(|(found, share)| Ok((gpu(*found, &share.held, share.vram)?, share.held.clone())))
            .collect::<Result<_>>()?,
    };
    if whole {
        let (gpu, _) = opened.into_iter().next().expect("something lies there");
        return Ok(gpu);
    }
    let in_ram = placement.in_ram();
    let on_cpu = placement.uses(Place::Ram) || placement.uses(Place::File) || placement.has_planes_apart();
    let mut cpu = if on_cpu { Some(cpu(in_ram.clone())?) } else { None };
    let from = match config.streaming {
        Streaming::From(rows) => Some(rows),
        Streaming::Measured | Streaming::Never => None,
    };
    // Room for it was planned on the first GPU alone. If nothing fits there, that GPU is not opened.
    let first_is_open = placement.shares.first().is_none_or(|share| !share.is_empty());
    if let (Some(cpu), true) = (&mut cpu, streams && first_is_open)
        && let Some(offloader) =
            opened[0].0.offloader(&in_ram, &placement.planes_apart(), config.planes, config.isa)?
    {
        cpu.offload(offloader, from)?;
    }
    let part = |(gpu, held): (Box<dyn OpenedGpu>, _)| {
        let low_products = gpu.low_products();
        Part { gpu, held, low_products }
    };
    let parts = opened.into_iter().map(part).collect();
    Ok(Box::new(HybridBackend::new(model.clone(), parts, cpu)))
}
