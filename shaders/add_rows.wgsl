// A product that is added to its output and also does the deferred norm that follows, as norm_unscaled.wgsl does it for a few
// rows. A workgroup makes a block of 32 numbers, some at a time. Needs lanes.wgsl, mean_part.wgsl, and sum_block.wgsl or
// round_block.wgsl.

@group(0) @binding(7) var<storage, read> norm_weight: array<f32>; // [y_stride]

var<workgroup> made: array<f32, 256>; // [COLUMNS, 32]
var<workgroup> weighted: array<f32, 256>; // [COLUMNS, 32]

fn made_quad(i: u32) -> vec4<f32> {
    return vec4<f32>(made[i], made[i + 1u], made[i + 2u], made[i + 3u]);
}

fn weighted_quad(i: u32) -> vec4<f32> {
    return vec4<f32>(weighted[i], weighted[i + 1u], weighted[i + 2u], weighted[i + 3u]);
}

fn show(column: u32, row: u32) {
    let at = 32u * column + row % 32u;
    let x = y[column * p.y_stride + p.y_first + row];
    made[at] = x;
    weighted[at] = x * norm_weight[p.y_first + row];
}

// The sums of an even row and of the one after it.
fn add_and_show(column: u32, row: u32, sums: vec2<f32>) {
    finish(column, row, sums);
    show(column, row);
    show(column, row + 1u);
}

@compute @workgroup_size(LANES, TEAMS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) id: vec3<u32>,
) {
    let block = group.y * groups.x + group.x;
    if 32u * block >= p.rows {
        return;
    }
    let thread = id.y * LANES + id.x;
    // The end is not a constant, so that no compiler unrolls the loop: that would take too many registers.
    let end = min(32u * (block + 1u), p.rows);
    for (var first = 32u * block; first < end; first += TEAMS * EACH) {
        multiply(first + EACH * id.y, id.x, thread);
        workgroupBarrier();
        // There are at least as many lanes as columns, so this is one round.
        if thread < TEAMS * COLUMNS {
            let column = thread / TEAMS;
            let row = first + EACH * (thread % TEAMS);
            let sums = total(column, thread % TEAMS);
            add_and_show(column, row, sums.xy);
            if EACH > 2u { add_and_show(column, row + 2u, sums.zw); }
        }
        workgroupBarrier();
    }
    if thread < COLUMNS {
        let i = 32u * thread;
        let in_row = p.y_first / 32u + block;
        let x = Block(
            made_quad(i), made_quad(i + 4u), made_quad(i + 8u), made_quad(i + 12u),
            made_quad(i + 16u), made_quad(i + 20u), made_quad(i + 24u), made_quad(i + 28u));
        let left = mean_part(in_row, x);
        prepare_block(thread * p.y_stride / 32u + in_row, Block(
            weighted_quad(i), weighted_quad(i + 4u), weighted_quad(i + 8u), weighted_quad(i + 12u),
            weighted_quad(i + 16u), weighted_quad(i + 20u), weighted_quad(i + 24u), weighted_quad(i + 28u)), left);
    }
}
