// cap · tanh(x / cap), by an exponential that is finite.
fn capped(x: f32, cap: f32) -> f32 {
    return cap * (1.0 - 2.0 / (exp(min(2.0 * (x / cap), 88.0)) + 1.0));
}
