//! A pass recorded before it is asked for, while the device runs the one before it. What changes from pass to pass lies
//! in buffers, so the commands of a pass are those of any other with the same steps over as many rows.

use super::{
    GpuBackend,
    command::{BufferCopy, Command},
    layout::BufLayout,
    ops::{HeadPiece, Pass, Tap},
    pick, readback,
    record::Recorder,
    usage::PassKind,
    work::{CHUNK, OUTPUTS_AT_ONCE},
};
use crate::{
    Result,
    backend::{Output, Rows, Taps, Traffic},
    plan::{Buf, Op, OpId, Plan, Step, Unit},
};

/// Passes over more rows are not often followed by others like them.
const MOST_ROWS: usize = 8;
/// Out of larger ones rows are taken in pieces.
const MOST_TAPPED_ROWS: usize = OUTPUTS_AT_ONCE;

/// All that the commands of a pass depend on besides its plan.
#[derive(PartialEq)]
pub struct Shape {
    steps: Vec<StepShape>,
    rows: usize,
    outputs: usize,
    /// The number of the best tokens, where these are all that is wanted.
    best: Option<usize>,
    states: usize,
    /// Steps at which rows are taken out.
    cuts: Vec<usize>,
    /// The generation of the lists of cells that are bound.
    generation: u64,
}

impl Shape {
    /// Bytes of logits, or of the best tokens.
    fn result_bytes(&self, plan: &Plan) -> u64 {
        self.best.map_or(4 * plan.dims.n_vocab as u64, pick::row_bytes) * self.outputs as u64
    }
}

#[derive(PartialEq)]
struct StepShape {
    op: OpId,
    slot: usize,
    coarse: bool,
    experts: Option<usize>,
    /// Of attention, the most chunks that a row sees.
    chunks: usize,
}

impl StepShape {
    fn of(plan: &Plan, step: &Step, rows: &Rows) -> Self {
        let most_seen = match *step.op {
            Op::Attend(id) => {
                let view = &rows.views[rows.view_of_slot(step.slot, plan.attention(id).window)];
                view.visible.iter().map(|seen| seen.to - seen.from).max().unwrap_or(0)
            }
            _ => 0,
        };
        StepShape {
            op: step.id,
            slot: step.slot,
            coarse: step.coarse,
            experts: step.experts,
            chunks: most_seen.div_ceil(CHUNK),
        }
    }
}

/// A pass that was run: its commands, and perhaps a recording of them for the next pass like it.
pub struct Prepared {
    shape: Shape,
    commands: Vec<Command>,
    /// What one run of them took.
    pass: Traffic,
    recorded: Option<wgpu::CommandBuffer>,
}

impl GpuBackend {
    /// The shape of a pass with few rows that ends with the head, and has one result; its lists may not be sent yet.
    pub(super) fn shape(
        &self,
        steps: &[Step],
        rows: &Rows,
        output: &Output,
        cuts: &[usize],
    ) -> Option<Shape> {
        let plan: &Plan = &self.model.plan;
        let best = output.best();
        let outputs = match output {
            Output::Logits(out) => out.len() / plan.dims.n_vocab,
            Output::Top { rows, .. } => rows.len(),
        };
        let is_whole = steps.last().is_some_and(|step| step.unit == Unit::Head);
        let most = if cuts.is_empty() { MOST_ROWS } else { MOST_TAPPED_ROWS };
        let is_small = rows.tokens.len() <= most.min(self.work.piece_rows);
        if !is_whole || !is_small || !(1..=OUTPUTS_AT_ONCE).contains(&outputs) || self.profile.is_some() {
            return None;
        }
        let shape = Shape {
            steps: steps.iter().map(|step| StepShape::of(plan, step, rows)).collect(),
            rows: rows.tokens.len(),
            outputs,
            best,
            states: rows.states.len(),
            cuts: cuts.to_vec(),
            generation: 0,
        };
        let bytes = shape.result_bytes(plan) + self.tap_bytes(rows) * cuts.len() as u64;
        (bytes <= self.readable.size()).then_some(shape)
    }

    /// Bytes of a copy of these rows of the stream.
    fn tap_bytes(&self, rows: &Rows) -> u64 {
        4 * (rows.tokens.len() * self.work.layout.rows_of(Buf::X).stride) as u64
    }

    /// Runs a pass of this shape, whose rows are sent, and records another if the one before had it too.
    pub(super) fn repeat(
        &mut self,
        mut shape: Shape,
        steps: &[Step],
        rows: &Rows,
        taps: Taps,
        output: Output,
    ) -> Result<()> {
        shape.generation = self.rows.lists.generation;
        let (bytes, tap_bytes) = (shape.result_bytes(&self.model.plan), self.tap_bytes(rows));
        let known = self.prepared.take().filter(|known| known.shape == shape);
        let is_again = known.is_some();
        let mut prepared = known.unwrap_or_else(|| {
            let commands = self.lower_repeated(&shape, steps, rows);
            Prepared { shape, commands, pass: Traffic::default(), recorded: None }
        });
        let GpuBackend { gpu, pipelines, work, readable, .. } = self;
        match prepared.recorded.take() {
            Some(commands) => {
                gpu.submit(Some(commands));
            }
            None => {
                let mut recorder = Recorder::new(gpu, pipelines, None);
                recorder.run(&prepared.commands)?;
                recorder.submit();
                prepared.pass = recorder.traffic();
            }
        }
        if is_again && prepared.pass.submissions == 1 {
            let mut recorder = Recorder::new(gpu, pipelines, None).kept();
            recorder.run(&prepared.commands)?;
            prepared.recorded = recorder.keep();
        }
        let pass = prepared.pass;
        self.prepared = Some(prepared);
        let all = bytes + taps.cuts.len() as u64 * tap_bytes;
        readback::read(gpu, readable, all, |all| {
            let (result, tapped) = all.split_at(bytes as usize);
            match output {
                Output::Logits(out) => bytemuck::cast_slice_mut(out).copy_from_slice(result),
                Output::Top { k, rows } => pick::take(result, k, rows),
            }
            take_taps(tapped, work.layout.rows_of(Buf::X), taps);
        })?;
        let kind = if rows.tokens.len() == 1 { PassKind::Token } else { PassKind::Rows };
        self.used(kind, Traffic { readbacks: 1, ..pass }, false, 0.0)
    }

    /// The commands of a whole pass up to the copies of its result and of rows that are taken out.
    pub(super) fn lower_repeated(&mut self, shape: &Shape, steps: &[Step], rows: &Rows) -> Vec<Command> {
        let (bytes, tap_bytes) = (shape.result_bytes(&self.model.plan), self.tap_bytes(rows));
        // Behind the result lie the rows that are taken out.
        let copy = |(tap, &step): (usize, &usize)| {
            let to = (&self.readable, bytes + tap as u64 * tap_bytes);
            Tap { step, copy: BufferCopy::new((self.work.buffer(Buf::X), 0), to, tap_bytes) }
        };
        let taps = shape.cuts.iter().enumerate().map(copy).collect();
        let pass = Pass::whole(steps, rows);
        let mut commands = self.lower(&pass, taps, shape.best);
        let head = steps.last().expect("the head");
        commands.extend(self.ops.lower_head(&self.gpu, HeadPiece { head, piece: 0, rows: shape.outputs }));
        let result = match (shape.best, &self.picker) {
            (Some(k), Some(picker)) => {
                commands.extend(picker.lower(k, shape.outputs));
                &picker.best
            }
            (Some(_), None) => unreachable!("asked for only where there is one"),
            (None, _) => self.work.logits.as_ref().expect("the head lives here"),
        };
        commands.push(Command::Copy(BufferCopy::begin(result, &self.readable, bytes)));
        self.foresee(&pass, commands.iter());
        commands
    }
}

/// The rows of each tap from the bytes of its copies.
fn take_taps(bytes: &[u8], layout: BufLayout, taps: Taps) {
    let count = taps.cuts.len();
    let copies: &[f32] = bytemuck::cast_slice(bytes);
    let each = copies.len() / count.max(1);
    for (i, row) in taps.rows.chunks_exact_mut(layout.width).enumerate() {
        let (row_number, tap) = (i / count, i % count);
        let begin = tap * each + row_number * layout.stride + layout.column;
        row.copy_from_slice(&copies[begin..][..layout.width]);
    }
}
