// y[c, r] = Σ_k w[r, k] · x[c, k] in tiles of 64 rows and 16 or 32 columns; threads make four by four of them.
// Needs the text of a format (load, quad), finish.wgsl and tile_sums.wgsl; x and y have rows for whole tiles of 32.

@group(0) @binding(5) var<storage, read> x: array<vec4<f32>>; // [columns, x_stride]

// One block of 32 k, four rows or columns in an element.
var<workgroup> w_tile: array<vec4<f32>, 512>; // [32, 16]
var<workgroup> x_tile: array<vec4<f32>, 256>; // [32, 8]

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
    let columns = vec4<u32>(x_column(start), x_column(start + 1u), x_column(start + 2u), x_column(start + 3u)) * p.x_stride + (first_x() + q);
    // What it makes.
    let mine_w = thread % 16u;
    let mine_x = thread / 16u;
    let makes = 4u * mine_x < WIDTH;
    let row = top + 4u * mine_w;
    let c = left + 4u * mine_x;
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
            let w0 = quad(load(rows.x + block), q);
            let w1 = quad(load(rows.y + block), q);
            let w2 = quad(load(rows.z + block), q);
            let w3 = quad(load(rows.w + block), q);
            w_tile[w_at] = vec4<f32>(w0.x, w1.x, w2.x, w3.x);
            w_tile[w_at + 16u] = vec4<f32>(w0.y, w1.y, w2.y, w3.y);
            w_tile[w_at + 32u] = vec4<f32>(w0.z, w1.z, w2.z, w3.z);
            w_tile[w_at + 48u] = vec4<f32>(w0.w, w1.w, w2.w, w3.w);
            if thread < 2u * WIDTH {
                let x0 = x[columns.x + 8u * block];
                let x1 = x[columns.y + 8u * block];
                let x2 = x[columns.z + 8u * block];
                let x3 = x[columns.w + 8u * block];
                x_tile[x_at] = vec4<f32>(x0.x, x1.x, x2.x, x3.x);
                x_tile[x_at + 8u] = vec4<f32>(x0.y, x1.y, x2.y, x3.y);
                x_tile[x_at + 16u] = vec4<f32>(x0.z, x1.z, x2.z, x3.z);
                x_tile[x_at + 24u] = vec4<f32>(x0.w, x1.w, x2.w, x3.w);
            }
            workgroupBarrier();
            if makes {
                for (var k = 0u; k < 32u; k++) {
                    let w = w_tile[16u * k + mine_w];
                    let c = x_tile[8u * k + mine_x];
                    sum0 = fma(w, vec4<f32>(c.x), sum0);
                    sum1 = fma(w, vec4<f32>(c.y), sum1);
                    sum2 = fma(w, vec4<f32>(c.z), sum2);
                    sum3 = fma(w, vec4<f32>(c.w), sum3);
                }
            }
            workgroupBarrier();
        }
        if SHARE > 0u && makes {
            keep_pairs(lane, c, row, 2u, sum0);
            keep_pairs(lane, c + 1u, row, 2u, sum1);
            keep_pairs(lane, c + 2u, row, 2u, sum2);
            keep_pairs(lane, c + 3u, row, 2u, sum3);
        }
        total0 += sum0;
        total1 += sum1;
        total2 += sum2;
        total3 += sum3;
    }
    if SHARE == 0u && makes {
        finish_pairs(c, row, 2u, total0);
        finish_pairs(c + 1u, row, 2u, total1);
        finish_pairs(c + 2u, row, 2u, total2);
        finish_pairs(c + 3u, row, 2u, total3);
    }
}
