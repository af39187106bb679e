// Sums and maxima over a workgroup, through shared memory and in the order of the threads.

struct Lanes { @builtin(local_invocation_index) thread: u32 }

var<workgroup> shared_sums: array<f32, 256>;
var<workgroup> shared_maxima: array<f32, 256>;

fn sum_over(x: f32, me: Lanes) -> f32 {
    shared_sums[me.thread] = x;
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < THREADS; i++) {
        sum += shared_sums[i];
    }
    return sum;
}

// What was written before it is seen after it.
fn sum_and_sync(x: f32, me: Lanes) -> f32 {
    return sum_over(x, me);
}

fn max_over(x: f32, me: Lanes) -> f32 {
    shared_maxima[me.thread] = x;
    workgroupBarrier();
    var largest = x;
    for (var i = 0u; i < THREADS; i++) {
        largest = max(largest, shared_maxima[i]);
    }
    return largest;
}
