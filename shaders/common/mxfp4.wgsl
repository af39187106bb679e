// w = 2^(e - 128)·value(q), the values of E2M1 doubled to be whole.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
// One exponent a block, four in a word.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 4]

// As it was read. What is made of it waits until a product needs it, so that a thread does not wait for memory before.
struct Scale { word: u32, shift: u32 }

struct Raw { high: vec4<u32>, scale: Scale }

fn load(block: u32) -> Raw {
    return Raw(high[block], Scale(scales[block >> 2u], 8u * (block & 3u)));
}

fn number_of(s: Scale) -> f32 {
    let e = (s.word >> s.shift) & 255u;
    return bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << e, e < 2u));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return levels(nibbles(r.high, q));
}

fn offset() -> f32 {
    return 0.0;
}
