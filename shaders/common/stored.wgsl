// How keys and values are stored: as numbers, as halves of either kind, as whole numbers of eight bits, or as nibbles.
// The last two are in blocks of 32. A row has the whole numbers of all blocks; then, where there are five bits, a word
// for each block with the fifth ones; then a half for each block, its scale, or two with its minimum.

const IN_F32 = 0u;
const IN_F16 = 1u;
const IN_Q8_0 = 2u;
const IN_BF16 = 3u;
// With some of these added.
const IN_NIBBLES = 8u;
const FIFTH = 1u;
const MINIMUM = 2u;
const LEVELS = 4u;

override KEYS: u32 = IN_F32;
override VALUES: u32 = IN_F32;

fn has(stored: u32, what: u32) -> bool {
    return stored >= IN_NIBBLES && (stored & what) != 0u;
}
