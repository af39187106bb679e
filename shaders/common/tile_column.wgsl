// A column's part of a tile, and its product with a row's. Needs part.wgsl.

struct Column { first: Sixteen, second: Sixteen, about: vec4<f32> }

fn one(w: Part, c: Column) -> f32 {
    return value(w.factors, dots(dot16(w.first, c.first), dot16(w.second, c.second)), c.about.yz);
}
