// What happens to a finished sum, the same in every regime. Needs activation.wgsl and a text that says
// which matrix it is (one_matrix, matrix_of_head or expert_*).
//
// The order of every sum, which fixes its bits: a row's blocks of 32 are dealt to LANES lanes in turn; a lane adds
// its products one after the other; the lanes' sums are added in order of the lanes.

// Lanes that share a row; with fewer blocks some stay at zero.
override LANES: u32 = 8u;
// What becomes of the sums: 0 stores, 1 adds to what is there, 2 multiplies odd rows by the activation of even ones,
// 3 stores the activation.
override MODE: u32 = 0u;

struct Params {
    // Of the activation.
    numbers: vec4<f32>,
    // Rows of the matrix, and blocks of 32 in a row.
    rows: u32,
    blocks: u32,
    // vec4s in a row of x, or blocks if it is rounded; numbers in a row of y, and the column of y where the matrix
    // begins.
    x_stride: u32,
    y_stride: u32,
    y_first: u32,
    has_bias: u32,
    // For experts: how many a row chooses; how many of their pairs read the same row; numbers in a row of the choice;
    // which experts' matrices lie here; where sorted pairs begin.
    used: u32,
    pairs_in_row: u32,
    chosen_stride: u32,
    first_expert: u32,
    experts: u32,
    pairs_at: u32,
    // For heads: vec4s or blocks to the first one's part of a row of x, and from one to the next; numbers from one to
    // the next in y.
    x_first: u32,
    x_every: u32,
    y_every: u32,
    // Numbers from one column's summands to the next one's; 0 where all columns have the same.
    bias_stride: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read> bias: array<f32>; // [rows], or [columns, bias_stride]
@group(0) @binding(6) var<storage, read_write> y: array<f32>; // [columns, y_stride]

fn bias_of(column: u32, row: u32) -> f32 {
    return bias[column * p.bias_stride + first_row() + row];
}

fn put(column: u32, row: u32, sum: f32) {
    if row >= p.rows || !has_column(column) {
        return;
    }
    let at = y_column(column) * p.y_stride + p.y_first + first_y() + row;
    var out = sum;
    if p.has_bias != 0u {
        out += bias_of(column, row);
    }
    if MODE == 1u {
        out += y[at];
    }
    if MODE == 3u {
        out = activated(ACTIVATION, out, 1.0, p.numbers);
    }
    y[at] = out;
}

// The sums of an even row and of the one after it.
fn gated(column: u32, row: u32, sums: vec2<f32>) -> f32 {
    var both = sums;
    if p.has_bias != 0u {
        both += vec2<f32>(bias_of(column, row), bias_of(column, row + 1u));
    }
    return activated(ACTIVATION, both.x, both.y, p.numbers);
}

// The sums of an even row and of the one after it.
fn finish(column: u32, row: u32, sums: vec2<f32>) {
    if MODE == 2u {
        if row < p.rows && has_column(column) {
            y[y_column(column) * p.y_stride + p.y_first + row / 2u] = gated(column, row, sums);
        }
        return;
    }
    put(column, row, sums.x);
    put(column, row + 1u, sums.y);
}

// Of two such pairs, so many rows from one to the other.
fn finish_pairs(column: u32, row: u32, apart: u32, sums: vec4<f32>) {
    finish(column, row, sums.xy);
    finish(column, row + apart, sums.zw);
}
