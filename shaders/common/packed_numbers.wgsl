// The whole numbers of a packed matrix whose bits are numbers. Needs packed.wgsl.

const SIGN: vec4<u32> = vec4<u32>(0x80808080u);
const ONE: vec4<u32> = vec4<u32>(0x01010101u);
const THREE: vec4<u32> = vec4<u32>(0x03030303u);

// Shifts of what lies side by side in a byte.
const ONES: vec4<u32> = vec4<u32>(0u, 1u, 2u, 3u);
const TWOS: vec4<u32> = vec4<u32>(0u, 2u, 4u, 6u);
const FOUR: vec4<u32> = vec4<u32>(4u);

fn prepare(thread: u32) {}

fn ones(word: u32) -> Numbers {
    let bits = vec4<u32>(word);
    return Numbers((bits >> ONES) & ONE, (bits >> (ONES + FOUR)) & ONE);
}

fn twos(first: u32, second: u32) -> Numbers {
    return Numbers((vec4<u32>(first) >> TWOS) & THREE, (vec4<u32>(second) >> TWOS) & THREE);
}

// The upper bits of numbers.
fn upper(a: At) -> Numbers {
    if HIGH == 1u {
        return ones(high(a, 0u));
    }
    if HIGH == 2u {
        return twos(high(a, 0u), high(a, 1u));
    }
    let words = four_high(a, 0u);
    return Numbers(words & NIBBLE, (words >> FOUR) & NIBBLE);
}

fn joined(upper: Numbers, bits: u32, lower: Numbers) -> Numbers {
    let by = vec4<u32>(bits);
    return Numbers((upper.first << by) | lower.first, (upper.second << by) | lower.second);
}

fn whole_numbers(a: At) -> Numbers {
    if HIGH == 8u {
        return Numbers(four_high(a, 0u) ^ SIGN, four_high(a, 4u) ^ SIGN);
    }
    let numbers = upper(a);
    if HIGH == 1u && !ALONE {
        // They are one below and one above zero, by an offset of one.
        return joined(numbers, 1u, Numbers(vec4<u32>(0u), vec4<u32>(0u)));
    }
    if LOW == 1u {
        return joined(numbers, 1u, ones(low(a, 0u)));
    }
    if LOW == 2u {
        return joined(numbers, 2u, twos(low(a, 0u), low(a, 1u)));
    }
    if LOW == 4u {
        let words = vec4<u32>(low(a, 0u), low(a, 1u), low(a, 2u), low(a, 3u));
        let eight = joined(numbers, 4u, Numbers(words & NIBBLE, (words >> FOUR) & NIBBLE));
        return Numbers(eight.first ^ SIGN, eight.second ^ SIGN);
    }
    return numbers;
}
