// Either half of a block has a scale, so sums of products are told apart.
alias Dots = vec2<f32>;

fn dots(first: i32, second: i32) -> Dots {
    return vec2<f32>(f32(first), f32(second));
}

fn dots_of_floats(first: f32, second: f32) -> Dots {
    return vec2<f32>(first, second);
}
