// Sums and maxima of `Reduced` over a workgroup, through shared memory and in the order of the threads.

struct Lanes { @builtin(local_invocation_index) thread: u32 }

var<workgroup> shared_sums: array<Reduced, THREADS>;
var<workgroup> shared_maxima: array<Reduced, THREADS>;

fn sum_over(x: Reduced, me: Lanes) -> Reduced {
    shared_sums[me.thread] = x;
    workgroupBarrier();
    var sum = Reduced();
    for (var i = 0u; i < THREADS; i++) {
        sum += shared_sums[i];
    }
    return sum;
}

// What was written before it is seen after it.
fn sum_and_sync(x: Reduced, me: Lanes) -> Reduced {
    return sum_over(x, me);
}

fn max_over(x: Reduced, me: Lanes) -> Reduced {
    shared_maxima[me.thread] = x;
    workgroupBarrier();
    var largest = x;
    for (var i = 0u; i < THREADS; i++) {
        largest = max(largest, shared_maxima[i]);
    }
    return largest;
}
