//! The states of recurrent layers: slabs of f32, each with the inputs from which the rows of the last batch can be gone
//! through again. Memory is taken when a slab is first used, and for as many rows as a batch had.

use std::{cell::UnsafeCell, ops::Range};

use crate::{
    kv::{MOST_REPLAYED, StateRun},
    plan::{MixerId, MixerSpec, Plan},
};

/// Memory for rows to replay is taken for so many at once: few, as most batches are a draft's or its verification.
const ROWS: usize = 8;
const _: () = assert!(MOST_REPLAYED.is_multiple_of(ROWS));

/// A state of one layer: the convolution's last inputs, the scan's matrices, and rows to replay.
pub struct Slab {
    numbers: Vec<UnsafeCell<f32>>,
    replayed: Vec<UnsafeCell<f32>>,
    inputs: usize,
    scan: usize,
    replay_row: usize,
}

// SAFETY: all access goes through the unsafe methods, whose callers keep to the rule of `schedule`: each number has one
// thread in a phase.
unsafe impl Sync for Slab {}

impl Slab {
    fn new(spec: &MixerSpec) -> Self {
        Slab {
            numbers: Vec::new(),
            replayed: Vec::new(),
            inputs: spec.inputs_len(),
            scan: spec.state_len() - spec.inputs_len(),
            replay_row: spec.replay_len(),
        }
    }

    /// Takes memory for the state and for so many rows, those that are there staying.
    fn make_room(&mut self, rows: usize) {
        assert!(rows <= MOST_REPLAYED);
        let grow = |numbers: &mut Vec<UnsafeCell<f32>>, len: usize| {
            if numbers.len() < len {
                numbers.reserve_exact(len - numbers.len());
                numbers.resize_with(len, || UnsafeCell::new(0.0));
            }
        };
        grow(&mut self.numbers, self.inputs + self.scan);
        grow(&mut self.replayed, rows.next_multiple_of(ROWS) * self.replay_row);
    }

    /// Some channels of the `n`-th of the convolution's last inputs, which have so many channels.
    ///
    /// # Safety
    /// No other thread touches these channels in this phase.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn input(&self, n: usize, channels: usize, of: Range<usize>) -> &mut [f32] {
        let begin = n * channels;
        assert!(of.end <= channels && begin + of.end <= self.inputs);
        // SAFETY: the caller's.
        unsafe { part(&self.numbers[begin + of.start..begin + of.end]) }
    }

    /// A part of the scan's numbers.
    ///
    /// # Safety
    /// No other thread touches it in this phase.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn scan(&self, of: Range<usize>) -> &mut [f32] {
        assert!(of.end <= self.scan);
        // SAFETY: the caller's.
        unsafe { part(&self.numbers[self.inputs + of.start..self.inputs + of.end]) }
    }

    /// A part of a row to replay.
    ///
    /// # Safety
    /// No other thread touches it in this phase.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn replayed(&self, row: usize, of: Range<usize>) -> &mut [f32] {
        assert!(of.end <= self.replay_row);
        let begin = row * self.replay_row;
        // SAFETY: the caller's.
        unsafe { part(&self.replayed[begin + of.start..begin + of.end]) }
    }
}

/// # Safety
/// No other thread touches these numbers in this phase.
#[allow(clippy::mut_from_ref)]
unsafe fn part(cells: &[UnsafeCell<f32>]) -> &mut [f32] {
    // SAFETY: nobody else touches them, says the caller.
    unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
}

/// By layer, then by number.
pub struct StateStore {
    layers: Vec<Vec<Slab>>,
}

impl StateStore {
    pub fn new(plan: &Plan, slabs: usize) -> Self {
        let layer = |spec| (0..slabs).map(|_| Slab::new(spec)).collect();
        StateStore { layers: plan.mixers.iter().map(layer).collect() }
    }

    /// Takes memory for what the runs write of these layers.
    pub fn prepare(&mut self, layers: impl Iterator<Item = MixerId>, runs: &[StateRun]) {
        for layer in layers.map(MixerId::index) {
            for run in runs {
                let rows = run.replayed_from.map_or(0, |first| first + run.rows.len());
                run.steps[layer].iter().for_each(|step| self.prepare_one(layer, step.to, rows));
            }
        }
    }

    /// Whether a slab was ever written here.
    pub fn has(&self, layer: usize, slab: u32) -> bool {
        !self.layers[layer][slab as usize].numbers.is_empty()
    }

    /// Takes memory for a slab that is written next, with so many rows to replay.
    pub fn prepare_one(&mut self, layer: usize, slab: u32, rows: usize) {
        self.layers[layer][slab as usize].make_room(rows);
    }

    /// Appends the state in a slab, without rows to replay.
    pub fn copy_out(&self, layer: usize, slab: u32, out: &mut Vec<u8>) {
        let slab = &self.layers[layer][slab as usize];
        // SAFETY: no pass is running, and nothing is written while the reference lives.
        let numbers: &[f32] = unsafe { part(&slab.numbers) };
        numbers.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
    }

    /// Puts a state into a slab and gives the bytes behind it; `None` if there are too few.
    pub fn copy_in<'r>(&mut self, layer: usize, slab: u32, bytes: &'r [u8]) -> Option<&'r [u8]> {
        let slab = &mut self.layers[layer][slab as usize];
        slab.make_room(0);
        let (state, rest) = bytes.split_at_checked(slab.numbers.len() * size_of::<f32>())?;
        for (x, bytes) in slab.numbers.iter_mut().zip(state.as_chunks::<4>().0) {
            *x.get_mut() = f32::from_le_bytes(*bytes);
        }
        Some(rest)
    }

    pub fn slab(&self, id: MixerId, slab: u32) -> &Slab {
        &self.layers[id.index()][slab as usize]
    }
}
