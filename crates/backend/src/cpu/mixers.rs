//! Recurrent layers: a convolution along the rows of each sequence, and a scan over them, row by row in their order, so that
//! a row's bits do not depend on how a text was cut into batches.

use std::ops::Range;

use super::{
    ops::{Activate, AddProduct},
    pass::Pass,
    scan::{Gates, Numbers},
    simd::Isa,
    state_store::{Slab, StateStore},
    team::Member,
};
use crate::{
    kv::{Replay, ReplayStep, StateStep},
    plan::{Activation, Conv, MixerId, MixerSpec, Plan, Scan, ScanKind, WeightId},
};

/// Threads share a convolution's channels in pieces of so many.
const CHANNELS: usize = 32;

/// The numbers of a convolution: by place in the kernel, then by channel.
struct Taps<'a> {
    conv: &'a Conv,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
}

impl Taps<'_> {
    /// Some channels of a row. `input(j)`: those of the row that the `j`-th place of the kernel sees; none before the text.
    fn row<'x>(
        &self,
        isa: Isa,
        of: &Range<usize>,
        input: impl Fn(usize) -> Option<&'x [f32]>,
        out: &mut [f32],
    ) {
        out.fill(0.0);
        for j in 0..self.conv.kernel {
            let Some(x) = input(j) else { continue };
            let weight = &self.weight[j * self.conv.channels..][of.clone()];
            AddProduct { weight, x, out: &mut *out }.on(isa);
        }
        if let Some(bias) = self.bias {
            super::pass::add(out, &bias[of.clone()]);
        }
        if self.conv.silu {
            Activate { activation: Activation::Silu, gate: out, up: None }.on(isa);
        }
    }
}

/// The last inputs after `n` further ones: of all that there are, in order, the last.
fn keep_inputs<'x>(
    conv: &Conv,
    of: &Range<usize>,
    (from, to): (Option<&Slab>, &Slab),
    n: usize,
    input: impl Fn(usize) -> &'x [f32],
) {
    let earlier = conv.kernel - 1;
    for i in 0..earlier {
        // SAFETY: these channels of the states are this thread's share.
        let kept = unsafe { to.input(i, conv.channels, of.clone()) };
        match (n + i).checked_sub(earlier) {
            Some(row) => kept.copy_from_slice(input(row)),
            None => match from {
                // In one slab nothing overlaps, as another input moves to its place.
                // SAFETY: as above.
                Some(from) => kept.copy_from_slice(unsafe { from.input(n + i, conv.channels, of.clone()) }),
                None => kept.fill(0.0),
            },
        }
    }
}

/// A head's matrix in a state.
fn head_state(scan: &Scan, head: usize) -> Range<usize> {
    let len = scan.rows * scan.columns;
    head * len..(head + 1) * len
}

/// A head's matrix where it goes on, and what it goes on from if that lies elsewhere.
///
/// # Safety
/// No other thread touches this head of either slab in this phase.
#[allow(clippy::mut_from_ref)]
unsafe fn head_in<'s>(
    scan: &Scan,
    head: usize,
    (from, to): (Option<&'s Slab>, &'s Slab),
) -> (Option<&'s [f32]>, &'s mut [f32]) {
    let part = head_state(scan, head);
    // SAFETY: the caller's.
    let state = unsafe { to.scan(part.clone()) };
    match from {
        None => {
            state.fill(0.0);
            (None, state)
        }
        Some(from) if std::ptr::eq(from, to) => (None, state),
        // SAFETY: the caller's; the slabs are different ones.
        Some(from) => (Some(unsafe { from.scan(part) }), state),
    }
}

impl Pass<'_> {
    fn slabs(&self, id: MixerId, step: &StateStep) -> (Option<&Slab>, &Slab) {
        (step.from.map(|from| self.states.slab(id, from)), self.states.slab(id, step.to))
    }

    pub fn convolve(&self, id: MixerId, member: &Member) {
        let conv = &self.model.plan.mixer(id).conv;
        let taps = taps(conv, self.vectors);
        let (src, dst) = (self.buffers.f32s(conv.src), self.buffers.f32s(conv.dst));
        let of = member.share(conv.channels, CHANNELS);
        let earlier = conv.kernel - 1;
        for run in self.rows.states {
            let Some(step) = &run.steps[id.index()] else { continue };
            let (from, to) = self.slabs(id, step);
            // SAFETY: the rows of `src` are settled.
            let input = |n: usize| unsafe { src.columns(run.rows[n], of.clone()) };
            for (n, &row) in run.rows.iter().enumerate() {
                let seen = |j: usize| match (n + j).checked_sub(earlier) {
                    Some(n) => Some(input(n)),
                    // SAFETY: these channels of the states are this thread's share.
                    None => from.map(|from| unsafe { &*from.input(n + j, conv.channels, of.clone()) }),
                };
                // SAFETY: these channels of the row are this thread's share.
                taps.row(self.isa, &of, seen, unsafe { dst.row_mut(row, of.clone()) });
                if let Some(first) = run.replayed_from {
                    // SAFETY: as above.
                    unsafe { to.replayed(first + n, of.clone()) }.copy_from_slice(input(n));
                }
            }
            keep_inputs(conv, &of, (from, to), run.rows.len(), input);
        }
    }

    pub fn scan(&self, id: MixerId, member: &Member) {
        let MixerSpec { conv, scan } = self.model.plan.mixer(id);
        let scan = scan.as_ref().expect("a plan that scans has one");
        let numbers = Numbers::new(scan, self.vectors);
        let out = self.buffers.f32s(scan.out);
        // SAFETY: what goes into a step is settled.
        let number = |buf, row, head: usize| unsafe { self.buffers.f32s(buf).row(row) }[head];
        // SAFETY: the only reference to what this thread has for itself, until this returns.
        let scratch = &mut unsafe { self.buffers.own(member) }.mixer;
        for head in member.share(scan.n_head, 1) {
            let columns = head * scan.columns..(head + 1) * scan.columns;
            for run in self.rows.states {
                let Some(step) = &run.steps[id.index()] else { continue };
                let (from, to) = self.slabs(id, step);
                // SAFETY: this head of the states is this thread's share.
                let state = unsafe { head_in(scan, head, (from, to)) };
                let gates = |row| Gates {
                    step: number(scan.step, row, head),
                    beta: match scan.kind {
                        ScanKind::GatedDelta { beta, eps: _ } => number(beta, row, head),
                        ScanKind::Mamba2 { .. } => 0.0,
                    },
                };
                let input = |n: usize| {
                    // SAFETY: the rows of the convolution are settled.
                    let x = unsafe { self.buffers.f32s(conv.dst).row(run.rows[n]) };
                    (x, gates(run.rows[n]))
                };
                let output = |n: usize, x: &[f32]| {
                    // SAFETY: this head's columns of the row are this thread's share.
                    unsafe { out.row_mut(run.rows[n], columns.clone()) }.copy_from_slice(x);
                };
                numbers.go_through((self.isa, head, run.rows.len()), state, scratch, input, output);
                let Some(first) = run.replayed_from else { continue };
                for (n, &row) in run.rows.iter().enumerate() {
                    let put = |at: usize, x: f32| {
                        // SAFETY: a head's gates are this thread's share.
                        let gate = unsafe { to.replayed(first + n, at..at + 1) };
                        gate.copy_from_slice(&[x]);
                    };
                    let gates = gates(row);
                    put(conv.channels + head, gates.step);
                    if scan.gates() > scan.n_head {
                        put(conv.channels + scan.n_head + head, gates.beta);
                    }
                }
            }
        }
    }
}

fn taps<'a>(conv: &'a Conv, vectors: &'a [Vec<f32>]) -> Taps<'a> {
    let vector = |id: WeightId| vectors[id.0 as usize].as_slice();
    Taps { conv, weight: vector(conv.weight), bias: conv.bias.map(vector) }
}

/// Reorders the weights of convolutions as they are used.
pub fn order_weights(plan: &Plan, vectors: &mut [Vec<f32>]) {
    for Conv { weight, channels, kernel, .. } in plan.mixers.iter().map(|spec| spec.conv) {
        let vector = &mut vectors[weight.0 as usize];
        *vector = (0..kernel * channels).map(|i| vector[i % channels * kernel + i / channels]).collect();
    }
}

/// Makes a layer's state again: from the earlier state and the first of the rows that are kept with `inputs`. No other thread has this layer.
pub fn replay(
    isa: Isa,
    (plan, id): (&Plan, MixerId),
    vectors: &[Vec<f32>],
    states: &StateStore,
    replay: &Replay,
) {
    let Some(ReplayStep { from, inputs, to }) = replay.layers[id.index()] else { return };
    let MixerSpec { conv, scan } = plan.mixer(id);
    let (from, inputs, to) =
        (from.map(|from| states.slab(id, from)), states.slab(id, inputs), states.slab(id, to));
    let taps = taps(conv, vectors);
    let all = 0..conv.channels;
    let earlier = conv.kernel - 1;
    // SAFETY: no pass is running, and no other thread has this layer. What is read is not written while the reference
    // lives: rows to replay are other numbers than states, and `from` is read before `to`, which it may be, is written.
    let input = |n: usize| unsafe { &*inputs.replayed(n, 0..conv.channels) };
    let mut rows = vec![0.0; replay.rows * conv.channels];
    for (n, out) in rows.chunks_exact_mut(conv.channels).enumerate() {
        let seen = |j: usize| match (n + j).checked_sub(earlier) {
            Some(n) => Some(input(n)),
            // SAFETY: as above.
            None => from.map(|from| unsafe { &*from.input(n + j, conv.channels, all.clone()) }),
        };
        taps.row(isa, &all, seen, out);
    }
    keep_inputs(conv, &all, (from, to), replay.rows, input);
    if let Some(scan) = scan {
        let numbers = Numbers::new(scan, vectors);
        let mut scratch = Vec::new();
        for head in 0..scan.n_head {
            // SAFETY: as above.
            let state = unsafe { head_in(scan, head, (from, to)) };
            let row = |n: usize| {
                let gate = |at: usize| {
                    // SAFETY: as above.
                    let gate: &[f32] = unsafe { inputs.replayed(n, at..at + 1) };
                    gate[0]
                };
                let beta = match scan.kind {
                    ScanKind::GatedDelta { .. } => gate(conv.channels + scan.n_head + head),
                    ScanKind::Mamba2 { .. } => 0.0,
                };
                let gates = Gates { step: gate(conv.channels + head), beta };
                (&rows[n * conv.channels..][..conv.channels], gates)
            };
            numbers.go_through((isa, head, replay.rows), state, &mut scratch, row, |_, _| ());
        }
    }
    let in_place = from.is_some_and(|from| std::ptr::eq(from, to));
    if !std::ptr::eq(inputs, to) && !in_place {
        let whole = plan.mixer(id).replay_len();
        for n in 0..replay.rows {
            // SAFETY: as above; the slabs are different ones.
            unsafe { to.replayed(n, 0..whole).copy_from_slice(inputs.replayed(n, 0..whole)) };
        }
    }
}
