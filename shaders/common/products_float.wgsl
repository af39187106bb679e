// The products of a block of a team's rows with one to eight columns, in f32. A weight is factor·(number - offset) + summand.
// Numbers are multiplied as they are stored; offsets and summands meet the sum of activations, and factors the sum of
// products. Needs the text of a format (load, numbers, offset), of its scales (factor, summand; APART: the halves of a block
// have their own; LIFTS: there are summands) and of activations (x_*).

override COLUMNS: u32 = 1u;

struct Weights { a: Raw, b: Raw, c: Raw, d: Raw }

// Four numbers of each row.
struct Quads { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

// What a block's sum begins with: what is to be taken off. Where halves are told apart that comes last, for want of
// registers.
fn begun(at: u32) -> vec4<f32> {
    // Zero times a sum is more than zero to a compiler.
    if APART || offset() == 0.0 { return vec4<f32>(0.0); }
    return vec4<f32>(-offset() * x_sum(at, 0u));
}

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

fn scaled(a: Raw, b: Raw, x: f32, half: u32, dots: vec2<f32>, sums: vec2<f32>) -> vec2<f32> {
    var d = dots;
    if APART && offset() != 0.0 { d = fma(vec2<f32>(-offset()), vec2<f32>(x), d); }
    let s = fma(vec2<f32>(factor(a, half), factor(b, half)), d, sums);
    if LIFTS { return fma(vec2<f32>(summand(a, half), summand(b, half)), vec2<f32>(x), s); }
    return s;
}

fn ended(w: Weights, at: u32, half: u32, dots: vec4<f32>, sums: vec4<f32>) -> vec4<f32> {
    let x = x_sum(at, half);
    let low = scaled(w.a, w.b, x, half, dots.xy, sums.xy);
    if EACH > 2u { return vec4<f32>(low, scaled(w.c, w.d, x, half, dots.zw, sums.zw)); }
    return vec4<f32>(low, 0.0, 0.0);
}

// The same of each column. `at`: of the first column's block, the next one's is `next` further.
fn all_begun(at: u32, next: u32) -> Sums {
    var s = Sums();
    s.c0 = begun(at);
    if COLUMNS > 1u { s.c1 = begun(at + next); }
    if COLUMNS > 2u { s.c2 = begun(at + 2u * next); }
    if COLUMNS > 3u { s.c3 = begun(at + 3u * next); }
    if COLUMNS > 4u { s.c4 = begun(at + 4u * next); }
    if COLUMNS > 5u { s.c5 = begun(at + 5u * next); }
    if COLUMNS > 6u { s.c6 = begun(at + 6u * next); }
    if COLUMNS > 7u { s.c7 = begun(at + 7u * next); }
    return s;
}

fn all_ended(w: Weights, at: u32, next: u32, half: u32, dots: Sums, sums: Sums) -> Sums {
    var s = sums;
    s.c0 = ended(w, at, half, dots.c0, s.c0);
    if COLUMNS > 1u { s.c1 = ended(w, at + next, half, dots.c1, s.c1); }
    if COLUMNS > 2u { s.c2 = ended(w, at + 2u * next, half, dots.c2, s.c2); }
    if COLUMNS > 3u { s.c3 = ended(w, at + 3u * next, half, dots.c3, s.c3); }
    if COLUMNS > 4u { s.c4 = ended(w, at + 4u * next, half, dots.c4, s.c4); }
    if COLUMNS > 5u { s.c5 = ended(w, at + 5u * next, half, dots.c5, s.c5); }
    if COLUMNS > 6u { s.c6 = ended(w, at + 6u * next, half, dots.c6, s.c6); }
    if COLUMNS > 7u { s.c7 = ended(w, at + 7u * next, half, dots.c7, s.c7); }
    return s;
}

// Adds the products of quad `q`, which stands at `at`.
fn step(sums: Sums, weights: Weights, at: u32, next: u32, q: u32) -> Sums {
    var w: Quads;
    w.a = numbers(weights.a, q);
    w.b = numbers(weights.b, q);
    if EACH > 2u {
        w.c = numbers(weights.c, q);
        w.d = numbers(weights.d, q);
    }
    var s = sums;
    s.c0 = chain(w, x[at], s.c0);
    if COLUMNS > 1u { s.c1 = chain(w, x[at + next], s.c1); }
    if COLUMNS > 2u { s.c2 = chain(w, x[at + 2u * next], s.c2); }
    if COLUMNS > 3u { s.c3 = chain(w, x[at + 3u * next], s.c3); }
    if COLUMNS > 4u { s.c4 = chain(w, x[at + 4u * next], s.c4); }
    if COLUMNS > 5u { s.c5 = chain(w, x[at + 5u * next], s.c5); }
    if COLUMNS > 6u { s.c6 = chain(w, x[at + 6u * next], s.c6); }
    if COLUMNS > 7u { s.c7 = chain(w, x[at + 7u * next], s.c7); }
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
    let at = X_QUADS * (first_x() + block);
    let next = X_QUADS * p.x_stride;
    var s = sums;
    var dots = step(all_begun(at, next), w, at, next, 0u);
    dots = step(dots, w, at + 1u, next, 1u);
    dots = step(dots, w, at + 2u, next, 2u);
    dots = step(dots, w, at + 3u, next, 3u);
    if APART {
        s = all_ended(w, at, next, 0u, dots, s);
        dots = Sums();
    }
    dots = step(dots, w, at + 4u, next, 4u);
    dots = step(dots, w, at + 5u, next, 5u);
    dots = step(dots, w, at + 6u, next, 6u);
    dots = step(dots, w, at + 7u, next, 7u);
    return all_ended(w, at, next, 1u, dots, s);
}
