// What happens to a finished sum, the same in every regime.
//
// The order of every sum, which fixes its bits: a row's blocks of 32 are dealt to LANES lanes in turn; a lane adds
// its products one after the other; the lanes' sums are added in order of the lanes.

// Lanes that share a row; with fewer blocks some stay at zero.
override LANES: u32 = 8u;
// What becomes of the sums: 0 stores, 1 adds to what is there, 2 multiplies odd rows by the silu of even ones.
override MODE: u32 = 0u;

struct Params {
    // Rows of the matrix, and blocks of 32 in a row.
    rows: u32,
    blocks: u32,
    // vec4s in a row of x; numbers in a row of y, and the column of y where the matrix begins.
    x_stride: u32,
    y_stride: u32,
    y_first: u32,
    has_bias: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read> bias: array<f32>; // [rows]
@group(0) @binding(6) var<storage, read_write> y: array<f32>; // [columns, y_stride]

fn put(column: u32, row: u32, sum: f32) {
    if row >= p.rows {
        return;
    }
    let at = column * p.y_stride + p.y_first + row;
    var out = sum;
    if p.has_bias != 0u {
        out += bias[row];
    }
    if MODE == 1u {
        out += y[at];
    }
    y[at] = out;
}

fn gated(sums: vec2<f32>) -> f32 {
    return sums.x / (1.0 + exp(-sums.x)) * sums.y;
}

// The sums of an even row and of the one after it.
fn finish(column: u32, row: u32, sums: vec2<f32>) {
    if MODE == 2u {
        if row < p.rows {
            y[column * p.y_stride + p.y_first + row / 2u] = gated(sums);
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
