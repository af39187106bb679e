// The lanes of a workgroup: LANES threads share a pair of rows, and there are PAIRS of these. Needs a text of products
// (products_*) and finish.wgsl.

override PAIRS: u32 = 1u;
// Sums that a workgroup makes: COLUMNS · PAIRS · LANES.
override SUMS: u32 = 512u;

var<workgroup> lane_sums: array<vec2<f32>, SUMS>; // [COLUMNS, PAIRS, LANES]

struct Sums {
    c0: vec2<f32>, c1: vec2<f32>, c2: vec2<f32>, c3: vec2<f32>,
    c4: vec2<f32>, c5: vec2<f32>, c6: vec2<f32>, c7: vec2<f32>,
}

// A lane's part of the products of the pair that begins at `row`, left where `total` finds it after a barrier.
fn multiply(row: u32, lane: u32, thread: u32) {
    // Beyond the matrix its last row is read again, and nothing stored.
    let first_a = (first_row() + min(row, p.rows - 1u)) * p.blocks;
    let first_b = (first_row() + min(row + 1u, p.rows - 1u)) * p.blocks;
    var s = Sums();
    for (var block = lane; block < p.blocks; block += LANES) {
        s = products(s, first_a, first_b, block);
    }
    let threads = PAIRS * LANES;
    lane_sums[thread] = s.c0;
    if COLUMNS > 1u { lane_sums[threads + thread] = s.c1; }
    if COLUMNS > 2u { lane_sums[2u * threads + thread] = s.c2; }
    if COLUMNS > 3u { lane_sums[3u * threads + thread] = s.c3; }
    if COLUMNS > 4u { lane_sums[4u * threads + thread] = s.c4; }
    if COLUMNS > 5u { lane_sums[5u * threads + thread] = s.c5; }
    if COLUMNS > 6u { lane_sums[6u * threads + thread] = s.c6; }
    if COLUMNS > 7u { lane_sums[7u * threads + thread] = s.c7; }
}

fn total(column: u32, pair: u32) -> vec2<f32> {
    var sums = vec2<f32>(0.0);
    for (var lane = 0u; lane < LANES; lane++) {
        sums += lane_sums[(column * PAIRS + pair) * LANES + lane];
    }
    return sums;
}
