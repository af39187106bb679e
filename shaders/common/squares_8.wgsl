// Matrices of 8 by 8 that the threads of a subgroup hold and multiply together.
alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Sums = coop_mat8x8<f32, C>;
const SQUARE: u32 = 8u;
