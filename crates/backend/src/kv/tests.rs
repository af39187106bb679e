use super::*;
use crate::{
    kv_type::KvType,
    plan::{AttnId, AttnSpec, Buf, Dims, LayerOps, Norm, NormKind, Op, Plan, Unit, UnitSet, WeightId},
};

/// Attention alone, a layer for each window.
fn plan(windows: &[Option<u32>], n_kv_head: usize, head_dim: usize) -> Plan {
    let spec = |&window: &Option<u32>| AttnSpec {
        q: Buf::Q,
        k: Buf::K,
        v: Buf::V,
        out: Buf::A,
        n_head: n_kv_head,
        n_kv_head,
        head_dim,
        rope: None,
        q_norm: None,
        k_norm: None,
        norm_after_rope: false,
        scale: 1.0,
        temperature: None,
        cap: None,
        window,
        sinks: None,
        slopes: None,
        keys_of: None,
        values_are_keys: false,
    };
    let attn = |layer| vec![Op::Store(AttnId(layer)), Op::Attend(AttnId(layer))];
    let norm = Norm { kind: NormKind::Rms, weight: None, bias: None, eps: 0.0 };
    Plan {
        dims: Dims { n_layer: windows.len(), n_vocab: 1, dim: 1 },
        widths: vec![n_kv_head * head_dim; Buf::NAMED],
        attentions: windows.iter().map(spec).collect(),
        n_tokens: 1,
        layers: (0..windows.len() as u32)
            .map(|layer| LayerOps { attn: attn(layer), ..LayerOps::default() })
            .collect(),
        head: Some(Op::Head { norm, weight: WeightId(0), bias: None, scale: 1.0, cap: None }),
        ..Plan::default()
    }
}

fn room(n_cells: usize, n_slots: usize) -> KvRoom {
    KvRoom { n_cells, n_slots, max_rows: 512, sequences: 1, extra_states: 0, all_cells: false }
}

/// With one class, of all cells.
fn plain(n_cells: usize, n_layer: usize) -> KvCache {
    KvCache::new(&KvLayout::new(&plan(&vec![None; n_layer], 1, 1), &room(n_cells, n_layer)), n_layer)
}

fn row(pos: u32, seq: SeqId) -> Row {
    Row { token: 0, pos, seq, logits: false }
}

fn append(kv: &mut KvCache, seq: SeqId, pos: u32, written: Option<WrittenSlots>) -> u32 {
    kv.append(&[row(pos, seq)], written.as_ref()).unwrap()[0]
}

/// On a GPU lies what its layers keep, and the CPU takes no memory for it.
#[test]
fn room_is_for_the_keys_of_the_layers_that_are_held() {
    let plan = plan(&[None, Some(9), None, Some(9)], 2, 32);
    let layout = KvLayout::new(&plan, &room(4096, 5));
    let of = |held: &dyn Fn(usize) -> bool| {
        let held = UnitSet::of(4, |unit| matches!(unit, Unit::Attn(layer) if held(layer)));
        layout.clone().of_units(&plan, &held)
    };
    let bytes = |layout: &KvLayout| layout.bytes(KvType::F16);
    assert_eq!(of(&|_| true), layout);
    assert_eq!(bytes(&of(&|_| false)), 0);
    // The fifth slot may be any layer's.
    let (first, last) = (of(&|layer| layer < 2), of(&|layer| layer >= 2));
    let fifth = u128::from(layout.slot_bytes(4, KvType::F16));
    assert!(fifth > 0 && bytes(&first) + bytes(&last) == bytes(&layout) + fifth);
    assert_eq!(first.slots[1], layout.slots[1]);
    assert_eq!(first.slots[2], SlotShape::default());
    // Cells are counted as they are everywhere.
    assert_eq!(first.classes, layout.classes);
}

#[test]
fn a_slot_holds_the_visit_that_wrote_it_and_no_other() {
    let mut kv = plain(4, 2);
    let second_run_of = |layer| Visit { layer, repetition: 1 };
    let repeats_0 = Arc::new([Some(Visit::first(0)), Some(Visit::first(1)), Some(second_run_of(0))]);
    let plain = append(&mut kv, 0, 0, None);
    let masked = append(&mut kv, 0, 1, Some(repeats_0));
    assert!(kv.holds(plain, 1, Visit::first(1)) && !kv.holds(plain, 2, second_run_of(0)));
    assert!(kv.holds(masked, 1, Visit::first(1)) && kv.holds(masked, 2, second_run_of(0)));
    assert!(!kv.holds(masked, 2, second_run_of(1)), "layer 1's repetition must not see layer 0's key");
    assert_eq!(kv.plain_prefix(0), 1);
}

#[test]
fn freed_cells_forget_what_was_written() {
    let mut kv = plain(1, 1);
    let cell = append(&mut kv, 0, 0, Some(Arc::new([None])));
    assert!(!kv.holds(cell, 0, Visit::first(0)));
    kv.remove(0);
    assert_eq!(append(&mut kv, 1, 0, None), cell);
    assert!(kv.holds(cell, 0, Visit::first(0)));
}

/// Gemma 3 27B: every sixth of 62 layers sees everything, the others 1024 tokens; 16 K/V heads of 128.
#[test]
fn windows_take_the_memory_that_llama_cpp_gives_them() {
    let windows: Vec<_> = (1..=62).map(|layer| (layer % 6 != 0).then_some(1024)).collect();
    let layout = KvLayout::new(&plan(&windows, 16, 128), &room(32768, 62));
    // llama_kv_cache_iswa: min(context, pad(window · sequences + n_ubatch, 256)) cells in a layer with a window.
    let theirs = 2 * 16 * 128 * (10 * 32768 + 52 * (1024 + 512u64).next_multiple_of(256).min(32768));
    let ours = layout.bytes(KvType::F16) as f64;
    assert!(ours / theirs as f64 <= 1.05, "{}", ours / theirs as f64);
    let full = KvLayout::new(&plan(&windows, 16, 128), &KvRoom { all_cells: true, ..room(32768, 62) });
    assert_eq!(full.bytes(KvType::F16), 2 * 16 * 128 * 62 * 32768);
    // What is kept of a cell here and there is next to nothing.
    assert!((KvCache::bytes_for(&layout) as f64) < 0.002 * ours);
}

#[test]
fn every_window_has_its_own_cells_and_others_have_all() {
    let windows = [Some(40), None, Some(700), Some(40), Some(100_000)];
    let layout = KvLayout::new(&plan(&windows, 1, 8), &room(4096, 7));
    let classes: Vec<_> = layout.slots.iter().map(|slot| slot.class).collect();
    assert_eq!(classes, [1, 0, 2, 1, 0, 0, 0], "the slots of repetitions serve any layer");
    let cells: Vec<_> = layout.classes.iter().map(|class| (class.window, class.n_cells)).collect();
    assert_eq!(cells, [(None, 4096), (Some(40), 1024), (Some(700), 1536)]);
    // A short context keeps everything anyway.
    assert_eq!(KvLayout::new(&plan(&windows, 1, 8), &room(768, 5)).classes.len(), 1);
}

/// A layer that reads the keys of one with a smaller window needs more of them.
#[test]
fn shared_keys_are_kept_for_whoever_looks_back_farthest() {
    let class = |windows: [Option<u32>; 2]| {
        let mut plan = plan(&windows, 1, 8);
        plan.attentions[1].keys_of = Some(0);
        let layout = KvLayout::new(&plan, &room(4096, 2));
        assert_eq!(layout.slots[1].n_kv_head, 0, "it stores none");
        layout.classes[layout.slots[0].class].window
    };
    assert_eq!(class([Some(40), Some(40)]), Some(40));
    assert_eq!(class([Some(40), Some(500)]), Some(500));
    assert_eq!(class([Some(40), None]), None);
}

/// Random forks, cuts and removals: what a next row sees is always there, at places that nobody else has.
#[test]
fn what_a_sequence_can_reach_stays() {
    let windows = [Some(5), None, Some(50)];
    let request = KvRoom { max_rows: 16, sequences: 3, ..room(4000, 3) };
    let layout = KvLayout::new(&plan(&windows, 1, 8), &request);
    assert_eq!(layout.classes.len(), 3);
    let mut kv = KvCache::new(&layout, 3);
    let mut state = 7u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let mut refused = 0;
    // How far each sequence, or what it was forked from, has come.
    let mut farthest = [0usize; 3];
    for _ in 0..4000 {
        let seq = below(3) as SeqId;
        match below(10) {
            0 => {
                let from = below(3);
                kv.fork(from as SeqId, seq);
                farthest[seq as usize] = farthest[from];
            }
            1 if kv.len(seq) > 0 => {
                let len = kv.len(seq);
                let least = farthest[seq as usize].saturating_sub(TAKEN_BACK).min(len);
                let back = below(len - least + 1);
                assert!(kv.can_truncate(seq, len - back), "{back} of {len}");
                kv.truncate(seq, len - back);
            }
            2 if kv.len(seq) > 600 => {
                let len = below(kv.len(seq));
                if kv.can_truncate(seq, len) { _ = kv.truncate(seq, len) } else { refused += 1 }
            }
            3 if kv.len(seq) > 900 => {
                kv.remove(seq);
                farthest[seq as usize] = 0;
            }
            _ => {
                let rows: Vec<Row> =
                    (kv.next_pos(seq)..).map(|pos| row(pos, seq)).take(1 + below(16)).collect();
                kv.append(&rows, None).unwrap();
                farthest[seq as usize] = farthest[seq as usize].max(kv.len(seq));
            }
        }
        for (class, window) in [(1, 5), (2, 50)] {
            let mut taken = std::collections::BTreeMap::new();
            for seq in 0..3 {
                let end = i64::from(kv.next_pos(seq));
                for &cell in kv.cells(seq).iter().filter(|&&c| i64::from(kv.pos(c)) > end - window) {
                    let place = kv.windows[class - 1].place(cell).expect("in reach");
                    assert_eq!(kv.place(class, cell), place);
                    assert_eq!(*taken.entry(place).or_insert(cell), cell, "two cells in a place");
                }
            }
        }
    }
    assert!(refused > 0, "everything was kept");
    (0..3).for_each(|seq| kv.remove(seq));
    assert!(kv.windows.iter().all(|of| of.free() == of.capacity()) && kv.free_cells() == kv.capacity());
}

#[test]
fn too_many_texts_for_a_window_are_an_error_that_changes_nothing() {
    let layout = KvLayout::new(&plan(&[None, Some(400)], 1, 8), &KvRoom { max_rows: 64, ..room(8192, 2) });
    let mut kv = KvCache::new(&layout, 2);
    let text = |seq| (0..600).map(move |pos| row(pos, seq)).collect::<Vec<_>>();
    let mut of_text = |seq| text(seq).chunks(64).try_for_each(|rows| kv.append(rows, None).map(|_| ()));
    of_text(0).unwrap();
    let error = of_text(1).unwrap_err().to_string();
    assert!(error.contains("window of 400") && error.contains("`sequences`"), "{error}");
    assert_eq!(kv.len(0), 600);
    assert!(kv.len(1) < 600 && kv.len(1).is_multiple_of(64));
    kv.remove(1);
    assert!(kv.can_truncate(0, 600 - TAKEN_BACK) && kv.room() > 64);
}

#[test]
fn a_shift_that_would_show_lost_cells_is_refused() {
    let layout = KvLayout::new(
        &plan(&[None, Some(100)], 1, 8),
        &KvRoom { max_rows: 64, sequences: 2, ..room(2048, 2) },
    );
    let mut kv = KvCache::new(&layout, 2);
    (0..1000).for_each(|pos| assert!(append(&mut kv, 0, pos, None) < 2048));
    assert!(!kv.can_truncate(0, 500), "the first cells are lost");
    let error = kv.shift(0, 10, 900).unwrap_err().to_string();
    assert!(error.contains("window of 100") && error.contains("`swa_full`"), "{error}");
    assert_eq!((kv.len(0), kv.next_pos(0)), (1000, 1000));
    // Without first tokens to keep, or with enough of the others, it can be done; a fork then keeps what it had.
    kv.fork(0, 1);
    let (moves, delta) = kv.shift(0, 10, 690).unwrap();
    assert_eq!((moves[0].len(), delta, kv.next_pos(0)), (300, -690, 310));
    assert!(moves[1].len() >= 100 + TAKEN_BACK - 1 && moves[1].iter().all(|m| m.src != m.dst));
    assert!(kv.can_truncate(0, 310 - TAKEN_BACK) && kv.can_truncate(1, 1000 - TAKEN_BACK));
    kv.remove(1);
    let (moves, _) = kv.shift(0, 0, 250).unwrap();
    assert!(moves[1].iter().all(|m| m.src == m.dst), "nobody else has them");
    assert_eq!(kv.next_pos(0), 60);
}
