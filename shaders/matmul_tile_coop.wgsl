// y[c, r] = Σ_k w[r, k] · x[c, k] in tiles of 64 rows and 16 or 32 columns, sums of products by cooperative matrices. Whole
// numbers of eight bits are exact in halves, and so are sums of 32 products of them in f32, in whatever order a
// device adds: the bits are those of matmul_tile_dot.wgsl. Needs the directives for halves and cooperative matrices
// first, what matmul_tile_dot.wgsl needs, and the kind of squares (Left, Right, Sums, SQUARE).

// One block of 32 k.
var<workgroup> w_tile: array<f16, 2048>; // [64 rows, 32]
var<workgroup> x_tile: array<f16, 1024>; // [32 columns, 32]
var<workgroup> products: array<f32, 2048>; // [32 columns, 64 rows]
var<workgroup> w_factors: array<Factors, 64>;
var<workgroup> x_about: array<vec4<f32>, 32>;

fn bring_weights(at: u32, words: vec4<u32>) {
    for (var i = 0u; i < 4u; i++) {
        let four = vec4<f16>(unpack4xI8(words[i]));
        w_tile[at + 4u * i] = four.x;
        w_tile[at + 4u * i + 1u] = four.y;
        w_tile[at + 4u * i + 2u] = four.z;
        w_tile[at + 4u * i + 3u] = four.w;
    }
}

fn bring_activations(at: u32, words: vec4<u32>) {
    for (var i = 0u; i < 4u; i++) {
        let four = vec4<f16>(unpack4xI8(words[i]));
        x_tile[at + 4u * i] = four.x;
        x_tile[at + 4u * i + 1u] = four.y;
        x_tile[at + 4u * i + 2u] = four.z;
        x_tile[at + 4u * i + 3u] = four.w;
    }
}

// The squares of the tile, down and across.
const DOWN: u32 = 64u / SQUARE;
override ACROSS: u32 = WIDTH / SQUARE;

// The products of so many k from `k`, each square of the tile by one subgroup.
fn multiply(k: u32, count: u32, subgroup: u32, subgroups: u32) {
    for (var square = subgroup; square < DOWN * ACROSS; square += subgroups) {
        let row = SQUARE * (square % DOWN);
        let column = SQUARE * (square / DOWN);
        var sum = Sums();
        for (var i = k; i < k + count; i += SQUARE) {
            let w = coopLoadT<Left>(&w_tile[32u * row + i], 32u);
            let x = coopLoad<Right>(&x_tile[32u * column + i], 32u);
            sum = coopMultiplyAdd(w, x, sum);
        }
        coopStore(sum, &products[64u * column + row], 64u);
    }
}

// What stands there for four rows of a column.
fn four_of(column: u32, row: u32) -> vec4<f32> {
    let at = 64u * column + row;
    return vec4<f32>(products[at], products[at + 1u], products[at + 32u], products[at + 33u]);
}

fn add(row: u32, column: u32, first: vec4<f32>, second: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
    let about = x_about[column];
    let values = vec4<f32>(
        value(w_factors[row], dots_of_floats(first.x, second.x), about.yz),
        value(w_factors[row + 1u], dots_of_floats(first.y, second.y), about.yz),
        value(w_factors[row + 32u], dots_of_floats(first.z, second.z), about.yz),
        value(w_factors[row + 33u], dots_of_floats(first.w, second.w), about.yz));
    return fma(values, vec4<f32>(about.x), sum);
}

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    begin(groups);
    let top = 64u * group.x;
    let left = 32u * group.y;
    let row_at = min(top + thread, p.rows - 1u) * p.blocks;
    let column = thread % 32u;
    let column_at = (left + column) * p.x_stride;
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
                let r = load(row_at + block);
                let i = ints(r);
                bring_weights(32u * thread, i.first);
                bring_weights(32u * thread + 16u, i.second);
                w_factors[thread] = factors(r);
            } else if thread < 64u + WIDTH {
                let at = place_of(column_at + block);
                bring_activations(32u * column, activations(at, 0u));
                bring_activations(32u * column + 16u, activations(at, 1u));
                x_about[column] = scale_and_sums(at);
            }
            workgroupBarrier();
            var none = vec4<f32>(0.0);
            var first0 = none;
            var first1 = none;
            var first2 = none;
            var first3 = none;
            if APART {
                multiply(0u, 16u, subgroup, subgroups);
                workgroupBarrier();
                first0 = four_of(four, pair);
                first1 = four_of(four + 1u, pair);
                first2 = four_of(four + 2u, pair);
                first3 = four_of(four + 3u, pair);
                workgroupBarrier();
                multiply(16u, 16u, subgroup, subgroups);
            } else {
                multiply(0u, 32u, subgroup, subgroups);
            }
            workgroupBarrier();
            sum0 = add(pair, four, first0, four_of(four, pair), sum0);
            sum1 = add(pair, four + 1u, first1, four_of(four + 1u, pair), sum1);
            sum2 = add(pair, four + 2u, first2, four_of(four + 2u, pair), sum2);
            sum3 = add(pair, four + 3u, first3, four_of(four + 3u, pair), sum3);
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
