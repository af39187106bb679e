// Stores a normed row, and prepares it for the products that read it. Needs kept.wgsl, and sum_block.wgsl or
// round_block.wgsl.

fn put(row: u32, start: u32, scale: f32, thread: u32) {
    let blocks = p.stride / 8u;
    for (var block = thread; block < blocks; block += THREADS) {
        let i = 8u * block;
        let x = Block(
            kept(normed(start, i, scale)), kept(normed(start, i + 1u, scale)),
            kept(normed(start, i + 2u, scale)), kept(normed(start, i + 3u, scale)),
            kept(normed(start, i + 4u, scale)), kept(normed(start, i + 5u, scale)),
            kept(normed(start, i + 6u, scale)), kept(normed(start, i + 7u, scale)));
        let to = row * p.stride + i;
        h[to] = x.a;
        h[to + 1u] = x.b;
        h[to + 2u] = x.c;
        h[to + 3u] = x.d;
        h[to + 4u] = x.e;
        h[to + 5u] = x.f;
        h[to + 6u] = x.g;
        h[to + 7u] = x.h;
        prepare_block(row * blocks + block, x, 0.0);
    }
}
