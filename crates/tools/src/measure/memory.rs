//! The machine's memory: how fast it can be read, and how much of it this process holds.

use std::{hint::black_box, sync::Arc, time::Instant};

use memmap2::MmapMut;

use crate::{
    Error, Result,
    backend::cpu::{
        simd::{Isa, Kernel, LANES, Simd},
        zeros::zeros,
    },
};

/// Far more than the last-level cache of the machines that one runs models on.
const BUFFER_BYTES: usize = 512 << 20;
/// Regions that one thread reads side by side: more of them keep more of the memory's banks busy.
const STREAMS: usize = 4;
/// Vectors of one region read in a turn: 256 bytes.
const TURN: usize = 4;

/// Memory to read from, written once so that its pages are real.
pub struct ReadBuffer(MmapMut);

impl ReadBuffer {
    pub fn new() -> Result<Self> {
        let refused =
            |e| Error::Memory(format!("no {} MiB to measure the memory with: {e}", BUFFER_BYTES >> 20));
        let mut map = zeros(BUFFER_BYTES).map_err(refused)?;
        map.fill(1);
        Ok(ReadBuffer(map))
    }
}

/// Reads the buffer from end to end with a given number of threads.
pub struct ReadProbe {
    buffer: Arc<ReadBuffer>,
    /// `None`: one thread, the caller's own.
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

impl ReadProbe {
    pub fn new(buffer: Arc<ReadBuffer>, threads: usize) -> Result<Self> {
        let build = || rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let refused = |e| Error::Memory(format!("cannot start {threads} threads: {e}: fewer `threads`"));
        let pool = if threads > 1 { Some(build().map_err(refused)?) } else { None };
        Ok(ReadProbe { buffer, pool, threads })
    }

    /// Bytes that one pass reads.
    pub fn bytes(&self) -> usize {
        self.part().len() * self.threads * size_of::<[f32; LANES]>()
    }

    /// Seconds that one pass took.
    pub fn pass(&self) -> f64 {
        let isa = Isa::detect();
        let started = Instant::now();
        match &self.pool {
            None => isa.dispatch(ReadAll { part: self.part() }),
            Some(pool) => {
                let per_thread = self.part().len();
                let all = self.vectors();
                pool.broadcast(|member| {
                    isa.dispatch(ReadAll { part: &all[member.index() * per_thread..][..per_thread] });
                });
            }
        }
        started.elapsed().as_secs_f64()
    }

    fn vectors(&self) -> &[[f32; LANES]] {
        bytemuck::cast_slice(&self.buffer.0)
    }

    /// The first thread's share; the others' are as long.
    fn part(&self) -> &[[f32; LANES]] {
        let vectors = self.vectors();
        let grain = STREAMS * TURN;
        &vectors[..vectors.len() / self.threads / grain * grain]
    }
}

/// Reads every vector once; the sum is there so that the reads are.
struct ReadAll<'a> {
    part: &'a [[f32; LANES]],
}

impl Kernel for ReadAll<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let region = self.part.len() / STREAMS;
        let (turns, _) = self.part.as_chunks::<TURN>();
        let turns_in_region = region / TURN;
        let mut sums = [[s.splat_i32(0); TURN]; STREAMS];
        for turn in 0..turns_in_region {
            for (stream, sums) in sums.iter_mut().enumerate() {
                for (sum, vector) in sums.iter_mut().zip(&turns[stream * turns_in_region + turn]) {
                    *sum = s.add_i32(*sum, s.to_bits(s.load(vector)));
                }
            }
        }
        let total = sums.as_flattened().iter().fold(s.splat_i32(0), |total, &sum| s.add_i32(total, sum));
        black_box(s.reduce_add_i32(total));
    }
}

/// Bytes of this process that are in memory, where the system tells.
pub fn resident_bytes() -> Option<u64> {
    #[cfg(windows)]
    return crate::windows::resident_bytes();
    #[cfg(not(windows))]
    resident_by_proc()
}

#[cfg(not(windows))]
fn resident_by_proc() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_reads_nearly_all_of_the_buffer_with_any_number_of_threads() {
        let buffer = Arc::new(ReadBuffer::new().unwrap());
        for threads in [1, 2, 3] {
            let probe = ReadProbe::new(buffer.clone(), threads).unwrap();
            assert!(probe.bytes() <= BUFFER_BYTES && probe.bytes() > BUFFER_BYTES - (64 << 10));
            let rate = probe.bytes() as f64 / probe.pass();
            // No memory is slower than 10 MB/s, none faster than 10 TB/s: reads that were left out would be.
            assert!((1e7..1e13).contains(&rate), "{rate} bytes a second");
        }
    }

    #[cfg(any(target_os = "linux", windows))]
    #[test]
    fn resident_memory_grows_by_what_is_touched() {
        let before = resident_bytes().unwrap();
        let touched = black_box(vec![1u8; 64 << 20]);
        let after = resident_bytes().unwrap();
        assert!(after >= before + (32 << 20), "{before} then {after}");
        drop(touched);
    }
}
