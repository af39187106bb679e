// w = d·(16·high - 120): the upper halves of Q8_0's bytes alone. What the lower halves add, d·(low - 8), is made elsewhere;
// coarse, it is left out, and a weight is the middle of what they could make it.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]

override COARSE: bool = false;

struct Raw { high: vec4<u32>, scale: f32 }

fn load(block: u32) -> Raw {
    return Raw(high[block], scale_of(block));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return floats(nibbles(r.high, q) << 4u);
}

fn offset() -> f32 {
    if COARSE {
        return 120.5;
    }
    return 120.0;
}
