//! What --dry-run prints: where things would go and what that may give, for a person or for a program.

use serde_json::{Map, Value, json};

use super::common;
use crate::{
    Result,
    mask::skips::ModelId,
    placement::{
        Acceptance, First, HeadForecast, HighBits, Place, Placement, Share, UnitSize,
        forecast::{COLUMNS, Forecast, Known, Prediction},
        mib,
    },
    plan::Unit,
    runtime::Plans,
};

/// `model` is what [`super::placement_arg`] knows the plan by, where it is one that can be run.
pub fn print(plans: &Plans, model: Option<ModelId>, as_json: bool) -> Result<()> {
    if as_json {
        common::print_json(&to_json(plans, model))
    } else {
        common::print(table(plans, model.is_some()))
    }
}

fn table(plans: &Plans, has_flag: bool) -> String {
    let choice = plans.chosen.choice.map_or(String::new(), |choice| format!("{choice}\n"));
    let hint = if has_flag && plans.chosen.choice.is_some_and(|choice| choice.first != First::WholeLayers) {
        "GPU and CPU round differently, so the text can differ from the one without this mask; --placement layers places the same with every mask\n"
    } else {
        ""
    };
    let states = plans.states.map_or(String::new(), |states| {
        format!(
            "states {:.1} MiB for a text and up to {:.1} MiB of inputs to take it back by, {} times at most: {:.1} MiB, which the overhead has\n",
            mib(states.state),
            mib(states.rows()),
            states.count,
            mib(states.all()),
        )
    });
    let prompt = plans.prompt.map_or(String::new(), |prompt| format!("{prompt}\n"));
    format!("{}{states}{COLUMNS}{}\n{hint}{prompt}{choice}", plans.chosen, plans.forecast())
}

fn to_json(plans: &Plans, model: Option<ModelId>) -> Value {
    let Placement { budgets, converted, .. } = &plans.chosen;
    let forecast = plans.forecast();
    let speed = |speed: Known| json!({"gb_s": speed.value / 1e9, "origin": speed.origin.name()});
    let basis = &plans.basis;
    let heads: Map<String, Value> = forecast.heads.iter().map(|of| head(&forecast, of)).collect();
    let model = model
        .map(|m| json!({"name": m.name, "arch": m.arch, "n_layer": m.n_layer, "fingerprint": m.fingerprint}));
    json!({
        "model": model,
        "places": places(&plans.chosen),
        "budgets": {"vram": budgets.most_vram(), "ram": budgets.ram},
        "converted": converted,
        "states": plans.states.map(|states| json!({
            "state_bytes": states.state,
            "replay_row_bytes": states.row,
            "replay_bytes": states.rows(),
            "count": states.count,
            "bytes": states.all(),
        })),
        "first": first(plans),
        "forecasts": {
            "plain": prediction(&forecast, &forecast.plain),
            "whole_layers": forecast.drafting.map(|of| prediction(&forecast, &of)),
            "drafted": forecast.placed.map(|of| prediction(&forecast, &of)),
            "planes": forecast.apart.map(|of| prediction(&forecast, &of.prediction)),
            "planes_of_two_bits": forecast.apart.map(|of| of.high == HighBits::Two),
            "heads": heads,
        },
        "prompt": plans.prompt.map(|prompt| json!({
            "tokens": prompt.tokens,
            "seconds": prompt.by_cpu,
            "streamed_seconds": prompt.streamed,
        })),
        "speeds": {"vram": speed(basis.vram), "ram": speed(basis.ram), "file": speed(basis.file)},
        "crossing": {"ms": 1e3 * basis.crossing.value, "origin": basis.crossing.origin.name()},
        "acceptance": acceptance(&basis.acceptance),
        "planes_acceptance": forecast.apart.map(|of| acceptance(&of.acceptance)),
    })
}

fn acceptance(of: &Acceptance) -> Value {
    json!({"chances": of.chances(), "origin": of.origin().name()})
}

/// Which of the forecasts' placements it is.
fn first(plans: &Plans) -> &'static str {
    match plans.chosen.first {
        First::WholeLayers => "whole_layers",
        First::Drafted => "drafted",
        First::Planes => "planes",
        First::Given => "given",
    }
}

/// One for each place that holds anything; each GPU of several has its own.
fn places(placement: &Placement) -> Vec<Value> {
    placement
        .lines()
        .into_iter()
        .filter(|line| placement.uses(line.place))
        .map(|line| {
            let here = || placement.parts_at(line.place, line.share);
            let (on_gpu, name) = match line.place {
                Place::Vram => (true, "vram"),
                Place::Ram => (false, "ram"),
                Place::File => (false, "file"),
            };
            let sum = |bytes: fn(&UnitSize) -> u64| here().map(bytes).sum::<u64>();
            let layers = |kind: fn(usize) -> Unit| -> Vec<usize> {
                here().filter_map(|part| part.unit.layer().filter(|&l| part.unit == kind(l))).collect()
            };
            let apart = placement.planes_apart();
            let of_apart = |kind: fn(usize) -> Unit, apart: &[bool]| -> Vec<usize> {
                layers(kind).into_iter().filter(|&l| on_gpu && apart[l]).collect()
            };
            let scratch = placement.scratch_at(line.place, line.share);
            json!({
                "place": name,
                "gpu": line.share.map(|share| share.number),
                "budget": line.share.and_then(Share::most_vram),
                "bytes": sum(if on_gpu { |part| part.gpu_bytes } else { |part| part.bytes }),
                "beside_bytes": sum(|part| part.overhead) + scratch,
                "embedding": here().any(|part| part.unit == Unit::Embed),
                "attention": layers(Unit::Attn),
                "mlp": layers(Unit::Mlp),
                "experts": layers(Unit::Experts),
                "low_planes_in_ram": {
                    "attention": of_apart(Unit::Attn, &apart.units.attn),
                    "mlp": of_apart(Unit::Mlp, &apart.units.mlp),
                    "all_but_two_bits": apart.high == HighBits::Two,
                },
                "head": here().any(|part| part.unit == Unit::Head),
                "head_for_one_more": here().any(|part| part.unit == Unit::Mtp),
            })
        })
        .collect()
}

/// By its name, with what its acceptance rests on.
fn head(forecast: &Forecast, of: &HeadForecast) -> (String, Value) {
    let forecasts = json!({
        "alone": prediction(forecast, &of.alone),
        "in_steps": of.in_steps.map(|of| prediction(forecast, &of)),
        "acceptance": acceptance(&of.acceptance),
    });
    (of.kind.key().into(), forecasts)
}

fn prediction(forecast: &Forecast, of: &Prediction) -> Value {
    let drafts = of.drafted > 0;
    json!({
        "token_ms": 1e3 * of.token,
        "draft_ms": drafts.then_some(1e3 * of.draft),
        "verify_ms": drafts.then_some(1e3 * of.verification.total()),
        "round_ms": drafts.then_some(1e3 * of.round),
        "drafted": of.drafted,
        "tokens": of.tokens,
        "tok_s": of.tokens_per_second(),
        "gain": forecast.gain(of),
    })
}
