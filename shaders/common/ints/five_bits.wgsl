// 0 to 31; coarse, the upper four bits alone, 0 to 15.
fn fifth(low: u32, q: u32) -> u32 {
    let bits = low >> (4u * q);
    return (bits & 1u) | ((bits & 2u) << 7u) | ((bits & 4u) << 14u) | ((bits & 8u) << 21u);
}

fn ints(r: Raw) -> Ints {
    let upper = plane_ints(r.high);
    if COARSE {
        return upper;
    }
    return Ints(
        (upper.first << vec4<u32>(1u)) | vec4<u32>(fifth(r.low, 0u), fifth(r.low, 1u), fifth(r.low, 2u), fifth(r.low, 3u)),
        (upper.second << vec4<u32>(1u)) | vec4<u32>(fifth(r.low, 4u), fifth(r.low, 5u), fifth(r.low, 6u), fifth(r.low, 7u)));
}
