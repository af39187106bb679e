// Four levels of a table by their numbers, which are bytes. Needs a text with the table (`level`).
fn levels(bytes: u32) -> vec4<f32> {
    return vec4<f32>(
        level(bytes & 15u), level((bytes >> 8u) & 15u), level((bytes >> 16u) & 15u), level(bytes >> 24u));
}
