//! From what was asked for to the backend that does it. Never a silent change of mind: a GPU that was asked for
//! and cannot be used is an error, and a plan that turned out too large is replaced with a word about it.

use std::sync::Arc;

use super::{
    Backend, Held,
    cpu::{CpuBackend, CpuConfig},
    gpu::{self, Found, GpuBackend, GpuConfig},
    hybrid::HybridBackend,
};
use crate::{
    Error, Model, Result,
    context::ContextConfig,
    placement::{self, Budgets, Place, Placement, Wishes},
};

/// Which device runs a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    #[default]
    Cpu,
    /// A hardware GPU if there is one, else the CPU.
    Auto,
    /// An adapter by its number in the list of `spec-run devices`, or by a part of its name.
    Named(String),
}

/// A backend, and where it put things.
pub struct Opened {
    pub backend: Box<dyn Backend>,
    pub placement: Placement,
    /// What turned out other than planned, in a sentence each.
    pub notes: Vec<String>,
}

/// Rows at once are halved down to this where buffers for them would take too much of a small GPU.
const LEAST_ROWS: usize = 32;

/// Of what the driver says the memory is, other programs and the driver itself get the rest.
const AUTO_SHARE: f64 = 0.9;

/// Each smaller plan takes so much of the one before.
const NEXT_PLAN: f64 = 0.85;
const MOST_PLANS: usize = 8;

/// What would be opened, without opening it.
pub fn plan(model: &Model, config: &ContextConfig) -> Result<Placement> {
    let found = adapter(config)?;
    Ok(plan_for(model, config, found.as_ref(), config.wishes.vram)?.placement)
}

pub fn open(
    model: &Arc<Model>,
    config: &ContextConfig,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Opened> {
    let found = adapter(config)?;
    let mut vram = config.wishes.vram;
    let mut wishes = config.wishes.clone();
    let mut notes = Vec::new();
    for _ in 0..MOST_PLANS {
        let planned = plan_for(
            model,
            &ContextConfig { wishes: wishes.clone(), ..config.clone() },
            found.as_ref(),
            vram,
        )?;
        match try_open(model, config, found.as_ref(), &planned, progress) {
            Ok(backend) => return Ok(Opened { backend, placement: planned.placement, notes }),
            Err(Error::Memory(what)) if found.is_some() && !config.wishes.strict => {
                let smaller = planned.gpu_bytes() as f64 * NEXT_PLAN;
                notes.push(format!("{what}; taking less of the GPU"));
                (vram, wishes.gpu_layers) = (Some(smaller as u64), None);
            }
            Err(e) => return Err(e),
        }
    }
    Err(Error::Memory(format!("no plan fits the GPU: {}", notes.last().map_or("", String::as_str))))
}

/// The GPU to use, if one is.
fn adapter(config: &ContextConfig) -> Result<Option<Found>> {
    let Wishes { gpu_layers, vram, .. } = config.wishes;
    let asked_for = gpu_layers.is_some_and(|n| n > 0) || vram.is_some_and(|v| v > 0);
    if gpu_layers == Some(0) || vram == Some(0) {
        return Ok(None);
    }
    match &config.device {
        Device::Cpu if asked_for => Err(Error::Usage(
            "-ngl and --vram are for a GPU, --device says cpu: leave one of them out".into(),
        )),
        Device::Cpu => Ok(None),
        Device::Named(name) => gpu::choose(&gpu::Choice::Named(name.clone())).map(Some),
        Device::Auto if asked_for => gpu::choose(&gpu::Choice::Any).map(Some),
        Device::Auto if !gpu::may_have_hardware() => Ok(None),
        // A hardware adapter that cannot run this is told of; none at all is the usual case of a CPU.
        Device::Auto => match gpu::adapters().into_iter().find(Found::is_hardware) {
            Some(found) => found.check().map(|()| Some(found)),
            None => Ok(None),
        },
    }
}

struct Planned {
    placement: Placement,
    max_rows: usize,
}

impl Planned {
    fn gpu_bytes(&self) -> u64 {
        let here = self.placement.parts.iter().filter(|(_, place)| *place == Place::Vram);
        here.map(|(part, _)| part.gpu_bytes + part.beside).sum::<u64>() + self.placement.budgets.scratch
    }
}

fn plan_for(
    model: &Model,
    config: &ContextConfig,
    found: Option<&Found>,
    vram: Option<u64>,
) -> Result<Planned> {
    let n_cells = config.n_ctx as usize;
    let n_slots = model.plan.dims.n_layer + config.extra_slots;
    let mut max_rows = config.n_ubatch.clamp(1, n_cells);
    let vram = found.map(|found| {
        let told = found.memory.filter(|_| found.is_hardware());
        vram.unwrap_or_else(|| told.map_or(u64::MAX / 2, |bytes| (bytes as f64 * AUTO_SHARE) as u64))
    });
    let scratch_for = |rows| gpu::scratch_bytes(model, rows, n_cells, n_slots);
    if let Some(vram) = vram {
        while max_rows > LEAST_ROWS && scratch_for(max_rows) > vram / 4 {
            max_rows = (max_rows / 2).max(LEAST_ROWS);
        }
    }
    let budgets = Budgets {
        vram,
        scratch: if vram.is_some() { scratch_for(max_rows) } else { 0 },
        ram: config.wishes.ram,
    };
    let types = (config.key_type, config.value_type);
    let parts = placement::parts(
        model,
        |op| gpu::op_bytes(model, op),
        |kind| gpu::bytes_beside(model, kind, n_cells, types),
        config.wishes.draft.as_ref(),
    );
    let placement = placement::place(parts, &config.wishes, budgets)?;
    if let (Some(vram), false) = (vram, placement.uses(Place::Vram)) {
        let smallest = placement.parts[1..].iter().map(|(p, _)| p.gpu_bytes + p.beside).min().unwrap_or(0);
        return Err(Error::Memory(format!(
            "nothing fits into {:.1} MiB of GPU memory: buffers take {:.1}, the smallest part of the model {:.1}: a larger --vram, a smaller -c or -b, or --device cpu",
            mib(vram),
            mib(budgets.scratch),
            mib(smallest)
        )));
    }
    Ok(Planned { placement, max_rows })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn try_open(
    model: &Arc<Model>,
    config: &ContextConfig,
    found: Option<&Found>,
    planned: &Planned,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Box<dyn Backend>> {
    let &Planned { ref placement, max_rows } = planned;
    let n_slots = model.plan.dims.n_layer + config.extra_slots;
    let cpu = |held: Held| {
        CpuBackend::new(
            model.clone(),
            &CpuConfig {
                n_cells: config.n_ctx as usize,
                n_slots,
                max_rows,
                threads: config.threads,
                key_type: config.key_type,
                value_type: config.value_type,
                isa: config.isa,
                planes: config.planes,
                held,
            },
            progress,
        )
    };
    let Some(found) = found else { return Ok(Box::new(cpu(placement.in_ram())?)) };
    let on_gpu = placement.on_gpu();
    let whole = !placement.uses(Place::Ram) && !placement.uses(Place::File);
    let gpu_config = GpuConfig {
        n_cells: config.n_ctx as usize,
        n_slots,
        max_rows,
        key_type: config.key_type,
        value_type: config.value_type,
        held: on_gpu.clone(),
        budget: placement.budgets.vram.unwrap_or(u64::MAX / 2),
        profile: config.profile,
        tuning: config.gpu_tuning,
    };
    let quiet = |_, _| ();
    let gpu = GpuBackend::new(model.clone(), found, &gpu_config, if whole { progress } else { &quiet })?;
    if whole {
        return Ok(Box::new(gpu));
    }
    let cpu = cpu(placement.in_ram())?;
    Ok(Box::new(HybridBackend::new(model.clone(), gpu, cpu, on_gpu)))
}
