//! Two CPUs in the place of a GPU and a CPU: wherever the units of a model lie, the bits are those of one device.

use std::borrow::Cow;

use super::*;
use crate::{
    backend::{
        Seen, SlotView, View,
        cpu::{CpuBackend, CpuConfig, matmul::Planes},
    },
    kv::{KvLayout, KvRoom},
    kv_type::KvType,
    model::fixtures::fixtures,
    plan::Unit,
    sampler::rng::Rng,
};

const ROWS: usize = 10;

fn cpu(model: &Arc<Model>, held: UnitSet, threads: usize) -> CpuBackend {
    let room = KvRoom {
        n_cells: 64,
        n_slots: model.n_layer(),
        max_rows: ROWS,
        sequences: 1,
        extra_states: 0,
        all_cells: true,
    };
    let config = CpuConfig {
        layout: KvLayout::new(&model.plan, &room),
        max_rows: ROWS,
        threads,
        prompt_threads: 0,
        binding: Default::default(),
        key_type: KvType::F16,
        value_type: KvType::F16,
        isa: None,
        planes: Some(Planes::Cheap),
        held,
        read_ahead: false,
        read_chosen: false,
    };
    CpuBackend::new(model.clone(), &config, &|_, _| ()).unwrap()
}

/// Rows from position `from` of the only sequence; logits of `outputs`, as bits.
fn run(
    backend: &mut dyn Backend,
    model: &Model,
    tokens: &[u32],
    from: usize,
    outputs: &[usize],
) -> Vec<Vec<u32>> {
    let mut steps = model.plan.steps(None);
    if outputs.is_empty() {
        steps.pop();
    }
    let all: Vec<u32> = (0..(from + tokens.len()) as u32).collect();
    let (mut views, mut view_of_slot) = (Vec::new(), Vec::new());
    for step in &steps {
        let &Op::Attend(id) = step.op else { continue };
        let window = model.plan.attention(id).window;
        let visible = (from..all.len()).map(|row| {
            let begin = window.map_or(0, |window| (row + 1).saturating_sub(window as usize));
            Seen { list: 0, from: begin, to: row + 1 }
        });
        view_of_slot.push(SlotView { slot: step.slot, window, view: views.len() });
        views.push(View { lists: vec![Cow::Borrowed(&all)], visible: visible.collect() });
    }
    let rows = Rows {
        tokens,
        positions: &all[from..],
        cells: &[Cow::Borrowed(&all[from..])],
        outputs,
        views: &views,
        view_of_slot: &view_of_slot,
        states: &[],
        shortlist: None,
    };
    let n_vocab = model.n_vocab();
    let mut logits = vec![0.0; outputs.len() * n_vocab];
    backend.run(&steps, &rows, Output::Logits(&mut logits)).unwrap();
    logits.chunks(n_vocab).map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Attention is where the keys are that it reads.
fn with_their_keys(model: &Model, set: UnitSet) -> UnitSet {
    UnitSet::of(model.n_layer(), |unit| match unit {
        Unit::Attn(layer) => set.attn[model.plan.keys_of(layer)],
        _ => set.holds(unit),
    })
}

fn patterns(model: &Model) -> Vec<(String, UnitSet)> {
    let n_layer = model.n_layer();
    let named = |name: &str, chosen: &dyn Fn(Unit) -> bool| {
        (name.to_string(), with_their_keys(model, UnitSet::of(n_layer, chosen)))
    };
    let mut out = vec![
        named("attention", &|unit| matches!(unit, Unit::Attn(_))),
        named("MLPs", &|unit| matches!(unit, Unit::Mlp(_))),
        named("experts", &|unit| matches!(unit, Unit::Experts(_))),
        named("all but the experts", &|unit| !matches!(unit, Unit::Experts(_))),
        named("the first layer", &|unit| unit.layer() == Some(0)),
        named("the head", &|unit| unit == Unit::Head),
        named("all but the embedding", &|unit| unit != Unit::Embed),
    ];
    let mut rng = Rng::new(3);
    for i in 0..4 {
        let set = UnitSet::of(n_layer, |_| rng.next_u64() >> 63 == 1);
        out.push((format!("random {i}"), with_their_keys(model, set)));
    }
    out
}

#[test]
fn units_give_the_same_bits_wherever_they_lie() {
    for model in fixtures("units_give_the_same_bits_wherever_they_lie") {
        let model = Arc::new(model);
        let n_layer = model.n_layer();
        let tokens: Vec<u32> = (0..ROWS).map(|i| (i * 37 % model.n_vocab()) as u32).collect();
        let every: Vec<usize> = (0..ROWS).collect();
        let mut one = cpu(&model, UnitSet::all(n_layer), 1);
        let expected = run(&mut one, &model, &tokens, 0, &every);
        for (name, set) in patterns(&model) {
            let other = UnitSet::of(n_layer, |unit| !set.holds(unit));
            let [gpu, cpu] = [(set.clone(), 2), (other, 1)]
                .map(|(held, threads)| Box::new(cpu(&model, held, threads)) as Box<dyn Backend>);
            let mut both = HybridBackend::new(model.clone(), gpu, cpu, set);
            let case = format!("{}, {name}", model.arch);
            assert!(run(&mut both, &model, &tokens, 0, &every) == expected, "{case}: all rows");
            for (i, row) in expected.iter().enumerate() {
                let got = run(&mut both, &model, &tokens[i..=i], i, &[0]);
                assert!(got[0] == *row, "{case}: row {i} alone");
            }
            // A piece of a prompt of which nothing is wanted, and one of which the last row is.
            run(&mut both, &model, &tokens[..4], 0, &[]);
            let got = run(&mut both, &model, &tokens[4..], 4, &[ROWS - 5]);
            assert!(got[0] == expected[ROWS - 1], "{case}: the last row");
        }
    }
}
