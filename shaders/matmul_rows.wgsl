// y[c, r] = Σ_k w[r, k] · x[c, k] for one to eight columns c, the weights read once. LANES threads share a pair of
// rows. Needs a text of products (products_*), with what that needs, and finish.wgsl.

override PAIRS: u32 = 1u;

// [COLUMNS, 64 threads]
var<workgroup> lane_sums: array<vec2<f32>, 512>;

struct Sums {
    c0: vec2<f32>, c1: vec2<f32>, c2: vec2<f32>, c3: vec2<f32>,
    c4: vec2<f32>, c5: vec2<f32>, c6: vec2<f32>, c7: vec2<f32>,
}

@compute @workgroup_size(LANES, PAIRS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) id: vec3<u32>,
) {
    let first_pair = (group.y * groups.x + group.x) * PAIRS;
    let row = 2u * (first_pair + id.y);
    // Beyond the matrix its last row is read again, and nothing stored.
    let first_a = min(row, p.rows - 1u) * p.blocks;
    let first_b = min(row + 1u, p.rows - 1u) * p.blocks;
    var s = Sums();
    for (var block = id.x; block < p.blocks; block += LANES) {
        s = products(s, first_a, first_b, block);
    }
    let thread = id.y * LANES + id.x;
    lane_sums[thread] = s.c0;
    if COLUMNS > 1u { lane_sums[64u + thread] = s.c1; }
    if COLUMNS > 2u { lane_sums[128u + thread] = s.c2; }
    if COLUMNS > 3u { lane_sums[192u + thread] = s.c3; }
    if COLUMNS > 4u { lane_sums[256u + thread] = s.c4; }
    if COLUMNS > 5u { lane_sums[320u + thread] = s.c5; }
    if COLUMNS > 6u { lane_sums[384u + thread] = s.c6; }
    if COLUMNS > 7u { lane_sums[448u + thread] = s.c7; }
    workgroupBarrier();
    // There are at least as many lanes as columns, so this is one round.
    if thread < PAIRS * COLUMNS {
        let column = thread / PAIRS;
        let pair = thread % PAIRS;
        var sums = vec2<f32>(0.0);
        for (var lane = 0u; lane < LANES; lane++) {
            sums += lane_sums[64u * column + pair * LANES + lane];
        }
        finish(column, 2u * (first_pair + pair), sums);
    }
}
