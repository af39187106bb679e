// One number is summed.
alias Reduced = f32;
