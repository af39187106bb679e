//! Products with matrices, joined where they read the same rows.

use super::{
    super::{
        command::{Binding, Load},
        formats::{BLOCK, Format},
        params::{ActivateParams, PrepareParams, ProductParams},
        pipelines::{Bindings, Curve, Kernel, Mode, numbers_of},
        tuning::{FEW_ROWS, Tiles, Tiling, Turns},
        variants::Arith,
        weights::{Joined, MatrixPart, To},
    },
    AT_ONCE, Lowering, Ops, RowStep, Stage, in_two,
};
use crate::plan::{Buf, WeightId};

/// How a step's product is made.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// From high planes alone, where there are such.
    pub coarse: bool,
    /// With sums of the low plane as summands.
    pub lows: bool,
}

/// Where a product goes: the buffer, its row length, and the column where it begins.
struct Target<'a> {
    buffer: wgpu::BufferBinding<'a>,
    stride: usize,
    column: usize,
}

/// What is multiplied: a matrix or several of one size that lie together, and the rows that they read.
#[derive(Clone, Copy)]
pub(super) struct Matrices {
    pub format: Format,
    pub lanes: u32,
    pub arith: Arith,
    pub src: Buf,
    /// Multiplications for one row of input, and bytes of weights.
    pub work: u64,
    bytes: u64,
    coarse_bytes: u64,
}

impl Matrices {
    /// Those that begin with this weight, read as such.
    pub fn new(stage: &Stage, first: WeightId, format: Format, src: Buf) -> Self {
        let matrix = &stage.weights.matrices[&first];
        Matrices {
            format,
            lanes: stage.gpu.tuning.lanes(matrix.blocks),
            arith: stage.gpu.variants.arith.of(format),
            src,
            work: (matrix.rows * matrix.blocks * BLOCK) as u64,
            bytes: matrix.bytes(),
            coarse_bytes: matrix.bytes() - matrix.low_bytes(),
        }
    }

    /// Whether they are multiplied by their high planes alone, and the bytes that are read then.
    pub fn read(&self, coarse: bool) -> (bool, u64) {
        if coarse && self.format.has_planes() { (true, self.coarse_bytes) } else { (false, self.bytes) }
    }

    /// Says what the product of all of them takes, and whether it is made from high planes alone.
    pub fn weigh(&self, out: &mut Lowering, coarse: bool) -> bool {
        let (coarse, bytes) = self.read(coarse);
        out.weigh(Load::of_product(self.work * out.rows as u64, bytes));
        coarse
    }
}

pub struct Matmul {
    pub(super) matrices: Matrices,
    pub(super) mode: Mode,
    /// The norm of its rows has left its scale to the product.
    pub(super) scales: bool,
    /// How many operations of the plan it does.
    pub covers: usize,
    pub(super) parts: Vec<Part>,
    /// The same for a kernel that also prepares the gate's result for the next product; none where that cannot be done.
    prepared_parts: Vec<Binding>,
    prepares: Option<Buf>,
    /// The same as `parts`, adding sums of the low plane; only where this device has the high plane alone.
    with_lows: Vec<Part>,
    /// Multiplies the gate by an up matrix of another format.
    then_activate: Option<RowStep>,
}

impl Matmul {
    /// Whether it is a matrix and nothing else: all of it is here, and its sums are stored.
    pub(super) fn is_alone(&self) -> bool {
        self.mode == Mode::Store && self.with_lows.is_empty() && self.then_activate.is_none()
    }
}

/// Rows of a matrix that are bound at once.
pub(super) struct Part {
    pub(super) rows: u32,
    pub(super) given: ProductParams,
    bound: Binding,
    /// Where workgroups share the lanes of a tile: tiles that leave sums of lanes, and what adds these.
    shared_tiles: Binding,
    join: Binding,
}

impl Ops {
    pub fn add_matmul(&mut self, stage: &Stage, joined: &Joined) {
        let first = joined.weights[0];
        let matrix = &stage.weights.matrices[&first];
        let layout = |buf| (stage.rows_of(buf).stride, stage.rows_of(buf).column);
        let (buffer, (stride, column)) = match joined.to {
            To::Rows(dst) => (stage.buffer(dst), layout(dst)),
            To::UpRows(dst) => (stage.up_rows(), layout(dst)),
            To::Logits => (stage.logits(), (matrix.rows, 0)),
        };
        let out = Target { buffer, stride, column };
        let matrices = Matrices::new(stage, first, joined.format, joined.src);
        let arith = matrices.arith;
        self.add_preparer(stage, joined.src, arith);
        let x = || stage.input(joined.src, arith);
        let made = |ops: &mut Self, lows| {
            let parts = matrix.parts.iter();
            parts.map(|part| ops.matmul_part(stage, joined, part, x, &out, lows)).collect::<Vec<_>>()
        };
        let parts = made(self, false);
        let with_lows = if joined.low_product().is_some() { made(self, true) } else { Vec::new() };
        // What is read and what is made are not prepared in the same buffer.
        let prepares = match (joined.mode, joined.to) {
            (Mode::Gate(_), To::Rows(dst)) if arith.fits_gate_rows(joined.format) && joined.src == Buf::H => {
                Some(dst).filter(|_| stage.rows_of(dst).width.is_multiple_of(BLOCK))
            }
            _ => None,
        };
        let prepared_parts = prepares.map_or_else(Vec::new, |dst| {
            let parts = matrix.parts.iter().zip(&parts);
            parts
                .map(|(part, Part { bound, .. })| {
                    let storage = stage.product(first, part, x(), [out.buffer.clone(), stage.prepared(dst)]);
                    let group = stage.bind(&self.params, Bindings::MATMUL_PREPARED, &storage);
                    Binding { group, params: bound.params }
                })
                .collect()
        });
        let then_activate = self.activation(stage, joined);
        let scales = self.unscaled.are_read_by(first);
        self.matmuls.insert(
            first,
            Matmul {
                matrices,
                mode: joined.mode,
                scales,
                covers: joined.covers,
                parts,
                prepared_parts,
                prepares,
                with_lows,
                then_activate,
            },
        );
    }

    /// Multiplies a gate by an up matrix of another format.
    pub(super) fn activation(&mut self, stage: &Stage, joined: &Joined) -> Option<RowStep> {
        let To::UpRows(dst) = joined.to else { return None };
        let stride = stage.rows_of(dst).stride;
        let numbers = numbers_of(joined.activation);
        let given = ActivateParams { numbers, count: stride as u32 };
        let storage = [stage.up_rows(), stage.buffer(dst)];
        let kernel = Kernel::Activate(Curve::of(joined.activation));
        Some(self.row_step(stage, kernel, &given, &storage, stride.div_ceil(AT_ONCE)))
    }

    /// Makes what prepares rows for such products, unless they take floats or it is there.
    pub(super) fn add_preparer(&mut self, stage: &Stage, src: Buf, arith: Arith) {
        if arith == Arith::Float || self.preparers.contains_key(&src) {
            return;
        }
        let preparer =
            self.preparer(stage, arith, [stage.buffer(src), stage.prepared(src)], stage.rows_of(src).stride);
        self.preparers.insert(src, preparer);
    }

    /// Prepares rows for products by themselves, from one buffer to another.
    pub(super) fn preparer(
        &mut self,
        stage: &Stage,
        arith: Arith,
        storage: [wgpu::BufferBinding; 2],
        stride: usize,
    ) -> RowStep {
        let blocks = stride / BLOCK;
        let given = PrepareParams { blocks: blocks as u32 };
        self.row_step(stage, Kernel::Prepare(arith), &given, &storage, blocks.div_ceil(32))
    }

    /// `lows`: with sums of the low plane as summands, which have the biases.
    fn matmul_part<'b>(
        &mut self,
        stage: &'b Stage,
        joined: &Joined,
        part: &MatrixPart,
        x: impl Fn() -> wgpu::BufferBinding<'b>,
        out: &Target<'b>,
        lows: bool,
    ) -> Part {
        let matrix = &stage.weights.matrices[&joined.weights[0]];
        let per_output = if let Mode::Gate(_) = joined.mode { 2 } else { 1 };
        let given = ProductParams {
            numbers: numbers_of(joined.activation),
            rows: part.rows as u32,
            blocks: matrix.blocks as u32,
            x_stride: (stage.rows_of(joined.src).stride / BLOCK) as u32,
            y_stride: out.stride as u32,
            y_first: (out.column + part.first_row / per_output) as u32,
            has_bias: u32::from(lows || stage.weights.biases.contains_key(&joined.weights[0])),
            bias_stride: if lows { matrix.rows as u32 } else { 0 },
            ..ProductParams::default()
        };
        let params = self.params.add(&given);
        let bind = |x, buffer| {
            let mut storage = stage.product(joined.weights[0], part, x, [buffer]);
            if lows {
                let buffer = stage.work.lows.as_ref().expect("made for such a matrix");
                storage[3] = wgpu::BufferBinding { buffer, offset: 4 * part.first_row as u64, size: None };
            }
            Binding { group: stage.bind(&self.params, Bindings::MATMUL, &storage), params }
        };
        let sums = || stage.work.lane_sums.as_entire_buffer_binding();
        Part {
            rows: part.rows as u32,
            given,
            bound: bind(x(), out.buffer.clone()),
            shared_tiles: bind(x(), sums()),
            join: bind(sums(), out.buffer.clone()),
        }
    }

    /// Prepares rows that a product reads, unless they are.
    pub(super) fn make_ready(&self, out: &mut Lowering, src: Buf, arith: Arith) {
        if arith != Arith::Float && !out.is_ready(src) {
            self.preparers[&src].lower(out);
            out.add_ready(src);
        }
    }

    /// The same for a product; a norm that leaves its scale to it has prepared them.
    pub(super) fn make_ready_for(&self, out: &mut Lowering, matmul: &Matmul) {
        if !matmul.scales {
            self.make_ready(out, matmul.matrices.src, matmul.matrices.arith);
        }
    }

    pub(super) fn matmul(&self, out: &mut Lowering, matmul: &Matmul, how: How) {
        let &Matmul { matrices: Matrices { format, lanes, arith, .. }, mode, scales, .. } = matmul;
        let (gpu, rows, lows) = (out.gpu, out.rows, how.lows);
        self.make_ready_for(out, matmul);
        let coarse = matmul.matrices.weigh(out, how.coarse);
        if let (Some(dst), Mode::Gate(curve), true) = (matmul.prepares, mode, rows <= FEW_ROWS && !lows) {
            let columns = rows as u32;
            let kernel = Kernel::GateRows { format, curve, lanes, columns, coarse, arith, scales };
            for (bound, Part { rows: matrix_rows, .. }) in matmul.prepared_parts.iter().zip(&matmul.parts) {
                let groups = matrix_rows.div_ceil(2 * BLOCK as u32);
                out.dispatch(kernel, bound, in_two(groups, &gpu.limits));
            }
            out.add_ready(dst);
            return;
        }
        for Part { rows: matrix_rows, bound, shared_tiles, join, .. } in
            if lows { &matmul.with_lows } else { &matmul.parts }
        {
            if rows <= FEW_ROWS || gpu.tuning.takes_turns(rows) && !lows {
                let turns = Turns::of(rows);
                let columns = turns.columns;
                let kernel = Kernel::MatmulRows { format, mode, lanes, columns, coarse, arith, scales };
                let groups = matrix_rows.div_ceil(kernel.rows_at_once(&gpu.tuning));
                out.dispatch(kernel, bound, turns.groups(in_two(groups, &gpu.limits)));
            } else {
                let capacity = self.lane_sums_bytes;
                let tiles = Tiles::of(format, arith, gpu.variants.coop);
                let tiling = gpu.tuning.tiling(*matrix_rows, rows, lanes, capacity, tiles);
                let Tiling { tiles, width, share, groups } = tiling;
                let kernel = match tiles {
                    Tiles::Wide => Kernel::MatmulWide { format, mode, lanes, coarse, scales },
                    Tiles::Narrow | Tiles::Squares => {
                        Kernel::MatmulTile { format, mode, lanes, coarse, arith, width, share, scales }
                    }
                };
                if share == 0 {
                    out.dispatch(kernel, bound, groups);
                } else {
                    out.dispatch(kernel, shared_tiles, groups);
                    let kernel = Kernel::MatmulJoin { mode, lanes, width, scales };
                    out.dispatch(kernel, join, [matrix_rows.div_ceil(128), rows as u32, 1]);
                }
            }
        }
        matmul.then_activate.iter().for_each(|step| step.lower(out));
    }
}
