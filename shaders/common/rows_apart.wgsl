// Rows of one buffer become rows of another.
@group(0) @binding(3) var<storage, read> src: array<f32>;
@group(0) @binding(4) var<storage, read_write> dst: array<f32>;

fn number(at: u32) -> f32 {
    return src[at];
}
