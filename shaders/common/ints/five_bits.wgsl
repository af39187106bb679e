// 0 to 31; coarse, the upper four bits alone, 0 to 15.
fn ints(r: Raw) -> Ints {
    let upper = plane_ints(r.high);
    if COARSE {
        return upper;
    }
    return Ints(
        (upper.first << vec4<u32>(1u)) | vec4<u32>(fifth(r.low, 0u), fifth(r.low, 1u), fifth(r.low, 2u), fifth(r.low, 3u)),
        (upper.second << vec4<u32>(1u)) | vec4<u32>(fifth(r.low, 4u), fifth(r.low, 5u), fifth(r.low, 6u), fifth(r.low, 7u)));
}
