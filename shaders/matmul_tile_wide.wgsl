// y[c, r] = Σ_k w[r, k] · x[c, k] in tiles of 96 rows and 64 columns, by dots; each of 256 threads makes six by four of
// them. While a block is multiplied the next one of the weights is on its way. Needs what matmul_tile_dot.wgsl needs; x and y have
// rows for whole tiles.

// One block of 32 k, its halves one after the other; of the rows first the even ones, then the odd ones.
var<workgroup> w_tile: array<Sixteen, 192>; // [2, 2, 48]
var<workgroup> w_factors: array<Factors, 96>; // [2, 48]
var<workgroup> x_tile: array<Sixteen, 128>; // [2, 64]
var<workgroup> x_about: array<vec4<f32>, 64>;

// Of four columns, the sums of a pair of rows.
struct Four { a: vec2<f32>, b: vec2<f32>, c: vec2<f32>, d: vec2<f32> }

fn column_of(i: u32) -> Column {
    return Column(x_tile[i], x_tile[64u + i], x_about[i]);
}

fn row_of(i: u32) -> Part {
    return Part(w_tile[i], w_tile[96u + i], w_factors[i]);
}

fn add(even: Part, odd: Part, c: Column, sum: vec2<f32>) -> vec2<f32> {
    return fma(vec2<f32>(one(even, c), one(odd, c)), vec2<f32>(c.about.x), sum);
}

fn pair(i: u32, a: Column, b: Column, c: Column, d: Column, sums: Four) -> Four {
    let even = row_of(i);
    let odd = row_of(48u + i);
    return Four(add(even, odd, a, sums.a), add(even, odd, b, sums.b), add(even, odd, c, sums.c), add(even, odd, d, sums.d));
}

fn both(a: Four, b: Four) -> Four {
    return Four(a.a + b.a, a.b + b.b, a.c + b.c, a.d + b.d);
}

fn finish_column(column: u32, row: u32, sums: vec2<f32>) {
    finish(column, row, scaled_column(column, vec4<f32>(sums, 0.0, 0.0)).xy);
}

fn finish_pair(column: u32, row: u32, sums: Four) {
    finish_column(column, row, sums.a);
    finish_column(column + 1u, row, sums.b);
    finish_column(column + 2u, row, sums.c);
    finish_column(column + 3u, row, sums.d);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let top = 96u * group.x;
    let left = 64u * group.y;
    // What this thread brings: a row, or half of a column, or nothing; from where, and to where.
    let brings_row = thread < 96u;
    let brings_column = thread >= 128u;
    var first = 0u;
    var to = thread % 128u;
    if brings_row {
        first = min(top + thread, p.rows - 1u) * p.blocks;
        to = 48u * (thread & 1u) + (thread >> 1u);
    } else if brings_column {
        first = (left + thread % 64u) * p.x_stride;
    }
    // What it makes: three pairs of rows, 32 from one to the next, and four columns.
    let mine = thread % 16u;
    let four = 4u * (thread / 16u);
    var total0 = Four();
    var total1 = Four();
    var total2 = Four();
    var raw = Raw();
    if brings_row {
        raw = load(first);
    }
    for (var lane = 0u; lane < LANES; lane++) {
        var sum0 = Four();
        var sum1 = Four();
        var sum2 = Four();
        for (var block = lane; block < p.blocks; block += LANES) {
            if brings_row {
                let mine = part(raw);
                w_tile[to] = mine.first;
                w_tile[96u + to] = mine.second;
                w_factors[to] = mine.factors;
            } else if brings_column {
                let at = place_of(first + block);
                x_tile[to] = activations(at, to / 64u);
                if to < 64u {
                    x_about[to] = scale_and_sums(at);
                }
            }
            workgroupBarrier();
            // Behind a lane's last block comes the first one of the next lane.
            var next = block + LANES;
            if next >= p.blocks {
                next = min(lane + 1u, p.blocks - 1u);
            }
            if brings_row {
                raw = load(first + next);
            }
            let a = column_of(four);
            let b = column_of(four + 1u);
            let c = column_of(four + 2u);
            let d = column_of(four + 3u);
            sum0 = pair(mine, a, b, c, d, sum0);
            sum1 = pair(16u + mine, a, b, c, d, sum1);
            sum2 = pair(32u + mine, a, b, c, d, sum2);
            workgroupBarrier();
        }
        total0 = both(total0, sum0);
        total1 = both(total1, sum1);
        total2 = both(total2, sum2);
    }
    let row = top + 2u * mine;
    finish_pair(left + four, row, total0);
    finish_pair(left + four, row + 32u, total1);
    finish_pair(left + four, row + 64u, total2);
}
