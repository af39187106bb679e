// Sums of products of whole numbers of eight bits: exact, so their order does not matter.

@group(0) @binding(5) var<storage, read> x: array<vec4<u32>>; // [columns · blocks / 8, 3, 8], see round_block.wgsl

// Where a block begins. Its other words follow at distances of eight.
fn place_of(block: u32) -> u32 {
    return 24u * (block >> 3u) + (block & 7u);
}

// Four in a word.
alias Sixteen = vec4<u32>;

fn weights(bytes: vec4<u32>) -> Sixteen {
    return bytes;
}

// Half of the block that begins at `at`.
fn activations(at: u32, half: u32) -> Sixteen {
    return x[at + 8u * half];
}

fn scale_and_sums(at: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(x[at + 16u]);
}

// The part of the mean square, or the scale, that a deferred norm has stored with the block.
fn x_left(block: u32) -> f32 {
    return scale_and_sums(place_of(block)).w;
}

fn dot16(w: Sixteen, x: Sixteen) -> i32 {
    return dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w);
}
