// What `value` needs of a block with a scale and a minimum.
alias Factors = vec2<f32>;

fn factors(r: Raw) -> Factors {
    return r.scale_min;
}
