// A block of 32 numbers prepared for products in f32: the numbers, then the sums of the first half, of the second half and of
// both, and what a deferred norm has stored (`left`). Needs block.wgsl and `prepared`: [blocks, 9]. Blocks are counted
// over all rows.

fn sum_of_half(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> f32 {
    let fours = (a + b) + (c + d);
    return (fours.x + fours.y) + (fours.z + fours.w);
}

fn prepare_block(block: u32, x: Block, left: f32) {
    let to = 9u * block;
    prepared[to] = x.a;
    prepared[to + 1u] = x.b;
    prepared[to + 2u] = x.c;
    prepared[to + 3u] = x.d;
    prepared[to + 4u] = x.e;
    prepared[to + 5u] = x.f;
    prepared[to + 6u] = x.g;
    prepared[to + 7u] = x.h;
    let first = sum_of_half(x.a, x.b, x.c, x.d);
    let second = sum_of_half(x.e, x.f, x.g, x.h);
    prepared[to + 8u] = vec4<f32>(first, second, first + second, left);
}
