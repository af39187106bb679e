//! The states of recurrent layers on the device: for each layer all slabs in one buffer, and what a pass does to them.

use super::{device::Gpu, work::bindable};
use crate::{
    Result,
    kv::{MOST_REPLAYED, Replay, ReplayStep, StateRun, StateStep},
    plan::{MixerId, MixerSpec, Op, Plan, Scan, UnitSet},
};

/// Threads of a workgroup of a scan, and numbers of a column that each of them has, as in scan.wgsl.
const THREADS: usize = 64;
const OF_THREAD: usize = 16;

/// The longest key of a scan: a column is shared by the threads of a workgroup.
pub const MOST_KEY: usize = THREADS * OF_THREAD;

/// Stands for no slab, and for rows that are not kept.
const NONE: u32 = u32::MAX;

/// How a scan's heads are shared by workgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanShape {
    /// Threads that share a column.
    pub lanes: usize,
    /// Workgroups of a head.
    pub groups: usize,
}

impl ScanShape {
    pub fn of(scan: &Scan) -> Self {
        let lanes = scan.rows.div_ceil(OF_THREAD).next_power_of_two();
        ScanShape { lanes, groups: scan.columns.div_ceil(THREADS / lanes) }
    }
}

/// Where a slab's numbers lie: first the convolution's last inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// The scan's matrices, a part for each workgroup.
    pub matrices_at: usize,
    /// Rows that can be replayed: a convolution's inputs, and gates.
    pub rows_at: usize,
    pub row_len: usize,
    pub len: usize,
}

impl Slab {
    pub fn of(spec: &MixerSpec) -> Self {
        let matrices =
            spec.scan.map_or(0, |scan| scan.n_head * ScanShape::of(&scan).groups * THREADS * OF_THREAD);
        let (matrices_at, row_len) = (spec.inputs_len(), spec.replay_len());
        let rows_at = matrices_at + matrices;
        Slab { matrices_at, rows_at, row_len, len: rows_at + MOST_REPLAYED * row_len }
    }
}

/// What in a mixer the kernels cannot do, in words.
pub fn lacks(spec: &MixerSpec) -> Option<String> {
    let scan = spec.scan?;
    if scan.rows > MOST_KEY {
        return Some(format!("scans with keys of {}, which are longer than {MOST_KEY},", scan.rows));
    }
    let columns = (0..scan.n_head).map(|head| scan.columns_of(head));
    let uneven = columns.into_iter().any(|at| !at.q.is_multiple_of(4) || !at.k.is_multiple_of(4));
    (uneven || !scan.rows.is_multiple_of(4))
        .then(|| format!("scans with keys of {}, which do not lie in whole fours,", scan.rows))
}

/// Bytes of a layer's slabs.
pub fn bytes_of_layer(plan: &Plan, layer: usize, slabs: usize) -> u64 {
    plan.mixers_of(layer).map(|spec| 4 * (slabs * Slab::of(spec).len) as u64).sum()
}

pub struct StateStore {
    /// By layer: the slabs one after the other, where it lives here.
    slabs: Vec<Option<wgpu::Buffer>>,
    /// The runs of a pass, in the layout of `states.wgsl`.
    pub runs: wgpu::Buffer,
}

impl StateStore {
    pub fn new(gpu: &Gpu, plan: &Plan, held: &UnitSet, slabs: usize, max_rows: usize) -> Result<Self> {
        let mut made: Vec<_> = plan.mixers.iter().map(|_| None).collect();
        for op in held.ops(plan).into_iter().flatten() {
            let Op::Convolve(id) = *op else { continue };
            let bytes = 4 * (slabs * Slab::of(plan.mixer(id)).len) as u64;
            let usage = wgpu::BufferUsages::STORAGE;
            made[id.index()] = Some(bindable(gpu, "a layer's states", bytes, usage, "`sequences`")?);
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let runs = gpu.buffer("runs of states", Self::runs_bytes(plan, max_rows), usage)?;
        Ok(StateStore { slabs: made, runs })
    }

    /// Bytes of the runs of a pass.
    pub fn runs_bytes(plan: &Plan, max_rows: usize) -> u64 {
        match plan.mixers.len() {
            0 => 0,
            mixers => 4 * (1 + max_rows * (3 + 3 * mixers + 1)) as u64,
        }
    }

    /// All slabs of a layer.
    pub fn slabs(&self, id: MixerId) -> &wgpu::Buffer {
        self.slabs[id.index()].as_ref().expect("a mixer runs where its states are")
    }

    /// Sends the runs of a pass.
    pub fn send(&self, gpu: &Gpu, runs: &[StateRun]) {
        if self.slabs.iter().any(Option::is_some) && !runs.is_empty() {
            let words = pass_words(self.slabs.len(), runs);
            gpu.queue.write_buffer(&self.runs, 0, bytemuck::cast_slice(&words));
        }
    }

    /// Sends the run that makes states again.
    pub fn send_again(&self, gpu: &Gpu, replay: &Replay) {
        gpu.queue.write_buffer(&self.runs, 0, bytemuck::cast_slice(&replay_words(replay)));
    }
}

pub fn pass_words(layers: usize, runs: &[StateRun]) -> Vec<u32> {
    let mut words = vec![runs.len() as u32];
    let mut first = 1 + runs.len() * (3 + 3 * layers);
    for run in runs {
        let kept_from = run.replayed_from.map_or(NONE, |row| row as u32);
        words.extend([first as u32, run.rows.len() as u32, kept_from]);
        first += run.rows.len();
    }
    for layer in 0..layers {
        words.extend(runs.iter().flat_map(|run| match run.steps[layer] {
            Some(StateStep { from, to }) => [from.unwrap_or(NONE), to, NONE],
            None => [NONE; 3],
        }));
    }
    words.extend(runs.iter().flat_map(|run| &run.rows).map(|&row| row as u32));
    words
}

pub fn replay_words(replay: &Replay) -> Vec<u32> {
    let slabs = replay.layers.iter().flat_map(|step| match *step {
        Some(ReplayStep { from, inputs, to }) => [from.unwrap_or(NONE), to, inputs],
        None => [NONE; 3],
    });
    [1, NONE, replay.rows as u32, NONE].into_iter().chain(slabs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Buf, Conv, ScanKind, WeightId};

    fn scan(rows: usize, columns: usize) -> Scan {
        Scan {
            kind: ScanKind::Mamba2 { through: WeightId(0) },
            n_head: 3,
            rows,
            columns,
            n_key_head: 1,
            repeats: false,
            step: Buf::H,
            step_bias: WeightId(0),
            decay: WeightId(0),
            out: Buf::A,
        }
    }

    fn mixer(scan: Option<Scan>) -> MixerSpec {
        let conv = Conv {
            src: Buf::Q,
            dst: Buf::K,
            channels: 40,
            kernel: 4,
            weight: WeightId(0),
            bias: None,
            silu: true,
        };
        MixerSpec { conv, scan }
    }

    /// Every column of a head has a workgroup, whose threads hold all of its numbers.
    #[test]
    fn workgroups_have_all_numbers_of_a_state() {
        for rows in [4, 16, 20, 64, 128, 256, 1000, MOST_KEY] {
            for columns in [1, 16, 64, 100, 128] {
                let scan = scan(rows, columns);
                let ScanShape { lanes, groups } = ScanShape::of(&scan);
                assert!(lanes <= THREADS && THREADS.is_multiple_of(lanes), "{rows}");
                assert!(lanes * OF_THREAD >= rows && groups * (THREADS / lanes) >= columns);
                let slab = Slab::of(&mixer(Some(scan)));
                assert!(slab.rows_at - slab.matrices_at >= 3 * rows * columns);
            }
        }
    }

    #[test]
    fn what_has_no_room_is_named() {
        assert_eq!(lacks(&mixer(None)), None);
        assert_eq!(lacks(&mixer(Some(scan(128, 64)))), None);
        let long = lacks(&mixer(Some(scan(2048, 64)))).unwrap();
        assert!(long.contains("2048") && long.contains("1024"), "{long}");
        // Keys lie behind 3 · 5 numbers of values.
        for odd in [scan(6, 64), scan(8, 5)] {
            let odd = lacks(&mixer(Some(odd))).unwrap();
            assert!(odd.contains("fours"), "{odd}");
        }
    }
}
