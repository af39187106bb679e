// y[c, r] = Σ_k w[r, k] · x[c, k] in tiles of 64 rows and 16 or 32 columns, by dots; threads make four by four of
// them. Needs the texts of a format (load, ints, dots, factors, value), of dots, part.wgsl, tile_column.wgsl, finish.wgsl and
// tile_sums.wgsl; x and y have rows for whole tiles of 32.

// One block of 32 k, its halves one after the other.
var<workgroup> w_tile: array<Sixteen, 128>; // [2, 64]
var<workgroup> w_factors: array<Factors, 64>;
var<workgroup> x_tile: array<Sixteen, 64>; // [2, 32]
var<workgroup> x_about: array<vec4<f32>, 32>;

fn column_of(i: u32) -> Column {
    return Column(x_tile[i], x_tile[32u + i], x_about[i]);
}

fn row_of(i: u32) -> Part {
    return Part(w_tile[i], w_tile[64u + i], w_factors[i]);
}

fn add(w0: Part, w1: Part, w2: Part, w3: Part, c: Column, sum: vec4<f32>) -> vec4<f32> {
    return fma(vec4<f32>(one(w0, c), one(w1, c), one(w2, c), one(w3, c)), vec4<f32>(c.about.x), sum);
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
    // What this thread brings: a row, or a column, or nothing.
    let row_at = (first_row() + min(top + thread, p.rows - 1u)) * p.blocks;
    let column = thread % 32u;
    let column_at = x_column(left + column) * p.x_stride + first_x();
    // What it makes: two pairs of rows, four columns.
    let pair = 2u * (thread % 16u);
    let four = 4u * (thread / 16u);
    let makes = four < WIDTH;
    let row = top + pair;
    let c = left + four;
    var total0 = vec4<f32>(0.0);
    var total1 = vec4<f32>(0.0);
    var total2 = vec4<f32>(0.0);
    var total3 = vec4<f32>(0.0);
    for (var i = 0u; i < lanes(); i++) {
        let lane = first_lane(group) + i;
        var sum0 = vec4<f32>(0.0);
        var sum1 = vec4<f32>(0.0);
        var sum2 = vec4<f32>(0.0);
        var sum3 = vec4<f32>(0.0);
        for (var block = lane; block < p.blocks; block += LANES) {
            if thread < 64u {
                let mine = part(load(row_at + block));
                w_tile[thread] = mine.first;
                w_tile[64u + thread] = mine.second;
                w_factors[thread] = mine.factors;
            } else if thread < 64u + WIDTH {
                let at = place_of(column_at + block);
                x_tile[column] = activations(at, 0u);
                x_tile[32u + column] = activations(at, 1u);
                x_about[column] = scale_and_sums(at);
            }
            workgroupBarrier();
            if makes {
                let w0 = row_of(pair);
                let w1 = row_of(pair + 1u);
                let w2 = row_of(pair + 32u);
                let w3 = row_of(pair + 33u);
                sum0 = add(w0, w1, w2, w3, column_of(four), sum0);
                sum1 = add(w0, w1, w2, w3, column_of(four + 1u), sum1);
                sum2 = add(w0, w1, w2, w3, column_of(four + 2u), sum2);
                sum3 = add(w0, w1, w2, w3, column_of(four + 3u), sum3);
            }
            workgroupBarrier();
        }
        if SHARE > 0u && makes {
            keep_pairs(lane, c, row, 32u, sum0);
            keep_pairs(lane, c + 1u, row, 32u, sum1);
            keep_pairs(lane, c + 2u, row, 32u, sum2);
            keep_pairs(lane, c + 3u, row, 32u, sum3);
        }
        total0 += sum0;
        total1 += sum1;
        total2 += sum2;
        total3 += sum3;
    }
    if SHARE > 0u && thread < WIDTH {
        keep_scale(group, left + thread);
    }
    if SHARE == 0u && makes {
        finish_pairs(c, row, 32u, scaled_column(c, total0));
        finish_pairs(c + 1u, row, 32u, scaled_column(c + 1u, total1));
        finish_pairs(c + 2u, row, 32u, scaled_column(c + 2u, total2));
        finish_pairs(c + 3u, row, 32u, scaled_column(c + 3u, total3));
    }
}
