// w = d·(16·high + low - 128): the bytes of the file, made unsigned and cut in two.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
@group(0) @binding(2) var<storage, read> low: array<vec4<u32>>; // [blocks]

// From the high plane alone: a weight is the middle of what the low bits could make it.
override COARSE: bool = false;

struct Raw { high: vec4<u32>, low: vec4<u32>, scale: f32 }

fn load(block: u32) -> Raw {
    if COARSE {
        return Raw(high[block], vec4<u32>(0u), scale_of(block));
    }
    return Raw(high[block], low[block], scale_of(block));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    let upper = nibbles(r.high, q) << 4u;
    if COARSE {
        return floats(upper);
    }
    return floats(upper | nibbles(r.low, q));
}

fn offset() -> f32 {
    if COARSE {
        return 120.5;
    }
    return 128.0;
}
