// y[c, r] = Σ_k w[r, k] · x[c, k] for one to eight columns c, the weights read once. LANES threads share a pair of
// rows. Needs the text of a format (load, quad) and finish.wgsl.

override PAIRS: u32 = 1u;
override COLUMNS: u32 = 1u;

// [COLUMNS, 64 threads]
var<workgroup> lane_sums: array<vec2<f32>, 512>;

struct Sums {
    c0: vec2<f32>, c1: vec2<f32>, c2: vec2<f32>, c3: vec2<f32>,
    c4: vec2<f32>, c5: vec2<f32>, c6: vec2<f32>, c7: vec2<f32>,
}

fn chain(a: vec4<f32>, b: vec4<f32>, x: vec4<f32>, sums: vec2<f32>) -> vec2<f32> {
    var s = fma(vec2<f32>(a.x, b.x), vec2<f32>(x.x), sums);
    s = fma(vec2<f32>(a.y, b.y), vec2<f32>(x.y), s);
    s = fma(vec2<f32>(a.z, b.z), vec2<f32>(x.z), s);
    return fma(vec2<f32>(a.w, b.w), vec2<f32>(x.w), s);
}

// Adds the products of one quad; `at` is its place in a row of x.
fn step(sums: Sums, a: Raw, b: Raw, at: u32, q: u32) -> Sums {
    let wa = quad(a, q);
    let wb = quad(b, q);
    var s = sums;
    s.c0 = chain(wa, wb, x[at], s.c0);
    if COLUMNS > 1u { s.c1 = chain(wa, wb, x[at + p.x_stride], s.c1); }
    if COLUMNS > 2u { s.c2 = chain(wa, wb, x[at + 2u * p.x_stride], s.c2); }
    if COLUMNS > 3u { s.c3 = chain(wa, wb, x[at + 3u * p.x_stride], s.c3); }
    if COLUMNS > 4u { s.c4 = chain(wa, wb, x[at + 4u * p.x_stride], s.c4); }
    if COLUMNS > 5u { s.c5 = chain(wa, wb, x[at + 5u * p.x_stride], s.c5); }
    if COLUMNS > 6u { s.c6 = chain(wa, wb, x[at + 6u * p.x_stride], s.c6); }
    if COLUMNS > 7u { s.c7 = chain(wa, wb, x[at + 7u * p.x_stride], s.c7); }
    return s;
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
        let a = load(first_a + block);
        let b = load(first_b + block);
        let at = 8u * block;
        s = step(s, a, b, at, 0u);
        s = step(s, a, b, at + 1u, 1u);
        s = step(s, a, b, at + 2u, 2u);
        s = step(s, a, b, at + 3u, 3u);
        s = step(s, a, b, at + 4u, 4u);
        s = step(s, a, b, at + 5u, 5u);
        s = step(s, a, b, at + 6u, 6u);
        s = step(s, a, b, at + 7u, 7u);
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
