//! The kernels' parameters, all in one uniform buffer: a slot for each operation, chosen by dynamic offset, written once. The
//! shaders say what each number is.

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

macro_rules! params {
    ($($name:ident { $($field:ident: $ty:ty),* $(,)? })*) => {
        $(
            #[derive(Clone, Copy, Default, bytemuck::NoUninit)]
            #[repr(C)]
            pub struct $name { $(pub $field: $ty),* }
        )*
    };
}

params! {
    MatmulParams {
        numbers: [f32; 4],
        rows: u32,
        blocks: u32,
        x_stride: u32,
        y_stride: u32,
        y_first: u32,
        has_bias: u32,
        used: u32,
        pairs_in_row: u32,
        chosen_stride: u32,
        first_expert: u32,
        experts: u32,
        pairs_at: u32,
        x_first: u32,
        x_every: u32,
        y_every: u32,
        bias_stride: u32,
        head_row: u32,
        heads: u32,
        kv_heads: u32,
        head_dim: u32,
        turned: u32,
        turns_stride: u32,
        turns_at: u32,
        factor_at: u32,
        cells: u32,
        cells_at: u32,
        key_words: u32,
        value_words: u32,
        eps: f32,
        per_number: f32,
        zero: u32,
    }
    ChooseParams {
        experts: u32,
        used: u32,
        scores_stride: u32,
        scores_first: u32,
        chosen_stride: u32,
        gating: u32,
        has_bias: u32,
        has_factors: u32,
        groups: u32,
        groups_used: u32,
        renormalises: u32,
        scale: f32,
        weights_at: u32,
    }
    SortParams { experts: u32, used: u32, chosen_stride: u32, count_at: u32, pairs_at: u32 }
    SumParams {
        width: u32,
        used: u32,
        result_stride: u32,
        chosen_stride: u32,
        dst_stride: u32,
        dst_first: u32,
        adds: u32,
        weights_at: u32,
    }
    PrepareParams { blocks: u32 }
    ReadParams { quads: u32 }
    EmbedParams {
        first: u32,
        count: u32,
        blocks: u32,
        x_stride: u32,
        picks_at: u32,
        scale: f32,
        adds: u32,
    }
    NormParams { dim: u32, stride: u32, eps: f32, listed: u32, list_at: u32, zero: u32 }
    NormUnscaledParams { stride: u32, eps: f32, per_number: f32, zero: u32 }
    NormGroupsParams {
        len: u32,
        src_stride: u32,
        src_first: u32,
        dst_stride: u32,
        dst_first: u32,
        eps: f32,
        step: u32,
        summands_at: u32,
        subtracts_mean: u32,
        adds: u32,
        listed: u32,
        list_at: u32,
    }
    ActivateParams { numbers: [f32; 4], count: u32 }
    MultiplyParams {
        f_numbers: [f32; 4],
        g_numbers: [f32; 4],
        width: u32,
        dst_stride: u32,
        dst_first: u32,
        by_stride: u32,
        by_first: u32,
    }
    AddParams {
        width: u32,
        src_stride: u32,
        src_first: u32,
        dst_stride: u32,
        dst_first: u32,
        scale: f32,
        gated: u32,
        gate_stride: u32,
        gate_first: u32,
    }
    TakeParams {
        parts: u32,
        taken: u32,
        each: u32,
        src_stride: u32,
        src_first: u32,
        src_every: u32,
        dst_stride: u32,
        dst_first: u32,
        dst_every: u32,
    }
    ScaleParams { width: u32, stride: u32, first: u32, by: f32 }
    ConvolveParams {
        layer: u32,
        channels: u32,
        kernel: u32,
        has_silu: u32,
        src_stride: u32,
        src_first: u32,
        dst_stride: u32,
        dst_first: u32,
        slab: u32,
        rows_at: u32,
        row_len: u32,
    }
    ScanParams {
        layer: u32,
        heads: u32,
        key_heads: u32,
        in_turn: u32,
        key_quads: u32,
        columns: u32,
        groups: u32,
        x_stride: u32,
        q_first: u32,
        k_first: u32,
        v_first: u32,
        step_stride: u32,
        step_first: u32,
        beta_stride: u32,
        beta_first: u32,
        out_stride: u32,
        out_first: u32,
        slab: u32,
        matrices_at: u32,
        rows_at: u32,
        row_len: u32,
        gates_at: u32,
        eps: f32,
        out_scale: f32,
    }
    CapParams { count: u32, scale: f32, cap: f32 }
    RopeParams {
        heads: u32,
        kv_heads: u32,
        head_dim: u32,
        first_head: u32,
        in_stride: u32,
        in_first: u32,
        turned: u32,
        halves: u32,
        turns_stride: u32,
        turns_at: u32,
        factor_at: u32,
        head_stride: u32,
        cells: u32,
        cells_at: u32,
        key_words: u32,
        value_words: u32,
        flags: u32,
        q_eps: f32,
        k_eps: f32,
    }
    AttendParams {
        heads: u32,
        group: u32,
        head_dim: u32,
        head_stride: u32,
        cells: u32,
        key_words: u32,
        value_words: u32,
        scale: f32,
        cap: f32,
        has_sinks: u32,
        out_stride: u32,
        view_at: u32,
        spans_at: u32,
        view_rows: u32,
        most_chunks: u32,
        first_row: u32,
        zero: u32,
    }
}
