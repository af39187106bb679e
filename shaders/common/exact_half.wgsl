// The half in the low bits of a word, exactly. unpack2x16float may take halves below 2^-14 for zero, and models have
// such scales.
fn half(bits: u32) -> f32 {
    // As if every half had a leading one. Those below 2^-14 have none: there the second is right, and the less.
    let size = bitcast<f32>(((bits & 0x7fffu) << 13u) + 0x38000000u);
    let exact = min(size, fma(2.0, size, -0.00006103515625));
    return bitcast<f32>(bitcast<u32>(exact) | ((bits & 0x8000u) << 16u));
}
