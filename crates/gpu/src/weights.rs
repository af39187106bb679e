//! The weights of the sublayers that live on the device: which matrices are joined so that one kernel reads them,
//! where everything lies, and how it gets there.

use std::collections::HashMap;

use super::{
    device::{ARENA_BYTES, Gpu},
    formats::{BLOCK, Format},
    layout::{BufLayout, Layout},
    pipelines::Mode,
    upload::Upload,
    work::padded,
};
use crate::{
    Model, Result,
    backend::planes::{HighBits, LowProduct},
    plan::{
        Activation, Buf, Conv, Linear, MoeId, Norm, NormKind, Op, PlanOp, Scan, ScanKind, UnitSet, WeightId,
    },
};

/// What of a model is on the device.
#[derive(Clone, Copy)]
pub struct Held<'a> {
    pub units: &'a UnitSet,
    /// By weight id: of which matrices the high plane alone is, and its bits.
    pub by_planes: &'a [Option<HighBits>],
}

/// What every binding's offset is a multiple of.
const ALIGN: u64 = 256;

/// Rows in a part of a matrix are a multiple of this, so that a part begins with whole scales and whole pairs.
const PART_ROWS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Index of the arena's buffer.
    pub buffer: usize,
    pub offset: u64,
    pub bytes: u64,
}

/// Where a product's results go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Rows(Buf),
    /// To a buffer with the layout of this one: an up matrix whose gate has another format. The gate is multiplied by it then.
    UpRows(Buf),
    Logits,
}

/// Matrices of one format that one kernel reads: their rows one below the other, or row by row in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    pub weights: Vec<WeightId>,
    /// The bias of each matrix and its number of rows, in order.
    pub biases: Vec<(Option<WeightId>, usize)>,
    pub format: Format,
    pub mode: Mode,
    pub src: Buf,
    pub to: To,
    /// The activation of a gate.
    pub activation: Option<Activation>,
    /// How many operations of the plan this product does.
    pub covers: usize,
    /// Matrices of one size that are multiplied one by one.
    pub apart: Option<Apart>,
}

/// Why matrices of one size are multiplied one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// A row takes those of the experts that it chose.
    Experts(MoeId),
    /// Each takes its head's part of a row.
    Heads,
}

/// The products of one sublayer's operations, joined. `by_planes`: the weights of which only the high plane is here.
pub fn join(model: &Model, layout: &Layout, ops: &[PlanOp], by_planes: &[Option<HighBits>]) -> Vec<Joined> {
    let format = |id: WeightId| {
        let ty = model.weight(id).ty();
        let high = by_planes[id.0 as usize].and_then(|high| Format::of_high_plane(ty, high));
        high.or_else(|| Format::of(ty)).expect("checked when the model was loaded")
    };
    let mut out: Vec<Joined> = Vec::new();
    // The rows that the last product read, and where it went.
    let mut last = None;
    for op in ops {
        let one = |Linear { weight, bias }: Linear, mode, src, to| Joined {
            weights: vec![weight],
            biases: vec![(bias, model.weight(weight).rows)],
            format: format(weight),
            mode,
            src,
            to,
            activation: None,
            covers: 1,
            apart: None,
        };
        let of_each = |id: MoeId, Linear { weight: first, bias }: Linear, src, to| {
            let count = model.plan.moe(id).n_expert;
            let whole = one(Linear { weight: first, bias: None }, Mode::Store, src, to);
            Joined {
                weights: (0..count).map(|n| first.after(n)).collect(),
                biases: vec![(bias, count * model.weight(first).rows)],
                apart: Some(Apart::Experts(id)),
                ..whole
            }
        };
        let this = match *op.op {
            Op::MatMul { weight, bias, src, dst, add } => {
                let follows = |(last_src, last_dst)| last_src == src && layout.adjoin(last_dst, dst);
                match out.last_mut() {
                    Some(group) if !add && group.format == format(weight) && last.is_some_and(follows) => {
                        group.weights.push(weight);
                        group.biases.push((bias, model.weight(weight).rows));
                        group.covers += 1;
                    }
                    _ => {
                        let mode = if add { Mode::Add } else { Mode::Store };
                        out.push(one(Linear { weight, bias }, mode, src, To::Rows(dst)));
                    }
                }
                (!add).then_some((src, dst))
            }
            Op::Gate { gate, up, activation, src, dst } => {
                match up {
                    None => out.push(Joined {
                        activation: Some(activation),
                        ..one(gate, Mode::Activate(activation.into()), src, To::Rows(dst))
                    }),
                    Some(up) => {
                        let gate = one(gate, Mode::Store, src, To::Rows(dst));
                        let up = one(up, Mode::Store, src, To::UpRows(dst));
                        out.extend(gate_and_up(gate, up, activation));
                    }
                }
                None
            }
            Op::ExpertsGate(id) => {
                let moe = model.plan.moe(id);
                let (activation, to) = (moe.activation, To::Rows(moe.hidden));
                match moe.gate {
                    None => out.push(Joined {
                        activation: Some(activation),
                        mode: Mode::Activate(activation.into()),
                        ..of_each(id, moe.up, moe.src, to)
                    }),
                    Some(gate) => {
                        let gate = of_each(id, gate, moe.src, to);
                        let up = of_each(id, moe.up, moe.src, To::UpRows(moe.hidden));
                        out.extend(gate_and_up(gate, up, activation));
                    }
                }
                None
            }
            Op::ExpertsDown(id) => {
                let moe = model.plan.moe(id);
                out.push(of_each(id, moe.down, moe.hidden, To::Rows(moe.results)));
                None
            }
            Op::PerHead { first, heads, src, dst, .. } => {
                out.push(Joined {
                    weights: (0..heads).map(|n| first.after(n)).collect(),
                    biases: Vec::new(),
                    apart: Some(Apart::Heads),
                    ..one(Linear { weight: first, bias: None }, Mode::Store, src, To::Rows(dst))
                });
                None
            }
            Op::Head { weight, bias, .. } => {
                out.push(one(Linear { weight, bias }, Mode::Store, Buf::H, To::Logits));
                None
            }
            Op::Embed { .. }
            | Op::Norm { .. }
            | Op::Multiply { .. }
            | Op::Add { .. }
            | Op::Take { .. }
            | Op::Scale { .. }
            | Op::Weigh { .. }
            | Op::Store(_)
            | Op::Attend(_)
            | Op::Convolve(_)
            | Op::Scan(_)
            | Op::Choose(_)
            | Op::ExpertsSum(_) => None,
        };
        last = this;
    }
    out
}

/// A gate and its up matrix are one product, row by row in turn; with different formats they are two.
fn gate_and_up(gate: Joined, up: Joined, activation: Activation) -> Vec<Joined> {
    if gate.format == up.format {
        return vec![Joined {
            weights: [gate.weights, up.weights].concat(),
            biases: [gate.biases, up.biases].concat(),
            mode: Mode::Gate(activation.into()),
            activation: Some(activation),
            ..gate
        }];
    }
    vec![gate, Joined { activation: Some(activation), ..up }]
}

/// Numbers that kernels read besides matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// A vector with zeros to whole blocks.
    Vector(WeightId),
    /// Factors and then summands, ones and zeros where there are none; so many of each.
    Affine { weight: Option<WeightId>, bias: Option<WeightId>, len: usize },
    /// A convolution's weights by place in the kernel and then by channel, and its bias.
    Taps { weight: WeightId, bias: Option<WeightId>, kernel: usize, channels: usize },
    /// For each head of a scan: its step's bias, its decay, and the factor of its direct path.
    OfHeads { step_bias: WeightId, decay: WeightId, through: Option<WeightId>, heads: usize },
}

impl Numbers {
    /// Of a norm of so many numbers.
    pub fn of_norm(model: &Model, norm: &Norm, len: usize) -> Self {
        let of = |id: Option<WeightId>| id.map_or(0, |id| model.weight(id).cols);
        let len = len.max(of(norm.weight)).max(of(norm.bias));
        Numbers::Affine { weight: norm.weight, bias: norm.bias, len }
    }

    pub fn taps(conv: &Conv) -> Self {
        let Conv { weight, bias, kernel, channels, .. } = *conv;
        Numbers::Taps { weight, bias, kernel, channels }
    }

    pub fn of_scan(scan: &Scan) -> Self {
        let through = match scan.kind {
            ScanKind::GatedDelta { .. } => None,
            ScanKind::Mamba2 { through } => Some(through),
        };
        let Scan { step_bias, decay, n_head: heads, .. } = *scan;
        Numbers::OfHeads { step_bias, decay, through, heads }
    }

    /// What a plan's operation reads.
    fn of_op(model: &Model, layout: &Layout, op: &Op) -> Vec<Numbers> {
        let plan = &model.plan;
        match *op {
            Op::Norm { norm, group, src, .. } => {
                let len = if group == 0 { plan.width(src) } else { group };
                match plain_norm(layout, op) {
                    Some(weight) => vec![Numbers::Vector(weight)],
                    None => vec![Numbers::of_norm(model, &norm, len)],
                }
            }
            Op::Head { norm, .. } => match plain_norm(layout, op) {
                Some(weight) => vec![Numbers::Vector(weight)],
                None => vec![Numbers::of_norm(model, &norm, plan.dims.dim)],
            },
            Op::Store(id) => {
                let spec = plan.attention(id);
                let norms = [spec.q_norm, spec.k_norm].into_iter().flatten();
                norms.map(|norm| Numbers::of_norm(model, &norm, spec.head_dim)).collect()
            }
            Op::Attend(id) => plan.attention(id).sinks.map(Numbers::Vector).into_iter().collect(),
            Op::Choose(id) => {
                let moe = plan.moe(id);
                moe.choice_bias.into_iter().chain(moe.expert_scale).map(Numbers::Vector).collect()
            }
            Op::Convolve(id) => vec![Numbers::taps(&plan.mixer(id).conv)],
            Op::Scan(id) => plan.mixer(id).scan.iter().map(Numbers::of_scan).collect(),
            // Biases of products lie with their matrices.
            Op::Embed { .. }
            | Op::MatMul { .. }
            | Op::Gate { .. }
            | Op::Multiply { .. }
            | Op::Add { .. }
            | Op::Take { .. }
            | Op::PerHead { .. }
            | Op::Scale { .. }
            | Op::Weigh { .. }
            | Op::ExpertsGate(_)
            | Op::ExpertsDown(_)
            | Op::ExpertsSum(_) => Vec::new(),
        }
    }

    /// Factors, and summands, of a norm.
    pub fn factors(&self) -> usize {
        match *self {
            Numbers::Vector(_) | Numbers::Taps { .. } | Numbers::OfHeads { .. } => 0,
            Numbers::Affine { len, .. } => len,
        }
    }

    fn len(&self, model: &Model) -> usize {
        match *self {
            Numbers::Vector(id) => (model.weight(id).rows * model.weight(id).cols).next_multiple_of(BLOCK),
            Numbers::Affine { len, .. } => 2 * len,
            Numbers::Taps { kernel, channels, .. } => (kernel + 1) * channels,
            Numbers::OfHeads { heads, .. } => 3 * heads,
        }
    }

    fn read(&self, model: &Model) -> Vec<f32> {
        let or = |id: Option<WeightId>, x, len| id.map_or_else(|| vec![x; len], |id| model.vector(id));
        match *self {
            Numbers::Vector(id) => {
                let mut numbers = model.vector(id);
                numbers.resize(self.len(model), 0.0);
                numbers
            }
            Numbers::Affine { weight, bias, len } => [or(weight, 1.0, len), or(bias, 0.0, len)].concat(),
            Numbers::Taps { weight, bias, kernel, channels } => {
                let weight = model.vector(weight);
                let taps = (0..kernel * channels).map(|i| weight[i % channels * kernel + i / channels]);
                taps.chain(or(bias, 0.0, channels)).collect()
            }
            Numbers::OfHeads { step_bias, decay, through, heads } => {
                [model.vector(step_bias), model.vector(decay), or(through, 0.0, heads)].concat()
            }
        }
    }
}

/// The weight of a norm that the fast kernel makes: of whole rows with device buffers of their own, by their mean square.
pub fn plain_norm(layout: &Layout, op: &Op) -> Option<WeightId> {
    let (norm, src, dst) = match *op {
        Op::Norm { norm, group: 0, src, dst, add: false } => (norm, src, dst),
        Op::Head { norm, .. } => (norm, Buf::X, Buf::H),
        _ => return None,
    };
    let [from, to] = [src, dst].map(|buf| layout.rows_of(buf));
    let alone = |place: BufLayout| place.stride == padded(place.width);
    let alike = from.buffer != to.buffer && from.stride == to.stride && alone(from) && alone(to);
    let Norm { kind, weight, bias, eps: _ } = norm;
    weight.filter(|_| alike && kind == NormKind::Rms && bias.is_none())
}

/// Part of a matrix: as many rows as a binding takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixPart {
    pub first_row: usize,
    pub rows: usize,
    /// High plane, low plane, scales; an empty one is never read.
    pub streams: [Region; 3],
}

#[derive(Clone, Debug)]
pub struct Matrix {
    pub format: Format,
    pub rows: usize,
    /// Blocks of 32 in a row.
    pub blocks: usize,
    pub parts: Vec<MatrixPart>,
}

impl Matrix {
    pub fn bytes(&self) -> u64 {
        self.parts.iter().flat_map(|p| p.streams).map(|s| s.bytes).sum()
    }

    /// Bytes that a coarse product does not read.
    pub fn low_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.streams[1].bytes).sum()
    }
}

/// Assigns offsets in buffers of a limited size, in order.
#[derive(Debug, Default)]
pub struct Packer {
    /// Sizes of the buffers so far.
    pub buffers: Vec<u64>,
}

impl Packer {
    /// Offsets for pieces that must lie in one buffer.
    fn place<const N: usize>(&mut self, bytes: [u64; N], arena: u64) -> [Region; N] {
        let whole: u64 = bytes.iter().map(|b| b.next_multiple_of(ALIGN)).sum();
        if self.buffers.last().is_none_or(|used| used + whole > arena) {
            self.buffers.push(0);
        }
        let buffer = self.buffers.len() - 1;
        bytes.map(|bytes| {
            let offset = self.buffers[buffer];
            self.buffers[buffer] += bytes.next_multiple_of(ALIGN);
            Region { buffer, offset, bytes }
        })
    }
}

/// Divides a matrix: parts of at most `limit` bytes, each of whole matrices of `each` rows.
fn place_matrix(
    packer: &mut Packer,
    format: Format,
    rows: usize,
    (blocks, each): (usize, usize),
    limit: u64,
) -> Matrix {
    let row_bytes = (format.bytes(PART_ROWS * blocks) as u64).div_ceil(PART_ROWS as u64);
    let least = (PART_ROWS..).step_by(PART_ROWS).find(|rows| rows.is_multiple_of(each)).unwrap_or(rows);
    let most_rows = (limit.saturating_sub(4 * ALIGN) / row_bytes) as usize / least * least;
    let most_rows = most_rows.max(least);
    let mut parts = Vec::new();
    for first_row in (0..rows).step_by(most_rows) {
        let part_rows = most_rows.min(rows - first_row);
        let bytes = format.streams().map(|rate| rate.bytes_for(part_rows * blocks) as u64);
        parts.push(MatrixPart {
            first_row,
            rows: part_rows,
            streams: packer.place(bytes, ARENA_BYTES.min(limit)),
        });
    }
    Matrix { format, rows, blocks, parts }
}

/// All weights on the device.
pub struct Weights {
    buffers: Vec<wgpu::Buffer>,
    /// By their first weight.
    pub matrices: HashMap<WeightId, Matrix>,
    /// By their first weight: the biases of joined matrices.
    pub biases: HashMap<WeightId, Region>,
    pub numbers: HashMap<Numbers, Region>,
    /// Something to bind where nothing is read.
    pub nothing: Region,
}

impl Weights {
    pub fn load(
        gpu: &Gpu,
        model: &Model,
        layout: &Layout,
        held: Held,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self> {
        let limit = gpu.binding_bytes();
        let arena = ARENA_BYTES.min(limit);
        let mut packer = Packer::default();
        let [nothing] = packer.place([256], arena);
        let mut weights = Weights {
            buffers: Vec::new(),
            matrices: HashMap::new(),
            biases: HashMap::new(),
            numbers: HashMap::new(),
            nothing,
        };
        let mut todo = Vec::new();
        for ops in &held.units.ops(&model.plan) {
            for numbers in ops.iter().flat_map(|op| Numbers::of_op(model, layout, op)) {
                let bytes = 4 * numbers.len(model) as u64;
                weights.numbers.entry(numbers).or_insert_with(|| packer.place([bytes], arena)[0]);
            }
            for joined in join(model, layout, ops, held.by_planes).into_iter().chain(tables(model, ops)) {
                let first = joined.weights[0];
                if weights.matrices.contains_key(&first) {
                    continue;
                }
                let rows = joined.weights.iter().map(|&id| model.weight(id).rows).sum();
                let blocks = model.weight(first).cols.div_ceil(BLOCK);
                let each = match joined.apart {
                    None => 1,
                    Some(Apart::Experts(id)) => rows / model.plan.moe(id).n_expert,
                    Some(Apart::Heads) => model.weight(first).rows,
                };
                let matrix = place_matrix(&mut packer, joined.format, rows, (blocks, each), limit);
                weights.matrices.insert(first, matrix);
                if joined.biases.iter().any(|(bias, _)| bias.is_some()) {
                    weights.biases.insert(first, packer.place([4 * rows as u64], arena)[0]);
                }
                todo.push(joined);
            }
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        for &bytes in &packer.buffers {
            weights.buffers.push(gpu.buffer("weights", bytes, usage)?);
        }
        let total = packer.buffers.iter().sum();
        let mut upload = Upload::new(gpu, &weights.buffers, total, progress);
        for (numbers, region) in &weights.numbers {
            upload.numbers(region, &numbers.read(model))?;
        }
        for joined in &todo {
            let matrix = &weights.matrices[&joined.weights[0]];
            for part in &matrix.parts {
                upload.part(model, joined, matrix, part)?;
            }
            if let Some(region) = weights.biases.get(&joined.weights[0]) {
                upload.numbers(region, &biases(model, joined))?;
            }
        }
        upload.finish()?;
        Ok(weights)
    }

    /// The biases of a part of the matrix that begins with this weight. Without biases some other buffer, which is not read.
    pub fn bias_of(&self, first: WeightId, part: &MatrixPart) -> wgpu::BufferBinding<'_> {
        let bias = self.biases.get(&first).map_or(self.nothing, |&region| Region {
            offset: region.offset + 4 * part.first_row as u64,
            bytes: 4 * part.rows as u64,
            ..region
        });
        self.binding(bias)
    }

    pub fn numbers(&self, numbers: Numbers) -> wgpu::BufferBinding<'_> {
        self.binding(self.numbers[&numbers])
    }

    /// Without numbers some other buffer, which is not read.
    pub fn numbers_if_any(&self, numbers: Option<Numbers>) -> wgpu::BufferBinding<'_> {
        self.binding(numbers.map_or(self.nothing, |numbers| self.numbers[&numbers]))
    }

    pub fn binding(&self, region: Region) -> wgpu::BufferBinding<'_> {
        let Region { buffer, offset, bytes } = if region.bytes == 0 { self.nothing } else { region };
        wgpu::BufferBinding {
            buffer: &self.buffers[buffer],
            offset,
            size: wgpu::BufferSize::new(bytes.next_multiple_of(16)),
        }
    }
}

impl Joined {
    /// The part of the product that the CPU makes first, if this device has the high plane alone.
    pub fn low_product(&self) -> Option<LowProduct> {
        self.format.high_alone().is_some().then(|| LowProduct {
            weights: self.weights.clone(),
            biases: self.biases.iter().map(|(bias, _)| *bias).collect(),
            src: self.src,
            in_turn: matches!(self.mode, Mode::Gate(_)),
        })
    }
}

/// In the order of the joined rows; zeros for a matrix without.
fn biases(model: &Model, joined: &Joined) -> Vec<f32> {
    let of_each: Vec<Vec<f32>> = joined
        .biases
        .iter()
        .map(|&(bias, rows)| bias.map_or_else(|| vec![0.0; rows], |bias| model.vector(bias)))
        .collect();
    match (&of_each[..], joined.mode) {
        ([gate, up], Mode::Gate(_)) => std::iter::zip(gate, up).flat_map(|(&gate, &up)| [gate, up]).collect(),
        _ => of_each.concat(),
    }
}

/// Tables of which rows are taken, as matrices.
fn tables<'a>(model: &'a Model, ops: &'a [PlanOp]) -> impl Iterator<Item = Joined> + 'a {
    let tables = ops.iter().filter_map(|op| model.plan.operands(op).table);
    tables.map(|table| Joined {
        weights: vec![table],
        biases: Vec::new(),
        format: Format::of(model.weight(table).ty()).expect("checked when the model was loaded"),
        mode: Mode::Store,
        src: Buf::X,
        to: To::Rows(Buf::X),
        activation: None,
        covers: 1,
        apart: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_a_binding_and_cover_the_matrix() {
        for format in Format::ALL {
            for (rows, blocks, limit) in [(128_256, 128, 128 << 20), (1000, 8, 1 << 20), (64, 8, 64 << 20)] {
                let mut packer = Packer::default();
                let matrix = place_matrix(&mut packer, format, rows, (blocks, 1), limit);
                let mut next = 0;
                for part in &matrix.parts {
                    assert_eq!(part.first_row, next);
                    assert_eq!(part.first_row % PART_ROWS, 0);
                    next += part.rows;
                    for (region, rate) in part.streams.iter().zip(format.streams()) {
                        assert_eq!(region.bytes, rate.bytes_for(part.rows * blocks) as u64);
                        assert!(region.offset % ALIGN == 0 && region.bytes <= limit);
                        assert!(region.offset + region.bytes <= packer.buffers[region.buffer]);
                    }
                }
                assert_eq!(next, rows);
                assert!(packer.buffers.iter().all(|&b| b <= limit), "{format:?}");
            }
        }
    }
}
