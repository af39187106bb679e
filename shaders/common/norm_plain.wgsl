// A normed row, stored.
fn put(row: u32, start: u32, scale: f32, thread: u32) {
    for (var i = thread; i < p.stride; i += THREADS) {
        h[row * p.stride + i] = normed(start, i, scale);
    }
}
