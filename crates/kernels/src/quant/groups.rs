//! Formats whose 32 weights in a row are whole numbers under one scale, or under a small whole multiple of it for each
//! half. All of these products are exact, so their order does not matter.

use super::Block;

/// `w[i] = scale · sub[i / 16] · ints[i]`.
pub struct Group {
    pub scale: f32,
    pub sub: [i32; 2],
    pub ints: [i8; 32],
}

impl Group {
    /// With one scale.
    pub fn plain(scale: f32, ints: [i8; 32]) -> Self {
        Group { scale, sub: [1; 2], ints }
    }
}

pub trait Grouped: Block {
    /// The `b`-th 32 weights of the block.
    fn group(&self, b: usize) -> Group;
}

/// All weights of a block.
pub fn dequantize<B: Grouped>(block: &B, out: &mut [f32]) {
    for (b, out) in out.chunks_exact_mut(32).enumerate() {
        let Group { scale, sub, ints } = block.group(b);
        for (i, (out, int)) in out.iter_mut().zip(ints).enumerate() {
            *out = scale * sub[i / 16] as f32 * f32::from(int);
        }
    }
}

/// 32 of what a function gives for each eight.
pub fn eights(of: impl Fn(usize) -> [i8; 8]) -> [i8; 32] {
    let all = [of(0), of(1), of(2), of(3)];
    std::array::from_fn(|i| all[i / 8][i % 8])
}
