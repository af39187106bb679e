// Whole numbers of four bits are those of the plane.
fn ints(r: Raw) -> Ints {
    return plane_ints(r.high);
}
