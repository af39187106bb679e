// Each head's part of all rows is multiplied with a matrix of its own. Workgroups in z are heads.

var<private> head: u32;

fn starts(group: vec3<u32>) -> bool {
    head = group.z;
    return true;
}

fn row_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x;
}

fn first_row() -> u32 {
    return head * p.rows;
}

fn first_x() -> u32 {
    return p.x_first + head * p.x_every;
}

fn first_y() -> u32 {
    return head * p.y_every;
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
