// How keys and values are stored: as numbers, as halves, or as whole numbers of eight bits in blocks of 32, after
// which comes a half for each block, its scale. Needs halves.wgsl.

const IN_F32 = 0u;
const IN_F16 = 1u;
const IN_Q8_0 = 2u;

override KEYS: u32 = IN_F32;
override VALUES: u32 = IN_F32;

fn four_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(word));
}

// Of a block, from the word that has its scale.
fn scale_in(word: u32, block: u32) -> f32 {
    let two = halves_in(word);
    return select(two.x, two.y, (block & 1u) != 0u);
}
