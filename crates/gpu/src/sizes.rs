//! Bytes of the GPU's memory that parts of a model take, and that products read of it: for the planner, and for the buffers.

use super::{
    Wgpu,
    formats::{self, Format},
    lacks,
    layout::Layout,
    offload::offload_bytes,
    ops::Ops,
    pick::Picker,
    round::Rounds,
    rows::RowData,
    states::{self, StateStore},
    stored::Stored,
    weights,
    work::{self, OUTPUTS_AT_ONCE, WorkBuffers, cell_words, most_cell_words},
};
use crate::{
    Model,
    backend::{
        gpu::GpuSizes,
        planes::{self, HighBits, LowProduct, PlanesApart},
    },
    kv::KvLayout,
    kv_type::KvType,
    plan::{Op, Plan, Unit, UnitSet, WeightId},
};

impl GpuSizes for Wgpu {
    fn op_bytes(&self, model: &Model, op: &Op) -> u64 {
        let operands = model.plan.operands(op);
        // Every stream begins at a round address.
        let matrices = |first, count: usize| {
            let weight = model.weight(first);
            let format = Format::of(weight.ty()).expect("checked when the model was loaded");
            format.bytes(count * weight.rows * weight.cols.div_ceil(formats::BLOCK)) as u64 + 1024
        };
        let vector = |id| {
            let weight = model.weight(id);
            4 * (weight.rows * weight.cols).next_multiple_of(formats::BLOCK) as u64 + 256
        };
        let alone = operands.table.into_iter().chain(operands.matrices().map(|(id, _)| id));
        let alone: u64 = alone.map(|id| matrices(id, 1)).sum();
        let experts: u64 = operands.experts().map(|experts| matrices(experts.first, experts.choice.of)).sum();
        // Norms of heads have summands as well as factors; mixers have zeros for vectors that are not there.
        let each = if matches!(op, Op::Store(_) | Op::Convolve(_) | Op::Scan(_)) { 2 } else { 1 };
        let heads: u64 = operands.heads().map(|(id, _)| matrices(id, 1)).sum();
        alone + experts + heads + each * operands.vectors().map(vector).sum::<u64>()
    }

    fn saved_by_planes(&self, model: &Model, id: WeightId, high: HighBits) -> u64 {
        self.bytes_read(model, id, false) - self.high_plane_bytes(model, id, high)
    }

    fn high_plane_bytes(&self, model: &Model, id: WeightId, high: HighBits) -> u64 {
        let weight = model.weight(id);
        let high = Format::of_high_plane(weight.ty(), high).expect("asked for only where there is one");
        high.bytes(weight.rows * weight.cols.div_ceil(formats::BLOCK)) as u64
    }

    fn lows_bytes(&self, model: &Model, units: &UnitSet, max_rows: usize) -> u64 {
        let plan = &model.plan;
        // How many bits lie here decides nothing about sums.
        let apart = PlanesApart { units: units.clone(), high: HighBits::default() };
        let (layout, by_planes) = (Layout::of(plan), planes::of_units(model, &apart));
        let joined =
            units.ops(plan).into_iter().flat_map(|ops| weights::join(model, &layout, &ops, &by_planes));
        let products: Vec<_> = joined.filter_map(|joined| joined.low_product()).collect();
        work::lows_bytes(low_rows(model, &products), max_rows) as u64
            + leaving_bytes(&products, &layout, max_rows)
    }

    fn bytes_read(&self, model: &Model, id: WeightId, coarse: bool) -> u64 {
        let weight = model.weight(id);
        let format = Format::of(weight.ty()).expect("checked when the model was loaded");
        let [high, low, scales] =
            format.streams().map(|rate| rate.bytes_for(weight.rows * weight.cols.div_ceil(formats::BLOCK)));
        (high + if coarse { 0 } else { low } + scales) as u64
    }

    fn overhead_bytes(&self, model: &Model, unit: Unit, layout: &KvLayout, types: (KvType, KvType)) -> u64 {
        let plan = &model.plan;
        match unit {
            Unit::Attn(layer) => {
                let n_cells = layout.classes[layout.slots[layer].class].n_cells;
                let stored = Stored { keys: types.0, values: types.1 };
                let words: usize = cell_words(plan, layer, stored).iter().sum();
                4 * (n_cells * words) as u64 + states::bytes_of_layer(plan, layer, layout.states)
            }
            // Where they are made, and where they can be read.
            Unit::Head => 8 * (OUTPUTS_AT_ONCE * plan.dims.n_vocab) as u64 + Picker::bytes(plan.dims.n_vocab),
            Unit::Embed | Unit::Mlp(_) | Unit::Experts(_) | Unit::Mtp => 0,
        }
    }

    fn scratch_bytes(&self, model: &Model, max_rows: usize, layout: &KvLayout) -> u64 {
        let plan = &model.plan;
        if lacks(plan).is_some() {
            return 0;
        }
        let matrices: usize = plan.ops().map(|op| plan.operands(op).fed().count()).sum();
        let (n_cells, n_slots) = (layout.n_cells(), layout.slots.len());
        let params = Ops::count(plan, matrices + 64, n_slots, max_rows) + Picker::SLOTS;
        // Slots that no layer owns have keys and values too, of the larger type.
        let largest = Stored { keys: KvType::F32, values: KvType::F32 };
        let words: usize = most_cell_words(plan, largest).iter().sum();
        let extra = n_slots.saturating_sub(plan.layers.len()) * n_cells * words;
        WorkBuffers::bytes(plan, max_rows, n_cells)
            + RowData::bytes(plan, max_rows, layout)
            + StateStore::runs_bytes(plan, max_rows)
            + 256 * params as u64
            + 4 * extra as u64
            + readable_bytes(plan, max_rows, false)
            + Rounds::bytes(plan, max_rows, layout)
    }

    fn offload_bytes(&self, model: &Model, in_ram: &UnitSet, max_rows: usize) -> u64 {
        offload_bytes(model, in_ram, max_rows)
    }
}

/// The most rows of matrices whose sums of low planes come together.
pub fn low_rows(model: &Model, products: &[LowProduct]) -> usize {
    let rows = |product: &LowProduct| product.weights.iter().map(|&id| model.weight(id).rows).sum();
    products.iter().map(rows).max().unwrap_or(0)
}

/// Rows that are read back for products whose low planes are multiplied by the CPU.
pub fn leaving_bytes(products: &[LowProduct], layout: &Layout, max_rows: usize) -> u64 {
    let strides = products.iter().map(|product| layout.rows_of(product.src).stride);
    4 * (max_rows * strides.max().unwrap_or(0)) as u64
}

/// The size of the buffer in which hidden rows or logits are read back.
pub fn readable_bytes(plan: &Plan, max_rows: usize, logits: bool) -> u64 {
    let logits = if logits { OUTPUTS_AT_ONCE * plan.dims.n_vocab } else { 0 };
    let layout = Layout::of(plan);
    let row: usize = plan.carried().iter().map(|buf| layout.rows_of(buf).stride).sum();
    4 * logits.max(max_rows * row) as u64
}
