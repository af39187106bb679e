// Sums and maxima of `Reduced` over a workgroup of 8, 16, 64 or 256 threads, through shared memory. They are trees:
// each level adds the upper half of the values to the lower half, until one is left. So the number of threads fixes the order.

var<workgroup> shared_sums: array<Reduced, THREADS>;
var<workgroup> shared_maxima: array<Reduced, THREADS>;

// Two levels of the tree at once.
fn sum_of_four(i: u32, step: u32) -> Reduced {
    return (shared_sums[i] + shared_sums[i + 2u * step]) + (shared_sums[i + step] + shared_sums[i + 3u * step]);
}

fn add_fours(step: u32, thread: u32) {
    if thread < step {
        shared_sums[thread] = sum_of_four(thread, step);
    }
    workgroupBarrier();
}

// What was written before it is seen after it.
fn sum_over(x: Reduced, thread: u32) -> Reduced {
    shared_sums[thread] = x;
    workgroupBarrier();
    if THREADS > 64u {
        add_fours(64u, thread);
    }
    if THREADS > 16u {
        add_fours(16u, thread);
    }
    // The last levels every thread makes for itself, which takes no barrier.
    if THREADS == 8u {
        return sum_of_four(0u, 2u) + sum_of_four(1u, 2u);
    }
    return (sum_of_four(0u, 4u) + sum_of_four(2u, 4u)) + (sum_of_four(1u, 4u) + sum_of_four(3u, 4u));
}

fn max_of_four(i: u32, step: u32) -> Reduced {
    return max(
        max(shared_maxima[i], shared_maxima[i + 2u * step]),
        max(shared_maxima[i + step], shared_maxima[i + 3u * step]));
}

fn take_largest(step: u32, thread: u32) {
    if thread < step {
        shared_maxima[thread] = max_of_four(thread, step);
    }
    workgroupBarrier();
}

fn max_over(x: Reduced, thread: u32) -> Reduced {
    shared_maxima[thread] = x;
    workgroupBarrier();
    if THREADS > 64u {
        take_largest(64u, thread);
    }
    if THREADS > 16u {
        take_largest(16u, thread);
    }
    if THREADS == 8u {
        return max(max_of_four(0u, 2u), max_of_four(1u, 2u));
    }
    return max(max(max_of_four(0u, 4u), max_of_four(2u, 4u)), max(max_of_four(1u, 4u), max_of_four(3u, 4u)));
}
