// w = scale·q + minimum, for Q5_1 (as it is) and Q5_K (the minimum is taken off).
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]

struct Raw { high: vec4<u32>, low: u32, scale_min: vec2<f32> }

fn load(block: u32) -> Raw {
    return Raw(high[block], low_of(block), scale_min_of(block) * vec2<f32>(1.0, SIGN));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return five_bits(r.high, r.low, q);
}

fn offset() -> f32 {
    if COARSE {
        return -0.5;
    }
    return 0.0;
}
