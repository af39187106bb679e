//! The kernels' parameters, all in one uniform buffer: a slot for each operation, chosen by dynamic offset, written
//! once. What each number is, the shaders say.

use super::device::Gpu;
use crate::Result;

/// What a slot's binding shows; the largest structure fits.
pub const SLOT_BYTES: u64 = 64;

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

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
pub struct MatmulParams {
    pub rows: u32,
    pub blocks: u32,
    pub x_stride: u32,
    pub y_stride: u32,
    pub y_first: u32,
    pub has_bias: u32,
}

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
pub struct QuantizeParams {
    pub blocks: u32,
}

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
pub struct EmbedParams {
    pub first: u32,
    pub count: u32,
    pub blocks: u32,
    pub x_stride: u32,
}

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
pub struct NormParams {
    pub dim: u32,
    pub stride: u32,
    pub eps: f32,
    pub listed: u32,
    pub list_at: u32,
}

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
pub struct RopeParams {
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub turned: u32,
    pub halves: u32,
    pub qkv_stride: u32,
    pub head_stride: u32,
    pub cells: u32,
    pub cells_at: u32,
    pub key_words: u32,
    pub value_words: u32,
    pub normed: u32,
    pub eps: f32,
}

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
pub struct AttendParams {
    pub heads: u32,
    pub group: u32,
    pub head_dim: u32,
    pub head_stride: u32,
    pub cells: u32,
    pub key_words: u32,
    pub value_words: u32,
    pub scale: f32,
    pub out_stride: u32,
    pub view_at: u32,
    pub spans_at: u32,
    pub view_rows: u32,
    pub most_chunks: u32,
}
