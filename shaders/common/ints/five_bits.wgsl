// 0 to 31; coarse, the upper four bits alone, 0 to 15.
fn fifth(low: u32, q: u32) -> u32 {
    let bits = low >> (4u * q);
    return (bits & 1u) | ((bits & 2u) << 7u) | ((bits & 4u) << 14u) | ((bits & 8u) << 21u);
}

fn five_bit_ints(high: vec4<u32>, low: u32) -> Ints {
    let upper = plane_ints(high);
    if COARSE {
        return upper;
    }
    return Ints(
        (upper.first << vec4<u32>(1u)) | vec4<u32>(fifth(low, 0u), fifth(low, 1u), fifth(low, 2u), fifth(low, 3u)),
        (upper.second << vec4<u32>(1u)) | vec4<u32>(fifth(low, 4u), fifth(low, 5u), fifth(low, 6u), fifth(low, 7u)));
}
