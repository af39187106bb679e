//! Row kernels.
use super::{simd::Isa, rows::SharedRows};
use crate::quant::GgmlType;
pub struct QuantRows { q: std::cell::UnsafeCell<Vec<f32>>, k: usize }
impl QuantRows { pub fn new(r: usize, k: usize) -> Self { QuantRows { q: vec![0.0; r * k].into(), k } } pub fn bytes(&self) -> u64 { 0 } pub unsafe fn quantize_row(&self, _isa: Isa, r: usize, x: &[f32]) { unsafe { (&mut *self.q.get())[r * self.k..][..self.k].copy_from_slice(x) } } }
unsafe impl Sync for QuantRows {}
pub struct Weight<'a>(GgmlType, &'a [u8], usize, usize);
impl<'a> Weight<'a> { pub fn new(t: GgmlType, b: &'a [u8], r: usize, c: usize) -> Self { Weight(t, b, r, c) } }
pub enum Input<'a> { Int8(&'a QuantRows), F32(&'a [f32]) }
#[derive(Clone, Copy)]
pub struct OutStripe(*mut f32, usize, bool);
impl OutStripe { pub unsafe fn new(p: *mut f32, _l: usize, s: usize) -> Self { OutStripe(p, s, false) } pub unsafe fn of(r: &SharedRows, a: bool) -> Self { OutStripe(r.as_ptr(), r.width(), a) } }
pub fn matmul(_i: Isa, w: &Weight, r: std::ops::Range<usize>, x: Input, rows: usize, o: OutStripe) {
    let x = match x { Input::F32(x) => x, Input::Int8(q) => unsafe { &*q.q.get() } };
    let mut wr = vec![0.0; w.3];
    let rb = w.0.row_bytes(w.3).unwrap();
    for i in r { crate::quant::dequantize(w.0, &w.1[i * rb..][..rb], &mut wr);
        for m in 0..rows { let mut a = 0.0f32; for k in 0..w.3 { a += wr[k] * x[m * w.3 + k]; }
            unsafe { let p = o.0.add(m * o.1 + i); if o.2 { *p += a } else { *p = a } } } }
}
