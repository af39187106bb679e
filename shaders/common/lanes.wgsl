// The lanes of a workgroup: LANES threads share a team of rows, and there are TEAMS of these. Needs a text of products
// (products_*) and product.wgsl.

override TEAMS: u32 = 1u;
// Rows of a team, two or four. Each load of x is used for all of them; the rows' sums do not depend on each other.
override EACH: u32 = 2u;
// Pairs of sums that a workgroup makes: COLUMNS · TEAMS · LANES, twice as many for four rows. With PARTS there are LANES more
// behind them for every two columns.
override SUMS: u32 = 512u;
// A deferred norm has left parts of the mean square with each row; else it has left the scale.
override PARTS: u32 = 0u;

// [EACH / 2, COLUMNS, TEAMS, LANES], and sums of the parts of the columns' mean squares: [COLUMNS / 2, LANES], of two columns.
var<workgroup> lane_sums: array<vec2<f32>, SUMS>;

override PARTS_AT: u32 = EACH / 2u * COLUMNS * TEAMS * LANES;

struct Sums {
    c0: vec4<f32>, c1: vec4<f32>, c2: vec4<f32>, c3: vec4<f32>,
    c4: vec4<f32>, c5: vec4<f32>, c6: vec4<f32>, c7: vec4<f32>,
}

fn leave(at: u32, sums: vec4<f32>) {
    lane_sums[at] = sums.xy;
    if EACH > 2u { lane_sums[COLUMNS * TEAMS * LANES + at] = sums.zw; }
}

// For a lane and each column: the sum of its blocks' parts of the mean square. For three columns and more, one team computes
// them first, because registers do not suffice to do it along with the product.
struct Parts { low: vec4<f32>, high: vec4<f32> }

fn with_parts(parts: Parts, at: u32) -> Parts {
    var all = parts;
    all.low.x += x_left(at);
    if COLUMNS > 1u { all.low.y += x_left(at + p.x_stride); }
    if COLUMNS > 2u { all.low.z += x_left(at + 2u * p.x_stride); }
    if COLUMNS > 3u { all.low.w += x_left(at + 3u * p.x_stride); }
    if COLUMNS > 4u { all.high.x += x_left(at + 4u * p.x_stride); }
    if COLUMNS > 5u { all.high.y += x_left(at + 5u * p.x_stride); }
    if COLUMNS > 6u { all.high.z += x_left(at + 6u * p.x_stride); }
    if COLUMNS > 7u { all.high.w += x_left(at + 7u * p.x_stride); }
    return all;
}

fn leave_parts(parts: Parts, lane: u32) {
    lane_sums[PARTS_AT + lane] = parts.low.xy;
    if COLUMNS > 2u { lane_sums[PARTS_AT + LANES + lane] = parts.low.zw; }
    if COLUMNS > 4u { lane_sums[PARTS_AT + 2u * LANES + lane] = parts.high.xy; }
    if COLUMNS > 6u { lane_sums[PARTS_AT + 3u * LANES + lane] = parts.high.zw; }
}

// A lane's part of the products of the team that begins at `row`. It is written where `total` reads it after a barrier.
fn multiply(row: u32, lane: u32, thread: u32) {
    // Beyond the end of the matrix its last row is read again, and nothing is stored.
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
    let firsts = (first_row() + rows) * p.blocks;
    if PARTS != 0u && COLUMNS > 2u && thread < LANES {
        var parts = Parts();
        for (var block = lane; block < p.blocks; block += LANES) {
            parts = with_parts(parts, first_x() + block);
        }
        leave_parts(parts, lane);
    }
    var s = Sums();
    var parts = Parts();
    for (var block = lane; block < p.blocks; block += LANES) {
        s = products(s, firsts, block);
        if PARTS != 0u && COLUMNS <= 2u { parts = with_parts(parts, first_x() + block); }
    }
    if PARTS != 0u && COLUMNS <= 2u && thread < LANES { leave_parts(parts, lane); }
    let threads = TEAMS * LANES;
    leave(thread, s.c0);
    if COLUMNS > 1u { leave(threads + thread, s.c1); }
    if COLUMNS > 2u { leave(2u * threads + thread, s.c2); }
    if COLUMNS > 3u { leave(3u * threads + thread, s.c3); }
    if COLUMNS > 4u { leave(4u * threads + thread, s.c4); }
    if COLUMNS > 5u { leave(5u * threads + thread, s.c5); }
    if COLUMNS > 6u { leave(6u * threads + thread, s.c6); }
    if COLUMNS > 7u { leave(7u * threads + thread, s.c7); }
}

fn row_scale(column: u32) -> f32 {
    if SCALES == 0u {
        return 1.0;
    }
    if PARTS == 0u {
        return x_left(first_x() + column * p.x_stride);
    }
    var means = vec2<f32>(0.0);
    for (var lane = 0u; lane < LANES; lane++) {
        means += lane_sums[PARTS_AT + column / 2u * LANES + lane];
    }
    return inverseSqrt(select(means.x, means.y, column % 2u == 1u));
}

fn total(column: u32, team: u32) -> vec4<f32> {
    var low = vec2<f32>(0.0);
    var high = vec2<f32>(0.0);
    for (var lane = 0u; lane < LANES; lane++) {
        let at = (column * TEAMS + team) * LANES + lane;
        low += lane_sums[at];
        if EACH > 2u { high += lane_sums[COLUMNS * TEAMS * LANES + at]; }
    }
    return vec4<f32>(low, high);
}
