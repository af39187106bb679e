// Halves from -1 to 1, two in a word.
const ROUNDED_QUADS = 5u;
const MOST = 1.0;

fn two_words(a: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(pack2x16float(a.xy), pack2x16float(a.zw));
}

fn numbers(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

// Stores half a block, gives its sum.
fn sixteen(to: u32, half: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> f32 {
    let i = two_words(a);
    let j = two_words(b);
    let k = two_words(c);
    let l = two_words(d);
    rounded[to + 2u * half] = vec4<u32>(i, j);
    rounded[to + 2u * half + 1u] = vec4<u32>(k, l);
    let sum = (numbers(i) + numbers(j)) + (numbers(k) + numbers(l));
    return (sum.x + sum.y) + (sum.z + sum.w);
}
