// Whole numbers of two bits, 0 to 3.
fn ints(r: Raw) -> Ints {
    return Ints(
        vec4<u32>(bytes_of(r.high, 0u), bytes_of(r.high, 1u), bytes_of(r.high, 2u), bytes_of(r.high, 3u)),
        vec4<u32>(bytes_of(r.high, 4u), bytes_of(r.high, 5u), bytes_of(r.high, 6u), bytes_of(r.high, 7u)));
}
