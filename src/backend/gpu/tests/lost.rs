//! What a device that goes away leaves behind: an error at the next call, in one line, and no panic.

use std::{borrow::Cow, sync::Arc};

use super::super::{AdapterChoice, GpuBackend, Variants, choose};
use crate::backend::GpuConfig;
use crate::{
    Model,
    backend::{Backend, Output, Rows, Seen, SlotView, View},
    embedded,
    kv::{CellMove, KvLayout, KvRoom},
    kv_type::KvType,
    plan::UnitSet,
};

#[test]
fn a_lost_device_is_one_clear_line() {
    const TEST: &str = "a_lost_device_is_one_clear_line";
    let found = match choose(&AdapterChoice::Any).or_else(|_| choose(&AdapterChoice::Named("0".into()))) {
        Ok(found) => found,
        Err(e) => {
            assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{TEST}: {e}");
            eprintln!("NOT RUN: {TEST}: {e}");
            return;
        }
    };
    let model = Arc::new(Model::load(Arc::new(embedded::open().unwrap())).unwrap());
    let dims = model.plan.dims;
    let room = KvRoom {
        n_cells: 32,
        n_slots: dims.n_layer,
        max_rows: 8,
        sequences: 1,
        extra_states: 0,
        all_cells: false,
    };
    let config = GpuConfig {
        layout: KvLayout::new(&model.plan, &room),
        max_rows: 8,
        key_type: KvType::F16,
        value_type: KvType::F16,
        by_planes: UnitSet::none(model.n_layer()),
        held: UnitSet::all(dims.n_layer),
        budget: 1 << 30,
        profile: false,
        tuning: None,
        variants: Variants::PLAIN,
        cache: None,
    };
    let mut backend = GpuBackend::new(model.clone(), &found, &config, &|_, _| ()).unwrap();
    let steps = model.plan.steps(None);
    let views = [View { lists: vec![Cow::Borrowed(&[0])], visible: vec![Seen { list: 0, from: 0, to: 1 }] }];
    let view_of_slot: Vec<_> =
        (0..dims.n_layer).map(|slot| SlotView { slot, window: None, view: 0 }).collect();
    let rows = Rows {
        tokens: &[1],
        positions: &[0],
        cells: &[Cow::Borrowed(&[0][..])],
        outputs: &[0],
        views: &views,
        view_of_slot: &view_of_slot,
        states: &[],
        shortlist: None,
    };
    let mut logits = vec![0.0; dims.n_vocab];
    backend.run(&steps, &rows, Output::Logits(&mut logits)).unwrap();
    backend.gpu.device.destroy();
    let is_clear = |result: crate::Result<()>| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("lost") && message.contains(&found.info.name), "{message}");
        assert!(message.contains("`device` cpu") && message.lines().count() == 1, "{message}");
    };
    for _ in 0..2 {
        is_clear(backend.run(&steps, &rows, Output::Logits(&mut logits)));
        is_clear(backend.shift_keys(&[vec![CellMove { src: 0, dst: 1 }]], -1));
    }
}
