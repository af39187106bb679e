// Whole numbers that are levels of a table.
fn level_bytes(bytes: u32) -> u32 {
    return pack4xI8(vec4<i32>(levels(bytes)));
}

fn ints(r: Raw) -> Ints {
    let i = plane_ints(r.high);
    return Ints(
        vec4<u32>(level_bytes(i.first.x), level_bytes(i.first.y), level_bytes(i.first.z), level_bytes(i.first.w)),
        vec4<u32>(level_bytes(i.second.x), level_bytes(i.second.y), level_bytes(i.second.z), level_bytes(i.second.w)));
}
