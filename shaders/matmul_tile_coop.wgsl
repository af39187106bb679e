// y[c, r] = Σ_k w[r, k] · x[c, k] in tiles of 64 rows and 16, 32 or 64 columns, sums of products by cooperative matrices.
// Whole numbers of eight bits are exact in halves, and so are sums of 32 products of them in f32, in whatever order a
// device adds: the bits are those of matmul_tile_dot.wgsl. While a block is multiplied the next one is on its way. Needs the
// directives for halves and cooperative matrices first, what matmul_tile_dot.wgsl needs, and the kind of squares (Left,
// Right, Sums, SQUARE); x and y have rows for whole tiles.

// Numbers from one row of a tile to the next, and from one column of products to the next: more than there are, so that
// threads side by side do not wait for the same bank of memory.
const TILE_STRIDE: u32 = 40u;
const PRODUCTS_STRIDE: u32 = 68u;
// One block of 32 k.
const W_TILE: u32 = 64u * TILE_STRIDE;
const X_TILE: u32 = 64u * TILE_STRIDE;
const PRODUCTS: u32 = 64u * PRODUCTS_STRIDE;

// Of this block and of the next one.
var<workgroup> w_factors: array<Factors, 128>; // [2, 64]
var<workgroup> x_about: array<vec4<f32>, 128>; // [2, 64]

fn halves_of(word: u32) -> vec4<f16> {
    return vec4<f16>(unpack4xI8(word));
}

// The squares of the tile, down and across.
const DOWN: u32 = 64u / SQUARE;
override ACROSS: u32 = WIDTH / SQUARE;
// Columns that a thread makes of four rows, 16 from one to the next.
override EACH: u32 = WIDTH / 16u;

// The products of so many k from `k`, each square of the tile by one subgroup.
fn multiply(k: u32, count: u32, subgroup: u32, subgroups: u32) {
    for (var square = subgroup; square < DOWN * ACROSS; square += subgroups) {
        let row = SQUARE * (square % DOWN);
        let column = SQUARE * (square / DOWN);
        var sum = Sums();
        for (var i = k; i < k + count; i += SQUARE) {
            sum = coopMultiplyAdd(left_of(TILE_STRIDE * row + i), right_of(TILE_STRIDE * column + i), sum);
        }
        leave(sum, PRODUCTS_STRIDE * column + row);
    }
}

// Of up to four columns, four rows each.
struct Four { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

fn products_of(row: u32, column: u32) -> Four {
    var four = Four();
    four.a = four_products(PRODUCTS_STRIDE * column + row);
    if EACH > 1u { four.b = four_products(PRODUCTS_STRIDE * (column + 16u) + row); }
    if EACH > 2u { four.c = four_products(PRODUCTS_STRIDE * (column + 32u) + row); }
    if EACH > 3u { four.d = four_products(PRODUCTS_STRIDE * (column + 48u) + row); }
    return four;
}

fn add(row: u32, column: u32, first: vec4<f32>, second: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
    let about = x_about[column];
    let values = vec4<f32>(
        value(w_factors[row], dots_of_floats(first.x, second.x), about.yz),
        value(w_factors[row + 1u], dots_of_floats(first.y, second.y), about.yz),
        value(w_factors[row + 2u], dots_of_floats(first.z, second.z), about.yz),
        value(w_factors[row + 3u], dots_of_floats(first.w, second.w), about.yz));
    return fma(values, vec4<f32>(about.x), sum);
}

fn both(a: Four, b: Four) -> Four {
    return Four(a.a + b.a, a.b + b.b, a.c + b.c, a.d + b.d);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    begin(groups);
    let top = 64u * group.x;
    let left = WIDTH * group.y;
    // What this thread brings: half a block of a row, or of a column, or nothing.
    let side_half = thread % 2u;
    let brought = thread % 128u / 2u;
    let brings_row = thread < 128u;
    let brings_column = !brings_row && brought < WIDTH;
    let to = TILE_STRIDE * brought + 16u * side_half;
    let row_at = min(top + brought, p.rows - 1u) * p.blocks;
    let column_at = (left + brought) * p.x_stride;
    // What it makes: four rows, and up to four columns.
    let four = 4u * (thread % 16u);
    let my_column = thread / 16u;
    var raw = Raw();
    var words = vec4<u32>(0u);
    var about = vec4<f32>(0.0);
    let begin_at = min(first_lane(group), p.blocks - 1u);
    if brings_row {
        raw = load(row_at + begin_at);
    } else if brings_column {
        let at = place_of(column_at + begin_at);
        words = activations(at, side_half);
        about = scale_and_sums(at);
    }
    var side = 0u;
    var total = Four();
    for (var i = 0u; i < lanes(); i++) {
        let lane = first_lane(group) + i;
        var sum = Four();
        for (var block = lane; block < p.blocks; block += LANES) {
            if brings_row {
                let whole = ints(raw);
                let mine = select(whole.first, whole.second, side_half == 1u);
                bring_weights(to, halves_of(mine.x));
                bring_weights(to + 4u, halves_of(mine.y));
                bring_weights(to + 8u, halves_of(mine.z));
                bring_weights(to + 12u, halves_of(mine.w));
                if side_half == 0u {
                    w_factors[side + brought] = factors(raw);
                }
            } else if brings_column {
                bring_activations(to, halves_of(words.x));
                bring_activations(to + 4u, halves_of(words.y));
                bring_activations(to + 8u, halves_of(words.z));
                bring_activations(to + 12u, halves_of(words.w));
                if side_half == 0u {
                    x_about[side + brought] = about;
                }
            }
            workgroupBarrier();
            // Behind a lane's last block comes the first one of the next lane.
            var next = block + LANES;
            if next >= p.blocks {
                next = min(lane + 1u, p.blocks - 1u);
            }
            if brings_row {
                raw = load(row_at + next);
            } else if brings_column {
                let at = place_of(column_at + next);
                words = activations(at, side_half);
                about = scale_and_sums(at);
            }
            var first = Four();
            if APART {
                multiply(0u, 16u, subgroup, subgroups);
                workgroupBarrier();
                first = products_of(four, my_column);
                workgroupBarrier();
                multiply(16u, 16u, subgroup, subgroups);
            } else {
                multiply(0u, 32u, subgroup, subgroups);
            }
            workgroupBarrier();
            let second = products_of(four, my_column);
            let row = side + four;
            let column = side + my_column;
            sum.a = add(row, column, first.a, second.a, sum.a);
            if EACH > 1u { sum.b = add(row, column + 16u, first.b, second.b, sum.b); }
            if EACH > 2u { sum.c = add(row, column + 32u, first.c, second.c, sum.c); }
            if EACH > 3u { sum.d = add(row, column + 48u, first.d, second.d, sum.d); }
            side = 64u - side;
        }
        if SHARE > 0u {
            keep_pairs(lane, left + my_column, top + four, 2u, sum.a);
            if EACH > 1u { keep_pairs(lane, left + my_column + 16u, top + four, 2u, sum.b); }
            if EACH > 2u { keep_pairs(lane, left + my_column + 32u, top + four, 2u, sum.c); }
            if EACH > 3u { keep_pairs(lane, left + my_column + 48u, top + four, 2u, sum.d); }
        }
        total = both(total, sum);
    }
    if SHARE > 0u && thread < WIDTH {
        keep_scale(group, left + thread);
    }
    if SHARE == 0u {
        let column = left + my_column;
        finish_pairs(column, top + four, 2u, scaled_column(column, total.a));
        if EACH > 1u { finish_pairs(column + 16u, top + four, 2u, scaled_column(column + 16u, total.b)); }
        if EACH > 2u { finish_pairs(column + 32u, top + four, 2u, scaled_column(column + 32u, total.c)); }
        if EACH > 3u { finish_pairs(column + 48u, top + four, 2u, scaled_column(column + 48u, total.d)); }
    }
}
