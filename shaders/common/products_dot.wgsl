// The products of a block of a team's rows with one to eight columns, sixteen at a time. Needs the texts of a format
// (load), of its parts (part) and of dots.

override COLUMNS: u32 = 1u;

struct Weights { a: Part, b: Part, c: Part, d: Part }

struct Column { first: Sixteen, second: Sixteen, about: vec4<f32> }

fn pair(a: Part, b: Part, c: Column, sums: vec2<f32>) -> vec2<f32> {
    let values = vec2<f32>(
        value(a.factors, dots(dot16(a.first, c.first), dot16(a.second, c.second)), c.about.yz),
        value(b.factors, dots(dot16(b.first, c.first), dot16(b.second, c.second)), c.about.yz));
    return fma(values, vec2<f32>(c.about.x), sums);
}

fn add(w: Weights, block: u32, sums: vec4<f32>) -> vec4<f32> {
    let at = place_of(block);
    let column = Column(activations(at, 0u), activations(at, 1u), scale_and_sums(at));
    let low = pair(w.a, w.b, column, sums.xy);
    if EACH > 2u { return vec4<f32>(low, pair(w.c, w.d, column, sums.zw)); }
    return vec4<f32>(low, 0.0, 0.0);
}

fn products(sums: Sums, rows: vec4<u32>, block: u32) -> Sums {
    var w: Weights;
    w.a = part(load(rows.x + block));
    w.b = part(load(rows.y + block));
    if EACH > 2u {
        w.c = part(load(rows.z + block));
        w.d = part(load(rows.w + block));
    }
    let at = first_x() + block;
    var s = sums;
    s.c0 = add(w, at, s.c0);
    if COLUMNS > 1u { s.c1 = add(w, at + p.x_stride, s.c1); }
    if COLUMNS > 2u { s.c2 = add(w, at + 2u * p.x_stride, s.c2); }
    if COLUMNS > 3u { s.c3 = add(w, at + 3u * p.x_stride, s.c3); }
    if COLUMNS > 4u { s.c4 = add(w, at + 4u * p.x_stride, s.c4); }
    if COLUMNS > 5u { s.c5 = add(w, at + 5u * p.x_stride, s.c5); }
    if COLUMNS > 6u { s.c6 = add(w, at + 6u * p.x_stride, s.c6); }
    if COLUMNS > 7u { s.c7 = add(w, at + 7u * p.x_stride, s.c7); }
    return s;
}
