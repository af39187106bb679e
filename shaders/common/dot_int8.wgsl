// Sums of products of whole numbers of eight bits: exact, so their order is nobody's business.

@group(0) @binding(5) var<storage, read> x: array<vec4<u32>>; // [columns, blocks, X_BLOCK], see quantize_int8.wgsl

const X_BLOCK = 3u;

// Four in a word.
alias Sixteen = vec4<u32>;

fn weights(bytes: vec4<u32>) -> Sixteen {
    return bytes;
}

// Half of the block that begins at `at`.
fn activations(at: u32, half: u32) -> Sixteen {
    return x[at + half];
}

fn scale_and_sums(at: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(x[at + 2u]);
}

fn dot16(w: Sixteen, x: Sixteen) -> f32 {
    return f32(dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w));
}
