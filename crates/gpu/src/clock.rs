//! How long kernels take: by the device's own clock where it has one, by the program's where not. Another program's
//! turn on the machine is no fault of a kernel's, so two are measured by turns and each is taken at its best.

use std::time::{Duration, Instant};

use wgpu::BufferUsages as Usage;

use super::{
    command::BufferCopy,
    device::Gpu,
    harness::{Dispatch, Scratch, scratch_for},
    pipelines::Pipelines,
    readback,
    record::Recorder,
};
use crate::Result;

/// How long a measurement should take, and how many each side gets.
const MEASURED: Duration = Duration::from_millis(5);
const TURNS: usize = 5;
/// The most repetitions in one submission.
const MOST: usize = 100;
/// After so long two turns must do: slow kernels are measured well by few.
const ENOUGH: Duration = Duration::from_millis(400);

/// Bytes of two timestamps.
const STAMP_BYTES: u64 = 16;

pub struct Clock<'a> {
    gpu: &'a Gpu,
    stamps: Option<Stamps<'a>>,
}

struct Stamps<'a> {
    queries: wgpu::QuerySet,
    resolved: Scratch<'a>,
    readable: Scratch<'a>,
}

/// Kernels, and whose pipelines they run on.
pub struct Work<'w> {
    pub pipelines: &'w mut Pipelines,
    pub what: &'w [Dispatch],
}

impl<'a> Clock<'a> {
    pub fn new(gpu: &'a Gpu) -> Result<Self> {
        let stamps = gpu.timestamps(2).map(|queries| -> Result<Stamps> {
            let resolved = scratch_for(gpu, STAMP_BYTES, Usage::QUERY_RESOLVE | Usage::COPY_SRC)?;
            let readable = scratch_for(gpu, STAMP_BYTES, Usage::MAP_READ | Usage::COPY_DST)?;
            Ok(Stamps { queries, resolved, readable })
        });
        Ok(Clock { gpu, stamps: stamps.transpose()? })
    }

    /// Seconds of one of so many runs in a submission.
    fn seconds(&self, work: &mut Work, runs: usize) -> Result<f64> {
        let mut recorder = Recorder::new(self.gpu, work.pipelines, None);
        if let Some(stamps) = &self.stamps {
            recorder.stamp(&stamps.queries, Some(0), Some(1));
        }
        for (kernel, bound, groups) in (0..runs).flat_map(|_| work.what) {
            recorder.dispatch(*kernel, bound, *groups)?;
        }
        if let Some(Stamps { queries, resolved, readable }) = &self.stamps {
            recorder.encoder().resolve_query_set(queries, 0..2, &resolved.buffer, 0);
            recorder.copy(&BufferCopy::begin(&resolved.buffer, &readable.buffer, STAMP_BYTES));
        }
        let started = Instant::now();
        recorder.submit();
        self.gpu.wait()?;
        let by_us = started.elapsed().as_secs_f64();
        Ok(self.by_device()?.unwrap_or(by_us) / runs as f64)
    }

    /// Seconds between the two stamps; `None` where there are none or they make no sense.
    fn by_device(&self) -> Result<Option<f64>> {
        let Some(stamps) = &self.stamps else { return Ok(None) };
        let times = readback::read(
            self.gpu,
            &stamps.readable.buffer,
            STAMP_BYTES,
            bytemuck::pod_collect_to_vec::<u8, u64>,
        )?;
        let ticks = times[1].saturating_sub(times[0]) as f64;
        let seconds = ticks * f64::from(self.gpu.queue.get_timestamp_period()) * 1e-9;
        Ok((seconds > 0.0).then_some(seconds))
    }

    /// Seconds of a run at its best.
    pub fn least(&self, work: Work) -> Result<f64> {
        let [seconds] = self.least_of_each([work])?;
        Ok(seconds)
    }

    /// How many times as fast the second is as the first.
    pub fn ratio(&self, first: Work, second: Work) -> Result<f64> {
        let [first, second] = self.least_of_each([first, second])?;
        Ok(first / second)
    }

    fn least_of_each<const N: usize>(&self, mut works: [Work; N]) -> Result<[f64; N]> {
        // Compiles, and wakes the device.
        works.iter_mut().try_for_each(|work| self.seconds(work, 1).map(drop))?;
        by_turns(|i, runs| self.seconds(&mut works[i], runs))
    }
}

/// The least that each of several things takes, measured by turns. `seconds` of one of so many runs.
fn by_turns<const N: usize>(mut seconds: impl FnMut(usize, usize) -> Result<f64>) -> Result<[f64; N]> {
    let started = Instant::now();
    let mut least = [f64::INFINITY; N];
    let mut runs = [1; N];
    for i in 0..N {
        least[i] = seconds(i, 1)?;
        runs[i] = (MEASURED.as_secs_f64() / least[i]).clamp(1.0, MOST as f64) as usize;
    }
    for turn in 0..TURNS {
        if turn >= 2 && started.elapsed() > ENOUGH {
            break;
        }
        for i in 0..N {
            least[i] = least[i].min(seconds(i, runs[i])?);
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{Matrix, Random, numbers, plain, scratch},
        tests::gpu,
    };

    /// One is interrupted by others in most of its turns, by a hundred times what it takes.
    #[test]
    fn pauses_do_not_decide() {
        let mut calls = [0usize; 2];
        let [first, second] = by_turns(|i, _| {
            calls[i] += 1;
            let pause = if i == 0 && !calls[i].is_multiple_of(3) { 1.0 } else { 0.0 };
            Ok([0.010, 0.020][i] + pause)
        })
        .unwrap();
        assert_eq!((first, second), (0.010, 0.020));
        assert_eq!(calls[0], calls[1]);
    }

    #[test]
    fn short_kernels_run_many_times_and_long_ones_once() {
        let mut runs_of = [Vec::new(), Vec::new()];
        let least = by_turns(|i, runs| {
            runs_of[i].push(runs);
            Ok([1e-3, 1.0][i])
        });
        assert_eq!(least.unwrap(), [1e-3, 1.0]);
        assert_eq!((&runs_of[0][..2], &runs_of[1][..2]), (&[1, 5][..], &[1, 1][..]));
    }

    /// Work is far more than what a dispatch costs by itself, and a card needs more of it. Of a bound that a loaded machine keeps.
    #[test]
    fn more_work_takes_longer_by_either_clock() {
        let Some(gpu) = gpu("more_work_takes_longer_by_either_clock") else { return };
        let mut pipelines = Pipelines::new(&gpu);
        let is_card = gpu.info.device_type != wgpu::DeviceType::Cpu;
        let steps = [64, if is_card { 64 << 10 } else { 64 << 6 }].map(|rows| {
            let matrix = Matrix::empty(&gpu, crate::formats::Format::Q4_0, rows, 32).unwrap();
            let x = matrix.input(&gpu, &Random::new(1).floats(32 * 32), 1).unwrap();
            let (y, none) = (scratch(&gpu, 4 * rows as u64).unwrap(), numbers(&gpu, &[0.0]).unwrap());
            matrix.multiply(&gpu, &pipelines, &x, &y, &none, &plain(1, false)).unwrap()
        });
        let by_device = Clock::new(&gpu).unwrap();
        let by_us = Clock { gpu: &gpu, stamps: None };
        for clock in [by_device, by_us] {
            let [short, long] =
                [0, 1].map(|i| clock.least(Work { pipelines: &mut pipelines, what: &steps[i] }).unwrap());
            assert!(short > 0.0 && long > 2.0 * short && long < 1.0, "{short} s, {long} s");
        }
    }
}
