// A block of 32 numbers as dots take them: rounded by a scale of its own, with the sums of either half, for offsets
// and minima of weights, and what a norm leaves for products (`left`). Needs block.wgsl, quantize_int8.wgsl and `prepared`: [blocks / 8, 3, 8]. Of eight
// blocks the first halves stand together, then the second ones, then scales and sums, so that lanes which have a block
// each read what lies side by side. Blocks are counted over all rows.

fn prepare_block(block: u32, x: Block, left: f32) {
    let first = max(max(abs(x.a), abs(x.b)), max(abs(x.c), abs(x.d)));
    let second = max(max(abs(x.e), abs(x.f)), max(abs(x.g), abs(x.h)));
    let largest = max(first, second);
    let size = max(max(largest.x, largest.y), max(largest.z, largest.w));
    // What is as small as this is zero; its reciprocal would not be finite.
    let factor = select(0.0, MOST / size, size > 1e-30);
    let to = 24u * (block >> 3u) + (block & 7u);
    let sums = vec2<f32>(
        sixteen(to, 0u, x.a * factor, x.b * factor, x.c * factor, x.d * factor),
        sixteen(to, 1u, x.e * factor, x.f * factor, x.g * factor, x.h * factor));
    prepared[to + 16u] = bitcast<vec4<u32>>(vec4<f32>(size / MOST, sums, left));
}
