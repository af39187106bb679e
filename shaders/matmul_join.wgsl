// Adds the sums of lanes that workgroups have shared (tile_sums.wgsl), in the lanes' order. Workgroups in y are columns.
// Needs finish.wgsl.

// Columns that the tiles had stand in rows of so many, 16 or 32.
override WIDTH: u32 = 32u;

@group(0) @binding(5) var<storage, read> x: array<f32>; // [LANES, columns, rows], [columns]

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = 2u * (64u * group.x + thread);
    if row >= p.rows {
        return;
    }
    let columns = (groups.y + WIDTH - 1u) / WIDTH * WIDTH;
    let next = min(row + 1u, p.rows - 1u) - row;
    var sums = vec2<f32>(0.0);
    for (var lane = 0u; lane < LANES; lane++) {
        let at = (lane * columns + group.y) * p.rows + row;
        sums += vec2<f32>(x[at], x[at + next]);
    }
    var scale = 1.0;
    if SCALES != 0u {
        scale = x[LANES * columns * p.rows + group.y];
    }
    finish(group.y, row, by_scale(vec4<f32>(sums, 0.0, 0.0), scale).xy);
}
