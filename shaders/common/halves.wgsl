// Halves in words by whole numbers, because devices differ in how they round to halves and in whether they see subnormal
// ones.

// The nearest half, and of two that are as near the even one.
fn half_of(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u; // no number
    }
    if size >= 0x47800000u {
        return sign | 0x7c00u; // 65536 and more
    }
    // Below 2^-14 a half counts units of 2^-24; else it has another exponent, and 13 bits less.
    let is_subnormal = size < 0x38800000u;
    let whole = select(size - 0x38000000u, (size & 0x7fffffu) | 0x800000u, is_subnormal);
    let away = select(13u, min(126u - (size >> 23u), 25u), is_subnormal);
    let even = (whole >> away) & 1u;
    return sign | ((whole + (1u << (away - 1u)) - 1u + even) >> away);
}

fn two_halves_of(x: vec2<f32>) -> u32 {
    return half_of(x.x) | (half_of(x.y) << 16u);
}

// Whether the device takes subnormal halves for zero.
override FLUSHES_HALVES: bool = false;

fn number_of_half(half: u32) -> f32 {
    let sign = (half & 0x8000u) << 16u;
    let size = half & 0x7fffu;
    let units = f32(size) * 5.9604645e-8; // 2^-24
    let normal = (size << 13u) + select(0x38000000u, 0x70000000u, size >= 0x7c00u);
    return bitcast<f32>(sign | select(normal, bitcast<u32>(units), size < 0x400u));
}

fn halves_in(word: u32) -> vec2<f32> {
    if FLUSHES_HALVES {
        return vec2<f32>(number_of_half(word & 0xffffu), number_of_half(word >> 16u));
    }
    return unpack2x16float(word);
}
