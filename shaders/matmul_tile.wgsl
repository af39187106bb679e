// y[c, r] = Σ_k w[r, k] · x[c, k] in tiles of 64 rows and 16 or 32 columns; threads make four by four of them.
// Numbers are multiplied as they are stored, see products_float.wgsl. Needs the text of a format (load, numbers, offset), of
// its scales, of activations (x_*), finish.wgsl and tile_sums.wgsl; x and y have rows for whole tiles of 32.

// One block of 32 k, four rows or columns in an element.
var<workgroup> w_tile: array<vec4<f32>, 512>; // [32, 16]
var<workgroup> x_tile: array<vec4<f32>, 256>; // [32, 8]
// Of each half of it: what scales sums of rows and what is added to them, and the sums of columns.
var<workgroup> factors: array<f32, 128>; // [2, 64]
var<workgroup> summands: array<f32, 128>; // [2, 64]
var<workgroup> x_sums: array<f32, 64>; // [2, 32]

fn four_factors(at: u32) -> vec4<f32> {
    return vec4<f32>(factors[at], factors[at + 1u], factors[at + 2u], factors[at + 3u]);
}

fn four_summands(at: u32) -> vec4<f32> {
    return vec4<f32>(summands[at], summands[at + 1u], summands[at + 2u], summands[at + 3u]);
}

fn four_sums(at: u32) -> vec4<f32> {
    return vec4<f32>(x_sums[at], x_sums[at + 1u], x_sums[at + 2u], x_sums[at + 3u]);
}

// Of four columns, four rows each.
struct Four { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

fn add(w: vec4<f32>, x: vec4<f32>, s: Four) -> Four {
    return Four(
        fma(w, vec4<f32>(x.x), s.a), fma(w, vec4<f32>(x.y), s.b), fma(w, vec4<f32>(x.z), s.c), fma(w, vec4<f32>(x.w), s.d));
}

fn begun(x: vec4<f32>) -> Four {
    if APART || offset() == 0.0 {
        return Four();
    }
    let off = -offset() * x;
    return Four(vec4<f32>(off.x), vec4<f32>(off.y), vec4<f32>(off.z), vec4<f32>(off.w));
}

fn taken_off(x: vec4<f32>, dots: Four) -> Four {
    return add(vec4<f32>(-offset()), x, dots);
}

fn scaled(factor: vec4<f32>, dots: Four, s: Four) -> Four {
    return Four(fma(factor, dots.a, s.a), fma(factor, dots.b, s.b), fma(factor, dots.c, s.c), fma(factor, dots.d, s.d));
}

fn both(a: Four, b: Four) -> Four {
    return Four(a.a + b.a, a.b + b.b, a.c + b.c, a.d + b.d);
}

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if !starts(group) {
        return;
    }
    begin(groups);
    let top = 64u * group.x;
    let left = first_column(group);
    // What this thread brings: one quad of four rows, and of four columns.
    let four = thread / 8u;
    let q = thread % 8u;
    let rows = (first_row() + min(vec4<u32>(top + 4u * four) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u))) * p.blocks;
    let w_at = 64u * q + four;
    let x_at = 32u * q + four;
    let start = left + 4u * (four % 8u);
    let columns = X_QUADS * (vec4<u32>(x_column(start), x_column(start + 1u), x_column(start + 2u), x_column(start + 3u)) * p.x_stride + first_x());
    // And a half's scale of one row, and sum of one column.
    let scale_row = (first_row() + min(top + thread % 64u, p.rows - 1u)) * p.blocks;
    let scale_half = thread / 64u;
    let sum_column = X_QUADS * (x_column(left + thread % 32u) * p.x_stride + first_x());
    let sum_half = thread / 32u;
    // What it makes.
    let mine_w = thread % 16u;
    let mine_x = thread / 16u;
    let makes = 4u * mine_x < WIDTH;
    let row = top + 4u * mine_w;
    let c = left + 4u * mine_x;
    var total = Four();
    for (var i = 0u; i < lanes(); i++) {
        let lane = first_lane(group) + i;
        var sum = Four();
        for (var block = lane; block < p.blocks; block += LANES) {
            let w0 = numbers(load(rows.x + block), q);
            let w1 = numbers(load(rows.y + block), q);
            let w2 = numbers(load(rows.z + block), q);
            let w3 = numbers(load(rows.w + block), q);
            w_tile[w_at] = vec4<f32>(w0.x, w1.x, w2.x, w3.x);
            w_tile[w_at + 16u] = vec4<f32>(w0.y, w1.y, w2.y, w3.y);
            w_tile[w_at + 32u] = vec4<f32>(w0.z, w1.z, w2.z, w3.z);
            w_tile[w_at + 48u] = vec4<f32>(w0.w, w1.w, w2.w, w3.w);
            if APART || scale_half == 0u {
                let r = load(scale_row + block);
                factors[thread] = factor(r, scale_half);
                if LIFTS {
                    summands[thread] = summand(r, scale_half);
                }
            }
            if thread < 64u && thread % 32u < WIDTH && (LIFTS || offset() != 0.0) {
                x_sums[thread] = x_sum(sum_column + X_QUADS * block, sum_half);
            }
            if thread < 2u * WIDTH {
                let at = columns + X_QUADS * block;
                let x0 = x[at.x + q];
                let x1 = x[at.y + q];
                let x2 = x[at.z + q];
                let x3 = x[at.w + q];
                x_tile[x_at] = vec4<f32>(x0.x, x1.x, x2.x, x3.x);
                x_tile[x_at + 8u] = vec4<f32>(x0.y, x1.y, x2.y, x3.y);
                x_tile[x_at + 16u] = vec4<f32>(x0.z, x1.z, x2.z, x3.z);
                x_tile[x_at + 24u] = vec4<f32>(x0.w, x1.w, x2.w, x3.w);
            }
            workgroupBarrier();
            if makes {
                var dots = begun(four_sums(4u * mine_x));
                for (var h = 0u; h < 2u; h++) {
                    for (var k = 0u; k < 16u; k++) {
                        dots = add(w_tile[256u * h + 16u * k + mine_w], x_tile[128u * h + 8u * k + mine_x], dots);
                    }
                    if APART || h == 1u {
                        // Where halves are not told apart, all there is of both stands with the first.
                        let side = select(0u, h, APART);
                        let sums = four_sums(32u * side + 4u * mine_x);
                        if APART && offset() != 0.0 {
                            dots = taken_off(sums, dots);
                        }
                        sum = scaled(four_factors(64u * side + 4u * mine_w), dots, sum);
                        if LIFTS {
                            sum = add(four_summands(64u * side + 4u * mine_w), sums, sum);
                        }
                        dots = Four();
                    }
                }
            }
            workgroupBarrier();
        }
        if SHARE > 0u && makes {
            keep_pairs(lane, c, row, 2u, sum.a);
            keep_pairs(lane, c + 1u, row, 2u, sum.b);
            keep_pairs(lane, c + 2u, row, 2u, sum.c);
            keep_pairs(lane, c + 3u, row, 2u, sum.d);
        }
        total = both(total, sum);
    }
    if SHARE > 0u && thread < WIDTH {
        keep_scale(group, left + thread);
    }
    if SHARE == 0u && makes {
        finish_pairs(c, row, 2u, scaled_column(c, total.a));
        finish_pairs(c + 1u, row, 2u, scaled_column(c + 1u, total.b));
        finish_pairs(c + 2u, row, 2u, scaled_column(c + 2u, total.c));
        finish_pairs(c + 3u, row, 2u, scaled_column(c + 3u, total.d));
    }
}
