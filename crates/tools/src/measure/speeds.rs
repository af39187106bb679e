//! Short looks at how fast weights can be read, for a forecast: from RAM, and from their file.

use std::{sync::Arc, time::Instant};

use super::memory::{ReadBuffer, ReadProbe};
use crate::{Gguf, Result};

/// The best of so many passes over the memory: what others do at the same time is not its speed.
const PASSES: usize = 4;
/// Read of the file in so many places, together enough that the disk gets going.
const PLACES: usize = 4;
const PIECE: usize = 32 << 20;

/// Bytes a second from memory with this many threads.
pub fn of_ram(threads: usize) -> Result<f64> {
    let probe = ReadProbe::new(Arc::new(ReadBuffer::new()?), threads)?;
    let best = (0..PASSES).map(|_| probe.pass()).fold(f64::INFINITY, f64::min);
    Ok(probe.bytes() as f64 / best)
}

/// Bytes a second from the file's disk, in the way that passes read it; `None` if the file is too small to tell, or
/// where the system cannot be told to read it afresh.
pub fn of_file(gguf: &Gguf) -> Option<f64> {
    if !cfg!(target_os = "linux") || !gguf.is_mapped() {
        return None;
    }
    let mut large: Vec<_> = gguf.tensors().iter().filter(|t| t.bytes >= PIECE as u64).collect();
    let step = large.len().div_ceil(PLACES).max(1);
    large = large.into_iter().step_by(step).collect();
    if large.is_empty() {
        return None;
    }
    large.iter().for_each(|tensor| gguf.evict(tensor, 0..PIECE));
    let started = Instant::now();
    large.iter().for_each(|tensor| gguf.will_need(tensor, 0..PIECE));
    for tensor in &large {
        // A byte of each page waits for the page.
        let read = gguf.bytes(tensor)[..PIECE].iter().step_by(4096);
        std::hint::black_box(read.fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
    }
    let seconds = started.elapsed().as_secs_f64();
    large.iter().for_each(|tensor| gguf.release(tensor, 0..PIECE));
    Some((large.len() * PIECE) as f64 / seconds)
}
