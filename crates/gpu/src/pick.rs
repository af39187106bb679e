//! The best tokens of rows, found where their logits are: two small kernels, and a few bytes to read back.

use std::collections::HashMap;

use super::{
    command::{Binding, Command, Dispatch, Load},
    device::Gpu,
    params::{Params, RankParams},
    pipelines::{Kernel, Pipelines},
    work::OUTPUTS_AT_ONCE,
};
use crate::{Result, scores::Top};

/// The most tokens of a row that are found here.
pub const MOST_TOP: usize = 64;

/// Logits of a workgroup, and the most such spans in a row, as in `rank.wgsl`.
const SPAN: usize = 1024;
const MOST_SPANS: usize = 1024;

/// What is found of a span: a sum, a key and an id.
const SPAN_BYTES: u64 = 12;

/// Words of a row of what is found.
fn words(k: usize) -> usize {
    1 + 2 * k
}

/// Bytes of a row of what is found.
pub fn row_bytes(k: usize) -> u64 {
    4 * words(k) as u64
}

pub struct Picker {
    n_vocab: usize,
    /// `[OUTPUTS_AT_ONCE, 1 + 2k]`
    pub best: wgpu::Buffer,
    find: wgpu::BindGroup,
    join: wgpu::BindGroup,
    /// Slots of parameters, by `k`.
    slots: HashMap<usize, u32>,
}

impl Picker {
    /// Slots of parameters that it may take.
    pub const SLOTS: usize = MOST_TOP;

    /// Bytes of its buffers.
    pub fn bytes(n_vocab: usize) -> u64 {
        OUTPUTS_AT_ONCE as u64 * (row_bytes(MOST_TOP) + SPAN_BYTES * n_vocab.div_ceil(SPAN) as u64)
    }

    /// `logits`: `[OUTPUTS_AT_ONCE, n_vocab]`. `None` for a vocabulary that is too large.
    pub fn new(
        gpu: &Gpu,
        pipelines: &Pipelines,
        params: &Params,
        logits: &wgpu::Buffer,
        n_vocab: usize,
    ) -> Result<Option<Self>> {
        use wgpu::BufferUsages as Usage;
        let spans = n_vocab.div_ceil(SPAN);
        if spans > MOST_SPANS {
            return Ok(None);
        }
        let rows = OUTPUTS_AT_ONCE as u64;
        let found = gpu.buffer("the best of each span", rows * SPAN_BYTES * spans as u64, Usage::STORAGE)?;
        let best =
            gpu.buffer("the best of each row", rows * row_bytes(MOST_TOP), Usage::STORAGE | Usage::COPY_SRC)?;
        let bind = |kernel: Kernel, buffers: &[&wgpu::Buffer]| {
            let storage: Vec<_> = buffers.iter().map(|b| b.as_entire_buffer_binding()).collect();
            pipelines.bind(gpu, kernel, params.buffer(), &storage)
        };
        let find = bind(Kernel::Best, &[logits, &found]);
        let join = bind(Kernel::BestJoin, &[logits, &found, &best]);
        Ok(Some(Picker { n_vocab, best, find, join, slots: HashMap::new() }))
    }

    /// Makes the slot for `k`, before anything is recorded.
    pub fn prepare(&mut self, params: &mut Params, k: usize) {
        let (n_vocab, spans) = (self.n_vocab as u32, self.n_vocab.div_ceil(SPAN) as u32);
        self.slots.entry(k).or_insert_with(|| params.add(&RankParams { n_vocab, spans, k: k as u32 }));
    }

    /// The commands that find the `k` best of the first `rows` rows of logits.
    pub fn lower(&self, k: usize, rows: usize) -> [Command; 2] {
        let binding = |group: &wgpu::BindGroup| Binding { group: group.clone(), params: self.slots[&k] };
        let (rows, spans) = (rows as u32, self.n_vocab.div_ceil(SPAN) as u32);
        let bytes = 4 * u64::from(rows) * self.n_vocab as u64;
        let find = Dispatch {
            kernel: Kernel::Best,
            binding: binding(&self.find),
            groups: [spans, rows, 1],
            load: Some(Load { work: 0, bytes, of_matrices: 0 }),
        };
        let join = Dispatch {
            kernel: Kernel::BestJoin,
            binding: binding(&self.join),
            groups: [rows, 1, 1],
            load: None,
        };
        [find, join].map(Command::Dispatch)
    }
}

/// Where the best token of a row stands in [`Picker::best`].
pub fn token_at(k: usize, row: usize) -> u64 {
    row as u64 * row_bytes(k) + 4
}

/// Rows as they were read back.
pub fn take(bytes: &[u8], k: usize, rows: &mut [Top]) {
    let numbers: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
    for (top, row) in rows.iter_mut().zip(numbers.chunks_exact(words(k))) {
        top.log_sum = f32::from_bits(row[0]);
        top.best.clear();
        let found = row[1..].as_chunks::<2>().0.iter().take_while(|[id, _]| *id != u32::MAX);
        top.best.extend(found.map(|&[id, logit]| (id, f32::from_bits(logit))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        command::BufferCopy,
        readback,
        record::Recorder,
        tests::{Random, gpu, numbers},
        tuning::Tuning,
    };

    /// ln Σ exp is rounded: a term by an exponential of 3 + 2·100 units at most (and the smaller the term the more), a
    /// sum by the terms of a thread and by the threads, its logarithm by 3 units or 2^-21.
    fn log_sum_limit(log_sum: f32) -> f32 {
        1e-5 + 2e-7 * log_sum.abs() + 300.0 * 2f32.powi(-24)
    }

    /// Rows of every sort: random ones, ties, equals, both zeros, the ends of the range, infinities and NaN.
    fn rows(random: &mut Random, n_vocab: usize) -> Vec<Vec<f32>> {
        let mut with = |f: &dyn Fn(usize, f32) -> f32| -> Vec<f32> {
            (0..n_vocab).map(|i| f(i, 20.0 * random.float())).collect()
        };
        vec![
            with(&|_, x| x),
            with(&|_, x| (x / 8.0).round()),
            with(&|_, _| 1.5),
            with(&|i, x| if i % 3 == 0 { -0.0 } else { (0.0 * x).abs() }),
            with(&|i, x| if i == n_vocab / 2 { f32::MAX } else { x }),
            with(&|_, x| if x > 0.0 { f32::MIN } else { f32::MIN_POSITIVE / 2.0 }),
            with(&|i, x| if i % 5 == 1 { f32::NAN } else { x }),
            with(&|_, x| if x < 15.0 { f32::NEG_INFINITY } else { x }),
            with(&|i, x| if i % 700 == 1 { f32::INFINITY } else { x }),
            with(&|_, _| f32::NEG_INFINITY),
            with(&|i, _| if i == n_vocab - 1 { f32::NEG_INFINITY } else { f32::NAN }),
            with(&|_, _| f32::NAN),
        ]
    }

    #[test]
    fn the_best_are_found_in_vocabularies_of_any_size() {
        let Some(mut gpu) = gpu("the_best_are_found_in_vocabularies_of_any_size") else { return };
        for tuning in [Tuning::SOFTWARE, Tuning::HARDWARE] {
            gpu.tuning = tuning.within(&gpu.limits);
            let mut pipelines = Pipelines::new(&gpu);
            // Of the last, narrow workgroups have several spans for a thread.
            for n_vocab in [1, 7, 1023, 1024, 1025, 5000, 20_000] {
                let rows = rows(&mut Random::new(n_vocab as u64), n_vocab);
                let logits = numbers(&gpu, &rows.concat());
                let mut params = Params::new(&gpu, 4).unwrap();
                let mut picker = Picker::new(&gpu, &pipelines, &params, &logits, n_vocab).unwrap().unwrap();
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                for k in [1, 5, 40, MOST_TOP] {
                    picker.prepare(&mut params, k);
                    params.flush(&gpu);
                    let bytes = rows.len() as u64 * row_bytes(k);
                    let readable = gpu.buffer("best", bytes, usage).unwrap();
                    let mut recorder = Recorder::new(&gpu, &mut pipelines, None);
                    recorder.run(&picker.lower(k, rows.len())).unwrap();
                    recorder.copy(&BufferCopy::begin(&picker.best, &readable, bytes));
                    recorder.submit();
                    let mut found = vec![Top { best: vec![(3, 1e9)], log_sum: 1e9 }; rows.len()];
                    readback::read(&gpu, &readable, bytes, |bytes| take(bytes, k, &mut found)).unwrap();
                    for (i, (found, row)) in found.iter().zip(&rows).enumerate() {
                        check(found, &Top::of(row, k), &format!("row {i} of {n_vocab}, {k} best"));
                        assert_eq!(found.best[0].0, crate::scores::greedy(row), "row {i} of {n_vocab}");
                    }
                }
            }
        }
    }

    fn check(found: &Top, expected: &Top, what: &str) {
        // The two zeros are equals; so are all NaN here.
        let plain = |top: &Top| -> Vec<(u32, Option<u32>)> {
            let bits = |logit: f32| (!logit.is_nan()).then_some((logit + 0.0).to_bits());
            top.best.iter().map(|&(id, logit)| (id, bits(logit))).collect()
        };
        assert_eq!(plain(found), plain(expected), "{what}");
        let (got, want) = (found.log_sum, expected.log_sum);
        let is_close = want.is_finite() && (got - want).abs() <= log_sum_limit(want);
        assert!(got == want || is_close, "{what}: {got}, {want}");
    }
}
