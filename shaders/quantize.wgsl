// Activations in blocks of 32, each by a scale of its own: numbers that dots take, and the sums of either half of a
// block, for offsets and minima of weights. Needs a text that says which numbers (quantize_*).

struct Params { blocks: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [rows, blocks, 8]
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>; // [rows, blocks, X_BLOCK]: numbers, then scale and sums

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let in_row = 32u * group.x + thread;
    if in_row >= p.blocks {
        return;
    }
    let block = group.y * p.blocks + in_row;
    let at = 8u * block;
    var largest = abs(x[at]);
    for (var q = 1u; q < 8u; q++) {
        largest = max(largest, abs(x[at + q]));
    }
    let size = max(max(largest.x, largest.y), max(largest.z, largest.w));
    // What is as small as this is zero; its reciprocal would not be finite.
    let factor = select(0.0, MOST / size, size > 1e-30);
    let to = X_BLOCK * block;
    let sums = vec2<f32>(
        sixteen(to, 0u, x[at] * factor, x[at + 1u] * factor, x[at + 2u] * factor, x[at + 3u] * factor),
        sixteen(to, 1u, x[at + 4u] * factor, x[at + 5u] * factor, x[at + 6u] * factor, x[at + 7u] * factor));
    out[to + X_BLOCK - 1u] = bitcast<vec4<u32>>(vec4<f32>(size / MOST, sums, 0.0));
}
