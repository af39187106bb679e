// What `value` needs of a block with a scale for each half.
alias Factors = vec2<f32>;

fn factors(r: Raw) -> Factors {
    return r.scales;
}
