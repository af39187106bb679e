// Halves, two in a word.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks, 4]

struct Raw { first: u32 }

fn load(block: u32) -> Raw {
    return Raw(4u * block);
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    let four = high[r.first + (q >> 1u)];
    let two = select(four.xy, four.zw, (q & 1u) != 0u);
    return vec4<f32>(unpack2x16float(two.x), unpack2x16float(two.y));
}

fn offset() -> f32 {
    return 0.0;
}
