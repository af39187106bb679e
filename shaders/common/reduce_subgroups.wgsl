// Sums and maxima of `Reduced` over a workgroup: each subgroup by itself, then theirs in order. The order within a subgroup is
// the device's own and always the same.

// The whole workgroup is one subgroup.
override ALONE: bool = false;

struct Lanes {
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
}

// Subgroups of at least four.
var<workgroup> shared_sums: array<Reduced, 64>;
var<workgroup> shared_maxima: array<Reduced, 64>;

fn sum_over(x: Reduced, me: Lanes) -> Reduced {
    let part = subgroupAdd(x);
    if ALONE {
        return part;
    }
    if me.lane == 0u {
        shared_sums[me.subgroup] = part;
    }
    workgroupBarrier();
    var sum = Reduced();
    for (var i = 0u; i < me.subgroups; i++) {
        sum += shared_sums[i];
    }
    return sum;
}

// What was written before it is seen after it.
fn sum_and_sync(x: Reduced, me: Lanes) -> Reduced {
    if ALONE {
        workgroupBarrier();
    }
    return sum_over(x, me);
}

fn max_over(x: Reduced, me: Lanes) -> Reduced {
    let part = subgroupMax(x);
    if ALONE {
        return part;
    }
    if me.lane == 0u {
        shared_maxima[me.subgroup] = part;
    }
    workgroupBarrier();
    var largest = part;
    for (var i = 0u; i < me.subgroups; i++) {
        largest = max(largest, shared_maxima[i]);
    }
    return largest;
}
