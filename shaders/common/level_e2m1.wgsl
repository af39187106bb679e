// The values of E2M1 doubled to be whole, as MXFP4 and NVFP4 have them: 0, 1, 2, 3, 4, 6, 8, 12, and these below zero.
fn level(nibble: u32) -> f32 {
    let size = f32((0xc8643210u >> (4u * (nibble & 7u))) & 15u);
    return select(size, -size, nibble > 7u);
}
