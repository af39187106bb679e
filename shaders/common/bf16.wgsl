// The upper halves of f32s, two in a word.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks, 4]

struct Raw { first: u32 }

fn load(block: u32) -> Raw {
    return Raw(4u * block);
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    let four = high[r.first + (q >> 1u)];
    let two = select(four.xy, four.zw, (q & 1u) != 0u);
    return bitcast<vec4<f32>>(vec4<u32>(
        two.x << 16u, two.x & 0xffff0000u, two.y << 16u, two.y & 0xffff0000u));
}

fn offset() -> f32 {
    return 0.0;
}
