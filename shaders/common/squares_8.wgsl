// Matrices of 8 by 8 that the threads of a subgroup hold and multiply together, and where their numbers lie meanwhile: one in
// an element, as Metal wants them.
alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Sums = coop_mat8x8<f32, C>;
const SQUARE: u32 = 8u;

var<workgroup> w_tile: array<f16, W_TILE>;
var<workgroup> x_tile: array<f16, X_TILE>;
var<workgroup> products: array<f32, PRODUCTS>;

fn bring_weights(at: u32, four: vec4<f16>) {
    w_tile[at] = four.x;
    w_tile[at + 1u] = four.y;
    w_tile[at + 2u] = four.z;
    w_tile[at + 3u] = four.w;
}

fn bring_activations(at: u32, four: vec4<f16>) {
    x_tile[at] = four.x;
    x_tile[at + 1u] = four.y;
    x_tile[at + 2u] = four.z;
    x_tile[at + 3u] = four.w;
}

fn left_of(at: u32) -> Left {
    return coopLoadT<Left>(&w_tile[at], TILE_STRIDE);
}

fn right_of(at: u32) -> Right {
    return coopLoad<Right>(&x_tile[at], TILE_STRIDE);
}

fn leave(sums: Sums, at: u32) {
    coopStore(sums, &products[at], PRODUCTS_STRIDE);
}

fn four_products(at: u32) -> vec4<f32> {
    return vec4<f32>(products[at], products[at + 1u], products[at + 2u], products[at + 3u]);
}
