// A head of attention's result is prepared, too, for the product that reads it. Heads are whole blocks. Needs
// sum_block.wgsl or round_block.wgsl.
var<workgroup> kept: array<f32, 512>;

fn keep(i: u32, x: f32) {
    kept[i] = x;
}

fn kept_quad(i: u32) -> vec4<f32> {
    return vec4<f32>(kept[i], kept[i + 1u], kept[i + 2u], kept[i + 3u]);
}

fn prepare_head(first_block: u32, thread: u32) {
    workgroupBarrier();
    for (var block = thread; block < p.head_dim / 32u; block += THREADS) {
        let i = 32u * block;
        prepare_block(first_block + block, Block(
            kept_quad(i), kept_quad(i + 4u), kept_quad(i + 8u), kept_quad(i + 12u),
            kept_quad(i + 16u), kept_quad(i + 20u), kept_quad(i + 24u), kept_quad(i + 28u)), 0.0);
    }
    workgroupBarrier();
}
