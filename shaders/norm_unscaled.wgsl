// A deferred norm: multiplies rows by the norm's weight and prepares them for products. It does not divide them by the root of
// their mean square. The products that read the rows multiply their sums by that scale instead (SCALES in product.wgsl). So the
// product before the norm can do all this for each block that it makes (add_rows.wgsl). Each block also stores its part of the
// mean square, which the products of a few rows add up. With WHOLE it stores the scale instead, for the products of many rows.
// Everything is padded with zeros to whole blocks. Needs kept.wgsl, mean_part.wgsl, and sum_block.wgsl or round_block.wgsl.

override THREADS: u32 = 8u;
// Lanes of the products that read the rows: they add the parts in this order.
override LANES: u32 = 8u;
// Store the scale, not the parts of the mean square.
override WHOLE: u32 = 0u;

struct Params {
    // Quads in a row.
    stride: u32,
    eps: f32,
    // 1 / numbers in a row.
    per_number: f32,
    // Always 0, but not a constant for compilers.
    zero: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>; // [stride]
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>; // [rows, stride]

var<workgroup> parts: array<f32, 1024>; // [blocks]
var<workgroup> lane_parts: array<f32, LANES>;

fn block_at(at: u32) -> Block {
    return Block(x[at], x[at + 1u], x[at + 2u], x[at + 3u], x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u]);
}

fn weighted(x: Block, i: u32) -> Block {
    return Block(
        kept(x.a * weight[i]), kept(x.b * weight[i + 1u]), kept(x.c * weight[i + 2u]), kept(x.d * weight[i + 3u]),
        kept(x.e * weight[i + 4u]), kept(x.f * weight[i + 5u]), kept(x.g * weight[i + 6u]), kept(x.h * weight[i + 7u]));
}

fn scale_of_row(start: u32, blocks: u32, thread: u32) -> f32 {
    for (var block = thread; block < blocks; block += THREADS) {
        parts[block] = mean_part(block, block_at(start + 8u * block));
    }
    workgroupBarrier();
    for (var lane = thread; lane < LANES; lane += THREADS) {
        var sum = 0.0;
        for (var block = lane; block < blocks; block += LANES) {
            sum += parts[block];
        }
        lane_parts[lane] = sum;
    }
    workgroupBarrier();
    var mean = 0.0;
    for (var lane = 0u; lane < LANES; lane++) {
        mean += lane_parts[lane];
    }
    return inverseSqrt(mean);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let start = group.y * p.stride;
    let blocks = p.stride / 8u;
    var scale = 0.0;
    if WHOLE != 0u {
        scale = scale_of_row(start, blocks, thread);
    }
    for (var block = thread; block < blocks; block += THREADS) {
        let these = block_at(start + 8u * block);
        var left = scale;
        if WHOLE == 0u {
            left = mean_part(block, these);
        }
        prepare_block(group.y * blocks + block, weighted(these, 8u * block), left);
    }
}
