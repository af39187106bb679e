//! Models that are on the GPU in part, and what cannot be.

use crate::common;
use common::{
    all_logits, bits, context, embedded_model,
    gpu::{self, ROUNDING, f32_cache, floats, in_floats, on, relative_error},
    load, tokens,
};
use spec_run::{
    Batch, Context, ContextConfig,
    context::{Device, KvType, Streaming},
    placement::{Unit, UnitSet},
};

/// Parts of the model on the GPU, the rest on the CPU, in every pattern: the same function.
#[test]
fn hybrid_runs_give_the_same_logits() {
    let Some(device) = gpu::device("hybrid_runs_give_the_same_logits") else { return };
    let quantized = embedded_model();
    let model = in_floats(&quantized);
    let text = tokens(12, 4, model.n_vocab());
    let want = floats(&all_logits(&mut context(&model, f32_cache), &text));
    let layers = |f: fn(usize) -> bool| (0..16).map(f).collect::<Vec<_>>();
    let (none, all) = (layers(|_| false), layers(|_| true));
    let held = |attn: &[bool], mlp: &[bool], [embed, head]: [bool; 2]| {
        UnitSet::of(16, |unit| match unit {
            Unit::Embed => embed,
            Unit::Attn(l) => attn[l],
            Unit::Mlp(l) | Unit::Experts(l) => mlp[l],
            Unit::Head | Unit::Ahead => head,
        })
    };
    let patterns = [
        ("everything", held(&all, &all, [true, true])),
        ("the first half", held(&layers(|l| l < 8), &layers(|l| l < 8), [true, false])),
        ("alternating sublayers", held(&layers(|l| l % 2 == 0), &layers(|l| l % 2 == 1), [false, true])),
        ("attention", held(&all, &none, [false, false])),
        ("MLPs", held(&none, &all, [true, true])),
        ("the head", held(&none, &none, [false, true])),
    ];
    for (name, held) in patterns {
        let mut context = on(&device, &model, |c| {
            f32_cache(c);
            c.n_ubatch = 5;
            c.placement.on_gpu = Some(held);
        });
        let got = all_logits(&mut context, &text);
        for (row, (got, want)) in floats(&got).iter().zip(&want).enumerate() {
            let error = relative_error(got, want);
            assert!(error < ROUNDING, "{name}: row {row}: {error}");
        }
        // And the same bits one row at a time, where a pass crosses between devices for each.
        context.remove(0);
        for (i, &token) in text.iter().enumerate().take(6) {
            context.decode(&Batch::prompt(&[token], i as u32, 0)).unwrap();
            assert!(bits(context.logits(0)) == got[i], "{name}: row {i}");
        }
        // Or where only the last row is wanted, and not of every piece of the batch.
        context.remove(0);
        context.decode(&Batch::prompt(&text[..3], 0, 0)).unwrap();
        context.decode(&Batch::prompt(&text[3..], 3, 0)).unwrap();
        assert!(bits(context.logits(0)) == got[11], "{name}: the last row alone");
    }
}

/// What lies in RAM is multiplied there or on the GPU: a batch as a whole, in pieces on either side of the limit, and row
/// by row give the same bits.
#[test]
fn streaming_changes_no_bit() {
    let Some(device) = gpu::device("streaming_changes_no_bit") else { return };
    let model = embedded_model();
    let text = tokens(40, 4, model.n_vocab());
    let on_gpu = UnitSet::of(16, |unit| unit.layer().is_some_and(|layer| layer >= 13) || unit == Unit::Head);
    let open = |streaming| {
        on(&device, &model, |c| {
            c.streaming = streaming;
            c.placement.on_gpu = Some(on_gpu.clone());
        })
    };
    let mut never = open(Streaming::Never);
    assert!(!never.describe().contains("on the GPU"), "{}", never.describe());
    let want = all_logits(&mut never, &text);
    let mut streaming = open(Streaming::From(9));
    assert!(streaming.describe().contains("passes of 9 rows or more on the GPU"), "{}", streaming.describe());
    assert!(all_logits(&mut streaming, &text) == want, "all at once");
    for piece in [1, 8, 9, 13] {
        streaming.remove(0);
        for (i, tokens) in text.chunks(piece).enumerate() {
            streaming.decode(&Batch::prompt(tokens, (i * piece) as u32, 0)).unwrap();
            let last = i * piece + tokens.len() - 1;
            assert!(bits(streaming.logits(0)) == want[last], "pieces of {piece}: row {last}");
        }
    }
}

#[test]
fn a_budget_is_kept_and_the_rest_runs_on_the_cpu() {
    let Some(device) = gpu::device("a_budget_is_kept_and_the_rest_runs_on_the_cpu") else { return };
    let model = embedded_model();
    let text = tokens(10, 4, model.n_vocab());
    let want = floats(&all_logits(&mut context(&in_floats(&model), |_| {}), &text));
    let context = on(&device, &model, |c| c.placement.vram = Some(8 << 20));
    let mut context = context;
    assert!(context.is_divided() && context.notes().is_empty(), "{:?}", context.notes());
    let gpu = context.placement().on_gpu();
    let layers = gpu.attn.iter().chain(&gpu.mlp).filter(|&&here| here).count();
    assert!((2..32).contains(&layers), "{layers} sublayers on the GPU");
    for (got, want) in floats(&all_logits(&mut context, &text)).iter().zip(&want) {
        assert!(relative_error(got, want) < 0.03);
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let Some(device) = gpu::device("what_cannot_be_opened_says_why") else { return };
    let model = embedded_model();
    let open = |edit: &dyn Fn(&mut ContextConfig)| {
        let mut config = ContextConfig { n_ctx: 64, ..ContextConfig::default() };
        config.device = Device::Named(device.clone());
        edit(&mut config);
        Context::new(model.clone(), &config).err().expect("it cannot be opened").to_string()
    };
    let no_such = open(&|c| c.device = Device::Named("Voodoo 2".into()));
    assert!(no_such.contains("Voodoo 2") && no_such.contains(&device), "{no_such}");
    let tiny = open(&|c| c.placement.vram = Some(100 << 10));
    assert!(tiny.contains("nothing fits") && tiny.contains("`vram`"), "{tiny}");
    let too_many = open(&|c| (c.placement.vram, c.placement.gpu_layers) = (Some(6 << 20), Some(16)));
    assert!(too_many.contains("`gpu_layers` 16"), "{too_many}");
    let both = open(&|c| (c.device, c.placement.gpu_layers) = (Device::Cpu, Some(3)));
    assert!(both.contains("`gpu_layers`") && both.contains("cpu"), "{both}");
    let short_heads = format!("{}/tests/golden/tiny/qwen3.gguf", env!("CARGO_MANIFEST_DIR"));
    let mut config = ContextConfig { value_type: KvType::Q8_0, ..ContextConfig::default() };
    config.device = Device::Named(device.clone());
    let no_blocks = Context::new(load(short_heads.as_ref()), &config).err().unwrap().to_string();
    assert!(no_blocks.contains("q8_0") && no_blocks.contains("heads of a multiple of 32"), "{no_blocks}");
}
