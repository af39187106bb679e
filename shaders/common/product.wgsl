// What a product with a matrix is given. Needs kept.wgsl and a text that says which matrix it is
// (one_matrix, matrix_of_head or expert_*).
//
// The order of every sum, which fixes its bits: a row's blocks of 32 are dealt to LANES lanes in turn; a lane adds
// its products one after the other; the lanes' sums are added in order of the lanes.

// A deferred norm has left its scale: sums are multiplied by it, see norm_unscaled.wgsl.
override SCALES: u32 = 0u;
// Lanes that share a row; with fewer blocks some stay at zero.
override LANES: u32 = 8u;

struct Params {
    // Of the activation.
    numbers: vec4<f32>,
    // Rows of the matrix, and blocks of 32 in a row.
    rows: u32,
    blocks: u32,
    // Blocks in a row of x; numbers in a row of y, and the column of y where the matrix begins.
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
    // For heads: blocks to the first one's part of a row of x, and from one to the next; numbers from one to the next
    // in y.
    x_first: u32,
    x_every: u32,
    y_every: u32,
    // Numbers from one column's summands to the next one's; 0 where all columns have the same.
    bias_stride: u32,
    // For products that store queries, keys and values (finish_heads): the first of the matrix's rows among those of all heads.
    // rope_store.wgsl describes the others.
    head_row: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    turned: u32,
    turns_stride: u32,
    turns_at: u32,
    factor_at: u32,
    cells: u32,
    cells_at: u32,
    key_words: u32,
    value_words: u32,
    // For a product that does the next norm: what the norm adds to the mean square, and 1 / numbers in a row.
    eps: f32,
    per_number: f32,
    // Always 0, but not a constant for compilers.
    zero: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read> bias: array<f32>; // [rows], or [columns, bias_stride]
@group(0) @binding(6) var<storage, read_write> y: array<f32>; // [columns, y_stride]

// Finished sums, multiplied by the scale that a deferred norm has left.
fn by_scale(sums: vec4<f32>, scale: f32) -> vec4<f32> {
    if SCALES == 0u {
        return sums;
    }
    return kept(sums * scale);
}

fn bias_of(column: u32, row: u32) -> f32 {
    return bias[column * p.bias_stride + first_row() + row];
}
