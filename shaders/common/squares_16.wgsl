// Matrices of 16 by 16 that the threads of a subgroup hold and multiply together, and where their numbers lie meanwhile: four
// in an element, since a thread brings and takes them so.
alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Sums = coop_mat16x16<f32, C>;
const SQUARE: u32 = 16u;

var<workgroup> w_tile: array<vec4<f16>, W_TILE / 4u>;
var<workgroup> x_tile: array<vec4<f16>, X_TILE / 4u>;
var<workgroup> products: array<vec4<f32>, PRODUCTS / 4u>;

fn bring_weights(at: u32, four: vec4<f16>) {
    w_tile[at / 4u] = four;
}

fn bring_activations(at: u32, four: vec4<f16>) {
    x_tile[at / 4u] = four;
}

fn left_of(at: u32) -> Left {
    return coopLoadT<Left>(&w_tile[at / 4u], TILE_STRIDE / 4u);
}

fn right_of(at: u32) -> Right {
    return coopLoad<Right>(&x_tile[at / 4u], TILE_STRIDE / 4u);
}

fn leave(sums: Sums, at: u32) {
    coopStore(sums, &products[at / 4u], PRODUCTS_STRIDE / 4u);
}

fn four_products(at: u32) -> vec4<f32> {
    return products[at / 4u];
}
