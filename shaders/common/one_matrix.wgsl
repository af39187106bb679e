// All rows are multiplied with one matrix, and side by side in input and output.

fn starts(group: vec3<u32>) -> bool {
    return true;
}

// Which of the matrix's groups of rows a workgroup makes, and which of the columns.
fn row_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

// The first row of the matrix, and the beginnings of the first column of input and output.
fn first_row() -> u32 {
    return 0u;
}

fn first_x() -> u32 {
    return 0u;
}

fn first_y() -> u32 {
    return 0u;
}

fn first_column(group: vec3<u32>) -> u32 {
    return 32u * group.y;
}

fn x_column(column: u32) -> u32 {
    return column;
}

fn y_column(column: u32) -> u32 {
    return column;
}

// The output buffer holds whole tiles.
fn has_column(column: u32) -> bool {
    return true;
}
