// Whole numbers of a block's weights, a byte each: of its first sixteen, and of the others.
struct Ints { first: vec4<u32>, second: vec4<u32> }

// 0 to 15, from a plane of four bits.
fn plane_ints(plane: vec4<u32>) -> Ints {
    let even = plane & vec4<u32>(0x0f0f0f0fu);
    let odd = (plane >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    return Ints(vec4<u32>(even.x, odd.x, even.y, odd.y), vec4<u32>(even.z, odd.z, even.w, odd.w));
}
