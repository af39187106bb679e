//! Plans on real models, without a device.

mod common;

use spec_run::{
    ContextConfig, RunLayers,
    backend::plan_elsewhere,
    placement::{Basis, Forecast, Place, Wishes},
};

fn config(wishes: Wishes) -> ContextConfig {
    ContextConfig { n_ctx: 256, wishes, ..ContextConfig::default() }
}

/// What a forecast reckons with is what a context reads, coarse sublayers by their high bits.
#[test]
fn a_forecast_counts_the_bytes_that_passes_read() {
    let model = common::embedded_model();
    let n_layer = model.plan.dims.n_layer;
    let context = common::context(&model, |_| ());
    let skips = RunLayers::all(n_layer).skip_attn(3).skip_mlp(3).skip_mlp(7);
    let coarse = (0..n_layer).fold(RunLayers::all(n_layer), |mask, l| mask.coarse_attn(l).coarse_mlp(l));
    let mixed = coarse.clone().skip_attn(5).skip_mlp(6);
    for mask in [skips, coarse, mixed] {
        let wishes = Wishes { draft: Some(mask.clone()), ..Wishes::default() };
        let predicted = plan_elsewhere(&model, &config(wishes)).unwrap().chosen.predict(&Basis::default());
        let (counted, read) = (predicted.draft / predicted.token, context.mask_cost(&mask));
        assert!(read < 0.97 && (counted / read - 1.0).abs() < 0.01, "{mask}: {counted} and {read}");
    }
}

#[test]
fn a_plan_needs_no_device_and_heeds_the_draft() {
    let model = common::embedded_model();
    let n_layer = model.plan.dims.n_layer;
    let mask = (1..n_layer).step_by(2).fold(RunLayers::all(n_layer), |mask, l| mask.skip_attn(l).skip_mlp(l));
    let wishes = Wishes { vram: Some(10 << 20), draft: Some(mask.clone()), ..Wishes::default() };
    let plans = plan_elsewhere(&model, &config(wishes)).unwrap();
    let on_gpu = plans.chosen.on_gpu();
    assert!((0..n_layer).filter(|l| l % 2 == 0).all(|l| on_gpu.attn[l] && on_gpu.mlp[l]), "{}", plans.chosen);
    assert!(!on_gpu.mlp.iter().all(|&on| on));
    let whole = plans.whole_layers.on_gpu();
    let first = whole.mlp.iter().position(|&on| on).unwrap();
    assert!(first > 1 && whole.mlp[first..].iter().all(|&on| on), "{}", plans.whole_layers);
    let forecast = Forecast::new(&plans.whole_layers, &plans.chosen, Basis::default());
    let gain = |of: Option<_>| forecast.gain(&of.unwrap());
    assert!(gain(forecast.placed) > gain(forecast.drafting), "{forecast}");
}

/// No budget is too small for a plan: what nothing else holds is read from the file.
#[test]
fn what_nothing_holds_stays_in_the_file() {
    let model = common::embedded_model();
    for ram in [0, 1, 1 << 10, 300 << 10] {
        let plans = plan_elsewhere(&model, &config(Wishes { ram: Some(ram), ..Wishes::default() })).unwrap();
        assert!(plans.chosen.bytes_in_ram() <= ram && plans.chosen.uses(Place::File), "{}", plans.chosen);
    }
    let error =
        plan_elsewhere(&model, &config(Wishes { vram: Some(1 << 10), ..Wishes::default() })).err().unwrap();
    let error = error.to_string();
    assert!(
        error.contains("nothing fits") && error.contains("--vram") && error.lines().count() == 1,
        "{error}"
    );
}
