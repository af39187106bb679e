//! Recording a pass: one encoder and one compute pass, cut only where a single submission would keep the device
//! busy for longer than an operating system's watchdog likes.

use super::{
    device::Gpu,
    ops::Bound,
    pipelines::{Kernel, Pipelines},
    profile::Profile,
};
use crate::Result;

/// Multiplications in one submission: a slow integrated GPU is busy with them for about half a second.
const MOST_WORK: u64 = 100_000_000_000;

pub struct Recorder<'a> {
    pub gpu: &'a Gpu,
    pipelines: &'a mut Pipelines,
    profile: Option<&'a mut Profile>,
    encoder: wgpu::CommandEncoder,
    pass: Option<wgpu::ComputePass<'static>>,
    /// Multiplications recorded since the last submission.
    work: u64,
    /// Bytes of weights that the next dispatches read.
    bytes: u64,
    pub dispatches: usize,
}

fn encoder(gpu: &Gpu) -> wgpu::CommandEncoder {
    gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
}

impl<'a> Recorder<'a> {
    pub fn new(gpu: &'a Gpu, pipelines: &'a mut Pipelines, profile: Option<&'a mut Profile>) -> Self {
        Recorder {
            gpu,
            pipelines,
            profile,
            encoder: encoder(gpu),
            pass: None,
            work: 0,
            bytes: 0,
            dispatches: 0,
        }
    }

    /// Says what the following dispatches have to do, and submits what is there if it would be too much.
    pub fn weigh(&mut self, work: u64, bytes: u64) {
        if self.work > 0 && self.work + work > MOST_WORK {
            self.submit();
        }
        self.work += work;
        self.bytes += bytes;
    }

    pub fn dispatch(&mut self, kernel: Kernel, bound: &Bound, groups: [u32; 3]) -> Result<()> {
        let pipeline = self.pipelines.get(self.gpu, kernel)?;
        let bytes = std::mem::take(&mut self.bytes);
        self.dispatches += 1;
        let [x, y, z] = groups;
        if let Some(profile) = &mut self.profile
            && let Some(writes) = profile.next(kernel, bytes)
        {
            // Each kernel in a pass of its own: only passes have times on every device.
            let mut pass = self.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(writes),
            });
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &bound.group, &[bound.params]);
            pass.dispatch_workgroups(x, y, z);
            return Ok(());
        }
        let pass = self.pass.get_or_insert_with(|| {
            self.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime()
        });
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &bound.group, &[bound.params]);
        pass.dispatch_workgroups(x, y, z);
        Ok(())
    }

    pub fn copy(&mut self, from: &wgpu::Buffer, to: &wgpu::Buffer, bytes: u64) {
        self.pass = None;
        self.encoder.copy_buffer_to_buffer(from, 0, to, 0, bytes);
    }

    pub fn submit(&mut self) {
        self.pass = None;
        if let Some(profile) = &mut self.profile {
            profile.resolve(&mut self.encoder);
        }
        let done = std::mem::replace(&mut self.encoder, encoder(self.gpu));
        self.gpu.queue.submit([done.finish()]);
        self.work = 0;
    }
}
