//! The device buffers that a pass works in, and the K/V cache.

use super::{
    device::Gpu,
    formats::BLOCK,
    layout::Layout,
    stored::{Stored, kv_words},
    tuning::{LANE_SUMS_BYTES, TILE_ROWS},
    variants::Arith,
};
use crate::{
    Error, Result,
    kv::{KvLayout, MOST_REPLAYED},
    plan::{AttnSpec, Buf, Op, Plan, RopeId, UnitSet},
};

/// Logits made, and read back, at once.
pub const OUTPUTS_AT_ONCE: usize = TILE_ROWS;

pub use crate::backend::CHUNK;

/// The largest head that the kernels take.
pub const MOST_HEAD: usize = 576;

/// The most experts of a layer that they take.
pub const MOST_EXPERTS: usize = 1024;

/// So many rows at a time have their contexts split over workgroups.
const MOST_SPLIT_ROWS: usize = 32;
const MOST_SPLIT_BYTES: usize = 64 << 20;

/// The most pieces that attention makes a batch's rows in.
pub const MOST_PIECES: usize = 32;

/// Numbers in a row of matrix input: whole blocks.
pub fn padded(width: usize) -> usize {
    width.next_multiple_of(BLOCK)
}

/// Numbers in a head of queries, keys and values.
pub fn head_stride(head_dim: usize) -> usize {
    head_dim.next_multiple_of(8)
}

pub struct WorkBuffers {
    pub max_rows: usize,
    pub layout: Layout,
    /// By [`BufLayout::buffer`](super::layout::BufLayout): `[rows, stride]`
    rows: Vec<wgpu::Buffer>,
    /// `[rows, n_head, head_stride]`: queries, rotated.
    pub q: wgpu::Buffer,
    /// Products of an up matrix whose gate has another format, in the gate's rows.
    pub up: Option<wgpu::Buffer>,
    /// Rows prepared for products that do not take floats.
    pub prepared: Option<Prepared>,
    pub arith: Arith,
    /// Pairs of rows and experts, sorted by these: see experts_sort.wgsl.
    pub sorted: Option<wgpu::Buffer>,
    /// Heads' parts of rows, copied to whole blocks where they do not begin with one: `[rows, heads, blocks]`
    pub head_parts: Option<wgpu::Buffer>,
    pub head_parts_prepared: Option<wgpu::Buffer>,
    /// Chunks of attention: `[split_rows, n_head, most_chunks, head_stride + 2]`
    pub chunks: wgpu::Buffer,
    /// Of tiles whose workgroups share lanes: see tile_sums.wgsl.
    pub lane_sums: wgpu::Buffer,
    pub split_rows: usize,
    /// Rows of a piece of attention.
    pub piece_rows: usize,
    pub most_chunks: usize,
    /// `[OUTPUTS_AT_ONCE, n_vocab]`
    pub logits: Option<wgpu::Buffer>,
    /// Sums of low planes, of whole tiles of rows.
    pub lows: Option<wgpu::Buffer>,
}

/// Rows prepared for products that do not take floats: [`Arith::block_quads`] words of 16 bytes for a block.
pub struct Prepared {
    /// Of `H`, which norms make.
    h: wgpu::Buffer,
    /// Of one other buffer at a time: most kernels make one from another's product.
    rest: wgpu::Buffer,
}

impl Prepared {
    pub fn of(&self, buf: Buf) -> &wgpu::Buffer {
        if buf == Buf::H { &self.h } else { &self.rest }
    }
}

/// Bytes of each buffer. Placement uses them too.
struct Sizes {
    rows: Vec<usize>,
    q: usize,
    /// Of the widest gate.
    u: usize,
    prepared_h: usize,
    prepared_rest: usize,
    sorted: usize,
    head_parts: usize,
    head_parts_prepared: usize,
    chunks: usize,
    lane_sums: usize,
    logits: usize,
    split_rows: usize,
    most_chunks: usize,
}

fn sizes(plan: &Plan, layout: &Layout, rows: usize, n_cells: usize, arith: Arith) -> Sizes {
    let rows = rows.next_multiple_of(TILE_ROWS);
    let most_chunks = n_cells.div_ceil(CHUNK);
    let most = |of: fn(&AttnSpec) -> usize| plan.attentions.iter().map(of).max().unwrap_or(1);
    let chunk_row = 4 * most_chunks * most(|spec| spec.n_head * (head_stride(spec.head_dim) + 2));
    let prepared = |width: usize| rows * width / BLOCK * 16 * arith.block_quads();
    let stride = |buf: Buf| layout.rows_of(buf).stride;
    let fed = plan.ops().flat_map(|op| plan.operands(op).fed()).filter(|&buf| buf != Buf::H);
    let sorted = plan.experts.iter().map(|moe| {
        let pairs = rows * moe.n_used;
        tiles_words(moe.n_expert, pairs) + pairs
    });
    let head_parts = plan.ops().map(head_parts).max().unwrap_or(0);
    let split_rows = (MOST_SPLIT_BYTES / chunk_row).clamp(1, MOST_SPLIT_ROWS);
    // States are made again in the same buffers.
    let row_count = if plan.mixers.is_empty() { rows } else { rows.max(MOST_REPLAYED) };
    Sizes {
        rows: layout.strides().iter().map(|stride| 4 * row_count * stride).collect(),
        q: 4 * rows * most(|spec| spec.n_head * head_stride(spec.head_dim)),
        u: 4 * rows * plan.ops().filter_map(|op| gated(plan, op)).map(stride).max().unwrap_or(0),
        prepared_h: prepared(stride(Buf::H)),
        prepared_rest: prepared(fed.map(stride).max().unwrap_or(BLOCK)),
        sorted: 4 * sorted.max().unwrap_or(0),
        head_parts: 4 * rows * head_parts,
        head_parts_prepared: prepared(head_parts),
        chunks: split_rows * chunk_row,
        lane_sums: lane_sums(plan),
        logits: 4 * OUTPUTS_AT_ONCE * plan.dims.n_vocab,
        split_rows,
        most_chunks,
    }
}

/// The most tiles that so many pairs of rows and experts come to: each has up to [`TILE_ROWS`] of one expert.
pub fn most_tiles(n_expert: usize, pairs: usize) -> usize {
    n_expert.min(pairs) + pairs / TILE_ROWS
}

/// Words of the list of tiles.
pub fn tiles_words(n_expert: usize, pairs: usize) -> usize {
    1 + 3 * most_tiles(n_expert, pairs)
}

/// Numbers of the heads' parts of a row, where they are copied because they do not begin with whole blocks; else 0.
pub fn head_parts(op: &Op) -> usize {
    let Op::PerHead { heads, from, .. } = *op else { return 0 };
    let whole = from.every.is_multiple_of(BLOCK) && from.from.is_multiple_of(BLOCK);
    if whole { 0 } else { heads * padded(from.every) }
}

/// Bytes of sums of lanes: little compared with the weights of such a model.
fn lane_sums(plan: &Plan) -> usize {
    let dims = &plan.dims;
    (dims.n_layer * dims.dim * dims.dim / 8).next_multiple_of(16).clamp(16, LANE_SUMS_BYTES)
}

/// What a gate with two factors writes.
fn gated(plan: &Plan, op: &Op) -> Option<Buf> {
    match *op {
        Op::Gate { up: Some(_), dst, .. } => Some(dst),
        Op::ExpertsGate(id) => plan.moe(id).gate.map(|_| plan.moe(id).hidden),
        _ => None,
    }
}

impl WorkBuffers {
    pub fn new(gpu: &Gpu, plan: &Plan, max_rows: usize, n_cells: usize, needs: Needs) -> Result<Self> {
        use wgpu::BufferUsages as Usage;
        let plain = Usage::STORAGE;
        let both_ways = Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC;
        let layout = Layout::of(plan);
        let sizes = sizes(plan, &layout, max_rows, n_cells, needs.arith);
        let buffer = |label, bytes: usize, usage| bindable(gpu, label, bytes as u64, usage, LESS);
        let wanted =
            |is_wanted: bool, label, bytes, usage| is_wanted.then(|| buffer(label, bytes, usage)).transpose();
        let prepares = needs.arith != Arith::Float;
        let rows = sizes.rows.iter().map(|&bytes| buffer("rows", bytes, both_ways));
        Ok(WorkBuffers {
            max_rows,
            rows: rows.collect::<Result<_>>()?,
            q: buffer("queries", sizes.q, plain)?,
            up: wanted(needs.up, "up rows", sizes.u, plain)?,
            prepared: if prepares {
                let h = buffer("normed rows, prepared", sizes.prepared_h, plain)?;
                Some(Prepared { h, rest: buffer("prepared rows", sizes.prepared_rest, plain)? })
            } else {
                None
            },
            sorted: wanted(sizes.sorted > 0, "rows by expert", sizes.sorted, plain)?,
            head_parts: wanted(sizes.head_parts > 0, "heads' rows", sizes.head_parts, plain)?,
            head_parts_prepared: wanted(
                prepares && sizes.head_parts_prepared > 0,
                "heads' rows, prepared",
                sizes.head_parts_prepared,
                plain,
            )?,
            chunks: buffer("attention's chunks", sizes.chunks, plain)?,
            lane_sums: buffer(
                "sums of lanes",
                if gpu.tuning.crowd > 1 { sizes.lane_sums } else { 16 },
                plain,
            )?,
            split_rows: sizes.split_rows,
            piece_rows: sizes.split_rows.max(max_rows.div_ceil(MOST_PIECES)),
            most_chunks: sizes.most_chunks,
            logits: wanted(needs.logits, "logits", sizes.logits, both_ways)?,
            lows: wanted(
                needs.lows > 0,
                "sums of low planes",
                lows_bytes(needs.lows, max_rows),
                Usage::STORAGE | Usage::COPY_DST,
            )?,
            arith: needs.arith,
            layout,
        })
    }

    /// The device buffer that a buffer of the plan lies in.
    pub fn buffer(&self, buf: Buf) -> &wgpu::Buffer {
        &self.rows[self.layout.rows_of(buf).buffer]
    }

    /// Bytes of all of them but the logits, for the choice of what fits.
    pub fn bytes(plan: &Plan, max_rows: usize, n_cells: usize) -> u64 {
        // It is not known yet how products will be made.
        let s = sizes(plan, &Layout::of(plan), max_rows, n_cells, Arith::Summed);
        let rows = s.rows.iter().sum::<usize>() + s.q + s.u + s.prepared_h + s.prepared_rest;
        (rows + s.head_parts + s.head_parts_prepared + s.sorted + s.chunks + s.lane_sums) as u64
    }
}

/// Settings that make buffers smaller.
const LESS: &str = "`n_ctx` or `n_ubatch`";

/// What not every plan needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    pub up: bool,
    pub logits: bool,
    /// The most rows of matrices of which only the high plane is here, and whose sums of low planes come together.
    pub lows: usize,
    pub arith: Arith,
}

/// Bytes of sums of the low planes of matrices with so many rows.
pub fn lows_bytes(matrix_rows: usize, max_rows: usize) -> usize {
    4 * matrix_rows * max_rows.next_multiple_of(TILE_ROWS)
}

/// A buffer that kernels bind whole. `less`: the settings that should be smaller if it is too large.
pub fn bindable(
    gpu: &Gpu,
    label: &str,
    bytes: u64,
    usage: wgpu::BufferUsages,
    less: &str,
) -> Result<wgpu::Buffer> {
    let most = gpu.binding_bytes();
    if bytes > most {
        return Err(Error::Memory(format!(
            "{}: {label} take {} MiB, the device binds at most {} MiB: a smaller {less}",
            gpu.info.name,
            bytes >> 20,
            most >> 20
        )));
    }
    gpu.buffer(label, bytes, usage)
}

/// The shape of a slot's keys.
#[derive(Clone, Copy, Debug)]
pub struct SlotKeys {
    pub n_kv_head: usize,
    pub head_dim: usize,
    /// The class that the slot is in, and how many cells it has.
    pub class: usize,
    pub n_cells: usize,
    pub rope: Option<RopeId>,
    /// Its values are its keys.
    pub keys_only: bool,
}

/// Words of a cell's keys, and of its values, in a layer's own slot.
pub fn cell_words(plan: &Plan, slot: usize, stored: Stored) -> [usize; 2] {
    let ops = plan.layer_of_slot(slot).into_iter().flat_map(|layer| &layer.attn);
    let Some(spec) = ops.filter_map(|op| plan.store_of(op)).next() else { return [0; 2] };
    let words = |ty| spec.n_kv_head * kv_words(ty, spec.head_dim);
    [words(stored.keys), if spec.values_are_keys { 0 } else { words(stored.values) }]
}

/// The same in a slot that any layer may use.
pub fn most_cell_words(plan: &Plan, stored: Stored) -> [usize; 2] {
    let of_layers = (0..plan.own_slots()).map(|slot| cell_words(plan, slot, stored));
    of_layers.fold([0; 2], |[keys, values], [k, v]| [keys.max(k), values.max(v)])
}

/// Keys and values by slot.
pub struct KvBuffers {
    stored: Stored,
    slots: Vec<Option<Slot>>,
    keys: Vec<SlotKeys>,
    /// Something to bind where there are no values.
    pub nothing: wgpu::Buffer,
    /// The same for a product that makes no queries, no keys or no values. They are three, because what two dispatches
    /// may write keeps the second waiting for the first.
    pub unwritten: [wgpu::Buffer; 3],
}

/// Without values where the keys are the values, too.
pub struct Slot {
    pub keys: wgpu::Buffer,
    pub values: Option<wgpu::Buffer>,
}

impl KvBuffers {
    /// Slots of the layers that `held` runs attention of, and those that no layer owns.
    pub fn new(gpu: &Gpu, plan: &Plan, held: &UnitSet, layout: &KvLayout, stored: Stored) -> Result<Self> {
        for spec in &plan.attentions {
            stored.keys.check(spec.head_dim)?;
            stored.values.check(spec.head_dim)?;
        }
        let buffer =
            |label, words: usize| bindable(gpu, label, 4 * words as u64, wgpu::BufferUsages::STORAGE, LESS);
        let slots = layout.slots.iter().enumerate().map(|(slot, shape)| {
            let words = match held.attn.get(slot) {
                Some(true) => cell_words(plan, slot, stored),
                Some(false) => [0; 2],
                None => most_cell_words(plan, stored),
            };
            let [keys, values] = words.map(|words| layout.classes[shape.class].n_cells * words);
            if keys == 0 {
                return Ok(None);
            }
            let values = if values > 0 { Some(buffer("values", values)?) } else { None };
            Ok(Some(Slot { keys: buffer("keys", keys)?, values }))
        });
        let slots = slots.collect::<Result<_>>()?;
        let nothing = buffer("no values", 4)?;
        let unwritten = [buffer("no queries", 4)?, buffer("no keys", 4)?, buffer("no new values", 4)?];
        let keys = layout.slots.iter().enumerate().map(|(slot, shape)| {
            // What lies in a slot that is not a layer's own is taken for the first layer's.
            let layer = plan.layer_of_slot(slot).or(plan.layers.first());
            let stored = layer.and_then(|layer| layer.attn.iter().find_map(|op| plan.store_of(op)));
            SlotKeys {
                n_kv_head: shape.n_kv_head,
                head_dim: shape.head_dim,
                class: shape.class,
                n_cells: layout.classes[shape.class].n_cells,
                rope: stored.and_then(|spec| spec.rope),
                keys_only: shape.keys_only,
            }
        });
        Ok(KvBuffers { stored, slots, keys: keys.collect(), nothing, unwritten })
    }

    /// One slot, of f32.
    #[cfg(test)]
    pub fn of((keys, values): (wgpu::Buffer, wgpu::Buffer), lying: SlotKeys) -> Self {
        let ty = crate::kv_type::KvType::F32;
        let stored = Stored { keys: ty, values: ty };
        let nothing = values.clone();
        let unwritten = [0; 3].map(|_| nothing.clone());
        let slots = vec![Some(Slot { keys, values: Some(values) })];
        KvBuffers { stored, slots, keys: vec![lying], nothing, unwritten }
    }

    pub fn keys(&self, slot: usize) -> &SlotKeys {
        &self.keys[slot]
    }

    pub fn slot(&self, slot: usize) -> &Slot {
        self.slots[slot].as_ref().expect("attention runs where its keys are")
    }

    /// How keys and values are stored, which may be the same numbers.
    pub fn stored(&self, keys_only: bool) -> Stored {
        let Stored { keys, values } = self.stored;
        Stored { keys, values: if keys_only { keys } else { values } }
    }

    /// Words of a stored key of such heads, and of a value.
    pub fn words(&self, head_dim: usize, keys_only: bool) -> [usize; 2] {
        let Stored { keys, values } = self.stored(keys_only);
        [keys, values].map(|ty| kv_words(ty, head_dim))
    }

    /// Slots that live here, and what lies in them.
    pub fn held(&self) -> impl Iterator<Item = (usize, SlotKeys)> + '_ {
        let held = (0..self.slots.len()).filter(|&slot| self.slots[slot].is_some());
        held.map(|slot| (slot, self.keys[slot]))
    }
}
