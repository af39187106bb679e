// The whole numbers of a packed matrix whose nibbles are numbers of levels. Needs packed.wgsl, and a text with the table
// (`level`).

// By two nibbles: both levels as bytes, that of the upper one two bytes above the other.
var<workgroup> pairs: array<u32, 256>;

fn level_byte(nibble: u32) -> u32 {
    return bitcast<u32>(i32(level(nibble))) & 255u;
}

// Is followed by a barrier.
fn prepare(thread: u32) {
    for (var pair = thread; pair < 256u; pair += 128u) {
        pairs[pair] = level_byte(pair & 15u) | (level_byte(pair >> 4u) << 16u);
    }
}

// Two bytes of nibbles: the lower two levels, then the upper two.
fn four_levels(word: u32, shift: u32) -> u32 {
    return pairs[(word >> shift) & 255u] | (pairs[(word >> (shift + 8u)) & 255u] << 8u);
}

// The levels of a word's lower nibbles and of its upper ones.
fn levels_of(word: u32) -> vec2<u32> {
    let first = four_levels(word, 0u);
    let second = four_levels(word, 16u);
    return vec2<u32>((first & 0xffffu) | (second << 16u), (first >> 16u) | (second & 0xffff0000u));
}

fn whole_numbers(a: At) -> Numbers {
    let words = four_high(a, 0u);
    let a0 = levels_of(words.x);
    let a1 = levels_of(words.y);
    let a2 = levels_of(words.z);
    let a3 = levels_of(words.w);
    return Numbers(vec4<u32>(a0.x, a1.x, a2.x, a3.x), vec4<u32>(a0.y, a1.y, a2.y, a3.y));
}
