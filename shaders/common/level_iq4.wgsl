// The sixteen levels of IQ4_NL and IQ4_XS, as bytes.
fn level(nibble: u32) -> f32 {
    let words = vec4<u32>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
    return f32(i32(words[nibble >> 2u] << (24u - 8u * (nibble & 3u))) >> 24u);
}
