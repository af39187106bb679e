// w = d·(q - 16)
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]

struct Raw { high: vec4<u32>, low: u32, scale: f32 }

fn load(block: u32) -> Raw {
    return Raw(high[block], low_of(block), scale_of(block));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return five_bits(r.high, r.low, q);
}

fn offset() -> f32 {
    if COARSE {
        return 15.5;
    }
    return 16.0;
}
