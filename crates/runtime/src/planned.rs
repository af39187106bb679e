//! Which part of a model goes where on this machine, and how many rows run at once. Collects what `placement` has to know of
//! the GPUs, the memory and the model's sizes.

use crate::{
    Error, Model, Result, RunLayers,
    backend::{
        cpu::{self, matmul::Packed},
        gpu::{AnyGpu, Gpu},
        planes::{self, HighBits},
    },
    config::{ContextConfig, Streaming},
    gpus::gpus,
    kv::{KvLayout, StateBytes},
    placement::{
        self, Basis, Budgets, ByPlanes, Place, Placement, PlacementRequest, Room, Sizes, UnitSize, mib,
    },
    plan::{Op, PlanOp, Unit, UnitSet, WeightId},
};

/// The rows of a pass are halved down to this where their buffers would take too much of a small GPU's memory.
const LEAST_ROWS: usize = 32;

/// The share of free memory that is used. The rest is left to other programs.
const AUTO_SHARE: f64 = 0.9;

/// Room for products with matrices in RAM takes at most a fourth of a GPU's memory.
const MOST_STREAMING: u64 = 4;

pub struct Planned {
    pub placement: Placement,
    pub max_rows: usize,
    /// The model has its head that predicts one token more.
    pub mtp: bool,
    /// There is room on the GPU for products with matrices that lie in RAM.
    pub streams: bool,
}

/// A GPU, as far as plans depend on it.
#[derive(Clone, Copy)]
pub struct GpuRoom {
    /// In the list of devices.
    pub number: usize,
    /// Bytes of its memory that may be used.
    pub vram: u64,
    /// Its memory is the CPU's too, so that what the GPU takes is missing for the CPU.
    pub shares_memory: bool,
    pub is_hardware: bool,
}

/// The machine, as far as plans depend on it.
pub struct Machine {
    pub rooms: Vec<GpuRoom>,
    /// Bytes of RAM that weights and buffers may take, where the system tells.
    pub free_ram: Option<u64>,
}

impl Machine {
    pub fn with(rooms: Vec<GpuRoom>) -> Self {
        Machine { rooms, free_ram: free_ram() }
    }
}

impl GpuRoom {
    /// Whether it is to multiply with matrices that lie in RAM.
    fn streams(&self, config: &ContextConfig) -> bool {
        let wanted = match config.streaming {
            Streaming::Measured => self.is_hardware,
            Streaming::Never => false,
            Streaming::From(_) => true,
        };
        wanted && config.planes.is_some()
    }
}

/// These GPUs as plans see them. `most` limits the bytes of some of them.
pub fn rooms(request: &PlacementRequest, found: &[AnyGpu], most: &[Option<u64>]) -> Vec<GpuRoom> {
    let room = |(i, of): (usize, &AnyGpu)| {
        // A GPU that is listed twice has its memory only once.
        let times = found.iter().filter(|other| other.number() == of.number()).count() as u64;
        let vram = request.vram.unwrap_or_else(|| vram(request, &**of) / times);
        GpuRoom {
            number: of.number(),
            vram: most.get(i).copied().flatten().map_or(vram, |most| most.min(vram)),
            shares_memory: of.shares_memory(),
            is_hardware: of.is_hardware(),
        }
    };
    found.iter().enumerate().map(room).collect()
}

/// Bytes of a GPU's memory that may be used.
pub fn vram(request: &PlacementRequest, found: &dyn Gpu) -> u64 {
    let told = found.memory().filter(|_| found.is_hardware());
    let free = free_ram().filter(|_| found.shares_memory()).unwrap_or(u64::MAX);
    request.vram.unwrap_or_else(|| told.map_or(u64::MAX / 2, |bytes| bytes.min(free)))
}

/// Bytes of free memory that weights and buffers may take, where the system tells.
fn free_ram() -> Option<u64> {
    Some((cpu::available_memory()? as f64 * AUTO_SHARE) as u64)
}

/// On the first GPU alone where that has room for all of the model.
pub fn plan_mtp(
    model: &Model,
    with_mtp: Option<&Model>,
    config: &ContextConfig,
    request: &PlacementRequest,
    machine: &Machine,
    basis: &dyn Fn() -> Basis,
) -> Result<Planned> {
    if machine.rooms.len() > 1 && request.split.is_none() {
        let first = Machine { rooms: machine.rooms[..1].to_vec(), free_ram: machine.free_ram };
        match plan_mtp_on(model, with_mtp, config, request, &first, basis) {
            Ok(planned) if planned.placement.is_divided() => {}
            Err(Error::Memory(_)) => {}
            alone => return alone,
        }
    }
    plan_mtp_on(model, with_mtp, config, request, machine, basis)
}

/// With the head that predicts one token more, if that moves no other part: text without drafts must not change by it.
fn plan_mtp_on(
    model: &Model,
    with_mtp: Option<&Model>,
    config: &ContextConfig,
    request: &PlacementRequest,
    machine: &Machine,
    basis: &dyn Fn() -> Basis,
) -> Result<Planned> {
    let plain = plan_for(model, config, request, machine, basis)?;
    let is_divided = |planned: &Planned| !machine.rooms.is_empty() && planned.placement.is_divided();
    let Some(with_mtp) = with_mtp.filter(|_| !is_divided(&plain)) else { return Ok(plain) };
    match plan_for(with_mtp, config, request, machine, basis) {
        Ok(planned) if !is_divided(&planned) => Ok(Planned { mtp: true, ..planned }),
        Ok(_) | Err(Error::Memory(_)) => Ok(plain),
        Err(e) => Err(e),
    }
}

pub fn plan_for(
    model: &Model,
    config: &ContextConfig,
    request: &PlacementRequest,
    machine: &Machine,
    basis: &dyn Fn() -> Basis,
) -> Result<Planned> {
    let n_cells = config.n_ctx as usize;
    let layout = config.kv_layout(&model.plan);
    let sizes = ModelSizes { model, config, layout: config.kv_layout(&model.plan) };
    let parts = placement::parts(model, &sizes, request.draft.as_ref());
    // If everything is kept off the GPU, no GPU is used. The embedding goes to a GPU only with all the rest.
    let may_go = |part: &UnitSize| part.unit != Unit::Embed && !request.keeps_off_gpu(part.unit);
    let rooms: &[GpuRoom] = if parts.iter().any(may_go) { &machine.rooms } else { &[] };
    let smallest = rooms.iter().map(|room| room.vram).min();
    // Without rooms there are none.
    let used = gpus().filter(|_| !rooms.is_empty());
    let scratch_for = |rows| used.map_or(0, |gpus| gpus.scratch_bytes(model, rows, &layout));
    // Fewer rows at once where their buffers would take too much of a small GPU.
    let rows_of = |n_ubatch: usize| {
        let mut rows = n_ubatch.clamp(1, n_cells);
        while smallest.is_some_and(|vram| rows > LEAST_ROWS && scratch_for(rows) > vram / 4) {
            rows = (rows / 2).max(LEAST_ROWS);
        }
        rows
    };
    // A little room for the sums of low planes, where these may be in RAM.
    let may_lie_apart = match &request.planes_apart {
        Some(apart) => apart.units != UnitSet::none(model.plan.dims.n_layer),
        None => request.draft.as_ref().is_some_and(RunLayers::has_coarse),
    };
    let all = UnitSet::all(model.plan.dims.n_layer);
    let with_lows = used.filter(|_| may_lie_apart);
    let lows_for = |rows| with_lows.map_or(0, |gpus| gpus.lows_bytes(model, &all, rows));
    let shares_memory = rooms.iter().any(|room| room.shares_memory);
    // The first GPU is the one that multiplies with what lies in RAM.
    let place_with_room = |rows, streaming| {
        let of = |(i, room): (usize, &GpuRoom)| Room {
            number: room.number,
            vram: room.vram,
            scratch: scratch_for(rows) + lows_for(rows) + if i == 0 { streaming } else { 0 },
        };
        let rooms: Vec<Room> = rooms.iter().enumerate().map(of).collect();
        let place = |ram| {
            let place = |budgets: Budgets| placement::choose(parts.clone(), request, budgets, basis);
            placement::place_on(&parts, &rooms, place, ram, request.split.as_deref())
        };
        let placement = place(request.ram)?;
        let on_gpu = if shares_memory { placement.bytes_on_gpu() } else { 0 };
        let ram_at_hand =
            || Some(machine.free_ram?.saturating_sub(cpu_overhead(model, config, rows, &placement.on_cpu())));
        if let (None, Some(_), Some(ram)) = (request.ram, config.planes, ram_at_hand())
            && placement.bytes_in_ram() > ram.saturating_sub(on_gpu)
        {
            return place(Some(ram.saturating_sub(on_gpu)));
        }
        Ok(placement)
    };
    // Where something is in RAM, the GPU gets room to multiply with it, unless that takes much or leaves the GPU empty.
    let streams = rooms.first().is_some_and(|room| room.streams(config));
    let place = |rows| {
        let placement = place_with_room(rows, 0)?;
        let takes_for = |units: &UnitSet| {
            used.filter(|_| streams).map_or(0, |gpus| gpus.offload_bytes(model, units, rows))
        };
        let takes = match placement.has_planes_apart() || takes_for(&placement.in_ram()) > 0 {
            true => takes_for(&all),
            false => 0,
        };
        if takes == 0 || rooms.first().is_none_or(|room| takes > room.vram / MOST_STREAMING) {
            return Ok((placement, false));
        }
        match place_with_room(rows, takes) {
            Ok(with_room) if with_room.uses(Place::Vram) => Ok((with_room, true)),
            Ok(_) | Err(Error::Memory(_)) => Ok((placement, false)),
            Err(e) => Err(e),
        }
    };
    let mut max_rows = rows_of(config.n_ubatch);
    let (mut placement, mut streams) = place(max_rows)?;
    let places = |of: &Placement| {
        let held: Vec<UnitSet> = of.shares.iter().map(|share| share.held.clone()).collect();
        (of.on_gpu(), of.planes_apart(), held)
    };
    // GPU and CPU round differently, and no result may depend on how many rows run at once. So there is always room for the
    // usual number of rows, and for more only if that moves no part.
    let usual = rows_of(ContextConfig::default().n_ubatch);
    if max_rows != usual
        && let Ok((as_usual, usual_streams)) = place(usual)
        && as_usual.uses(Place::Vram)
        && places(&as_usual) != places(&placement)
    {
        max_rows = max_rows.min(usual);
        (placement, streams) = (as_usual, usual_streams);
    }
    placement.converted = gpus().map_or_else(Vec::new, |gpus| gpus.converted(model, &placement.on_gpu()));
    if let (Some(largest), false) = (rooms.iter().map(|room| room.vram).max(), placement.uses(Place::Vram)) {
        return Err(Error::Memory(format!(
            "nothing fits into {:.1} MiB of GPU memory: buffers take {:.1}, the least that goes there {:.1}: a larger `vram`, a smaller `n_ctx` or `n_ubatch`, or `device` cpu",
            mib(largest),
            mib(placement.budgets.scratch / rooms.len() as u64),
            mib(placement.least_on_gpu())
        )));
    }
    Ok(Planned { placement, max_rows, mtp: false, streams })
}

/// Bytes of RAM that the buffers and the cache of these units take.
pub fn cpu_overhead(model: &Model, config: &ContextConfig, max_rows: usize, on_cpu: &UnitSet) -> u64 {
    let types = [config.key_type, config.value_type];
    let layout = config.kv_layout(&model.plan).of_units(&model.plan, on_cpu);
    let overhead = cpu::overhead_bytes(model, (on_cpu, &layout), types, max_rows);
    u64::try_from(overhead).unwrap_or(u64::MAX)
}

/// An error where states take more than half of the free memory, since weights and the rest need room too. `what` names what goes
/// back to so many positions of a text, and `less` how to have fewer of them.
pub fn check_states(
    model: &Model,
    config: &ContextConfig,
    what: &str,
    positions: usize,
    less: &str,
) -> Result<()> {
    let states = StateBytes::new(model.plan.mixers.iter(), &config.kv_layout(&model.plan)).all();
    match cpu::available_memory() {
        Some(free) if states > free / 2 => Err(Error::Memory(format!(
            "{what} goes back to {positions} positions of a text, for which the states of recurrent layers take {:.1} GiB, more than half of the {:.1} GiB that are free: {less}",
            mib(states) / 1024.0,
            mib(free) / 1024.0
        ))),
        _ => Ok(()),
    }
}

pub struct ModelSizes<'a> {
    pub model: &'a Model,
    pub config: &'a ContextConfig,
    pub layout: KvLayout,
}

impl Sizes for ModelSizes<'_> {
    fn in_ram(&self, id: WeightId, coarse: bool) -> u64 {
        let weight = self.model.weight(id);
        match self.config.planes.filter(|_| Packed::knows(weight.ty())) {
            Some(planes) => Packed::bytes_read_of(weight.ty(), weight.rows, weight.cols, planes, coarse),
            None => weight.bytes,
        }
    }

    fn on_gpu(&self, id: WeightId, coarse: bool) -> u64 {
        gpus().map_or(0, |gpus| gpus.bytes_read(self.model, id, coarse))
    }

    fn taken_on_gpu(&self, op: &Op) -> u64 {
        gpus().map_or(0, |gpus| gpus.op_bytes(self.model, op))
    }

    fn by_planes(&self, unit: Unit, ops: &[PlanOp], high: HighBits) -> Option<ByPlanes> {
        let (model, gpus) = (self.model, gpus()?);
        let matrices = planes::of_unit(model, unit, ops);
        let read_of = |id| match matrices.contains(&id) {
            true => gpus.high_plane_bytes(model, id, high),
            false => self.on_gpu(id, false),
        };
        let read = |op: &PlanOp| model.bytes_read(op, None, read_of);
        (!matrices.is_empty()).then(|| ByPlanes {
            gpu_bytes: ops.iter().map(|op| gpus.op_bytes(model, op)).sum::<u64>()
                - matrices.iter().map(|&id| gpus.saved_by_planes(model, id, high)).sum::<u64>(),
            gpu_read: ops.iter().map(read).sum(),
            low_bytes: matrices.iter().map(|&id| planes::low_bytes(model, id, high)).sum(),
            products: planes::products(model, ops, &matrices),
            coarse: false,
        })
    }

    fn overhead(&self, unit: Unit) -> u64 {
        let types = (self.config.key_type, self.config.value_type);
        match unit {
            // A model that a GPU cannot run has its keys, values and states in RAM.
            Unit::Attn(layer) if gpus().is_none_or(|gpus| gpus.check(self.model).is_err()) => {
                let states = StateBytes::new(self.model.plan.mixers_of(layer), &self.layout);
                self.layout.slot_bytes(layer, types.0)
                    + self.layout.of_values().slot_bytes(layer, types.1)
                    + states.all()
            }
            _ => gpus().map_or(0, |gpus| gpus.overhead_bytes(self.model, unit, &self.layout, types)),
        }
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use spec_run_gguf::embedded;

    /// As on a Mac, or with an integrated GPU: memory that the GPU takes is missing for the CPU.
    #[test]
    fn memory_that_is_shared_is_counted_once() {
        let model = Model::load(Arc::new(embedded::open().unwrap())).unwrap();
        let config = ContextConfig { n_ctx: 256, ..ContextConfig::default() };
        let weights: u64 = model.weights.iter().map(|weight| weight.bytes).sum();
        let scratch = gpus().unwrap().scratch_bytes(&model, LEAST_ROWS, &config.kv_layout(&model.plan));
        let planned = |shares_memory: bool, pool: u64| {
            let vram = scratch * 4 + weights / 2;
            let rooms = vec![GpuRoom { number: 0, vram, shares_memory, is_hardware: true }];
            let machine = Machine { rooms, free_ram: Some(pool) };
            plan_for(&model, &config, &PlacementRequest::default(), &machine, &Basis::default).unwrap()
        };
        let plan = |shares_memory, pool| planned(shares_memory, pool).placement;
        let Planned { placement: apart, max_rows, .. } = planned(false, u64::MAX / 2);
        assert!(apart.uses(Place::Vram) && apart.uses(Place::Ram) && !apart.uses(Place::File));
        let (on_gpu, in_ram) = (apart.bytes_on_gpu(), apart.bytes_in_ram());
        let overhead = cpu_overhead(&model, &config, max_rows, &apart.on_cpu());
        // Enough for what lies in RAM, and for all of it where the GPU has memory of its own.
        let pool = overhead + in_ram;
        assert!(on_gpu > in_ram && !plan(false, pool).uses(Place::File));
        let pool = on_gpu + overhead + in_ram / 2;
        let shared = plan(true, pool);
        assert!(shared.uses(Place::Vram) && shared.uses(Place::File), "{on_gpu} and {in_ram} of {pool}");
        assert!(shared.bytes_on_gpu() + shared.bytes_in_ram() <= pool);
        assert!(!plan(true, on_gpu + overhead + in_ram).uses(Place::File));
    }
}
