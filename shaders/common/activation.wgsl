// What a number lets through, times another. Exponents are kept where the exponential is finite.

const SILU = 0u;
const GELU = 1u;
const RELU_SQUARED = 2u;
const SIGMOID = 3u;
const CLAMPED_SWIGLU = 4u;
const XIELU = 5u;

override ACTIVATION: u32 = SILU;

fn one_and_exp(x: f32) -> f32 {
    return 1.0 + exp(min(x, 88.0));
}

// `numbers`: those of the curve, if it has any.
fn activated(curve: u32, x: f32, by: f32, numbers: vec4<f32>) -> f32 {
    if curve == SILU {
        return x / (1.0 + exp(-x)) * by;
    }
    if curve == GELU {
        // 0.5 · (1 + tanh(u)) is the sigmoid of 2u.
        let inner = fma(0.044715, x * x * x, x);
        return x / one_and_exp(-1.5957691 * inner) * by;
    }
    if curve == RELU_SQUARED {
        let positive = max(x, 0.0);
        return positive * positive * by;
    }
    if curve == SIGMOID {
        return 1.0 / one_and_exp(-x) * by;
    }
    if curve == CLAMPED_SWIGLU {
        let gate = min(x, numbers.y);
        return gate / one_and_exp(-numbers.x * gate) * (clamp(by, -numbers.y, numbers.y) + 1.0);
    }
    if curve == XIELU {
        let above = max(x, 0.0);
        let below = min(x, 0.0);
        let grown = exp(min(below, numbers.w)) - 1.0;
        return fma(numbers.z, x, above * above * numbers.x + numbers.y * (grown - below)) * by;
    }
    return x * by;
}
