// y[c, r] = Σ_k w[r, k] · x[c, k] for one to eight columns c, the weights read once. Needs lanes.wgsl.

@compute @workgroup_size(LANES, TEAMS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) id: vec3<u32>,
) {
    if !starts(group) {
        return;
    }
    let first_team = row_group(group, groups) * TEAMS;
    let thread = id.y * LANES + id.x;
    multiply(EACH * (first_team + id.y), id.x, thread);
    workgroupBarrier();
    // There are at least as many lanes as columns, so this is one round.
    if thread < TEAMS * COLUMNS {
        let team = thread % TEAMS;
        let column = thread / TEAMS;
        let row = EACH * (first_team + team);
        let sums = by_scale(total(column, team), row_scale(column));
        finish(column, row, sums.xy);
        if EACH > 2u { finish(column, row + 2u, sums.zw); }
    }
}
