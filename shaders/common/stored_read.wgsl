// How what is stored is read. Needs stored.wgsl, halves.wgsl and levels.wgsl.

fn four_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(word));
}

// Halves of either kind.
fn two_in(stored: u32, word: u32) -> vec2<f32> {
    if stored == IN_BF16 {
        return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
    }
    return halves_in(word);
}

// The word of a row that has the scale of a block.
fn scale_place(stored: u32, block: u32) -> u32 {
    let blocks = p.head_dim / 32u;
    if stored == IN_Q8_0 {
        return 8u * blocks + block / 2u;
    }
    return select(4u, 5u, has(stored, FIFTH)) * blocks + select(block / 2u, block, has(stored, MINIMUM));
}

// The word that has the fifth bits of a block.
fn fifth_place(block: u32) -> u32 {
    return p.head_dim / 8u + block;
}

// A block's scale and minimum, from the word that has them.
fn scale_in(stored: u32, word: u32, block: u32) -> vec2<f32> {
    let two = halves_in(word);
    if has(stored, MINIMUM) {
        return two;
    }
    return vec2<f32>(select(two.x, two.y, (block & 1u) != 0u), 0.0);
}

// The numbers of the lowest four nibbles of bytes, whose fifth bits are the lowest ones of `fifth`.
fn four_nibbles(stored: u32, word: u32, fifth: u32, scale: vec2<f32>) -> vec4<f32> {
    let low = word & 0x0f0f0f0fu;
    if has(stored, LEVELS) {
        return scale.x * levels(low);
    }
    if !has(stored, FIFTH) {
        let q = vec4<f32>(unpack4xU8(low));
        if has(stored, MINIMUM) {
            return fma(vec4<f32>(scale.x), q, vec4<f32>(scale.y));
        }
        return scale.x * (q - 8.0);
    }
    let high = ((fifth & 1u) << 4u) | ((fifth & 2u) << 11u) | ((fifth & 4u) << 18u) | ((fifth & 8u) << 25u);
    let q = vec4<f32>(unpack4xU8(low | high));
    if has(stored, MINIMUM) {
        return fma(vec4<f32>(scale.x), q, vec4<f32>(scale.y));
    }
    return scale.x * (q - 16.0);
}
