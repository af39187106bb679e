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

// Word `i` of the head as it is stored.
fn word(i: u32, stored: u32) -> u32 {
    if stored == IN_F32 {
        return bitcast<u32>(head[i]);
    }
    if stored == IN_F16 {
        return two_halves_of(vec2<f32>(head[2u * i], head[2u * i + 1u]));
    }
    let bytes = p.head_dim / 4u;
    if i < bytes {
        return packed_bytes(i);
    }
    let block = 2u * (i - bytes);
    return two_halves_of(vec2<f32>(largest_of(block), largest_of(block + 1u)) / 127.0);
}
