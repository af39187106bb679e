//! Recording a pass: one encoder and one compute pass, cut only where a single submission would keep the device
//! busy for longer than an operating system's watchdog likes.

use std::time::Instant;

use super::{
    command::{Binding, BufferCopy, Command, Dispatch, Load},
    device::Gpu,
    pipelines::{Kernel, Pipelines},
    profile::Profile,
};
use crate::{Result, backend::Traffic};

/// Multiplications in one submission: a slow integrated GPU is busy with them for about half a second.
pub const MOST_WORK: u64 = 100_000_000_000;

/// Times that a compute pass writes.
struct Stamp {
    queries: wgpu::QuerySet,
    /// Where the time at its beginning goes, and at its end.
    begin: Option<u32>,
    end: Option<u32>,
}

pub struct Recorder<'a> {
    pub gpu: &'a Gpu,
    pipelines: &'a mut Pipelines,
    profile: Option<&'a mut Profile>,
    /// `Some` while something is recorded and not submitted.
    encoder: Option<wgpu::CommandEncoder>,
    pass: Option<wgpu::ComputePass<'static>>,
    /// Of the next compute pass.
    stamp: Option<Stamp>,
    /// Multiplications that a submission may have.
    most_work: u64,
    /// Multiplications recorded since the last submission.
    work: u64,
    /// Bytes of weights, keys and values, or logits that the next dispatch reads.
    bytes: u64,
    /// Bytes of matrices that all dispatches read.
    weights: u64,
    dispatches: u64,
    submissions: u64,
    /// When recording of the next submission began, and the seconds of those before.
    since: Option<Instant>,
    seconds: f64,
}

impl<'a> Recorder<'a> {
    pub fn new(gpu: &'a Gpu, pipelines: &'a mut Pipelines, profile: Option<&'a mut Profile>) -> Self {
        Recorder {
            gpu,
            pipelines,
            profile,
            encoder: None,
            pass: None,
            stamp: None,
            most_work: MOST_WORK,
            work: 0,
            bytes: 0,
            weights: 0,
            dispatches: 0,
            submissions: 0,
            since: None,
            seconds: 0.0,
        }
    }

    /// For commands that are known to fit one submission, and are kept for a later pass.
    pub fn kept(mut self) -> Self {
        self.most_work = u64::MAX;
        self
    }

    /// What was recorded.
    pub fn keep(mut self) -> Option<wgpu::CommandBuffer> {
        self.pass = None;
        self.encoder.take().map(wgpu::CommandEncoder::finish)
    }

    /// Records commands, and submits in between where it would be too much for one submission.
    pub fn run(&mut self, commands: &[Command]) -> Result<()> {
        for command in commands {
            match command {
                Command::Dispatch(Dispatch { kernel, binding, groups, load }) => {
                    if let Some(load) = load {
                        self.weigh(*load);
                    }
                    self.dispatch(*kernel, binding, *groups)?;
                }
                Command::Copy(copy) => self.copy(copy),
            }
        }
        Ok(())
    }

    /// Submits what is there if it would be too much together with what comes.
    fn weigh(&mut self, load: Load) {
        if self.work > 0 && self.work.saturating_add(load.work) > self.most_work {
            self.submit();
        }
        self.work += load.work;
        self.bytes += load.bytes;
        self.weights += load.of_matrices;
    }

    pub fn dispatch(&mut self, kernel: Kernel, bound: &Binding, groups: [u32; 3]) -> Result<()> {
        let pipeline = self.pipelines.get(self.gpu, kernel)?;
        let bytes = std::mem::take(&mut self.bytes);
        self.dispatches += 1;
        self.since.get_or_insert_with(Instant::now);
        let encoder = open(&mut self.encoder, self.gpu);
        let record = |pass: &mut wgpu::ComputePass| {
            let [x, y, z] = groups;
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &bound.group, &[bound.params]);
            pass.dispatch_workgroups(x, y, z);
        };
        if let Some(profile) = &mut self.profile
            && let Some(writes) = profile.next(kernel, bytes)
        {
            // Each kernel in a pass of its own: only passes have times on every device.
            record(&mut encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(writes),
            }));
            return Ok(());
        }
        record(self.pass.get_or_insert_with(|| {
            let stamp = self.stamp.take();
            let timestamp_writes = stamp.as_ref().map(|stamp| wgpu::ComputePassTimestampWrites {
                query_set: &stamp.queries,
                beginning_of_pass_write_index: stamp.begin,
                end_of_pass_write_index: stamp.end,
            });
            encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes })
                .forget_lifetime()
        }));
        Ok(())
    }

    /// What a kernel binds, with parameters at the beginning of `params`.
    pub fn bind(
        &self,
        kernel: Kernel,
        params: &wgpu::Buffer,
        storage: &[wgpu::BufferBinding],
    ) -> wgpu::BindGroup {
        self.pipelines.bind(self.gpu, kernel, params, storage)
    }

    /// Has the next dispatch begin a compute pass that writes the time at its beginning and at its end.
    pub fn stamp(&mut self, queries: &wgpu::QuerySet, begin: Option<u32>, end: Option<u32>) {
        self.pass = None;
        self.stamp = Some(Stamp { queries: queries.clone(), begin, end });
    }

    pub fn copy(&mut self, copy: &BufferCopy) {
        let BufferCopy { from, from_offset, to, to_offset, bytes } = copy;
        self.encoder().copy_buffer_to_buffer(from, *from_offset, to, *to_offset, *bytes);
    }

    /// For anything but a dispatch.
    pub fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        open(&mut self.encoder, self.gpu)
    }

    /// Submits what was recorded, if anything was.
    pub fn submit(&mut self) {
        self.pass = None;
        let Some(mut encoder) = self.encoder.take() else { return };
        if let Some(profile) = &mut self.profile {
            profile.resolve(&mut encoder);
        }
        self.gpu.submit(Some(encoder.finish()));
        self.submissions += 1;
        self.work = 0;
        self.seconds += self.since.take().map_or(0.0, |since| since.elapsed().as_secs_f64());
    }

    /// What was recorded and submitted.
    pub fn traffic(&self) -> Traffic {
        let Recorder { dispatches, submissions, weights, .. } = *self;
        Traffic { dispatches, submissions, weights, ..Traffic::default() }
    }

    /// Seconds from first dispatches to their submission.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

fn open<'e>(encoder: &'e mut Option<wgpu::CommandEncoder>, gpu: &Gpu) -> &'e mut wgpu::CommandEncoder {
    encoder.get_or_insert_with(|| {
        gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
    })
}
