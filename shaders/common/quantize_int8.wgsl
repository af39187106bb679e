// Whole numbers from -127 to 127, four in a word.
const MOST = 127.0;

// Stores half a block, gives its sum.
fn sixteen(to: u32, half: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> f32 {
    let i = vec4<i32>(round(a));
    let j = vec4<i32>(round(b));
    let k = vec4<i32>(round(c));
    let l = vec4<i32>(round(d));
    prepared[to + 8u * half] = vec4<u32>(pack4xI8(i), pack4xI8(j), pack4xI8(k), pack4xI8(l));
    let sum = (i + j) + (k + l);
    return f32((sum.x + sum.y) + (sum.z + sum.w));
}
