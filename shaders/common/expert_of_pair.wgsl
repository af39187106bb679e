// A row and a place in its choice are a pair; each is multiplied with the matrix of its expert. Workgroups in y are
// pairs.
@group(0) @binding(7) var<storage, read> chosen: array<f32>; // [rows, chosen_stride]: numbers of experts, weights

var<private> this_pair: u32;
var<private> matrix: u32;

// Whether the expert is among those of this part.
fn starts(group: vec3<u32>) -> bool {
    let expert = u32(chosen[group.y / p.used * p.chosen_stride + group.y % p.used]) - p.first_expert;
    this_pair = group.y;
    matrix = expert;
    return expert < p.experts;
}

fn row_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x;
}

fn first_row() -> u32 {
    return matrix * p.rows;
}

fn first_x() -> u32 {
    return this_pair / p.pairs_in_row * p.x_stride;
}

fn first_y() -> u32 {
    return 0u;
}

fn y_column(column: u32) -> u32 {
    return this_pair;
}

fn has_column(column: u32) -> bool {
    return true;
}
