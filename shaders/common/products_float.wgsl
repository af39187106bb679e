// The products of a block of two rows with one to eight columns, one weight after the other. Needs the text of a
// format (load, quad).

override COLUMNS: u32 = 1u;

@group(0) @binding(5) var<storage, read> x: array<vec4<f32>>; // [columns, x_stride]

fn chain(a: vec4<f32>, b: vec4<f32>, x: vec4<f32>, sums: vec2<f32>) -> vec2<f32> {
    var s = fma(vec2<f32>(a.x, b.x), vec2<f32>(x.x), sums);
    s = fma(vec2<f32>(a.y, b.y), vec2<f32>(x.y), s);
    s = fma(vec2<f32>(a.z, b.z), vec2<f32>(x.z), s);
    return fma(vec2<f32>(a.w, b.w), vec2<f32>(x.w), s);
}

// Adds the products of one quad; `at` is its place in a row of x.
fn step(sums: Sums, a: Raw, b: Raw, at: u32, q: u32) -> Sums {
    let wa = quad(a, q);
    let wb = quad(b, q);
    var s = sums;
    s.c0 = chain(wa, wb, x[at], s.c0);
    if COLUMNS > 1u { s.c1 = chain(wa, wb, x[at + p.x_stride], s.c1); }
    if COLUMNS > 2u { s.c2 = chain(wa, wb, x[at + 2u * p.x_stride], s.c2); }
    if COLUMNS > 3u { s.c3 = chain(wa, wb, x[at + 3u * p.x_stride], s.c3); }
    if COLUMNS > 4u { s.c4 = chain(wa, wb, x[at + 4u * p.x_stride], s.c4); }
    if COLUMNS > 5u { s.c5 = chain(wa, wb, x[at + 5u * p.x_stride], s.c5); }
    if COLUMNS > 6u { s.c6 = chain(wa, wb, x[at + 6u * p.x_stride], s.c6); }
    if COLUMNS > 7u { s.c7 = chain(wa, wb, x[at + 7u * p.x_stride], s.c7); }
    return s;
}

fn products(sums: Sums, row_a: u32, row_b: u32, block: u32) -> Sums {
    let a = load(row_a + block);
    let b = load(row_b + block);
    let at = first_x() + 8u * block;
    var s = step(sums, a, b, at, 0u);
    s = step(s, a, b, at + 1u, 1u);
    s = step(s, a, b, at + 2u, 2u);
    s = step(s, a, b, at + 3u, 3u);
    s = step(s, a, b, at + 4u, 4u);
    s = step(s, a, b, at + 5u, 5u);
    s = step(s, a, b, at + 6u, 6u);
    return step(s, a, b, at + 7u, 7u);
}
