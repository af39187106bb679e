//! The states of recurrent layers take the memory that a placement says, and no more. Alone in its file: it counts a whole
//! program's memory.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use spec_run::{Batch, Context, ContextConfig, Gguf, Model, embedded, placement::Unit};
use spec_run_backend::kv::{KvLayout, KvRoom};
use spec_run_synth::{Recipe, Recurrent, Shape, Skippable};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn hybrid() -> Arc<Model> {
    let shape = Shape {
        layers: 8,
        dim: 128,
        ffn: 128,
        heads: 2,
        kv_heads: 1,
        head_dim: 64,
        vocab: 2048,
        further: 0,
        recurrent: Some(Recurrent::GatedDelta { kernel: 4, heads: 8, key_heads: 4, head_dim: 64 }),
        ..Shape::preset("qwen3.5-4b").unwrap()
    };
    let mix = "q8_0".parse().unwrap();
    let recipe = Recipe { name: "hybrid".into(), shape, mix, seed: 3, skippable: Skippable::default() };
    let mut file = Vec::new();
    let synth = recipe.plan(&embedded::open().unwrap()).unwrap();
    synth.write(&mut file, 1, |_| ControlFlow::Continue(())).unwrap();
    Arc::new(Model::load(Arc::new(Gguf::from_bytes("hybrid", file).unwrap())).unwrap())
}

#[test]
fn states_take_what_was_said() {
    const ROWS: usize = 64;
    let model = hybrid();
    let config = ContextConfig { n_ctx: 2048, n_ubatch: ROWS, sequences: 2, ..ContextConfig::default() };
    let mut context = Context::new(model.clone(), &config).unwrap();
    // Beside the weights of layers without attention there is nothing but states.
    let recurrent = |unit| matches!(unit, Unit::Attn(layer) if model.plan.mixers_of(layer).next().is_some());
    let parts = context.placement().parts.clone();
    let said: u64 =
        parts.iter().filter(|(part, _)| recurrent(part.unit)).map(|(part, _)| part.overhead).sum();
    // By hand: 6 layers; 8 heads of 64 times 64, 3 inputs of 1024 channels; 1024 channels and 16 gates for each row.
    let of_one = 6 * 4 * (8 * 64 * 64 + 3 * 1024 + ROWS * (1024 + 16));
    let room =
        KvRoom { n_cells: 2048, n_slots: 8, max_rows: ROWS, sequences: 2, extra_states: 0, all_cells: false };
    let count = KvLayout::new(&model.plan, &room).states;
    assert_eq!(said as usize, count * of_one);

    // The first batch also makes buffers, and takes memory for one state without a state before it.
    let batch = |seq: u32, n: usize| Batch::prompt(&vec![5; ROWS], (n * ROWS) as u32, seq);
    context.decode(&batch(0, 0)).unwrap();
    let before = HELD.load(Ordering::Relaxed);
    let mut texts = 0;
    let refused = loop {
        let decoded = (0..2).try_for_each(|n| match (texts, n) {
            (0, 0) => Ok(()),
            _ => context.decode(&batch(texts, n)),
        });
        match decoded {
            Ok(()) => texts += 1,
            Err(e) => break e.to_string(),
        }
    };
    assert!(refused.contains("no room for the states"), "{refused}");
    let taken = HELD.load(Ordering::Relaxed) - before;
    let left = (count - 1) * of_one;
    let attention = |unit| matches!(unit, Unit::Attn(_)) && !recurrent(unit);
    let kv: u64 = parts.iter().filter(|(part, _)| attention(part.unit)).map(|(part, _)| part.overhead).sum();
    assert!(
        texts as usize >= count / 2 - 1 && taken <= left + kv as usize && taken * 100 > left * 95,
        "{taken} of {left}, {texts} texts"
    );
}
