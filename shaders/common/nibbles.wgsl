// Four weights of a block of 32 at a time: a "quad". Of a plane of 4 bits, word j holds weights 8j to 8j + 7:
// those of the even quad in the low halves of its bytes, those of the odd quad in the high halves.

// The bytes 0..15 of quad q, packed.
fn nibbles(plane: vec4<u32>, q: u32) -> u32 {
    return (plane[q >> 1u] >> (4u * (q & 1u))) & 0x0f0f0f0fu;
}

fn floats(bytes: u32) -> vec4<f32> {
    return vec4<f32>(vec4<u32>(bytes & 255u, (bytes >> 8u) & 255u, (bytes >> 16u) & 255u, bytes >> 24u));
}
