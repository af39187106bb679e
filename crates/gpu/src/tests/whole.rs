//! The embedded model on a device, and one token through it.

use std::{borrow::Cow, sync::Arc};

use spec_run_gguf::embedded;

use super::{
    super::{Found, GpuBackend, GpuConfig},
    adapter,
};
use crate::{
    Model, Result,
    backend::{Backend, Output, Rows, Seen, SlotView, View, gpu::GpuVariant},
    kv::{CellMove, KvLayout, KvRoom},
    kv_type::KvType,
    plan::UnitSet,
};

fn backend(test: &str) -> Option<(Found, GpuBackend)> {
    let found = adapter(test)?;
    let model = Arc::new(Model::load(Arc::new(embedded::open().unwrap())).unwrap());
    let n_layer = model.n_layer();
    let scratch = KvRoom {
        n_cells: 32,
        n_slots: n_layer,
        max_rows: 8,
        sequences: 1,
        extra_states: 0,
        all_cells: false,
    };
    let config = GpuConfig {
        layout: KvLayout::new(&model.plan, &scratch),
        max_rows: 8,
        key_type: KvType::F16,
        value_type: KvType::F16,
        by_planes: crate::backend::planes::PlanesApart::none(n_layer),
        held: UnitSet::all(n_layer),
        budget: 1 << 30,
        profile: false,
        widths: None,
        variant: GpuVariant::Plain,
        cache: None,
    };
    let backend = GpuBackend::new(model, &found, &config, &|_, _| ()).unwrap();
    Some((found, backend))
}

/// Has something done with a pass over one token.
fn with_a_token<T>(backend: &mut GpuBackend, what: impl FnOnce(&mut GpuBackend, &Rows) -> T) -> T {
    let views =
        [View { lists: vec![Cow::Borrowed(&[0])], visible: vec![Seen { list: 0, from: 0, to: 1, own: 0 }] }];
    let view_of_slot: Vec<_> =
        (0..backend.model.n_layer()).map(|slot| SlotView { slot, window: None, view: 0 }).collect();
    let rows = Rows {
        tokens: &[1],
        positions: &[0],
        cells: &[Cow::Borrowed(&[0][..])],
        outputs: &[0],
        views: &views,
        view_of_slot: &view_of_slot,
        states: &[],
        shortlist: None,
        scales: &[],
    };
    what(backend, &rows)
}

fn run(backend: &mut GpuBackend) -> Result<()> {
    with_a_token(backend, |backend, rows| {
        let model = backend.model.clone();
        let mut logits = vec![0.0; model.plan.dims.n_vocab];
        backend.run(&model.plan.steps(None), rows, Output::Logits(&mut logits))
    })
}

/// What a device that goes away leaves behind: an error at the next call, in one line, and no panic.
#[test]
fn a_lost_device_is_one_clear_line() {
    let Some((found, mut backend)) = backend("a_lost_device_is_one_clear_line") else { return };
    run(&mut backend).unwrap();
    backend.gpu.device.destroy();
    let is_clear = |result: Result<()>| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("lost") && message.contains(&found.info.name), "{message}");
        assert!(message.contains("`device` cpu") && message.lines().count() == 1, "{message}");
    };
    for _ in 0..2 {
        is_clear(run(&mut backend));
        is_clear(backend.shift_keys(&[vec![CellMove { src: 0, dst: 1 }]], -1));
    }
}

/// Several threads make the kernels of a pass before it is recorded, and no others.
#[test]
fn the_kernels_of_a_pass_are_foreseen() {
    let Some((_, mut backend)) = backend("the_kernels_of_a_pass_are_foreseen") else { return };
    with_a_token(&mut backend, |backend, rows| {
        let model = backend.model.clone();
        let (steps, mut logits) = (model.plan.steps(None), vec![0.0; model.plan.dims.n_vocab]);
        backend.send(rows).unwrap();
        let shape = backend.shape(&steps, rows, &Output::Logits(&mut logits), &[]).unwrap();
        backend.lower_repeated(&shape, &steps, rows);
    });
    backend.pipelines.settle();
    let foreseen = backend.pipelines.waiting();
    assert!(foreseen > 5, "{foreseen}");
    run(&mut backend).unwrap();
    assert_eq!((backend.pipelines.made(), backend.pipelines.waiting()), (foreseen, 0));
}
