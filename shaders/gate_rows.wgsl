// A gate and what it lets through, for one to eight columns, stored and also prepared for the product that reads it. A
// workgroup makes a block of 32 numbers, some at a time. Needs lanes.wgsl, and sum_block.wgsl or round_block.wgsl.

var<workgroup> made: array<f32, 256>; // [COLUMNS, 32]

fn made_quad(i: u32) -> vec4<f32> {
    return vec4<f32>(made[i], made[i + 1u], made[i + 2u], made[i + 3u]);
}

fn let_through(column: u32, block: u32, i: u32, sums: vec2<f32>) {
    let out = gated(column, 2u * (32u * block + i), sums);
    y[column * p.y_stride + p.y_first + 32u * block + i] = out;
    made[32u * column + i] = out;
}

@compute @workgroup_size(LANES, TEAMS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) id: vec3<u32>,
) {
    let block = group.y * groups.x + group.x;
    if 64u * block >= p.rows {
        return;
    }
    let thread = id.y * LANES + id.x;
    // Each number is of two rows.
    for (var first = 0u; first < 32u; first += TEAMS * EACH / 2u) {
        multiply(2u * (32u * block + first) + EACH * id.y, id.x, thread);
        workgroupBarrier();
        if thread < TEAMS * COLUMNS {
            let column = thread / TEAMS;
            let team = thread % TEAMS;
            let i = first + EACH / 2u * team;
            let sums = by_scale(total(column, team), row_scale(column));
            let_through(column, block, i, sums.xy);
            if EACH > 2u { let_through(column, block, i + 1u, sums.zw); }
        }
        workgroupBarrier();
    }
    if thread < COLUMNS {
        let i = 32u * thread;
        prepare_block((thread * p.y_stride + p.y_first) / 32u + block, Block(
            made_quad(i), made_quad(i + 4u), made_quad(i + 8u), made_quad(i + 12u),
            made_quad(i + 16u), made_quad(i + 20u), made_quad(i + 24u), made_quad(i + 28u)), 0.0);
    }
}
