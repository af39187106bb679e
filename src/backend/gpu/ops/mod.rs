//! The plan's operations on the device: for each its kernel, its bind group and its slot of parameters, made at
//! load (those of a K/V slot when it is first used).

mod attention;

use std::collections::HashMap;

use attention::{Attention, SlotKey, shared_heads};

use super::{
    device::Gpu,
    formats::{BLOCK, Format},
    params::{EmbedParams, MatmulParams, NormParams, Params, QuantizeParams},
    pipelines::{Family, Kernel, Mode, Pipelines},
    record::Recorder,
    rows::RowData,
    variants::Arith,
    weights::{Joined, Matrix, MatrixPart, Weights, join},
    work::{Cache, OUTPUTS_AT_ONCE, Stored, TILE_ROWS, WorkBuffers, padded},
};
use crate::{
    Model, Result,
    plan::{AttnSpec, Buf, Norm, Op, Plan, Step, Uniform, UnitSet, WeightId},
};

/// The rows that a product reads.
struct Source<'a> {
    buffer: &'a wgpu::Buffer,
    arith: Arith,
}

/// Where a product goes: the buffer, its row length, and the column where it begins.
struct Target<'a> {
    buffer: &'a wgpu::Buffer,
    stride: usize,
    column: usize,
}

/// What a dispatch binds.
pub struct Bound {
    pub group: wgpu::BindGroup,
    pub params: u32,
}

/// Up to so many rows the weights are read once for all of them.
const FEW_ROWS: usize = 8;

struct Matmul {
    format: Format,
    mode: Mode,
    lanes: u32,
    arith: Arith,
    src: Buf,
    covers: usize,
    /// Multiplications for one row of input, and bytes of weights.
    work: u64,
    bytes: u64,
    coarse_bytes: u64,
    parts: Vec<(Bound, u32)>,
    /// The same with what a gate lets through rounded at once; none where it cannot be.
    rounded_parts: Vec<Bound>,
    /// An up matrix of another format than its gate multiplies afterwards.
    then_silu: Option<Bound>,
}

pub struct Ops {
    pub params: Params,
    dims: Uniform,
    /// Batches of so many rows have long contexts split.
    split_rows: usize,
    stored: Stored,
    /// How norms round.
    arith: Arith,
    /// Of a cell's keys and values in a slot.
    cell_bytes: u64,
    embeds: HashMap<WeightId, (Format, Vec<Bound>, u32)>,
    norms: HashMap<WeightId, Bound>,
    /// By the first of the weights that are joined.
    matmuls: HashMap<WeightId, Matmul>,
    /// Rows that matrices read, rounded by themselves for products that are not in floats; with blocks in a row.
    quantizers: HashMap<Buf, (Bound, u32)>,
    /// The final norm, for each piece of a batch's outputs.
    head_norms: Vec<Bound>,
    attentions: HashMap<SlotKey, Attention>,
}

/// Everything that operations bind.
pub struct Stage<'a> {
    pub gpu: &'a Gpu,
    pub model: &'a Model,
    pub dims: &'a Uniform,
    pub pipelines: &'a Pipelines,
    pub weights: &'a Weights,
    pub work: &'a WorkBuffers,
    pub cache: &'a Cache,
    pub rows: &'a RowData,
}

impl Stage<'_> {
    fn dims(&self) -> &Uniform {
        self.dims
    }

    fn bind(&self, params: &Params, family: Family, storage: &[wgpu::BufferBinding]) -> wgpu::BindGroup {
        self.pipelines.bind(self.gpu, family, params.buffer(), storage)
    }

    /// A buffer of rows that matrices read.
    fn source(&self, buf: Buf) -> &wgpu::Buffer {
        match buf {
            Buf::A => &self.work.a,
            Buf::G => &self.work.g,
            _ => &self.work.h,
        }
    }

    /// The same for products that are not in floats.
    fn rounded(&self, buf: Buf) -> &wgpu::Buffer {
        let rounded = self.work.rounded.as_ref().expect("made for such products");
        match buf {
            Buf::A | Buf::G => &rounded.rest,
            _ => &rounded.h,
        }
    }

    /// How the rows of attention are rounded where they are made: not where a block has parts of two heads.
    fn head_arith(&self) -> Arith {
        let whole_blocks = self.dims().head_dim.is_multiple_of(BLOCK);
        if whole_blocks { self.gpu.variants.arith } else { Arith::Float }
    }

    /// Where a product goes that is not the head's.
    fn target(&self, buf: Buf) -> Target<'_> {
        let dims = self.dims();
        let (q, kv) = (dims.width(Buf::Q), dims.kv_width());
        let (buffer, stride, column) = match buf {
            Buf::Q => (&self.work.qkv, q + 2 * kv, 0),
            Buf::K => (&self.work.qkv, q + 2 * kv, q),
            Buf::V => (&self.work.qkv, q + 2 * kv, q + kv),
            Buf::G => (&self.work.g, padded(dims.ffn), 0),
            _ => (&self.work.x, padded(dims.dim), 0),
        };
        Target { buffer, stride, column }
    }
}

impl Ops {
    /// Parameter slots that a plan may need, whose matrices lie in so many parts.
    pub fn count(plan: &Plan, matrix_parts: usize, n_slots: usize, max_rows: usize) -> usize {
        let n_layer = plan.layers.len();
        // One for each part, and one for the silu after an up matrix of its own.
        let products = 2 * matrix_parts;
        let norms = plan.ops().filter(|op| matches!(op, Op::Norm { .. })).count();
        let head_norms = max_rows.div_ceil(OUTPUTS_AT_ONCE);
        let quantizers = Buf::NAMED;
        // Storing and attending: each layer in its own slot, and any layer in any of the others.
        let attentions = 2 * n_layer * (1 + n_slots.saturating_sub(n_layer));
        products + norms + head_norms + quantizers + attentions
    }

    pub fn new(stage: &Stage, held: &UnitSet, params: Params) -> Self {
        let mut ops = Ops {
            params,
            dims: *stage.dims(),
            split_rows: stage.work.split_rows,
            stored: stage.cache.stored,
            arith: stage.gpu.variants.arith,
            cell_bytes: stage.cache.cell_bytes(stage.dims()),
            embeds: HashMap::new(),
            norms: HashMap::new(),
            matmuls: HashMap::new(),
            quantizers: HashMap::new(),
            head_norms: Vec::new(),
            attentions: HashMap::new(),
        };
        for part in held.ops(&stage.model.plan) {
            for &op in &part {
                match *op {
                    Op::Embed { table, .. } => ops.add_embed(stage, table),
                    Op::Norm { norm, .. } => ops.add_norm(stage, weight_of(&norm), norm.eps),
                    Op::Head { norm, .. } => ops.add_head_norms(stage, weight_of(&norm), norm.eps),
                    // Made by `prepare`, by slot; matrices follow, joined.
                    Op::Store(_) | Op::Attend(_) | Op::MatMul { .. } | Op::Gate { .. } => {}
                    _ => unreachable!("not in a uniform plan"),
                }
            }
            let joined = join(stage.model, &part);
            for (i, group) in joined.iter().enumerate() {
                // The second of a gate and an up matrix that could not be joined.
                let is_up = group.dst == Buf::G && i > 0 && joined[i - 1].dst == Buf::G;
                let is_head = matches!(part[..], [Op::Head { .. }]);
                ops.add_matmul(stage, group, is_up, is_head);
            }
        }
        ops
    }

    fn add_embed(&mut self, stage: &Stage, table: WeightId) {
        let matrix = &stage.weights.matrices[&table];
        let x_stride = (padded(stage.dims().dim) / 4) as u32;
        let parts = matrix.parts.iter().map(|part| {
            let params = self.params.add(&EmbedParams {
                first: part.first_row as u32,
                count: part.rows as u32,
                blocks: matrix.blocks as u32,
                x_stride,
            });
            let [high, low, scales] = part.streams.map(|s| stage.weights.binding(s));
            let rows = stage.rows.rows.as_entire_buffer_binding();
            let x = stage.work.x.as_entire_buffer_binding();
            Bound { group: stage.bind(&self.params, Family::Embed, &[high, low, scales, rows, x]), params }
        });
        let parts = parts.collect();
        self.embeds.insert(table, (matrix.format, parts, x_stride));
    }

    fn norm(&mut self, stage: &Stage, weight: WeightId, eps: f32, list_at: Option<usize>) -> Bound {
        let dim = stage.dims().dim;
        let params = self.params.add(&NormParams {
            dim: dim as u32,
            stride: (padded(dim) / 4) as u32,
            eps,
            listed: u32::from(list_at.is_some()),
            list_at: list_at.unwrap_or(0) as u32,
        });
        let mut storage = vec![
            stage.rows.rows.as_entire_buffer_binding(),
            stage.weights.binding(stage.weights.vectors[&weight]),
            stage.work.x.as_entire_buffer_binding(),
            stage.work.h.as_entire_buffer_binding(),
        ];
        let family = Kernel::Norm(self.arith).family();
        if self.arith != Arith::Float {
            storage.push(stage.rounded(Buf::H).as_entire_buffer_binding());
        }
        Bound { group: stage.bind(&self.params, family, &storage), params }
    }

    fn add_norm(&mut self, stage: &Stage, weight: WeightId, eps: f32) {
        let bound = self.norm(stage, weight, eps, None);
        self.norms.insert(weight, bound);
    }

    fn add_head_norms(&mut self, stage: &Stage, weight: WeightId, eps: f32) {
        for first in (0..stage.work.max_rows).step_by(OUTPUTS_AT_ONCE) {
            let list_at = stage.rows.sections.outputs() + first;
            let bound = self.norm(stage, weight, eps, Some(list_at));
            self.head_norms.push(bound);
        }
    }

    fn add_matmul(&mut self, stage: &Stage, joined: &Joined, is_up: bool, is_head: bool) {
        let first = joined.weights[0];
        let matrix = &stage.weights.matrices[&first];
        let mut out = stage.target(joined.dst);
        if is_up {
            out.buffer = stage.work.u.as_ref().expect("made for such a plan");
        }
        if is_head {
            out.buffer = stage.work.logits.as_ref().expect("made for such a plan");
            out.stride = matrix.rows;
        }
        let arith = stage.gpu.variants.arith.of(joined.format);
        let mut x = Source { buffer: stage.source(joined.src), arith };
        if arith != Arith::Float {
            self.add_quantizer(stage, joined.src, matrix.blocks);
            x.buffer = stage.rounded(joined.src);
        }
        let lanes = stage.gpu.tuning.lanes(matrix.blocks);
        let parts: Vec<_> = matrix
            .parts
            .iter()
            .map(|part| (self.matmul_part(stage, joined, matrix, part, &x, &out), part.rows as u32))
            .collect();
        let ffn = stage.dims().ffn;
        let is_rounded = joined.mode == Mode::Gate && arith != Arith::Float && ffn.is_multiple_of(BLOCK);
        let rounded_parts = matrix.parts.iter().zip(&parts).filter(|_| is_rounded);
        let rounded_parts = rounded_parts
            .map(|(part, (bound, _))| self.gate_part(stage, part, bound.params, x.buffer, out.buffer))
            .collect();
        let then_silu = is_up.then(|| {
            let params = self.params.add(&[padded(stage.dims().ffn) as u32; 4]);
            let storage = [out.buffer.as_entire_buffer_binding(), stage.work.g.as_entire_buffer_binding()];
            Bound { group: stage.bind(&self.params, Family::SiluMul, &storage), params }
        });
        self.matmuls.insert(
            first,
            Matmul {
                format: joined.format,
                mode: joined.mode,
                lanes,
                arith,
                src: joined.src,
                covers: joined.covers,
                work: (matrix.rows * matrix.blocks * BLOCK) as u64,
                bytes: matrix.bytes(),
                coarse_bytes: matrix.bytes() - matrix.low_bytes(),
                parts,
                rounded_parts,
                then_silu,
            },
        );
    }

    fn add_quantizer(&mut self, stage: &Stage, src: Buf, blocks: usize) {
        // Norms round their rows.
        if src == Buf::H || self.quantizers.contains_key(&src) {
            return;
        }
        let params = self.params.add(&QuantizeParams { blocks: blocks as u32 });
        let storage = [stage.source(src), stage.rounded(src)].map(|b| b.as_entire_buffer_binding());
        let group = stage.bind(&self.params, Family::Quantize, &storage);
        self.quantizers.insert(src, (Bound { group, params }, blocks as u32));
    }

    fn matmul_part(
        &mut self,
        stage: &Stage,
        joined: &Joined,
        matrix: &Matrix,
        part: &MatrixPart,
        x: &Source,
        out: &Target,
    ) -> Bound {
        let per_output = if joined.mode == Mode::Gate { 2 } else { 1 };
        let bias = stage.weights.biases.get(&joined.weights[0]);
        let params = self.params.add(&MatmulParams {
            rows: part.rows as u32,
            blocks: matrix.blocks as u32,
            x_stride: (matrix.blocks * x.arith.block_quads()) as u32,
            y_stride: out.stride as u32,
            y_first: (out.column + part.first_row / per_output) as u32,
            has_bias: u32::from(bias.is_some()),
        });
        let [high, low, scales] = part.streams.map(|s| stage.weights.binding(s));
        let bias = bias.map_or(stage.weights.nothing, |&region| super::weights::Region {
            offset: region.offset + 4 * part.first_row as u64,
            bytes: 4 * part.rows as u64,
            ..region
        });
        let storage = [
            high,
            low,
            scales,
            stage.weights.binding(bias),
            x.buffer.as_entire_buffer_binding(),
            out.buffer.as_entire_buffer_binding(),
        ];
        Bound { group: stage.bind(&self.params, Family::Matmul, &storage), params }
    }

    /// A part of a gate and its up matrix, whose rows are rounded for the down matrix.
    fn gate_part(
        &self,
        stage: &Stage,
        part: &MatrixPart,
        params: u32,
        x: &wgpu::Buffer,
        out: &wgpu::Buffer,
    ) -> Bound {
        let [high, low, scales] = part.streams.map(|s| stage.weights.binding(s));
        let bias = stage.weights.binding(stage.weights.nothing);
        let [x, out, rounded] = [x, out, stage.rounded(Buf::G)].map(|b| b.as_entire_buffer_binding());
        let storage = [high, low, scales, bias, x, out, rounded];
        Bound { group: stage.bind(&self.params, Family::MatmulRounded, &storage), params }
    }

    /// Makes what the steps need and do not have yet, before anything is recorded.
    pub fn prepare(&mut self, stage: &Stage, steps: &[Step]) {
        for step in steps {
            if let Op::Attend(id) = *step.op {
                let spec = stage.model.plan.attention(id);
                let eps = spec.q_norm.or(spec.k_norm).map_or(0.0, |norm| norm.eps);
                self.attention(stage, slot_key(step.slot, spec), eps, spec.scale);
            }
        }
    }

    /// All steps but the head. `longest` is the longest context of a row.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        plan: &Plan,
        steps: &[Step],
        rows: usize,
        longest: usize,
    ) -> Result<()> {
        let n = rows as u32;
        let dims = &self.dims;
        let mut attention = None;
        let mut covered = 0;
        let mut rounded = None;
        for step in steps {
            if covered > 0 {
                covered -= 1;
                continue;
            }
            match *step.op {
                Op::Embed { table, .. } => {
                    let (format, parts, x_stride) = &self.embeds[&table];
                    for part in parts {
                        recorder.dispatch(Kernel::Embed(*format), part, [x_stride.div_ceil(32), n, 1])?;
                    }
                }
                Op::Norm { norm, .. } => {
                    recorder.dispatch(Kernel::Norm(self.arith), &self.norms[&weight_of(&norm)], [n, 1, 1])?;
                }
                Op::MatMul { weight, .. } => {
                    let matmul = &self.matmuls[&weight];
                    covered = matmul.covers - 1;
                    self.matmul(recorder, matmul, rows, step.coarse, &mut rounded)?;
                }
                Op::Gate { gate, up, .. } => {
                    self.matmul(recorder, &self.matmuls[&gate.weight], rows, step.coarse, &mut rounded)?;
                    if let Some(up) = up.and_then(|up| self.matmuls.get(&up.weight)) {
                        self.matmul(recorder, up, rows, step.coarse, &mut rounded)?;
                        let silu = up.then_silu.as_ref().expect("a matrix of its own");
                        let pieces = padded(dims.ffn).div_ceil(64) as u32;
                        recorder.dispatch(Kernel::SiluMul, silu, [pieces, n, 1])?;
                        rounded = None;
                    }
                }
                Op::Store(id) => {
                    let found = &self.attentions[&slot_key(step.slot, plan.attention(id))];
                    let heads = (dims.n_head + 2 * dims.n_kv_head) as u32;
                    recorder.dispatch(Kernel::RopeStore(self.stored), &found.store, [heads, n, 1])?;
                    attention = Some(found);
                }
                Op::Attend(_) => {
                    let found = attention.take().expect("keys are stored before they are attended to");
                    let heads = dims.n_head as u32;
                    let chunks = longest.div_ceil(super::work::CHUNK) as u32;
                    let split = chunks > 1 && rows <= self.split_rows;
                    recorder.weigh(0, self.cell_bytes * recorder.seen);
                    let [_, y, z] = if split { [0, chunks, n] } else { [0, 1, n] };
                    let pieces = shared_heads(dims, y * z, recorder.gpu.tuning.crowd);
                    let arith = if split { Arith::Float } else { found.arith };
                    let kernel =
                        Kernel::Attend { split, shared: pieces.is_some(), stored: self.stored, arith };
                    let groups = [pieces.unwrap_or(heads), y, z];
                    if split {
                        recorder.dispatch(kernel, &found.split, groups)?;
                        recorder.dispatch(Kernel::AttendJoin(found.arith), &found.join, [heads, 1, n])?;
                    } else {
                        recorder.dispatch(kernel, &found.attend, groups)?;
                    }
                    rounded = (found.arith != Arith::Float).then_some(Buf::A);
                }
                Op::Head { .. } => {}
                _ => unreachable!("not in a uniform plan"),
            }
        }
        Ok(())
    }

    /// The logits of piece `piece` of the outputs, `count` rows of it.
    pub fn record_head(&self, recorder: &mut Recorder, op: &Op, piece: usize, count: usize) -> Result<()> {
        let Op::Head { weight, .. } = *op else { unreachable!("only the head makes logits") };
        recorder.dispatch(Kernel::Norm(self.arith), &self.head_norms[piece], [count as u32, 1, 1])?;
        self.matmul(recorder, &self.matmuls[&weight], count, false, &mut None)
    }

    /// `rounded`: which rows beside the normed ones are rounded as they are now.
    fn matmul(
        &self,
        recorder: &mut Recorder,
        matmul: &Matmul,
        rows: usize,
        coarse: bool,
        rounded: &mut Option<Buf>,
    ) -> Result<()> {
        let &Matmul { format, mode, lanes, arith, src, .. } = matmul;
        if let Some((bound, blocks)) = self.quantizers.get(&src)
            && arith != Arith::Float
            && *rounded != Some(src)
        {
            recorder.dispatch(Kernel::Quantize(arith), bound, [blocks.div_ceil(32), rows as u32, 1])?;
            *rounded = Some(src);
        }
        let coarse = coarse && format.has_planes();
        let bytes = if coarse { matmul.coarse_bytes } else { matmul.bytes };
        recorder.weigh(matmul.work * rows as u64, bytes);
        if mode == Mode::Gate {
            *rounded = None;
        }
        if rows <= FEW_ROWS && !matmul.rounded_parts.is_empty() {
            let kernel = Kernel::GateRows { format, lanes, columns: rows as u32, coarse, arith };
            for (bound, (_, matrix_rows)) in matmul.rounded_parts.iter().zip(&matmul.parts) {
                let groups = matrix_rows.div_ceil(2 * BLOCK as u32);
                recorder.dispatch(kernel, bound, in_two(groups, &recorder.gpu.limits))?;
            }
            *rounded = Some(Buf::G);
            return Ok(());
        }
        for (bound, matrix_rows) in &matmul.parts {
            if rows <= FEW_ROWS {
                let kernel = Kernel::MatmulRows { format, mode, lanes, columns: rows as u32, coarse, arith };
                let pairs = recorder.gpu.tuning.matmul / lanes;
                let groups = matrix_rows.div_ceil(2 * pairs);
                recorder.dispatch(kernel, bound, in_two(groups, &recorder.gpu.limits))?;
            } else {
                let kernel = Kernel::MatmulTile { format, mode, lanes, coarse, arith };
                let groups = [matrix_rows.div_ceil(64), rows.div_ceil(TILE_ROWS) as u32, 1];
                recorder.dispatch(kernel, bound, groups)?;
            }
        }
        Ok(())
    }
}

/// A norm's weights.
fn weight_of(norm: &Norm) -> WeightId {
    norm.weight.expect("as in every uniform plan")
}

fn slot_key(slot: usize, spec: &AttnSpec) -> SlotKey {
    (slot, spec.q_norm.and_then(|norm| norm.weight), spec.k_norm.and_then(|norm| norm.weight))
}

/// So many workgroups, in two dimensions where one does not hold them.
pub fn in_two(groups: u32, limits: &wgpu::Limits) -> [u32; 3] {
    let most = limits.max_compute_workgroups_per_dimension;
    let y = groups.div_ceil(most);
    [groups.div_ceil(y), y, 1]
}
