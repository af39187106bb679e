// A high plane of two bits: of byte k of word j, two bits each for weight k of the quads 4j to 4j + 3.
@group(0) @binding(1) var<storage, read> high: array<vec2<u32>>; // [blocks]

alias Plane = vec2<u32>;

// The numbers of quad q, a byte each.
fn bytes_of(plane: Plane, q: u32) -> u32 {
    return (plane[q >> 2u] >> (2u * (q & 3u))) & 0x03030303u;
}
