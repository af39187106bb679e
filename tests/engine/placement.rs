//! Plans on real models, without a device.

use crate::common;
use std::sync::Mutex;

use spec_run::{
    Context, ContextConfig, Model, Result, RunLayers,
    context::Loading,
    placement::{Acceptance, Basis, First, Place, Placement, PlacementRequest, Unit, UnitSet},
};
use spec_run_runtime::placement::forecast::{Known, Origin};
use spec_run_runtime::{Plans, plan_elsewhere};

fn plans(model: &Model, request: PlacementRequest) -> Result<Plans> {
    plan_elsewhere(model, &config(request), Basis::default())
}

fn config(placement: PlacementRequest) -> ContextConfig {
    ContextConfig { n_ctx: 256, placement, ..ContextConfig::default() }
}

/// What a forecast reckons with is what a context reads, coarse sublayers by their high bits.
#[test]
fn a_forecast_counts_the_bytes_that_passes_read() {
    let model = common::embedded_model();
    let n_layer = model.n_layer();
    let context = common::context(&model, |_| ());
    let skips = RunLayers::all(n_layer).skip_attn(3).skip_mlp(3).skip_mlp(7);
    let coarse = common::coarse(n_layer);
    let mixed = coarse.clone().skip_attn(5).skip_mlp(6);
    for mask in [skips, coarse, mixed] {
        let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
        let predicted = plans(&model, request).unwrap().chosen.predict(&Basis::default());
        let (counted, read) = (predicted.draft / predicted.token, context.mask_cost(&mask));
        assert!(read < 0.97 && (counted / read - 1.0).abs() < 0.01, "{mask}: {counted} and {read}");
    }
}

/// Drafts that read high planes alone, a GPU for little more than those, and a RAM so slow that all else is: the plan puts
/// low planes there.
#[test]
fn a_plan_puts_low_planes_into_ram_where_drafts_do_without() {
    let model = common::embedded_model();
    let n_layer = model.n_layer();
    let coarse = common::coarse(n_layer);
    let request = PlacementRequest { draft: Some(coarse), ..PlacementRequest::default() };
    let never = Acceptance::new(&[0.0], Origin::Given);
    let basis = Basis { crossing: Known::given(1e-9), by_two_bits: never, ..Basis::default() };
    let of = |vram: u64| {
        let placement = PlacementRequest { vram: Some(vram), ..request.clone() };
        plan_elsewhere(&model, &config(placement), basis)
    };
    // The least that holds everything, and what is there of it beside weights.
    let mut all = 64 << 20;
    while of(all - (1 << 18)).is_ok_and(|plans| !plans.chosen.is_divided()) {
        all -= 1 << 18;
    }
    let weights: u64 = (0..n_layer)
        .flat_map(|l| [Unit::Attn(l), Unit::Mlp(l)])
        .filter_map(|unit| {
            of(all).unwrap().chosen.parts.iter().find(|(part, _)| part.unit == unit).map(|(p, _)| p.gpu_bytes)
        })
        .sum();
    let plans = of(all - weights / 3).unwrap();
    let chosen = plans.chosen;
    assert_eq!(chosen.first, First::Planes, "{chosen}");
    assert!(chosen.planes_apart().units.attn[0] && chosen.planes_apart().units.mlp[0], "{chosen}");
    assert!(chosen.on_gpu().attn.iter().chain(&chosen.on_gpu().mlp).all(|&here| here), "{chosen}");
    assert!(chosen.to_string().contains("low planes of layers 0"), "{chosen}");
}

#[test]
fn a_plan_needs_no_device_and_heeds_the_draft() {
    let model = common::embedded_model();
    let n_layer = model.n_layer();
    let mask = (1..n_layer).step_by(2).fold(RunLayers::all(n_layer), |mask, l| mask.skip_attn(l).skip_mlp(l));
    let request =
        PlacementRequest { vram: Some(11 << 20), draft: Some(mask.clone()), ..PlacementRequest::default() };
    let plans = |crossing: f64| {
        let basis = Basis { crossing: Known::given(crossing), ..Basis::default() };
        plan_elsewhere(&model, &config(request.clone()), basis).unwrap()
    };
    let free = plans(0.0);
    let on_gpu = free.chosen.on_gpu();
    assert!((0..n_layer).filter(|l| l % 2 == 0).all(|l| on_gpu.attn[l] && on_gpu.mlp[l]), "{}", free.chosen);
    assert!(!on_gpu.mlp.iter().all(|&on| on));
    let whole = free.whole_layers.on_gpu();
    let first = whole.mlp.iter().position(|&on| on).unwrap();
    assert!(first > 1 && whole.mlp[first..].iter().all(|&on| on), "{}", free.whole_layers);
    let gains = |plans: &Plans| {
        let forecast = plans.forecast();
        let gain = |of: Option<_>| forecast.gain(&of.unwrap());
        (gain(forecast.drafting), gain(forecast.placed))
    };
    let (drafting, placed) = gains(&free);
    assert!(placed > drafting && placed > 1.0, "{placed} {drafting}");
    assert_eq!(free.chosen.choice.unwrap().first, First::Drafted);
    // So small a model spends its time on crossings, of which that placement has many: then layers stay whole.
    let usual = plans(100e-6);
    let (drafting, placed) = gains(&usual);
    assert!(placed < drafting, "{placed} {drafting}");
    assert_eq!(usual.chosen.on_gpu(), usual.whole_layers.on_gpu());
    let choice = usual.chosen.choice.unwrap();
    assert!(choice.first == First::WholeLayers && choice.whole_layers.crossings == 1, "{choice}");
    // -ngl is obeyed whatever is expected of it.
    let ngl = PlacementRequest { gpu_layers: Some(3), ..request.clone() };
    let ngl = plan_elsewhere(&model, &config(ngl), Basis::default()).unwrap().chosen;
    let on: Vec<usize> = (0..n_layer).filter(|&l| ngl.on_gpu().mlp[l]).collect();
    assert!(on == [n_layer - 3, n_layer - 2, n_layer - 1] && !ngl.on_gpu().head && ngl.choice.is_none());
}

/// In this order: a user may still end what would be loaded in vain.
#[test]
fn a_plan_is_told_before_anything_is_loaded() {
    #[derive(Default)]
    struct Told(Mutex<Vec<(&'static str, u64)>>);
    impl Loading for Told {
        fn planned(&self, placement: &Placement) {
            self.0.lock().unwrap().push(("planned", placement.bytes_in_ram()));
        }

        fn ready(&self, ready: u64, _: u64) {
            self.0.lock().unwrap().push(("ready", ready));
        }
    }
    let told = Told::default();
    let ram = PlacementRequest { ram: Some(6 << 20), ..PlacementRequest::default() };
    let context = Context::open_with(common::embedded_model(), &config(ram), &told).unwrap();
    let told = told.0.into_inner().unwrap();
    assert_eq!(told[0], ("planned", context.placement().bytes_in_ram()));
    assert!(told.len() > 1 && told[1..].iter().all(|(what, _)| *what == "ready"), "{told:?}");
}

/// No budget is too small for a plan: what nothing else holds is read from the file.
#[test]
fn what_nothing_holds_stays_in_the_file() {
    let model = common::embedded_model();
    for ram in [0, 1, 1 << 10, 300 << 10] {
        let plans =
            plans(&model, PlacementRequest { ram: Some(ram), ..PlacementRequest::default() }).unwrap();
        assert!(plans.chosen.bytes_in_ram() <= ram && plans.chosen.uses(Place::File), "{}", plans.chosen);
    }
    let error =
        plans(&model, PlacementRequest { vram: Some(1 << 10), ..PlacementRequest::default() }).err().unwrap();
    let error = error.to_string();
    assert!(
        error.contains("nothing fits") && error.contains("`vram`") && error.lines().count() == 1,
        "{error}"
    );
}

/// Whoever gives as much as the message asks for gets a plan.
#[test]
fn what_is_said_to_be_needed_is_what_it_takes() {
    let model = common::embedded_model();
    let n_layer = model.n_layer();
    let mask = (1..n_layer).fold(RunLayers::all(n_layer), |mask, l| mask.skip_attn(l).skip_mlp(l));
    let needed = [None, Some(mask)].map(|draft| {
        let step = 16 << 10;
        let plan = |vram| {
            plans(
                &model,
                PlacementRequest { vram: Some(vram), draft: draft.clone(), ..PlacementRequest::default() },
            )
        };
        let fits = (1..1 << 10).map(|n| n * step).find(|&vram| plan(vram).is_ok()).unwrap();
        let message = plan(fits - step).err().unwrap().to_string();
        let said = |before: &str| -> f64 {
            let number = message.split(before).nth(1).unwrap_or_else(|| panic!("{message}"));
            number.trim_start().split([':', ',', ' ']).next().unwrap().parse().unwrap()
        };
        let needed = said("buffers take") + said("the least that goes there");
        let took = fits as f64 / f64::from(1 << 20);
        // Both numbers are rounded to a tenth, and the budgets go in steps.
        assert!((needed - took).abs() < 0.12, "{took}: {message}");
        took
    });
    // By itself the one sublayer that the draft runs, else a layer.
    assert!(needed[1] < needed[0] - 0.2, "{needed:?}");
}

/// What every token reads goes to fast memory first, and experts as far as there is room.
#[test]
fn experts_are_planned_behind_what_every_token_reads() {
    let test = "experts_are_planned_behind_what_every_token_reads";
    for name in ["qwen3moe", "glm4moe", "gpt-oss", "gemma4-moe"] {
        let Some(path) = common::fixture(test, &format!("archs/{name}.gguf")) else { return };
        let model = common::load(&path);
        let plan = |request: PlacementRequest| plans(&model, request).unwrap().chosen;
        let whole = plan(PlacementRequest::default());
        let of = |wanted: fn(&Unit) -> bool| {
            let parts = whole.parts.iter().filter(|(part, _)| wanted(&part.unit));
            parts.map(|(part, _)| part.bytes).sum::<u64>()
        };
        assert_eq!(of(|_| true), whole.bytes_in_ram());
        let experts = of(|unit| matches!(unit, Unit::Experts(_)));
        let [all, half] = [experts, experts / 2].map(|kept| {
            let dense = of(|unit| !matches!(unit, Unit::Experts(_) | Unit::Embed));
            plan(PlacementRequest { ram: Some(dense + kept), ..PlacementRequest::default() })
        });
        let in_file = |plan: &Placement, wanted: fn(&Unit) -> bool| {
            plan.parts.iter().any(|(part, place)| *place == Place::File && wanted(&part.unit))
        };
        assert!(!in_file(&all, |unit| *unit != Unit::Embed), "{all}");
        assert!(in_file(&half, |unit| matches!(unit, Unit::Experts(_))), "{half}");
        assert!(!in_file(&half, |unit| matches!(unit, Unit::Attn(_) | Unit::Mlp(_) | Unit::Head)), "{half}");
        // With a GPU: experts that are kept off it leave room for all the rest.
        let n_layer = model.n_layer();
        let off = UnitSet::of(n_layer, |unit| matches!(unit, Unit::Experts(_)));
        let request = PlacementRequest {
            vram: Some(1 << 30),
            off_gpu: Some(off.clone()),
            gpu_layers: Some(99),
            ..PlacementRequest::default()
        };
        let divided = plan(request);
        for (part, place) in &divided.parts {
            let here = !off.holds(part.unit) && part.unit != Unit::Embed;
            assert_eq!(*place == Place::Vram, here, "{divided}");
        }
        // With everything kept off it there is no GPU.
        let off = Some(UnitSet::all(n_layer));
        let none =
            plan(PlacementRequest { vram: Some(1 << 30), off_gpu: off, ..PlacementRequest::default() });
        assert!(!none.uses(Place::Vram) && none.bytes_in_ram() == whole.bytes_in_ram(), "{none}");
    }
}

/// What a GPU holds in another form than the file is said with the plan.
#[test]
fn conversions_for_a_gpu_are_said() {
    for (name, said) in [("q3_k", "Q3_K as Q6_K"), ("iq4_xs", "IQ4_XS with its scales multiplied out")] {
        let name = format!("models/stories13m-{name}.gguf");
        let Some(path) = common::fixture("conversions_for_a_gpu_are_said", &name) else { return };
        let model = common::load(&path);
        let table = |vram| {
            let request = PlacementRequest { vram: Some(vram), ..PlacementRequest::default() };
            plans(&model, request).unwrap().chosen.to_string()
        };
        assert!(table(1 << 30).contains(said), "{}", table(1 << 30));
    }
    let model = common::embedded_model();
    let request = PlacementRequest { vram: Some(1 << 30), ..PlacementRequest::default() };
    let table = plans(&model, request).unwrap().chosen.to_string();
    assert!(!table.contains("converted"), "{table}");
    // In RAM everything is as in the file.
    let Some(path) = common::fixture("conversions_for_a_gpu_are_said", "models/stories13m-q3_k.gguf") else {
        return;
    };
    let in_ram = plans(&common::load(&path), PlacementRequest::default()).unwrap().chosen.to_string();
    assert!(!in_ram.contains("converted"), "{in_ram}");
}
