// What happens to a finished sum, the same in every regime. Needs product.wgsl and activation.wgsl.

// What becomes of the sums: 0 stores, 1 adds to what is there, 2 multiplies odd rows by the activation of even ones,
// 3 stores the activation.
override MODE: u32 = 0u;

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
