// A block's part of its row's mean square plus eps. A norm divides the row by the root of the sum of these parts. Needs
// block.wgsl.
fn mean_part(in_row: u32, x: Block) -> f32 {
    let first = fma(x.d, x.d, fma(x.c, x.c, fma(x.b, x.b, x.a * x.a)));
    let fours = fma(x.h, x.h, fma(x.g, x.g, fma(x.f, x.f, fma(x.e, x.e, first))));
    let square = (fours.x + fours.y) + (fours.z + fours.w);
    return fma(square, p.per_number, select(0.0, p.eps, in_row == 0u));
}
