//! Time by kernel, from timestamps that the device writes around every dispatch.

use std::collections::BTreeMap;

use super::{device::Gpu, pipelines::Kernel};
use crate::Result;

/// Dispatches timed between two readings.
const MOST: u32 = 2048;

pub struct Profile {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    readable: wgpu::Buffer,
    /// The kernels dispatched since the last reading, with the bytes that each reads.
    pending: Vec<(Kernel, u64)>,
    /// Not timed because there were too many at once.
    missed: usize,
    totals: BTreeMap<String, Total>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    count: usize,
    seconds: f64,
    bytes: u64,
}

impl Profile {
    pub fn new(gpu: &Gpu) -> Result<Option<Self>> {
        let Some(queries) = gpu.timestamps(2 * MOST) else { return Ok(None) };
        use wgpu::BufferUsages as Usage;
        let bytes = 16 * u64::from(MOST);
        Ok(Some(Profile {
            queries,
            resolved: gpu.buffer("timestamps", bytes, Usage::QUERY_RESOLVE | Usage::COPY_SRC)?,
            readable: gpu.buffer("timestamps", bytes, Usage::MAP_READ | Usage::COPY_DST)?,
            pending: Vec::new(),
            missed: 0,
            totals: BTreeMap::new(),
        }))
    }

    /// Where the next dispatch writes its times, if any are left.
    pub fn next(&mut self, kernel: Kernel, bytes: u64) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        if self.pending.len() as u32 == MOST {
            self.missed += 1;
            return None;
        }
        let first = 2 * self.pending.len() as u32;
        self.pending.push((kernel, bytes));
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    /// Copies the times to where they can be read; the last thing in an encoder.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let count = 2 * self.pending.len() as u32;
        if count > 0 {
            encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readable, 0, 8 * u64::from(count));
        }
    }

    /// Adds up the times of what has run; the device is idle.
    pub fn collect(&mut self, gpu: &Gpu) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = 16 * self.pending.len() as u64;
        let times =
            super::readback::read(gpu, &self.readable, bytes, bytemuck::pod_collect_to_vec::<u8, u64>)?;
        let period = f64::from(gpu.queue.get_timestamp_period()) * 1e-9;
        for ((kernel, bytes), time) in self.pending.drain(..).zip(times.as_chunks::<2>().0) {
            let total = self.totals.entry(kernel.name()).or_default();
            total.count += 1;
            total.seconds += time[1].saturating_sub(time[0]) as f64 * period;
            total.bytes += bytes;
        }
        Ok(())
    }

    /// A table, the most expensive first.
    pub fn table(&self) -> String {
        let mut rows: Vec<_> = self.totals.iter().collect();
        rows.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        let all: f64 = rows.iter().map(|(_, t)| t.seconds).sum();
        let mut out = format!(
            "{:<22} {:>8} {:>10} {:>9} {:>6} {:>8}\n",
            "kernel", "calls", "total ms", "mean us", "share", "GB/s"
        );
        for (name, total) in rows {
            let speed = match total.bytes {
                0 => String::new(),
                bytes => format!("{:.1}", bytes as f64 / total.seconds / 1e9),
            };
            out += &format!(
                "{name:<22} {:>8} {:>10.2} {:>9.1} {:>5.1}% {speed:>8}\n",
                total.count,
                1e3 * total.seconds,
                1e6 * total.seconds / total.count as f64,
                100.0 * total.seconds / all,
            );
        }
        if self.missed > 0 {
            out += &format!("{} dispatches were not timed\n", self.missed);
        }
        out
    }
}
