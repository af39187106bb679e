// Weights as they are.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks, 8]

struct Raw { first: u32 }

fn load(block: u32) -> Raw {
    return Raw(8u * block);
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(high[r.first + q]);
}

fn offset() -> f32 {
    return 0.0;
}
