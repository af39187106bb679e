//! What a block of each format means, in the terms of the [contract](crate::matmul) of products: the scalar view.

/// 32 weights in a row: `w[i] = scale · sub[i / 16] · ints[i] + minimum`.
pub struct Weights {
    pub ints: [i16; 32],
    pub scale: f32,
    /// The scale of the second sixteen, where they have their own.
    pub second_scale: Option<f32>,
    pub sub: [i32; 2],
    pub minimum: Minimum,
}

/// The part of a weight that does not depend on its integer.
pub enum Minimum {
    None,
    Whole(f32),
    Halves([f32; 2]),
}

impl Weights {
    #[inline(always)]
    pub fn plain(scale: f32, ints: [i16; 32]) -> Self {
        Weights { ints, scale, second_scale: None, sub: [1; 2], minimum: Minimum::None }
    }

    #[inline(always)]
    pub fn with_minimum(scale: f32, minimum: f32, ints: [i16; 32]) -> Self {
        Weights { minimum: Minimum::Whole(minimum), ..Self::plain(scale, ints) }
    }

    #[inline(always)]
    pub fn with_sub_scales(scale: f32, sub: [i32; 2], ints: [i16; 32]) -> Self {
        Weights { sub, ..Self::plain(scale, ints) }
    }

    /// As floats. A scale and its multiple come first; that product is exact.
    #[inline(always)]
    pub fn to_floats(&self, out: &mut [f32]) {
        for (half, (out, ints)) in out.chunks_exact_mut(16).zip(self.ints.chunks_exact(16)).enumerate() {
            let scale = if half == 0 { self.scale } else { self.second_scale.unwrap_or(self.scale) };
            let scale = scale * self.sub[half] as f32;
            match self.minimum {
                Minimum::None => {
                    out.iter_mut().zip(ints).for_each(|(out, &int)| *out = scale * f32::from(int))
                }
                Minimum::Whole(minimum) => with(out, ints, scale, minimum),
                Minimum::Halves(minimums) => with(out, ints, scale, minimums[half]),
            }
        }
    }
}

#[inline(always)]
fn with(out: &mut [f32], ints: &[i16], scale: f32, minimum: f32) {
    out.iter_mut().zip(ints).for_each(|(out, &int)| *out = scale * f32::from(int) + minimum);
}

/// 16 bytes hold 32 nibbles: the low ones first.
#[inline(always)]
pub fn nibble(qs: &[u8], i: usize) -> u8 {
    if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 }
}

/// What 16 bytes of nibbles stand for.
#[inline(always)]
pub fn levels(qs: &[u8], levels: &[i8; 16]) -> [i16; 32] {
    let mut out = [0; 32];
    let (low, high) = out.split_at_mut(16);
    for ((q, low), high) in qs.iter().zip(low).zip(high) {
        *low = i16::from(levels[usize::from(q & 15)]);
        *high = i16::from(levels[usize::from(q >> 4)]);
    }
    out
}

/// `from_fn` with the name of what it builds.
#[inline(always)]
pub fn ints(f: impl Fn(usize) -> i8) -> [i16; 32] {
    std::array::from_fn(|i| i16::from(f(i)))
}

/// 32 of what a function gives for each eight.
#[inline(always)]
pub fn eights(of: impl Fn(usize) -> [i8; 8]) -> [i16; 32] {
    // Numbers of 16 bits come last: the compiler then makes vectors of both steps.
    let all = [of(0), of(1), of(2), of(3)];
    std::array::from_fn::<i8, 32, _>(|i| all[i / 8][i % 8]).map(i16::from)
}
