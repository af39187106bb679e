// Sums of products in halves: four in a chain, the chains in f32. Weights are whole numbers of eight bits, which a
// half holds, activations at most 1, so nothing overflows. Comes first: it has a directive.
enable f16;

@group(0) @binding(5) var<storage, read> x: array<vec4<u32>>; // [columns, blocks, X_BLOCK], see quantize_half.wgsl

const X_BLOCK = 5u;

struct Sixteen { a: vec4<f16>, b: vec4<f16>, c: vec4<f16>, d: vec4<f16> }

fn weights(bytes: vec4<u32>) -> Sixteen {
    return Sixteen(
        vec4<f16>(unpack4xI8(bytes.x)), vec4<f16>(unpack4xI8(bytes.y)),
        vec4<f16>(unpack4xI8(bytes.z)), vec4<f16>(unpack4xI8(bytes.w)));
}

fn four(words: vec2<u32>) -> vec4<f16> {
    return vec4<f16>(vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)));
}

// Half of the block that begins at `at`.
fn activations(at: u32, half: u32) -> Sixteen {
    let low = x[at + 2u * half];
    let high = x[at + 2u * half + 1u];
    return Sixteen(four(low.xy), four(low.zw), four(high.xy), four(high.zw));
}

fn scale_and_sums(at: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(x[at + 4u]);
}

fn dot16(w: Sixteen, x: Sixteen) -> f32 {
    var s = w.a * x.a;
    s = fma(w.b, x.b, s);
    s = fma(w.c, x.c, s);
    let t = vec4<f32>(fma(w.d, x.d, s));
    return (t.x + t.y) + (t.z + t.w);
}
