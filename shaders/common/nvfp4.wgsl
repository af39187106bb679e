// w = scale·value(q), the values of E2M1 doubled to be whole, a scale for each half of a block.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
@group(0) @binding(3) var<storage, read> scales: array<vec2<f32>>; // [blocks]

struct Raw { high: vec4<u32>, scales: vec2<f32> }

fn load(block: u32) -> Raw {
    return Raw(high[block], scales[block]);
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return levels(nibbles(r.high, q));
}

fn offset() -> f32 {
    return 0.0;
}
