// Which lanes a workgroup of a tile's kernel makes, and where their sums go. Needs product.wgsl
// and column_scale.wgsl.

// Workgroups in z share the lanes, this many each. They store every lane's sums for matmul_join.wgsl as rows of y, ordered by
// lane, then by column. 0: a workgroup makes all lanes and adds them itself.
override SHARE: u32 = 0u;
// Columns of the tile, 16 or 32.
override WIDTH: u32 = 32u;

var<private> kept_columns: u32;

fn begin(groups: vec3<u32>) {
    kept_columns = WIDTH * groups.y;
}

fn first_lane(group: vec3<u32>) -> u32 {
    return SHARE * group.z;
}

fn lanes() -> u32 {
    return select(LANES, SHARE, SHARE > 0u);
}

fn keep(lane: u32, column: u32, row: u32, sum: f32) {
    if row < p.rows {
        y[(lane * kept_columns + column) * p.rows + row] = sum;
    }
}

// Behind all lanes' sums stand the columns' scales.
fn keep_scale(group: vec3<u32>, column: u32) {
    if SCALES != 0u && group.x == 0u && group.z == 0u {
        y[LANES * kept_columns * p.rows + column] = column_scale(column);
    }
}

// Of two pairs of rows, so many rows from one to the other.
fn keep_pairs(lane: u32, column: u32, row: u32, apart: u32, sums: vec4<f32>) {
    keep(lane, column, row, sums.x);
    keep(lane, column, row + 1u, sums.y);
    keep(lane, column, row + apart, sums.z);
    keep(lane, column, row + apart + 1u, sums.w);
}
