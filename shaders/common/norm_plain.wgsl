// Stores a normed row.
fn put(row: u32, start: u32, scale: f32, thread: u32) {
    var i = thread;
    // Four loads are under way at once.
    for (; i + 3u * THREADS < p.stride; i += 4u * THREADS) {
        let a = normed(start, i, scale);
        let b = normed(start, i + THREADS, scale);
        let c = normed(start, i + 2u * THREADS, scale);
        let d = normed(start, i + 3u * THREADS, scale);
        let to = row * p.stride + i;
        h[to] = a;
        h[to + THREADS] = b;
        h[to + 2u * THREADS] = c;
        h[to + 3u * THREADS] = d;
    }
    for (; i < p.stride; i += THREADS) {
        h[row * p.stride + i] = normed(start, i, scale);
    }
}
