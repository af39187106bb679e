// A head on its way into the cache. Needs halves.wgsl and stored.wgsl.

// Zero beyond the head.
var<workgroup> head: array<f32, 576>;

fn largest_of(block: u32) -> f32 {
    var largest = 0.0;
    if 32u * block < p.head_dim {
        for (var i = 32u * block; i < 32u * block + 32u; i++) {
            largest = max(largest, abs(head[i]));
        }
    }
    return largest;
}

// Four whole numbers, of which the largest of a block is 127. What is as small as that limit has a scale of zero.
fn packed_bytes(i: u32) -> u32 {
    let largest = largest_of(i / 8u);
    let factor = select(0.0, 127.0 / largest, largest > 1e-30);
    let x = vec4<f32>(head[4u * i], head[4u * i + 1u], head[4u * i + 2u], head[4u * i + 3u]);
    return pack4xI8(vec4<i32>(round(x * factor)));
}

// The nearest upper half of a float, and of two that are as near the even one.
fn brain_of(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 0x40u; // no number
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

// How the numbers of a block become nibbles: divided by the scale, counted from the minimum.
struct Fit { scale: f32, minimum: f32, factor: f32 }

// Of a block that is nearly zero.
const SMALLEST = 1e-30;

// Over a whole block: the number farthest from zero, the lowest one and the largest.
fn limits_of(block: u32) -> vec3<f32> {
    let first = head[32u * block];
    var limits = vec3<f32>(first);
    for (var i = 32u * block + 1u; i < 32u * block + 32u; i++) {
        let x = head[i];
        limits.x = select(limits.x, x, abs(x) > abs(limits.x));
        limits.y = min(limits.y, x);
        limits.z = max(limits.z, x);
    }
    return limits;
}

fn fit_of(block: u32, stored: u32) -> Fit {
    let limits = limits_of(block);
    if has(stored, MINIMUM) {
        let steps = select(15.0, 31.0, has(stored, FIFTH));
        let span = limits.z - limits.y;
        return Fit(span / steps, limits.y, select(0.0, steps / span, span > SMALLEST));
    }
    // The number farthest from zero comes to the first of them, whatever its sign.
    var first = select(-8.0, -16.0, has(stored, FIFTH));
    if has(stored, LEVELS) {
        first = -127.0;
    }
    let is_zero = abs(limits.x) <= SMALLEST;
    var fit = Fit(limits.x / first, 0.0, select(first / limits.x, 0.0, is_zero));
    if has(stored, LEVELS) && !is_zero {
        var products = 0.0;
        var squares = 0.0;
        // As shares of the farthest number, whose fourth power may be none.
        for (var i = 32u * block; i < 32u * block + 32u; i++) {
            let x = head[i] * fit.factor;
            let at = level(nearest_level(x));
            products += x * x * at * x;
            squares += x * x * at * at;
        }
        fit.scale *= products / squares;
    }
    return fit;
}

// Of two levels as near the upper one.
fn nearest_level(x: f32) -> u32 {
    var at = 0u;
    while at < 15u && x >= level(at + 1u) {
        at++;
    }
    if at < 15u && x - level(at) >= level(at + 1u) - x {
        at++;
    }
    return at;
}

// What the number at `i` becomes, of four or five bits.
fn code_of(i: u32, stored: u32, fit: Fit) -> u32 {
    if has(stored, LEVELS) {
        return nearest_level(head[i] * fit.factor);
    }
    let most = select(15.0, 31.0, has(stored, FIFTH));
    let middle = select(select(8.0, 16.0, has(stored, FIFTH)), 0.0, has(stored, MINIMUM));
    return u32(clamp((head[i] - fit.minimum) * fit.factor + middle + 0.5, 0.0, most));
}

// Zero beyond the head.
fn scale_of(block: u32, stored: u32) -> f32 {
    if 32u * block >= p.head_dim {
        return 0.0;
    }
    return fit_of(block, stored).scale;
}

// Word `i` of a head in nibbles.
fn word_of_nibbles(i: u32, stored: u32) -> u32 {
    let blocks = p.head_dim / 32u;
    if i < 4u * blocks {
        let block = i / 4u;
        let fit = fit_of(block, stored);
        let first = 32u * block + 4u * (i % 4u);
        var word = 0u;
        for (var j = 0u; j < 4u; j++) {
            let low = code_of(first + j, stored, fit) & 15u;
            let high = code_of(first + 16u + j, stored, fit) & 15u;
            word |= (low | (high << 4u)) << (8u * j);
        }
        return word;
    }
    if has(stored, FIFTH) && i < 5u * blocks {
        let block = i - 4u * blocks;
        let fit = fit_of(block, stored);
        var word = 0u;
        for (var j = 0u; j < 32u; j++) {
            word |= (code_of(32u * block + j, stored, fit) >> 4u) << j;
        }
        return word;
    }
    let at = i - select(4u, 5u, has(stored, FIFTH)) * blocks;
    if has(stored, MINIMUM) {
        if at >= blocks {
            return 0u;
        }
        let fit = fit_of(at, stored);
        return two_halves_of(vec2<f32>(fit.scale, fit.minimum));
    }
    // Not a vector whose components a loop chooses: Microsoft's older compiler would have to unroll all of it.
    return two_halves_of(vec2<f32>(scale_of(2u * at, stored), scale_of(2u * at + 1u, stored)));
}

// Word `i` of the head as it is stored.
fn word(i: u32, stored: u32) -> u32 {
    if stored == IN_F32 {
        return bitcast<u32>(head[i]);
    }
    if stored == IN_F16 {
        return two_halves_of(vec2<f32>(head[2u * i], head[2u * i + 1u]));
    }
    if stored == IN_BF16 {
        return brain_of(head[2u * i]) | (brain_of(head[2u * i + 1u]) << 16u);
    }
    if stored >= IN_NIBBLES {
        return word_of_nibbles(i, stored);
    }
    let bytes = p.head_dim / 4u;
    if i < bytes {
        return packed_bytes(i);
    }
    let block = 2u * (i - bytes);
    return two_halves_of(vec2<f32>(largest_of(block), largest_of(block + 1u)) / 127.0);
}
