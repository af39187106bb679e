//! The kernels' parameters, all in one uniform buffer: a slot for each operation, chosen by dynamic offset, written once. The
//! structs are made of what the shaders declare.

pub use spec_run_shaders::params::*;

use super::device::Gpu;
use crate::Result;

/// What a slot's binding shows; the largest structure fits.
pub const SLOT_BYTES: u64 = 144;

pub struct Params {
    buffer: wgpu::Buffer,
    data: Vec<u8>,
    stride: usize,
    /// So much of `data` is on the device.
    written: usize,
}

impl Params {
    pub fn new(gpu: &Gpu, slots: usize) -> Result<Self> {
        let stride = SLOT_BYTES.next_multiple_of(u64::from(gpu.limits.min_uniform_buffer_offset_alignment));
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let buffer = gpu.buffer("parameters", stride * slots as u64, usage)?;
        Ok(Params { buffer, data: Vec::new(), stride: stride as usize, written: 0 })
    }

    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// The offset of the parameters' slot.
    pub fn add<T: bytemuck::NoUninit>(&mut self, params: &T) -> u32 {
        const { assert!(size_of::<T>() as u64 <= SLOT_BYTES) };
        let at = self.data.len();
        self.data.extend_from_slice(bytemuck::bytes_of(params));
        self.data.resize(at + self.stride, 0);
        assert!(self.data.len() as u64 <= self.buffer.size(), "slots are counted when the buffer is made");
        at as u32
    }

    /// Makes room for others, once nothing that was submitted reads these.
    pub fn clear(&mut self) {
        self.data.clear();
        self.written = 0;
    }

    /// Gives back what its buffer counted for, which lives on where it is bound.
    pub fn release(self, gpu: &Gpu) {
        gpu.release(self.buffer);
    }

    /// Sends what is new to the device.
    pub fn flush(&mut self, gpu: &Gpu) {
        if self.written < self.data.len() {
            gpu.queue.write_buffer(&self.buffer, self.written as u64, &self.data[self.written..]);
            self.written = self.data.len();
        }
    }
}
