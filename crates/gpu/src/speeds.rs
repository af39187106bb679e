//! How fast a device reads its memory, and how long the way there and back takes: measured once, kept with what else is
//! known of it.

use std::path::Path;
use std::time::Instant;

use wgpu::BufferUsages as Usage;

use super::trial::TRIAL_BYTES;
use super::{
    cache::DiskCache,
    clock::{Clock, Work},
    command::BufferCopy,
    device::{Found, Gpu},
    harness::{Dispatch, bind, scratch, scratch_for},
    params::ReadParams,
    pipelines::{Kernel, Pipelines},
    readback,
    record::Recorder,
};
use crate::{Error, Result, backend::Speeds};

/// What is read: more than caches hold, less would not be the memory's speed. A processor that plays a GPU gets along
/// with less.
const MOST_BYTES: u64 = 256 << 20;
const MOST_BYTES_SOFTWARE: u64 = 64 << 20;
const LEAST_BYTES: u64 = 32 << 20;

/// Threads of a workgroup of `read.wgsl`, what each takes at a time, and how many workgroups keep a large device busy.
const THREADS: u64 = 64;
const TAKEN: u64 = 4 * 16;
const GROUPS: u64 = 4096;

const ROUND_TRIPS: usize = 25;
const SPEEDS: &str = "speeds";

/// What is known of a device, by an earlier measurement or by one now. `None` where memory is too small for one.
pub fn speeds(directory: Option<&Path>, found: &Found) -> Result<Option<Speeds>> {
    let shelf = directory.map(|directory| DiskCache::new(directory, &found.info));
    match shelf.as_ref().and_then(recall) {
        Some(known) => Ok(Some(known)),
        None => measure(found, TRIAL_BYTES, shelf.as_ref()),
    }
}

pub fn recall(shelf: &DiskCache) -> Option<Speeds> {
    shelf.value(SPEEDS)
}

/// Measures now, and keeps the outcome where it can.
pub fn measure(found: &Found, budget: u64, shelf: Option<&DiskCache>) -> Result<Option<Speeds>> {
    let gpu = Gpu::open(found, budget, false)?;
    let speeds = match (read_speed(&gpu), round_trip(&gpu)) {
        (Err(Error::Memory(_)), _) | (_, Err(Error::Memory(_))) => return Ok(None),
        (read, round_trip) => Speeds { read: read?, round_trip: round_trip? },
    };
    if let Some(shelf) = shelf {
        let _ = shelf.keep_value(SPEEDS, &speeds);
    }
    Ok(Some(speeds))
}

/// Bytes a second.
fn read_speed(gpu: &Gpu) -> Result<f64> {
    let software = gpu.info.device_type == wgpu::DeviceType::Cpu;
    let most = if software { MOST_BYTES_SOFTWARE } else { MOST_BYTES };
    let at_once = THREADS * TAKEN * GROUPS;
    let bytes = most.min(gpu.left() / 2).min(gpu.binding_bytes()).max(LEAST_BYTES) / at_once * at_once;
    let words = scratch(gpu, bytes)?;
    let mut pipelines = Pipelines::new(gpu);
    let sums = scratch(gpu, 16 * THREADS * GROUPS)?;
    let what = [read_all(gpu, &pipelines, (&words.buffer, &sums.buffer), GROUPS)?];
    let seconds = Clock::new(gpu)?.least(Work { pipelines: &mut pipelines, what: &what })?;
    Ok(bytes as f64 / seconds)
}

/// Reads a buffer whose size is a multiple of what so many workgroups read at once.
fn read_all(
    gpu: &Gpu,
    pipelines: &Pipelines,
    (words, sums): (&wgpu::Buffer, &wgpu::Buffer),
    groups: u64,
) -> Result<Dispatch> {
    let params = ReadParams { quads: (words.size() / 16) as u32 };
    let bound = bind(gpu, pipelines, Kernel::Read, &params, &[words, sums])?;
    Ok((Kernel::Read, bound, [groups as u32, 1, 1]))
}

/// Seconds from a submission of next to nothing to its result: the median.
fn round_trip(gpu: &Gpu) -> Result<f64> {
    let mut pipelines = Pipelines::new(gpu);
    let words = scratch(gpu, THREADS * TAKEN)?;
    let sums = scratch(gpu, 16 * THREADS)?;
    let readable = scratch_for(gpu, 16, Usage::MAP_READ | Usage::COPY_DST)?;
    let (kernel, bound, groups) = read_all(gpu, &pipelines, (&words.buffer, &sums.buffer), 1)?;
    let mut once = || -> Result<f64> {
        let started = Instant::now();
        let mut recorder = Recorder::new(gpu, &mut pipelines, None);
        recorder.dispatch(kernel, &bound, groups)?;
        recorder.copy(&BufferCopy::begin(&sums.buffer, &readable.buffer, 16));
        recorder.submit();
        readback::read(gpu, &readable.buffer, 16, |_| ())?;
        Ok(started.elapsed().as_secs_f64())
    };
    once()?;
    let mut times = (0..ROUND_TRIPS).map(|_| once()).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[ROUND_TRIPS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{Random, run, storage},
        tests::{adapter, gpu},
    };

    /// Every word is read, and once: their exclusive or says so.
    #[test]
    fn the_kernel_reads_every_word_once() {
        let Some(gpu) = gpu("the_kernel_reads_every_word_once") else { return };
        let mut pipelines = Pipelines::new(&gpu);
        let groups = 3;
        let mut random = Random::new(9);
        let words: Vec<u32> = (0..5 * groups * THREADS * TAKEN / 4).map(|_| random.next() as u32).collect();
        let buffer = storage(&gpu, bytemuck::cast_slice(&words)).unwrap();
        let sums = scratch(&gpu, 16 * THREADS * groups).unwrap();
        let step = read_all(&gpu, &pipelines, (&buffer.buffer, &sums.buffer), groups).unwrap();
        let found =
            run(&gpu, &mut pipelines, &[step], &sums.buffer, (4 * THREADS * groups) as usize).unwrap();
        let of = |words: &mut dyn Iterator<Item = u32>| words.fold(0, |sum, word| sum ^ word);
        for i in 0..4 {
            let want = of(&mut words.iter().skip(i).step_by(4).copied());
            assert_eq!(of(&mut found.iter().skip(i).step_by(4).map(|x| x.to_bits())), want, "word {i}");
        }
    }

    /// Of any memory that a program could run in: a tenth of a gigabyte to ten terabytes a second; and ways of a
    /// microsecond to a tenth of a second. Kept, it is the same number.
    #[test]
    fn speeds_are_those_of_a_memory_and_are_kept() {
        const TEST: &str = "speeds_are_those_of_a_memory_and_are_kept";
        let Some(found) = adapter(TEST) else { return };
        let directory = tempfile::tempdir().unwrap();
        let measured = speeds(Some(directory.path()), &found).unwrap().unwrap();
        println!("{measured:?}");
        assert!((1e8..1e13).contains(&measured.read), "{measured:?}");
        assert!((1e-6..0.1).contains(&measured.round_trip), "{measured:?}");
        let kept = speeds(Some(directory.path()), &found).unwrap().unwrap();
        assert!((kept.read / measured.read - 1.0).abs() < 1e-9, "{kept:?}, {measured:?}");
        // No room to measure is no error, and nothing is kept.
        let shelf = DiskCache::new(&directory.path().join("other"), &found.info);
        assert_eq!(measure(&found, 1 << 20, Some(&shelf)).unwrap(), None);
        assert_eq!(recall(&shelf), None);
    }
}
