//! Apertus: queries and keys are normed per head, and the MLP is plain, with xIELU, whose curve each layer has its own of.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Halves)?;
    decoder.attention.head_norms = HeadNorms::Each;
    decoder.mlp.gated = false;
    let curves = curves(b)?;
    let mut body = decoder.build(b)?;
    for (layer, curve) in body.layers.iter_mut().zip(curves) {
        for op in &mut layer.mlp {
            if let Op::Gate { activation, .. } = op {
                *activation = curve;
            }
        }
    }
    Ok(body)
}

/// The slopes are positive: files have them before a softplus.
fn curves(b: &Builder) -> Result<Vec<Activation>> {
    let [n, p, beta, eps] =
        ["alpha_n", "alpha_p", "beta", "eps"].map(|part| per_layer(b, &format!("xielu.{part}")));
    let (n, p, beta, eps) = (n?, p?, beta?, eps?);
    let curve = |l: usize| Activation::Xielu {
        positive: softplus(p[l]),
        negative: beta[l] + softplus(n[l]),
        beta: beta[l],
        eps: eps[l],
    };
    Ok((0..b.dims().n_layer).map(curve).collect())
}

fn per_layer(b: &Builder, key: &str) -> Result<Vec<f32>> {
    let n_layer = b.dims().n_layer;
    let numbers = b.plain_f32s(key)?.ok_or_else(|| b.error(&format!("no `{key}` in the metadata")))?;
    if !numbers.iter().all(|x| x.is_finite()) {
        return Err(b.error(&format!("`{key}` has a number that is not finite")));
    }
    match numbers.len() {
        1 => Ok(vec![numbers[0]; n_layer]),
        n if n >= n_layer => Ok(numbers),
        n => Err(b.error(&format!("`{key}` has {n} numbers, one for each of {n_layer} layers is needed"))),
    }
}

fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
