// Matrices of 16 by 16 that the threads of a subgroup hold and multiply together.
alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Sums = coop_mat16x16<f32, C>;
const SQUARE: u32 = 16u;
