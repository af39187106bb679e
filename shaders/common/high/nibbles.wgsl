// A high plane of four bits.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]

alias Plane = vec4<u32>;

// The numbers of quad q, a byte each.
fn bytes_of(plane: Plane, q: u32) -> u32 {
    return nibbles(plane, q);
}
