// The lanes of a workgroup: LANES threads share a team of rows, and there are TEAMS of these. Needs a text of products
// (products_*) and product.wgsl.

override TEAMS: u32 = 1u;
// Rows of a team, two or four. What is read of x serves all of them; no row's sum knows of the others.
override EACH: u32 = 2u;
// Pairs of sums that a workgroup makes: COLUMNS · TEAMS · LANES, and as many again for four rows.
override SUMS: u32 = 512u;

var<workgroup> lane_sums: array<vec2<f32>, SUMS>; // [EACH / 2, COLUMNS, TEAMS, LANES]

struct Sums {
    c0: vec4<f32>, c1: vec4<f32>, c2: vec4<f32>, c3: vec4<f32>,
    c4: vec4<f32>, c5: vec4<f32>, c6: vec4<f32>, c7: vec4<f32>,
}

fn leave(at: u32, sums: vec4<f32>) {
    lane_sums[at] = sums.xy;
    if EACH > 2u { lane_sums[COLUMNS * TEAMS * LANES + at] = sums.zw; }
}

// A lane's part of the products of the team that begins at `row`, left where `total` finds it after a barrier.
fn multiply(row: u32, lane: u32, thread: u32) {
    // Beyond the matrix its last row is read again, and nothing stored.
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
    let firsts = (first_row() + rows) * p.blocks;
    var s = Sums();
    for (var block = lane; block < p.blocks; block += LANES) {
        s = products(s, firsts, block);
    }
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
