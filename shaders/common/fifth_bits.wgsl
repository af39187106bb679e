// The low plane of five-bit weights: bit q of a word's byte k belongs to weight k of quad q.
@group(0) @binding(2) var<storage, read> low: array<u32>; // [blocks]

// From the high plane alone: a weight is the middle of what the low bits could make it.
override COARSE: bool = false;

fn low_of(block: u32) -> u32 {
    if COARSE {
        return 0u;
    }
    return low[block];
}

// The low bits of quad q, a byte each.
fn fifth(low: u32, q: u32) -> u32 {
    return (low >> q) & 0x01010101u;
}

// The numbers of quad q; coarse, the even ones.
fn five_bits(high: vec4<u32>, low: u32, q: u32) -> vec4<f32> {
    let upper = nibbles(high, q) << 1u;
    if COARSE {
        return floats(upper);
    }
    return floats(upper | fifth(low, q));
}
