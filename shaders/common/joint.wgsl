// Running sums are kept as they are, new ones taken in: both relative to the larger maximum.
struct Joint { top: Reduced, keep: Reduced, take: Reduced }

fn joint(top: Reduced, next: Reduced) -> Joint {
    let larger = max(top, next);
    return Joint(larger, exp(top - larger), exp(next - larger));
}
