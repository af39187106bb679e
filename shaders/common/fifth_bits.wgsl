// The low plane of five-bit weights: bit k of a block's word belongs to weight k.
@group(0) @binding(2) var<storage, read> low: array<u32>; // [blocks]

// From the high plane alone: a weight is the middle of what the low bits could make it.
override COARSE: bool = false;

fn low_of(block: u32) -> u32 {
    if COARSE {
        return 0u;
    }
    return low[block];
}

// The numbers of quad q; coarse, the even ones.
fn five_bits(high: vec4<u32>, low: u32, q: u32) -> vec4<f32> {
    let upper = nibbles(high, q) << 1u;
    if COARSE {
        return floats(upper);
    }
    let bits = low >> (4u * q);
    let spread = (bits & 1u) | ((bits & 2u) << 7u) | ((bits & 4u) << 14u) | ((bits & 8u) << 21u);
    return floats(upper | spread);
}
