// w = scale·q + minimum, for Q4_1 (as it is) and Q4_K (the minimum is taken off).
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]

struct Raw { high: vec4<u32>, scale_min: vec2<f32> }

fn load(block: u32) -> Raw {
    return Raw(high[block], scale_min_of(block) * vec2<f32>(1.0, SIGN));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return floats(nibbles(r.high, q));
}

fn offset() -> f32 {
    return 0.0;
}
