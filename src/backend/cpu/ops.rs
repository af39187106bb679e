//! The small operations on one row: norm, rotation, the gate, and putting keys and values into the cache.

use super::{
    kv_store::{KvType, Q8_BLOCK, Q8_BLOCK_BYTES},
    simd::{Kernel, LANES, Simd},
};
use crate::{
    plan::{Rope, RopePairs},
    quant::F16,
};

/// `out = x / rms(x) · weight`
pub struct RmsNorm<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub eps: f32,
    pub out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RmsNorm { x, weight, eps, out } = self;
        let mut squares = s.splat(0.0);
        let (chunks, rest) = x.as_chunks::<LANES>();
        for x in chunks {
            let x = s.load(x);
            squares = s.fma(x, x, squares);
        }
        let rest = s.load_partial(rest);
        squares = s.fma(rest, rest, squares);
        let scale = 1.0 / (s.reduce_add(squares) / x.len() as f32 + eps).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * weight;
        }
    }
}

/// `gate = silu(gate) · up`
pub struct SiluMul<'a> {
    pub gate: &'a mut [f32],
    pub up: &'a [f32],
}

impl Kernel for SiluMul<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (gates, last_gate) = self.gate.as_chunks_mut::<LANES>();
        let (ups, last_up) = self.up.as_chunks::<LANES>();
        for (gate, up) in gates.iter_mut().zip(ups) {
            s.store(silu_mul(s, s.load(gate), s.load(up)), gate);
        }
        s.store_partial(silu_mul(s, s.load_partial(last_gate), s.load_partial(last_up)), last_gate);
    }
}

/// `gate / (1 + e^-gate) · up`
#[inline(always)]
fn silu_mul<S: Simd>(s: S, gate: S::F, up: S::F) -> S::F {
    let e = s.exp(s.sub(s.splat(0.0), gate));
    s.mul(s.div(gate, s.add(s.splat(1.0), e)), up)
}

/// Cosine and sine of every pair at one position.
#[derive(Default)]
pub struct Turn {
    cos: Vec<f32>,
    sin: Vec<f32>,
    neighbours: bool,
}

impl Turn {
    /// Makes it the rotation to `pos`; allocates only the first time.
    pub fn set_to(&mut self, rope: &Rope, pos: u32) {
        self.set(rope, f64::from(pos), rope.magnitude);
    }

    /// From where a key is already turned: the magnitude is in it.
    pub fn on(rope: &Rope, delta: i64) -> Self {
        let mut turn = Turn::default();
        turn.set(rope, delta as f64, 1.0);
        turn
    }

    fn set(&mut self, rope: &Rope, pos: f64, magnitude: f32) {
        let scaled = |x: f64| (x * f64::from(magnitude)) as f32;
        self.neighbours = rope.pairs == RopePairs::Neighbours;
        self.cos.clear();
        self.sin.clear();
        self.cos.extend(rope.freqs.iter().map(|f| scaled((pos * f).cos())));
        self.sin.extend(rope.freqs.iter().map(|f| scaled((pos * f).sin())));
    }
}

/// Turns one head; elements beyond the rotated ones stay.
pub struct Rotate<'a> {
    pub by: &'a Turn,
    pub head: &'a mut [f32],
}

impl Kernel for Rotate<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Rotate { by: Turn { cos, sin, neighbours }, head } = self;
        let n = cos.len();
        let turns = cos.iter().zip(sin);
        let turned = |x: f32, y: f32, cos: f32, sin: f32| (x * cos - y * sin, x * sin + y * cos);
        if *neighbours {
            for ([x, y], (cos, sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                (*x, *y) = turned(*x, *y, *cos, *sin);
            }
        } else {
            let (xs, ys) = head.split_at_mut(n);
            for ((x, y), (cos, sin)) in xs.iter_mut().zip(ys).zip(turns) {
                (*x, *y) = turned(*x, *y, *cos, *sin);
            }
        }
    }
}

/// One head's key or value into its cell.
pub struct StoreRow<'a> {
    pub ty: KvType,
    pub x: &'a [f32],
    pub row: &'a mut [u8],
}

impl Kernel for StoreRow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let StoreRow { ty, x, row } = self;
        match ty {
            KvType::F32 => {
                for (x, out) in x.iter().zip(row.chunks_exact_mut(4)) {
                    out.copy_from_slice(&x.to_le_bytes());
                }
            }
            KvType::F16 => {
                let (x, rest) = x.as_chunks::<LANES>();
                let (out, last) = bytemuck::cast_slice_mut::<u8, F16>(row).as_chunks_mut::<LANES>();
                for (x, out) in x.iter().zip(out) {
                    s.store_f16(s.load(x), out);
                }
                s.store_f16_partial(s.load_partial(rest), last);
            }
            KvType::Q8_0 => {
                for (x, out) in x.chunks_exact(Q8_BLOCK).zip(row.chunks_exact_mut(Q8_BLOCK_BYTES)) {
                    let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                    let scale = F16::from_f32(largest / 127.0);
                    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
                    out[..2].copy_from_slice(&scale.0);
                    for (x, out) in x.iter().zip(&mut out[2..]) {
                        *out = (x * inverse).round_ties_even() as i8 as u8;
                    }
                }
            }
        }
    }
}

/// A stored row back as numbers.
pub fn load_row(ty: KvType, row: &[u8], out: &mut [f32]) {
    match ty {
        KvType::F32 => {
            for (out, x) in out.iter_mut().zip(row.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(*x);
            }
        }
        KvType::F16 => {
            for (out, x) in out.iter_mut().zip(bytemuck::cast_slice::<u8, F16>(row)) {
                *out = x.to_f32();
            }
        }
        KvType::Q8_0 => {
            for (out, block) in out.chunks_exact_mut(Q8_BLOCK).zip(row.chunks_exact(Q8_BLOCK_BYTES)) {
                let scale = F16([block[0], block[1]]).to_f32();
                for (out, &q) in out.iter_mut().zip(&block[2..]) {
                    *out = scale * f32::from(q as i8);
                }
            }
        }
    }
}
