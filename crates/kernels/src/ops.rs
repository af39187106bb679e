//! The small operations on one row: norm, rotation, the gate, and putting keys and values into the cache.

use crate::{
    kv_type::KvType,
    quant::F16,
    simd::{Kernel, LANES, Simd, compiled_here},
};

/// `out = x / rms(x) · weight + bias`
pub struct RmsNorm<'a> {
    pub x: &'a [f32],
    pub weight: Option<&'a [f32]>,
    pub bias: Option<&'a [f32]>,
    pub eps: f32,
    pub out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RmsNorm { x, weight, bias, eps, out } = self;
        let scale = 1.0 / (sum_of_squares(s, x) / x.len() as f32 + eps).sqrt();
        match weight {
            Some(weight) => {
                for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * scale * weight;
                }
            }
            None => out.iter_mut().zip(x).for_each(|(out, x)| *out = x * scale),
        }
        add_bias(bias, out);
    }
}

/// `out = (x - mean(x)) / deviation(x) · weight + bias`
pub struct LayerNorm<'a> {
    pub x: &'a [f32],
    pub weight: Option<&'a [f32]>,
    pub bias: Option<&'a [f32]>,
    pub eps: f32,
    pub out: &'a mut [f32],
}

impl Kernel for LayerNorm<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LayerNorm { x, weight, bias, eps, out } = self;
        let mut sum = s.splat(0.0);
        let (chunks, rest) = x.as_chunks::<LANES>();
        for x in chunks {
            sum = s.add(s.load(x), sum);
        }
        sum = s.add(s.load_partial(rest), sum);
        let mean = s.reduce_add(sum) / x.len() as f32;
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x - mean);
        let scale = 1.0 / (sum_of_squares(s, out) / x.len() as f32 + eps).sqrt();
        match weight {
            Some(weight) => out.iter_mut().zip(weight).for_each(|(out, weight)| *out = *out * scale * weight),
            None => out.iter_mut().for_each(|out| *out *= scale),
        }
        add_bias(bias, out);
    }
}

#[inline(always)]
pub fn sum_of_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut squares = s.splat(0.0);
    let (chunks, rest) = x.as_chunks::<LANES>();
    for x in chunks {
        let x = s.load(x);
        squares = s.fma(x, x, squares);
    }
    let rest = s.load_partial(rest);
    squares = s.fma(rest, rest, squares);
    s.reduce_add(squares)
}

#[inline(always)]
fn add_bias(bias: Option<&[f32]>, out: &mut [f32]) {
    if let Some(bias) = bias {
        out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
    }
}

/// What an MLP's first product goes through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x / (1 + e^-x)`
    Silu,
    /// With the hyperbolic tangent.
    Gelu,
    /// `max(x, 0)²`
    ReluSquared,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// gpt-oss: `min(x, limit) · sigmoid(alpha · x)`, times the other factor, clamped to ±limit, plus 1.
    ClampedSwiglu { alpha: f32, limit: f32 },
    /// Apertus, with a square for positive numbers and an exponential for others.
    Xielu { positive: f32, negative: f32, beta: f32, eps: f32 },
}

/// `gate = activation(gate) · up`, without the second factor where there is none.
pub struct Activate<'a> {
    pub activation: Activation,
    pub gate: &'a mut [f32],
    pub up: Option<&'a [f32]>,
}

impl Kernel for Activate<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Activate { activation, gate, up } = self;
        // Not by closures: those are not compiled for the instructions of the tier.
        macro_rules! each {
            ($f:ident $(, $number:expr)*) => {{
                let (gates, last_gate) = gate.as_chunks_mut::<LANES>();
                let one = s.splat(1.0);
                match up {
                    Some(up) => {
                        let (ups, last_up) = up.as_chunks::<LANES>();
                        for (gate, up) in gates.iter_mut().zip(ups) {
                            s.store($f(s, s.load(gate), s.load(up) $(, $number)*), gate);
                        }
                        let last = $f(s, s.load_partial(last_gate), s.load_partial(last_up) $(, $number)*);
                        s.store_partial(last, last_gate);
                    }
                    None => {
                        for gate in gates {
                            s.store($f(s, s.load(gate), one $(, $number)*), gate);
                        }
                        s.store_partial($f(s, s.load_partial(last_gate), one $(, $number)*), last_gate);
                    }
                }
            }};
        }
        match activation {
            Activation::Silu => each!(silu),
            Activation::Gelu => each!(gelu),
            Activation::ReluSquared => each!(relu_squared),
            Activation::Sigmoid => each!(sigmoid),
            Activation::ClampedSwiglu { alpha, limit } => each!(clamped_swiglu, alpha, limit),
            Activation::Xielu { positive, negative, beta, eps } => {
                each!(xielu, [positive, negative, beta, eps]);
            }
        }
    }
}

#[inline(always)]
fn silu<S: Simd>(s: S, x: S::F, up: S::F) -> S::F {
    s.mul(s.div(x, one_and_exp(s, s.sub(s.splat(0.0), x))), up)
}

#[inline(always)]
fn gelu<S: Simd>(s: S, x: S::F, up: S::F) -> S::F {
    let cube = s.mul(s.mul(x, x), x);
    let inner = s.fma(s.splat(0.044_715), cube, x);
    // 0.5 · (1 + tanh(u)) is the sigmoid of 2u.
    s.mul(s.div(x, one_and_exp(s, s.mul(s.splat(-2.0 * GELU), inner))), up)
}

#[inline(always)]
fn relu_squared<S: Simd>(s: S, x: S::F, up: S::F) -> S::F {
    let x = s.max(x, s.splat(0.0));
    s.mul(s.mul(x, x), up)
}

#[inline(always)]
fn sigmoid<S: Simd>(s: S, x: S::F, up: S::F) -> S::F {
    s.mul(s.div(s.splat(1.0), one_and_exp(s, s.sub(s.splat(0.0), x))), up)
}

#[inline(always)]
fn clamped_swiglu<S: Simd>(s: S, x: S::F, up: S::F, alpha: f32, limit: f32) -> S::F {
    let x = s.min(x, s.splat(limit));
    let up = s.max(s.min(up, s.splat(limit)), s.splat(-limit));
    s.mul(s.div(x, one_and_exp(s, s.mul(s.splat(-alpha), x))), s.add(up, s.splat(1.0)))
}

#[inline(always)]
fn xielu<S: Simd>(s: S, x: S::F, up: S::F, [positive, negative, beta, eps]: [f32; 4]) -> S::F {
    let above = s.max(x, s.splat(0.0));
    let below = s.min(x, s.splat(0.0));
    let grown = s.sub(s.exp(s.min(below, s.splat(eps))), s.splat(1.0));
    let curve = s.mul(s.splat(negative), s.sub(grown, below));
    let square = s.mul(s.mul(above, above), s.splat(positive));
    s.mul(s.fma(s.splat(beta), x, s.add(square, curve)), up)
}

/// The square root of 2/π.
const GELU: f32 = 0.797_884_6;

/// `1 + e^x`
#[inline(always)]
fn one_and_exp<S: Simd>(s: S, x: S::F) -> S::F {
    s.add(s.splat(1.0), s.exp(x))
}

/// Which elements of a head turn together: neighbours (llama) or the two halves (neox).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    Neighbours,
    Halves,
}

/// Rotary positions: pair `i` turns by `pos · freqs[i]`; cosine and sine are scaled by `magnitude`. What a head has beyond
/// its pairs stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub pairs: RopePairs,
    pub freqs: Vec<f64>,
    pub magnitude: f32,
    /// The frequencies in their place for contexts of more than so many tokens. Keys that are cached cannot turn again, so
    /// what counts is how long a context can become.
    pub beyond: Option<(usize, Vec<f64>)>,
}

impl Rope {
    pub fn is_beyond(&self, n_ctx: usize) -> bool {
        self.beyond.as_ref().is_some_and(|&(length, _)| n_ctx > length)
    }
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
            // What stands behind the pairs is not turned.
            let (xs, ys) = head[..2 * n].split_at_mut(n);
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
        if ty != KvType::F16 {
            return ty.put(x, row);
        }
        let (x, rest) = x.as_chunks::<LANES>();
        let (out, last) = bytemuck::cast_slice_mut::<u8, F16>(row).as_chunks_mut::<LANES>();
        for (x, out) in x.iter().zip(out) {
            s.store_f16(s.load(x), out);
        }
        s.store_f16_partial(s.load_partial(rest), last);
    }
}

/// `out += weight ⊙ x`
pub struct AddProduct<'a> {
    pub weight: &'a [f32],
    pub x: &'a [f32],
    pub out: &'a mut [f32],
}

impl Kernel for AddProduct<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let AddProduct { weight, x, out } = self;
        let (outs, last_out) = out.as_chunks_mut::<LANES>();
        let (weights, last_weight) = weight.as_chunks::<LANES>();
        let (xs, last_x) = x.as_chunks::<LANES>();
        for ((out, weight), x) in outs.iter_mut().zip(weights).zip(xs) {
            s.store(s.fma(s.load(weight), s.load(x), s.load(out)), out);
        }
        let last = s.fma(s.load_partial(last_weight), s.load_partial(last_x), s.load_partial(last_out));
        s.store_partial(last, last_out);
    }
}

compiled_here!(RmsNorm, LayerNorm, Activate, Rotate, StoreRow, AddProduct);
