// What `value` needs of a block with one scale.
alias Factors = f32;

fn factors(r: Raw) -> Factors {
    return r.scale;
}
