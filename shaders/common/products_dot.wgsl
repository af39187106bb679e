// The products of a block of two rows with one to eight columns, sixteen at a time. Needs the texts of a format
// (load), of its parts (part) and of dots.

override COLUMNS: u32 = 1u;

fn add(a: Part, b: Part, at: u32, sums: vec2<f32>) -> vec2<f32> {
    let first = activations(at, 0u);
    let second = activations(at, 1u);
    let about = scale_and_sums(at);
    let values = vec2<f32>(
        value(a.factors, vec2<f32>(dot16(a.first, first), dot16(a.second, second)), about.yz),
        value(b.factors, vec2<f32>(dot16(b.first, first), dot16(b.second, second)), about.yz));
    return fma(values, vec2<f32>(about.x), sums);
}

fn products(sums: Sums, row_a: u32, row_b: u32, block: u32) -> Sums {
    let a = part(load(row_a + block));
    let b = part(load(row_b + block));
    let at = first_x() + X_BLOCK * block;
    var s = sums;
    s.c0 = add(a, b, at, s.c0);
    if COLUMNS > 1u { s.c1 = add(a, b, at + p.x_stride, s.c1); }
    if COLUMNS > 2u { s.c2 = add(a, b, at + 2u * p.x_stride, s.c2); }
    if COLUMNS > 3u { s.c3 = add(a, b, at + 3u * p.x_stride, s.c3); }
    if COLUMNS > 4u { s.c4 = add(a, b, at + 4u * p.x_stride, s.c4); }
    if COLUMNS > 5u { s.c5 = add(a, b, at + 5u * p.x_stride, s.c5); }
    if COLUMNS > 6u { s.c6 = add(a, b, at + 6u * p.x_stride, s.c6); }
    if COLUMNS > 7u { s.c7 = add(a, b, at + 7u * p.x_stride, s.c7); }
    return s;
}
