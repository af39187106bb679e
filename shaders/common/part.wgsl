// A block of weights as dots want it: whole numbers, and by what `value` makes a sum of products of theirs. Needs
// the texts of a format (ints, factors, value) and of dots (weights).

struct Part { first: Sixteen, second: Sixteen, factors: Factors }

fn part(r: Raw) -> Part {
    let i = ints(r);
    return Part(weights(i.first), weights(i.second), factors(r));
}
