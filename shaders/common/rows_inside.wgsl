// Rows become others in the same buffer, or change where they are.
@group(0) @binding(3) var<storage, read_write> dst: array<f32>;

fn number(at: u32) -> f32 {
    return dst[at];
}
