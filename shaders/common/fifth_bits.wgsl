// The low plane of five-bit weights: bit k of a block's word belongs to weight k.
@group(0) @binding(2) var<storage, read> low: array<u32>; // [blocks]

// The weights of quad q, packed in bytes.
fn five_bits(high: vec4<u32>, low: u32, q: u32) -> u32 {
    let bits = low >> (4u * q);
    let spread = (bits & 1u) | ((bits & 2u) << 7u) | ((bits & 4u) << 14u) | ((bits & 8u) << 21u);
    return (nibbles(high, q) << 1u) | spread;
}
