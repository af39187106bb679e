// Pairs of a row and a place in its choice, sorted by expert (experts_sort.wgsl); a tile has up to 32 of one expert.
// Workgroups in y are tiles.
@group(0) @binding(7) var<storage, read> sorted: array<u32>; // count of tiles; of each expert, first pair, pairs; pairs

var<private> matrix: u32;
var<private> first_pair: u32;
var<private> pairs: u32;

// Whether there is such a tile and its expert is among those of this part.
fn starts(group: vec3<u32>) -> bool {
    let expert = sorted[1u + 3u * group.y] - p.first_expert;
    matrix = expert;
    first_pair = p.pairs_at + sorted[2u + 3u * group.y];
    pairs = sorted[3u + 3u * group.y];
    return group.y < sorted[0] && expert < p.experts;
}

fn first_row() -> u32 {
    return matrix * p.rows;
}

fn first_x() -> u32 {
    return 0u;
}

fn first_y() -> u32 {
    return 0u;
}

fn first_column(group: vec3<u32>) -> u32 {
    return 0u;
}

// Beyond the tile's pairs the last one is read again, and nothing stored.
fn pair_of(column: u32) -> u32 {
    return sorted[first_pair + min(column, pairs - 1u)];
}

fn x_column(column: u32) -> u32 {
    return pair_of(column) / p.pairs_in_row;
}

fn y_column(column: u32) -> u32 {
    return pair_of(column);
}

fn has_column(column: u32) -> bool {
    return column < pairs;
}
