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

fn quad(r: Raw, q: u32) -> vec4<f32> {
    if COARSE {
        return r.scale * (floats(nibbles(r.high, q) << 4u) - 120.5);
    }
    return r.scale * (floats((nibbles(r.high, q) << 4u) | nibbles(r.low, q)) - 128.0);
}
