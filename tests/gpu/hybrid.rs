//! Models that are on the GPU in part, and what cannot be.

use std::sync::Arc;

use crate::common;
use common::{
    all_logits, bits, coarse, context, embedded_model,
    families::{Family, families},
    gpu::{self, ROUNDING, by_planes, on},
    in_floats::{f32_cache, floats, in_floats, relative_error},
    load,
    nvfp4::{as_it_is, in_nvfp4, loaded},
    retyped, same_in_batches, tokens, with_logits,
};
use spec_run::{
    Batch, Context, ContextConfig, Model,
    context::{Device, KvType, Streaming},
    gguf::TensorInfo,
    placement::{Unit, UnitSet},
    quant::GgmlType,
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
            Unit::Head | Unit::Mtp => head,
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
    let open = |streaming, n_ubatch| {
        on(&device, &model, |c| {
            (c.streaming, c.n_ubatch) = (streaming, n_ubatch);
            c.placement.on_gpu = Some(on_gpu.clone());
        })
    };
    let mut never = open(Streaming::Never, 512);
    assert!(!never.describe().contains("on the GPU"), "{}", never.describe());
    let want = all_logits(&mut never, &text);
    // The second has room for fewer rows than are compared at load.
    for n_ubatch in [512, 16] {
        let mut streaming = open(Streaming::From(9), n_ubatch);
        let said = streaming.describe();
        assert!(said.contains("passes of 9 rows or more on the GPU"), "{said}");
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
}

/// Experts in RAM, in formats of theirs and with factors beside them, and a head there: as above, and whichever experts have
/// enough rows.
#[test]
fn experts_and_a_head_that_stream_change_no_bit() {
    const TEST: &str = "experts_and_a_head_that_stream_change_no_bit";
    let Some(device) = gpu::device(TEST) else { return };
    let is_family = |family: &&Family| ["gpt-oss", "qwen3moe"].contains(&family.name.as_str());
    for family in families().iter().filter(is_family) {
        let with_factors = family.name == "qwen3moe";
        let retyped = retyped(&family.model, |tensor| match tensor.name.as_str() {
            "output.weight" | "token_embd.weight" => GgmlType::Q8_0,
            name if !name.ends_with("_exps.weight") => tensor.ty,
            name if name.contains("up") && with_factors => GgmlType::Q4_0,
            _ => GgmlType::MXFP4,
        });
        let gates = |tensor: &TensorInfo| tensor.name.contains("gate_exps") && with_factors;
        let model = loaded(in_nvfp4(&retyped, gates, |expert| expert % 3, as_it_is));
        let n_layer = model.n_layer();
        let text = tokens(40, 4, model.n_vocab());
        let open = |streaming| {
            on(&device, &model, |c| {
                c.streaming = streaming;
                c.placement.on_gpu = Some(UnitSet::of(n_layer, |unit| matches!(unit, Unit::Attn(_))));
            })
        };
        let want = all_logits(&mut open(Streaming::Never), &text);
        let mut streaming = open(Streaming::From(9));
        let said = streaming.describe();
        assert!(said.contains("experts of 9 or more"), "{said}");
        assert!(all_logits(&mut streaming, &text) == want, "{}: all at once", family.name);
        for piece in [1, 13, 24] {
            same_in_batches(&mut streaming, &text, piece, &want, &family.name);
        }
    }
}

fn with_low_planes_in_ram(
    device: &str,
    model: &Arc<Model>,
    (variant, streaming): (&str, Streaming),
) -> Context {
    on(device, model, |c| {
        (c.gpu_variant, c.streaming) = (variant.parse().unwrap(), streaming);
        let on_cpu = |unit| matches!(unit, Unit::Embed | Unit::Attn(5) | Unit::Mlp(9) | Unit::Attn(10));
        c.placement.on_gpu = Some(UnitSet::of(16, |unit| !on_cpu(unit)));
        // Some layers whole, and some parts of layers.
        let whole = |unit| matches!(unit, Unit::Attn(3) | Unit::Mlp(7) | Unit::Attn(12) | Unit::Mlp(12));
        c.placement.planes_apart = by_planes(UnitSet::of(16, |unit| unit.layer().is_some() && !whole(unit)));
    })
}

/// The lower bits are some nine hundredths of a weight's size (4.6 of 50, Q8_0's root mean square), and only their part of a
/// product meets rows that are rounded, by 0.6 hundredths of their size (one of 127 steps, 2.5 times the root mean square
/// wide, over the root of twelve): 5e-4 of a product, and some ten times that behind the hundred products of 16 layers.
/// Without the low planes it is nine hundredths of every product.
#[test]
fn low_planes_in_ram_give_the_same_logits() {
    let Some(device) = gpu::device("low_planes_in_ram_give_the_same_logits") else { return };
    let model = embedded_model();
    let text = tokens(12, 4, model.n_vocab());
    let want =
        floats(&all_logits(&mut on(&device, &model, |c| c.gpu_variant = "plain".parse().unwrap()), &text));
    let mut apart = with_low_planes_in_ram(&device, &model, ("plain", Streaming::Never));
    assert!(apart.placement().planes_apart().units.mlp[0] && !apart.placement().planes_apart().units.mlp[7]);
    assert!(apart.placement().bytes_in_ram() > 0 && apart.is_divided());
    let got = floats(&all_logits(&mut apart, &text));
    apart.remove(0);
    let batch = with_logits(&text, 0).with_layers(coarse(16));
    apart.decode(&batch).unwrap();
    for (row, (got, want)) in got.iter().zip(&want).enumerate() {
        let (full, high) = (relative_error(got, want), relative_error(apart.logits(row), want));
        println!("row {row}: {full} with low planes, {high} without");
        assert!(full < 0.015 && full < high / 4.0, "row {row}: {full}, without low planes {high}");
    }
}

/// A draft reads no low plane, so it does not matter where that is: each weight is the middle of what its high bits leave open.
#[test]
fn drafts_by_high_planes_are_the_same_wherever_the_low_ones_lie() {
    let Some(device) = gpu::device("drafts_by_high_planes_are_the_same_wherever_the_low_ones_lie") else {
        return;
    };
    let model = embedded_model();
    let mut batch = Batch::prompt(&tokens(12, 4, model.n_vocab()), 0, 0).with_layers(coarse(16));
    batch.rows.iter_mut().for_each(|row| row.logits = true);
    for variant in ["plain", "dot4"] {
        let mut apart = with_low_planes_in_ram(&device, &model, (variant, Streaming::Never));
        let mut whole = on(&device, &model, |c| {
            (c.gpu_variant, c.streaming) = (variant.parse().unwrap(), Streaming::Never);
            c.placement.on_gpu = Some(apart.placement().on_gpu());
            c.placement.planes_apart = by_planes(UnitSet::none(16));
        });
        assert!(
            apart.placement().planes_apart().units.mlp[0] && !whole.placement().planes_apart().units.mlp[0]
        );
        apart.decode(&batch).unwrap();
        whole.decode(&batch).unwrap();
        for row in 0..12 {
            assert!(bits(apart.logits(row)) == bits(whole.logits(row)), "{variant}: row {row}");
        }
    }
}

/// A row has the same bits in a batch of any size, on either side of where rows are multiplied in tiles.
#[test]
fn with_low_planes_in_ram_a_row_is_the_same_in_any_batch() {
    let Some(device) = gpu::device("with_low_planes_in_ram_a_row_is_the_same_in_any_batch") else { return };
    let model = embedded_model();
    // What is left over of each size is a size of its own, or one that is there anyway.
    let text = tokens(17, 4, model.n_vocab());
    // Streamed matrices have the same bits as those that lie there: the last has the plain one's.
    let mut plain = None;
    for (variant, streaming) in
        [("dot4", Streaming::Never), ("plain", Streaming::Never), ("plain", Streaming::From(9))]
    {
        let mut context = with_low_planes_in_ram(&device, &model, (variant, streaming));
        assert_eq!(context.describe().contains("passes of 9 rows"), streaming == Streaming::From(9));
        let want = all_logits(&mut context, &text);
        if variant == "plain" {
            assert!(*plain.get_or_insert_with(|| want.clone()) == want, "{streaming:?}");
        }
        for piece in [1, 4, 8, 9] {
            context.remove(0);
            for (i, tokens) in text.chunks(piece).enumerate() {
                context.decode(&Batch::prompt(tokens, (i * piece) as u32, 0)).unwrap();
                let last = i * piece + tokens.len() - 1;
                assert!(bits(context.logits(0)) == want[last], "{variant}, pieces of {piece}: row {last}");
            }
        }
        gpu::a_coarse_draft_leaves_no_trace(&mut context, &text, &want, variant);
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
