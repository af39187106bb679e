//! Whole models on the GPU: against the CPU, and the promise of the same bits among the GPU's own regimes.

mod common;

use std::sync::Arc;

use common::{all_logits, bits, context, embedded_model, fixture, gpu, load, tokens};
use spec_run::{Batch, Context, Model, RunLayers, backend::Device, context::KvType};

/// A row's logits as numbers.
fn floats(rows: &[Vec<u32>]) -> Vec<Vec<f32>> {
    rows.iter().map(|row| row.iter().map(|&x| f32::from_bits(x)).collect()).collect()
}

fn on(name: &str, model: &Arc<Model>) -> Context {
    context(model, |c| c.device = Device::Named(name.into()))
}

/// Root mean square difference over root mean square of the reference, both less their means.
fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    let centred = |x: &[f32]| {
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
        x.iter().map(|&x| f64::from(x) - mean).collect::<Vec<_>>()
    };
    let (got, want) = (centred(got), centred(want));
    let off: f64 = std::iter::zip(&got, &want).map(|(a, b)| (a - b).powi(2)).sum();
    (off / want.iter().map(|x| x * x).sum::<f64>()).sqrt()
}

#[test]
fn logits_are_close_to_the_cpus() {
    let Some(device) = gpu::device("logits_are_close_to_the_cpus") else { return };
    let model = embedded_model();
    let text = tokens(40, 1, model.plan.dims.n_vocab);
    let cpu = floats(&all_logits(&mut context(&model, |_| {}), &text));
    let got = floats(&all_logits(&mut on(&device, &model), &text));
    for (row, (got, want)) in got.iter().zip(&cpu).enumerate() {
        let error = relative_error(got, want);
        println!("row {row}: {error:.5}");
        assert!(error < 0.02, "row {row}: {error}");
    }
}

#[test]
fn a_row_is_the_same_in_a_batch_of_any_size() {
    let Some(device) = gpu::device("a_row_is_the_same_in_a_batch_of_any_size") else { return };
    let model = embedded_model();
    let text = tokens(40, 1, model.plan.dims.n_vocab);
    let mut context = on(&device, &model);
    let together = all_logits(&mut context, &text);
    for size in [1, 2, 3, 5, 8, 17] {
        context.remove(0);
        for (i, part) in text.chunks(size).enumerate() {
            let mut batch = Batch::new();
            for (j, &token) in part.iter().enumerate() {
                batch.push(token, (i * size + j) as u32, 0, true);
            }
            context.decode(&batch).unwrap();
            for j in 0..part.len() {
                let row = i * size + j;
                assert!(bits(context.logits(j)) == together[row], "row {row}, batches of {size}");
            }
        }
    }
}
