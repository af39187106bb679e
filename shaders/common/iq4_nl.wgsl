// w = d·level(q)
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]

struct Raw { high: vec4<u32>, scale: f32 }

fn load(block: u32) -> Raw {
    return Raw(high[block], scale_of(block));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return levels(nibbles(r.high, q));
}

fn offset() -> f32 {
    return 0.0;
}
