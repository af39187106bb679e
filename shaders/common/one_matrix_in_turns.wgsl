// All rows are multiplied with one matrix, and side by side in input and output. Workgroups side by side make the same rows
// of the matrix for other columns, COLUMNS each: what one of them reads is in a cache for the next.

var<private> first_of_turn: u32;

fn starts(group: vec3<u32>) -> bool {
    return true;
}

// Which of the matrix's groups of rows a workgroup makes.
fn row_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    first_of_turn = COLUMNS * group.x;
    return group.z * groups.y + group.y;
}

// The first row of the matrix, and the beginnings of the first column of input and output.
fn first_row() -> u32 {
    return 0u;
}

fn first_x() -> u32 {
    return first_of_turn * p.x_stride;
}

fn first_y() -> u32 {
    return 0u;
}

fn y_column(column: u32) -> u32 {
    return first_of_turn + column;
}

// The output buffer holds whole tiles.
fn has_column(column: u32) -> bool {
    return true;
}
