// Logits as integers in the order of the sampler: equal for the two zeros, NaN below everything. WGSL promises nothing
// about infinities and NaN in float arithmetic.

const SPAN: u32 = 1024u;
const MOST_SPANS: u32 = 1024u;

const NOTHING: u32 = 0u;
const NAN: u32 = 1u;
const LOWEST_FINITE: u32 = 0x00800000u;
const HIGHEST_FINITE: u32 = 0xff7fffffu;

fn rank(bits: u32) -> u32 {
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return NAN;
    }
    if bits >= 0x80000001u {
        return ~bits;
    }
    return bits | 0x80000000u;
}

fn unrank(key: u32) -> u32 {
    if key <= NAN {
        return 0x7fc00000u;
    }
    return select(~key, key & 0x7fffffffu, key >= 0x80000000u);
}

fn is_finite(key: u32) -> bool {
    return key >= LOWEST_FINITE && key <= HIGHEST_FINITE;
}

// Key and place: the higher key, among equals the lower place.
fn is_better(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}
