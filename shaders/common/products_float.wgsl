// The products of a block of a team's rows with one to eight columns, one weight after the other. Needs the text of a
// format (load, quad).

override COLUMNS: u32 = 1u;

@group(0) @binding(5) var<storage, read> x: array<vec4<f32>>; // [columns, x_stride]

struct Weights { a: Raw, b: Raw, c: Raw, d: Raw }

// Four weights of each row.
struct Quads { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

fn pair(a: vec4<f32>, b: vec4<f32>, x: vec4<f32>, sums: vec2<f32>) -> vec2<f32> {
    var s = fma(vec2<f32>(a.x, b.x), vec2<f32>(x.x), sums);
    s = fma(vec2<f32>(a.y, b.y), vec2<f32>(x.y), s);
    s = fma(vec2<f32>(a.z, b.z), vec2<f32>(x.z), s);
    return fma(vec2<f32>(a.w, b.w), vec2<f32>(x.w), s);
}

fn chain(w: Quads, x: vec4<f32>, sums: vec4<f32>) -> vec4<f32> {
    let low = pair(w.a, w.b, x, sums.xy);
    if EACH > 2u { return vec4<f32>(low, pair(w.c, w.d, x, sums.zw)); }
    return vec4<f32>(low, 0.0, 0.0);
}

// Adds the products of one quad; `at` is its place in a row of x.
fn step(sums: Sums, weights: Weights, at: u32, q: u32) -> Sums {
    var w: Quads;
    w.a = quad(weights.a, q);
    w.b = quad(weights.b, q);
    if EACH > 2u {
        w.c = quad(weights.c, q);
        w.d = quad(weights.d, q);
    }
    var s = sums;
    s.c0 = chain(w, x[at], s.c0);
    if COLUMNS > 1u { s.c1 = chain(w, x[at + p.x_stride], s.c1); }
    if COLUMNS > 2u { s.c2 = chain(w, x[at + 2u * p.x_stride], s.c2); }
    if COLUMNS > 3u { s.c3 = chain(w, x[at + 3u * p.x_stride], s.c3); }
    if COLUMNS > 4u { s.c4 = chain(w, x[at + 4u * p.x_stride], s.c4); }
    if COLUMNS > 5u { s.c5 = chain(w, x[at + 5u * p.x_stride], s.c5); }
    if COLUMNS > 6u { s.c6 = chain(w, x[at + 6u * p.x_stride], s.c6); }
    if COLUMNS > 7u { s.c7 = chain(w, x[at + 7u * p.x_stride], s.c7); }
    return s;
}

fn products(sums: Sums, rows: vec4<u32>, block: u32) -> Sums {
    var w: Weights;
    w.a = load(rows.x + block);
    w.b = load(rows.y + block);
    if EACH > 2u {
        w.c = load(rows.z + block);
        w.d = load(rows.w + block);
    }
    let at = first_x() + 8u * block;
    var s = step(sums, w, at, 0u);
    s = step(s, w, at + 1u, 1u);
    s = step(s, w, at + 2u, 2u);
    s = step(s, w, at + 3u, 3u);
    s = step(s, w, at + 4u, 4u);
    s = step(s, w, at + 5u, 5u);
    s = step(s, w, at + 6u, 6u);
    return step(s, w, at + 7u, 7u);
}
