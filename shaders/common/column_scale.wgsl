// The scale of a column that a deferred norm of many rows has stored (norm_unscaled.wgsl). Needs product.wgsl, and a text of
// activations (x_summed or dot_int8).
fn column_scale(column: u32) -> f32 {
    if SCALES == 0u {
        return 1.0;
    }
    return x_left(x_column(column) * p.x_stride + first_x());
}

fn scaled_column(column: u32, sums: vec4<f32>) -> vec4<f32> {
    return by_scale(sums, column_scale(column));
}
