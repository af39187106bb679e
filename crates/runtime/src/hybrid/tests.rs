//! CPUs in the place of GPUs and a CPU: wherever the units of a model lie, the bits are those of one device.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::{
    Error,
    backend::{
        Seen, SlotView, View,
        cpu::{
            Bundle, CpuBackend, CpuConfig, Multiplier,
            matmul::{Acts, Mode, OutMatrix, Packed, Planes, QuantRows, matmul},
            simd::Isa,
        },
    },
    kv::{KvLayout, KvRoom, Replay, ReplayStep, StateRun, StateStep},
    kv_type::KvType,
    plan::Unit,
};
use spec_run_gguf::rng::Rng;
use spec_run_test_models::{fixtures, quantized};

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
        pack_later: false,
        runs: UnitSet::all(model.n_layer()),
        held,
        by_planes: crate::backend::planes::PlanesApart::none(model.n_layer()),
        prefetch: false,
        read_chosen: false,
        loras: Default::default(),
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
    try_run(backend, model, tokens, from, outputs).unwrap()
}

fn try_run(
    backend: &mut dyn Backend,
    model: &Model,
    tokens: &[u32],
    from: usize,
    outputs: &[usize],
) -> Result<Vec<Vec<u32>>> {
    run_with(backend, model, tokens, from, outputs, &state_run(model, from, tokens.len()))
}

fn run_with(
    backend: &mut dyn Backend,
    model: &Model,
    tokens: &[u32],
    from: usize,
    outputs: &[usize],
    states: &[StateRun],
) -> Result<Vec<Vec<u32>>> {
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
            Seen { list: 0, from: begin, to: row + 1, own: row }
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
        states,
        shortlist: None,
        scales: &[],
    };
    let n_vocab = model.n_vocab();
    let mut logits = vec![0.0; outputs.len() * n_vocab];
    backend.run(&steps, &rows, Output::Logits(&mut logits))?;
    Ok(logits.chunks(n_vocab).map(|row| row.iter().map(|x| x.to_bits()).collect()).collect())
}

/// What becomes of recurrent layers' states: each goes on in its first slab, beside which the rows lie from there on.
fn state_run(model: &Model, from: usize, rows: usize) -> Vec<StateRun> {
    let layers = model.plan.mixers.len();
    let step = StateStep { from: (from > 0).then_some(0), to: 0 };
    let run = StateRun { rows: (0..rows).collect(), steps: vec![Some(step); layers], replayed_from: Some(0) };
    if layers > 0 { vec![run] } else { Vec::new() }
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

/// A device that has these units and others that share the rest: one, two, and two of which the last counts as a GPU.
fn devices(model: &Arc<Model>, name: &str, set: UnitSet) -> Vec<(String, HybridBackend)> {
    let n_layer = model.n_layer();
    let rest = UnitSet::of(n_layer, |unit| !set.holds(unit));
    let odd = |layer: usize| layer % 2 == 1;
    let parity = UnitSet::of(n_layer, |unit| match unit {
        Unit::Attn(layer) => odd(model.plan.keys_of(layer)),
        _ => unit.layer().is_some_and(odd),
    });
    let some =
        |of_parity: bool| UnitSet::of(n_layer, |unit| rest.holds(unit) && parity.holds(unit) == of_parity);
    let device = |held: &UnitSet, threads| cpu(model, held.clone(), threads);
    let part = |held: &UnitSet| Part {
        gpu: Box::new(device(held, 2)),
        held: held.clone(),
        low_products: Vec::new(),
    };
    let all = |gpus: &[&UnitSet], last: Option<&UnitSet>| {
        let gpus = gpus.iter().map(|held| part(held)).collect();
        HybridBackend::new(model.clone(), gpus, last.map(|held| device(held, 1)))
    };
    let (even, odd) = (some(false), some(true));
    vec![
        (format!("{}, {name}", model.arch), all(&[&set], Some(&rest))),
        (format!("{}, {name}, two GPUs", model.arch), all(&[&set, &odd], Some(&even))),
        (format!("{}, {name}, three GPUs", model.arch), all(&[&odd, &set, &even], None)),
    ]
}

#[test]
fn units_give_the_same_bits_wherever_they_lie() {
    for model in fixtures() {
        let model = Arc::new(model);
        let n_layer = model.n_layer();
        let tokens: Vec<u32> = (0..ROWS).map(|i| (i * 37 % model.n_vocab()) as u32).collect();
        let every: Vec<usize> = (0..ROWS).collect();
        let mut one = cpu(&model, UnitSet::all(n_layer), 1);
        let expected = run(&mut one, &model, &tokens, 0, &every);
        for (case, mut both) in
            patterns(&model).into_iter().flat_map(|(name, set)| devices(&model, &name, set))
        {
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

/// Each device has the states of its own layers, and goes back in them.
#[test]
fn states_are_gone_back_to_wherever_layers_lie() {
    let mut models = fixtures();
    models.retain(|model| !model.plan.mixers.is_empty());
    assert!(models.len() > 5);
    for model in models.into_iter().map(Arc::new) {
        let tokens: Vec<u32> = (0..ROWS).map(|i| (i * 37 % model.n_vocab()) as u32).collect();
        let every: Vec<usize> = (0..ROWS).collect();
        let one = &mut cpu(&model, UnitSet::all(model.n_layer()), 1);
        let expected = run(one, &model, &tokens, 0, &every);
        let without = run_with(one, &model, &tokens, 0, &every, &[]).unwrap();
        assert!(without != expected, "{}: its states are nothing", model.arch);
        for (case, mut both) in
            patterns(&model).into_iter().flat_map(|(name, set)| devices(&model, &name, set))
        {
            run(&mut both, &model, &tokens[..8], 0, &[]);
            // Into another slab, beside which the rows that are gone through again lie as well.
            let step = ReplayStep { from: None, inputs: 0, to: 1 };
            both.replay_states(&Replay { layers: vec![Some(step); model.plan.mixers.len()], rows: 4 });
            let back = ReplayStep { from: None, inputs: 1, to: 0 };
            both.replay_states(&Replay { layers: vec![Some(back); model.plan.mixers.len()], rows: 4 });
            let got = run(&mut both, &model, &tokens[4..], 4, &[0, ROWS - 5]);
            assert!(got == [expected[4].clone(), expected[ROWS - 1].clone()], "{case}");
        }
    }
}

/// A CPU in the place of a GPU that multiplies for another. It declines every fourth product and leaves nonsense.
struct Multiplying {
    products: Arc<AtomicUsize>,
    /// Of these with some of the rows alone.
    of_experts: Arc<AtomicUsize>,
    /// After so many it is lost.
    most: usize,
}

impl Multiplier for Multiplying {
    fn knows(&self, _: &Packed) -> bool {
        true
    }

    fn multiply(&mut self, bundles: &mut [Bundle]) -> Result<bool> {
        let done = self.products.fetch_add(1, Ordering::Relaxed);
        if done >= self.most {
            return Err(Error::Device("lost".into()));
        }
        for Bundle { x, parts, with } in bundles {
            assert!(parts.len() >= LEAST_OFFLOADED);
            if parts.len() < x.rows() {
                self.of_experts.fetch_add(1, Ordering::Relaxed);
            }
            for (weight, out) in with {
                if done % 4 == 3 {
                    out.iter_mut().for_each(|out| out.fill(f32::NAN));
                    continue;
                }
                let mut rows = QuantRows::new();
                rows.gather(x, weight.cols(), parts.iter().copied());
                let mut all = vec![0.0; parts.len() * weight.rows()];
                let mut products = OutMatrix::new(&mut all, weight.rows(), Mode::Store);
                matmul(Isa::detect(), weight, Acts::Quantized(&rows), &mut products.whole());
                let of_parts = all.chunks_exact(weight.rows());
                out.iter_mut().zip(of_parts).for_each(|(out, products)| out.copy_from_slice(products));
            }
        }
        Ok(done % 4 != 3)
    }
}

/// One and two rows are this device's own, of a pass or of an expert.
const LEAST_OFFLOADED: usize = 3;

#[test]
fn products_of_another_device_change_no_bit() {
    for model in fixtures() {
        let model = Arc::new(quantized(&model));
        let n_layer = model.n_layer();
        let tokens: Vec<u32> = (0..ROWS).map(|i| (i * 37 % model.n_vocab()) as u32).collect();
        let every: Vec<usize> = (0..ROWS).collect();
        let expected = run(&mut cpu(&model, UnitSet::all(n_layer), 1), &model, &tokens, 0, &every);
        let (products, of_experts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let offloading = |most| {
            let mut cpu = cpu(&model, UnitSet::all(n_layer), 3);
            let multiplier = Multiplying { products: products.clone(), of_experts: of_experts.clone(), most };
            cpu.offload(Box::new(multiplier), Some(LEAST_OFFLOADED)).unwrap();
            cpu
        };
        let mut backend = offloading(usize::MAX);
        assert!(run(&mut backend, &model, &tokens, 0, &every) == expected, "{}: all rows", model.arch);
        let packs = model.weights.iter().any(|weight| Packed::knows(weight.ty()) && weight.rows > 1);
        assert_eq!(products.swap(0, Ordering::Relaxed) > 0, packs, "{}", model.arch);
        let has_experts = !model.plan.experts.is_empty();
        assert_eq!(of_experts.load(Ordering::Relaxed) > 0, has_experts, "{}", model.arch);
        // Each row alone, and pieces of which nothing or the last row is wanted.
        for (i, row) in expected.iter().enumerate().take(3) {
            assert!(run(&mut backend, &model, &tokens[i..=i], i, &[0])[0] == *row, "{}: row {i}", model.arch);
        }
        assert_eq!(products.load(Ordering::Relaxed), 0, "{}: rows alone", model.arch);
        run(&mut backend, &model, &tokens[..4], 0, &[]);
        let last = run(&mut backend, &model, &tokens[4..], 4, &[ROWS - 5]);
        assert!(last[0] == expected[ROWS - 1], "{}: the last row", model.arch);
        // A device that is lost in the middle of a pass ends it with its error, and not a row of it is used.
        if products.swap(0, Ordering::Relaxed) > 2 {
            let lost = try_run(&mut offloading(2), &model, &tokens, 0, &every).unwrap_err();
            assert!(lost.to_string().contains("lost"), "{lost}");
        }
    }
}
