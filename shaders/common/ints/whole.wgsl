// A block has one scale, so sums of products of its halves are one: of whole numbers, which f32 holds exactly.
alias Dots = f32;

fn dots(first: i32, second: i32) -> Dots {
    return f32(first + second);
}

fn dots_of_floats(first: f32, second: f32) -> Dots {
    return first + second;
}
