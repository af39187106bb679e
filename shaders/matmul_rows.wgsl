// y[c, r] = Σ_k w[r, k] · x[c, k] for one to eight columns c, the weights read once. Needs lanes.wgsl.

@compute @workgroup_size(LANES, PAIRS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) id: vec3<u32>,
) {
    if !starts(group) {
        return;
    }
    let first_pair = row_group(group, groups) * PAIRS;
    let thread = id.y * LANES + id.x;
    multiply(2u * (first_pair + id.y), id.x, thread);
    workgroupBarrier();
    // There are at least as many lanes as columns, so this is one round.
    if thread < PAIRS * COLUMNS {
        let pair = thread % PAIRS;
        let column = thread / PAIRS;
        finish(column, 2u * (first_pair + pair), total(column, pair));
    }
}
