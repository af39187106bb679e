//! A pass allocates nothing once its buffers have grown. Alone in its file: it counts a whole program's allocations.

#[path = "common/allocations.rs"]
mod counting;

use std::{borrow::Cow, sync::Arc};

use counting::allocations;

use spec_run::{
    Batch, Context, ContextConfig, Model,
    context::{KvType, Planes},
    embedded,
    placement::UnitSet,
};
use spec_run_backend::cpu::{CpuBackend, CpuConfig};
use spec_run_backend::kv::{KvLayout, KvRoom};
use spec_run_backend::{Backend, Output, Rows, Seen, SlotView, View};

/// One sequence in cells 0.., `n` rows a pass, logits of the last.
fn pass(backend: &mut CpuBackend, model: &Model, from: usize, n: usize, logits: &mut [f32]) -> usize {
    let cells: Vec<u32> = (0..(from + n) as u32).collect();
    let steps = model.plan.steps(None);
    let views = [View {
        lists: vec![Cow::Borrowed(&cells)],
        visible: (from..from + n).map(|i| Seen { list: 0, from: 0, to: i + 1, own: i }).collect(),
    }];
    let view_of_slot: Vec<_> =
        (0..model.n_layer()).map(|slot| SlotView { slot, window: None, view: 0 }).collect();
    let tokens: Vec<u32> = (from..from + n).map(|i| (i * 37 % 2000) as u32).collect();
    let placed = [Cow::Borrowed(&cells[from..])];
    let rows = Rows {
        tokens: &tokens,
        positions: &cells[from..],
        cells: &placed,
        outputs: &[n - 1],
        views: &views,
        view_of_slot: &view_of_slot,
        states: &[],
        shortlist: None,
        scales: &[],
    };
    allocations(|| backend.run(&steps, &rows, Output::Logits(logits)).unwrap())
}

#[test]
fn nothing_is_allocated_for_a_token() {
    let model = Arc::new(Model::load(Arc::new(embedded::open().unwrap())).unwrap());
    let mut logits = vec![0.0; model.n_vocab()];
    for threads in [1, 2, 3] {
        let config = CpuConfig {
            layout: KvLayout::new(
                &model.plan,
                &KvRoom {
                    n_cells: 1024,
                    n_slots: model.n_layer(),
                    max_rows: 64,
                    sequences: 1,
                    extra_states: 0,
                    all_cells: true,
                },
            ),
            max_rows: 64,
            threads,
            prompt_threads: 0,
            binding: Default::default(),
            key_type: KvType::F16,
            value_type: KvType::F16,
            isa: None,
            planes: Some(Planes::Cheap),
            pack_later: false,
            runs: UnitSet::all(model.n_layer()),
            held: UnitSet::all(model.n_layer()),
            by_planes: spec_run_backend::planes::PlanesApart::none(model.n_layer()),
            loras: Default::default(),
            prefetch: false,
            read_chosen: false,
        };
        let mut backend = CpuBackend::new(model.clone(), &config, &|_, _| ()).unwrap();
        let mut from = 0;
        // The long passes bring the context beyond one chunk; the others are what decoding and verifying do.
        for n in [64, 64, 64, 64, 16, 4, 1] {
            pass(&mut backend, &model, from, n, &mut logits);
            from += n;
        }
        // On a busy machine more or fewer threads take part from one moment to the next, and the first pass of so many
        // makes room for their shares. What allocates in every round is found all the same.
        let rounds: Vec<usize> = (0..4)
            .map(|_| {
                let of_pass = [1, 1, 4, 16, 1, 1].map(|n| {
                    from += n;
                    pass(&mut backend, &model, from - n, n, &mut logits)
                });
                of_pass.iter().sum()
            })
            .collect();
        assert!(rounds.contains(&0), "allocations in each round of passes on {threads} threads: {rounds:?}");
    }
    // What lies above the backend keeps a few small lists: of steps, rows and views, whatever the context is.
    // On one thread: the first pass of so many threads makes room for their shares.
    let config = ContextConfig { n_ctx: 1024, threads: 1, ..Default::default() };
    let mut context = Context::new(model, &config).unwrap();
    let step = |pos: u32| {
        let batch = Batch::prompt(&[5], pos, 0);
        allocations(|| context.decode(&batch).unwrap())
    };
    let most = (0..700).map(step).skip(600).max().unwrap();
    assert!(most <= 16, "{most} allocations for a token");
}
