//! A pass recorded before it is asked for, while the device runs the one before it. What changes from pass to pass lies
//! in buffers, so the commands of a pass are those of any other with the same steps over as many rows.

use super::{
    GpuBackend,
    layout::Place,
    ops::Borders,
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

/// All that the commands of a pass depend on beside its plan.
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
    /// Of the lists that bind groups show.
    generation: u64,
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

/// A pass that was run, and the commands of another like it.
pub struct Prepared {
    shape: Shape,
    pass: Traffic,
    commands: Option<wgpu::CommandBuffer>,
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
        let (outputs, best) = match output {
            Output::Logits(out) => (out.len() / plan.dims.n_vocab, None),
            Output::Top { k, rows } => (rows.len(), Some(*k)),
        };
        let is_whole = steps.last().is_some_and(|step| step.unit == Unit::Head);
        let most = if cuts.is_empty() { MOST_ROWS } else { MOST_TAPPED_ROWS };
        let is_small = rows.tokens.len() <= most.min(self.work.piece_rows);
        if !is_whole || !is_small || !(1..=OUTPUTS_AT_ONCE).contains(&outputs) || self.profile.is_some() {
            return None;
        }
        let result = best.map_or(4 * plan.dims.n_vocab as u64, pick::row_bytes) * outputs as u64;
        if result + self.tap_bytes(rows) * cuts.len() as u64 > self.readable.size() {
            return None;
        }
        Some(Shape {
            steps: steps.iter().map(|step| StepShape::of(plan, step, rows)).collect(),
            rows: rows.tokens.len(),
            outputs,
            best,
            states: rows.states.len(),
            cuts: cuts.to_vec(),
            generation: 0,
        })
    }

    /// Bytes of the stream's room for these rows.
    fn tap_bytes(&self, rows: &Rows) -> u64 {
        4 * (rows.tokens.len() * self.work.layout.place(Buf::X).stride) as u64
    }

    /// Runs a pass of this shape, for which all is prepared, and records another if the one before had it too.
    pub(super) fn repeat(
        &mut self,
        mut shape: Shape,
        (steps, rows): (&[Step], &Rows),
        taps: Taps,
        output: Output,
    ) -> Result<()> {
        shape.generation = self.rows.lists.generation;
        let tap_bytes = self.tap_bytes(rows);
        let GpuBackend { model, gpu, pipelines, work, ops, picker, readable, prepared, .. } = self;
        let head = steps.last().expect("the head");
        let (from, bytes) = match (&output, &*picker) {
            (Output::Top { k, rows }, Some(picker)) => {
                (&picker.best, rows.len() as u64 * pick::row_bytes(*k))
            }
            (Output::Top { .. }, None) => unreachable!("asked for only where there is one"),
            (Output::Logits(out), _) => {
                (work.logits.as_ref().expect("the head lives here"), size_of_val(&**out) as u64)
            }
        };
        let record = |recorder: &mut Recorder| -> Result<()> {
            // Behind the result lie the rows that are taken out.
            ops.record(recorder, &model.plan, (steps, rows), Borders::NONE, |recorder, step| {
                if let Some(tap) = taps.cuts.iter().position(|&cut| cut == step) {
                    let to = bytes + tap as u64 * tap_bytes;
                    recorder.copy((work.room(Buf::X), 0), (readable, to), tap_bytes);
                }
            })?;
            ops.record_head(recorder, head, 0, shape.outputs)?;
            if let (Some(k), Some(picker)) = (shape.best, &*picker) {
                picker.record(recorder, k, shape.outputs)?;
            }
            recorder.copy((from, 0), (readable, 0), bytes);
            Ok(())
        };
        let known = prepared.take().filter(|known| known.shape == shape);
        let is_again = known.is_some();
        let pass = match known {
            Some(Prepared { commands: Some(commands), pass, .. }) => {
                gpu.submit(Some(commands));
                pass
            }
            _ => {
                let mut recorder = Recorder::new(gpu, pipelines, None);
                record(&mut recorder)?;
                recorder.submit();
                recorder.traffic()
            }
        };
        let mut commands = None;
        if is_again && pass.submissions == 1 {
            let mut recorder = Recorder::new(gpu, pipelines, None).kept();
            record(&mut recorder)?;
            commands = recorder.keep();
        }
        *prepared = Some(Prepared { shape, pass, commands });
        let all = bytes + taps.cuts.len() as u64 * tap_bytes;
        readback::read(gpu, readable, all, |all| {
            let (result, tapped) = all.split_at(bytes as usize);
            match output {
                Output::Logits(out) => bytemuck::cast_slice_mut(out).copy_from_slice(result),
                Output::Top { k, rows } => pick::take(result, k, rows),
            }
            take_taps(tapped, work.layout.place(Buf::X), taps);
        })?;
        let kind = if rows.tokens.len() == 1 { PassKind::Token } else { PassKind::Rows };
        self.used(kind, Traffic { readbacks: 1, ..pass }, false, 0.0)
    }
}

/// The rows of each tap from the bytes of the stream's room.
fn take_taps(bytes: &[u8], place: Place, taps: Taps) {
    let count = taps.cuts.len();
    let room: &[f32] = bytemuck::cast_slice(bytes);
    let each = room.len() / count.max(1);
    for (i, row) in taps.rows.chunks_exact_mut(place.width).enumerate() {
        let (row_number, tap) = (i / count, i % count);
        row.copy_from_slice(&room[tap * each + row_number * place.stride + place.column..][..place.width]);
    }
}
