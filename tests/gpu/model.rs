//! Whole models on the GPU: against the CPU, and the promise of the same bits among the GPU's own regimes.

use crate::common;
use std::sync::Arc;

use common::{
    all_logits, bits, coarse, context, embedded_model, fixture,
    gpu::{self, ROUNDING, first_layers, on},
    in_floats::{f32_cache, floats, in_floats, relative_error},
    load, same_in_batches, tokens, with_logits,
};
use spec_run::{
    Batch, Context, ContextConfig, Model, RunLayers,
    context::{GpuVariant, GpuWidths, KvType},
    mask::LayerBits,
    placement::{Unit, UnitSet},
};

#[test]
fn logits_are_those_of_the_cpu_computing_in_floats() {
    const TEST: &str = "logits_are_those_of_the_cpu_computing_in_floats";
    let Some(device) = gpu::device(TEST) else { return };
    let names = ["q4_0", "q4_k", "q5_k", "q6_k", "q2_k", "q3_k", "iq4_nl", "iq4_xs", "f16"];
    let names = names.map(|n| format!("stories13m-{n}")).into_iter().chain(["stories260K".to_string()]);
    let fixtures = names.filter_map(|name| fixture(TEST, &format!("models/{name}.gguf")));
    let models = std::iter::once(embedded_model()).chain(fixtures.map(|path| load(&path)));
    for model in models {
        // More than eight rows, so both regimes: tiles for the text, single rows for the rest.
        let text = tokens(12, 1, model.n_vocab());
        let want = floats(&all_logits(&mut context(&in_floats(&model), f32_cache), &text));
        let got = floats(&all_logits(&mut on(&device, &model, f32_cache), &text));
        for (row, (got, want)) in got.iter().zip(&want).enumerate() {
            let error = relative_error(got, want);
            println!("{}: row {row}: {error:.1e}", model.gguf.name());
            assert!(error < ROUNDING, "{}: row {row}: {error}", model.gguf.name());
        }
    }
}

/// Small models of the architectures, with odd sizes, biases, head norms and scaled rotations.
#[test]
fn every_architecture_gives_the_cpus_logits() {
    const TEST: &str = "every_architecture_gives_the_cpus_logits";
    let Some(device) = gpu::device(TEST) else { return };
    for name in ["llama-3-factors", "llama-biases", "llama-linear", "qwen2-yarn", "qwen2", "qwen3"] {
        let path = format!("{}/tests/golden/tiny/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        let model = load(path.as_ref());
        let text = tokens(20, 3, model.n_vocab());
        let want = floats(&all_logits(&mut context(&in_floats(&model), f32_cache), &text));
        let got = floats(&all_logits(&mut on(&device, &model, f32_cache), &text));
        for (row, (got, want)) in got.iter().zip(&want).enumerate() {
            let error = relative_error(got, want);
            assert!(error < ROUNDING, "{name}: row {row}: {error}");
        }
    }
}

/// Along the CPU's own choices, so that one difference does not hide the rest: the GPU's first choice is the
/// same wherever the CPU's margin is more than twice what the two differ by.
#[test]
fn greedy_choices_are_the_cpus_where_the_margin_allows() {
    let Some(device) = gpu::device("greedy_choices_are_the_cpus_where_the_margin_allows") else { return };
    let model = embedded_model();
    let (mut cpu, mut gpu) = (context(&model, |_| {}), on(&device, &model, |_| {}));
    let prompt = tokens(5, 9, model.n_vocab());
    cpu.decode(&Batch::prompt(&prompt, 0, 0)).unwrap();
    gpu.decode(&Batch::prompt(&prompt, 0, 0)).unwrap();
    let mut decided = 0;
    for step in 0..24 {
        let (want, got) = (cpu.logits(0), gpu.logits(0));
        let best = |x: &[f32]| (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap();
        let first = best(want);
        let second = (0..want.len()).filter(|&i| i != first).map(|i| want[i]).fold(f32::MIN, f32::max);
        let off = std::iter::zip(want, got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        if want[first] - second > 2.0 * off {
            assert_eq!(best(got), first, "step {step}");
            decided += 1;
        }
        for context in [&mut cpu, &mut gpu] {
            context.decode(&Batch::prompt(&[first as u32], prompt.len() as u32 + step, 0)).unwrap();
        }
    }
    assert!(decided >= 12, "only {decided} of 24 choices were clear");
}

fn models(test: &str) -> Vec<Arc<Model>> {
    let mut models = vec![embedded_model()];
    for name in ["stories13m-q4_k", "stories13m-q6_k", "stories260K"] {
        models.extend(fixture(test, &format!("models/{name}.gguf")).map(|path| load(&path)));
    }
    models
}

#[test]
fn a_row_is_the_same_in_a_batch_of_any_size() {
    const TEST: &str = "a_row_is_the_same_in_a_batch_of_any_size";
    let Some(device) = gpu::device(TEST) else { return };
    for (i, model) in models(TEST).into_iter().enumerate() {
        // What is left over of a batch of eight or sixteen is a size that there is anyway.
        let text = tokens(20, 1, model.n_vocab());
        let mut context = on(&device, &model, |_| {});
        let together = all_logits(&mut context, &text);
        // Every size has kernels of its own, and llvmpipe is slow to make them.
        let sizes: &[usize] = if i == 0 { &[1, 2, 3, 4, 5, 6, 7, 8, 9, 16] } else { &[1, 4, 8, 16] };
        for &size in sizes {
            same_in_batches(&mut context, &text, size, &together, &model.name);
        }
    }
}

/// The widths that real GPUs are given: the same promise, and other bits than the narrow kernels'.
#[test]
fn wide_kernels_keep_the_promise_too() {
    let Some(device) = gpu::device("wide_kernels_keep_the_promise_too") else { return };
    let model = embedded_model();
    let text = tokens(12, 1, model.n_vocab());
    let wide = |c: &mut ContextConfig| {
        f32_cache(c);
        c.gpu_widths = Some(GpuWidths::CARD);
    };
    let mut context = on(&device, &model, wide);
    let together = all_logits(&mut context, &text);
    let want = floats(&all_logits(&mut common::context(&in_floats(&model), f32_cache), &text));
    for (row, (got, want)) in floats(&together).iter().zip(&want).enumerate() {
        assert!(relative_error(got, want) < ROUNDING, "row {row}");
    }
    context.remove(0);
    for (pos, part) in [(0, &text[..1]), (1, &text[1..6]), (6, &text[6..7])] {
        let batch = with_logits(part, pos);
        context.decode(&batch).unwrap();
        for i in 0..part.len() {
            assert!(bits(context.logits(i)) == together[pos as usize + i], "row {}", pos as usize + i);
        }
    }
}

/// What `--gpu-variant` takes, as far as the device offers it; of the rest the test says so.
fn variants(test: &str, names: &[&str]) -> Vec<(String, GpuVariant)> {
    let Some(found) = gpu::found(test) else { return Vec::new() };
    let parsed = names.iter().map(|name| (name.to_string(), name.parse().unwrap()));
    let offered = parsed.filter(|(name, wanted)| match wanted {
        GpuVariant::Tried => true,
        variant => {
            let checked = found.offers(*variant);
            if let Err(e) = &checked {
                eprintln!("NOT RUN: {test} with {name}: {e}");
            }
            checked.is_ok()
        }
    });
    offered.collect()
}

/// Whatever kernels run: a row has one value, in a batch of any size and in wide workgroups and narrow ones.
#[test]
fn a_row_is_the_same_in_a_batch_of_any_size_under_every_variant() {
    const TEST: &str = "a_row_is_the_same_in_a_batch_of_any_size_under_every_variant";
    let models = models(TEST);
    for (name, wanted) in variants(TEST, &["dot4", "coop"]) {
        let device = gpu::device(TEST).unwrap();
        for (model, tuning) in models.iter().take(2).zip([None, Some(GpuWidths::CARD)]) {
            let text = tokens(20, 1, model.n_vocab());
            let mut context = on(&device, model, |c| (c.gpu_variant, c.gpu_widths) = (wanted, tuning));
            assert!(context.describe().contains(&name), "{}", context.describe());
            let together = all_logits(&mut context, &text);
            for size in [1, 4, 8, 16] {
                context.remove(0);
                for (i, part) in text.chunks(size).enumerate() {
                    let batch = with_logits(part, (i * size) as u32);
                    context.decode(&batch).unwrap();
                    for j in 0..part.len() {
                        let row = i * size + j;
                        assert!(
                            bits(context.logits(j)) == together[row],
                            "{name}, {}: row {row}, batches of {size}",
                            model.name
                        );
                    }
                }
            }
        }
    }
}

/// Rounded activations are what the CPU has, too: what a model loses by them there says what it may lose here.
#[test]
fn logits_under_a_variant_are_as_near_as_its_rounding_allows() {
    const TEST: &str = "logits_under_a_variant_are_as_near_as_its_rounding_allows";
    for model in models(TEST) {
        let text = tokens(12, 1, model.n_vocab());
        let exact = floats(&all_logits(&mut context(&in_floats(&model), f32_cache), &text));
        let of_cpu = floats(&all_logits(&mut context(&model, f32_cache), &text));
        let error = |rows: &[Vec<f32>]| {
            let errors = rows.iter().zip(&exact).map(|(got, want)| relative_error(got, want).powi(2));
            (errors.sum::<f64>() / rows.len() as f64).sqrt()
        };
        let by_cpu = error(&of_cpu);
        for (name, wanted) in variants(TEST, &["plain", "dot4", "coop"]) {
            let device = gpu::device(TEST).unwrap();
            let edit = |c: &mut ContextConfig| {
                f32_cache(c);
                c.gpu_variant = wanted;
            };
            let got = error(&floats(&all_logits(&mut on(&device, &model, edit), &text)));
            println!("{} {name}: {got:.1e}, the CPU {by_cpu:.1e}", model.gguf.name());
            let limit = match name.as_str() {
                "dot4" | "coop" => ROUNDING.max(2.0 * by_cpu),
                _ => ROUNDING,
            };
            assert!(got < limit, "{} {name}: {got}, the CPU {by_cpu}", model.gguf.name());
        }
    }
}

/// A first run tries the variants and keeps the outcome and what the driver compiled; damage is ignorance.
#[test]
fn what_a_first_run_finds_out_is_kept() {
    const TEST: &str = "what_a_first_run_finds_out_is_kept";
    let Some(device) = gpu::device(TEST) else { return };
    let model = embedded_model();
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("gpu");
    let text = tokens(3, 1, model.n_vocab());
    let run = || {
        let started = std::time::Instant::now();
        let mut context = on(&device, &model, |c| {
            c.gpu_variant = GpuVariant::Tried;
            c.gpu_cache = Some(cache.clone());
        });
        let logits = all_logits(&mut context, &text);
        (context.describe(), logits, started.elapsed())
    };
    let (kernels, logits, first) = run();
    let mut files: Vec<_> = std::fs::read_dir(&cache).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let names = files.iter().map(|f| f.extension().unwrap().to_str().unwrap()).collect::<Vec<_>>();
    assert!(names.iter().any(|name| name.starts_with("trial")), "{names:?}");
    let (again, same, second) = run();
    println!("{kernels}: first run {first:?}, second {second:?}; {names:?}");
    assert!(again == kernels && same == logits);
    for file in &files {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }
    run();
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), files.len());
}

/// Contexts of more than a chunk of attention are split over workgroups for a few rows, and walked whole for many.
#[test]
fn a_long_context_is_the_same_split_or_whole() {
    let Some(device) = gpu::device("a_long_context_is_the_same_split_or_whole") else { return };
    let model = embedded_model();
    let text = tokens(300, 6, model.n_vocab());
    // Wide workgroups leave a device idle with so few rows, so that these are split too, in pieces.
    for tuning in [None, Some(GpuWidths::CARD)] {
        let mut context = on(&device, &model, |c| c.gpu_widths = tuning);
        let mut batch = Batch::prompt(&text, 0, 0).with_layers(first_layers(4));
        batch.rows[250..].iter_mut().for_each(|row| row.logits = true);
        context.decode(&batch).unwrap();
        let together: Vec<_> = (0..50).map(|i| bits(context.logits(i))).collect();
        context.truncate(0, 250).unwrap();
        let mut at = 250;
        for rows in [1, 2, 8, 1, 38] {
            let batch = with_logits(&text[at..at + rows], at as u32).with_layers(first_layers(4));
            context.decode(&batch).unwrap();
            for i in 0..rows {
                assert!(bits(context.logits(i)) == together[at - 250 + i], "{tuning:?}: row {}", at + i);
            }
            at += rows;
        }
    }
}

#[test]
fn a_row_does_not_see_its_neighbours_nor_the_past_of_its_cells() {
    let Some(device) = gpu::device("a_row_does_not_see_its_neighbours_nor_the_past_of_its_cells") else {
        return;
    };
    let model = embedded_model();
    let n_vocab = model.n_vocab();
    let mut context = on(&device, &model, |_| {});
    let text = tokens(30, 6, n_vocab);
    context.decode(&Batch::prompt(&text, 0, 0)).unwrap();
    let alone = bits(context.logits(0));
    // A fork that went another way and came back, on cells that others used before, beside another sequence.
    context.remove(0);
    context.decode(&Batch::prompt(&tokens(20, 7, n_vocab), 0, 3)).unwrap();
    context.decode(&Batch::prompt(&text[..20], 0, 0)).unwrap();
    context.remove(3);
    context.fork(0, 1);
    context.decode(&Batch::prompt(&tokens(9, 8, n_vocab), 20, 1)).unwrap();
    context.truncate(1, 11).unwrap();
    context.remove(0);
    let mut batch = Batch::new();
    for (i, &token) in text[11..].iter().enumerate() {
        batch.push(token, 11 + i as u32, 1, i + 12 == text.len());
        batch.push(text[i], i as u32, 5, false);
        batch.push(text[2 * i % 30], i as u32, 6, false);
    }
    context.decode(&batch).unwrap();
    assert_eq!(bits(context.logits(0)), alone);
}

#[test]
fn masks_work_and_never_leak_into_a_full_pass() {
    let Some(device) = gpu::device("masks_work_and_never_leak_into_a_full_pass") else { return };
    let model = embedded_model();
    let text = tokens(24, 3, model.n_vocab());
    let floats_model = in_floats(&model);
    let repeated: Vec<_> = (0..9).chain(5..16).map(|l| (l, LayerBits::FULL)).collect();
    let masks = [
        RunLayers::all(16).skip_attn(3).skip_attn(4).skip_mlp(9),
        RunLayers::from_steps(16, repeated).unwrap(),
    ];
    let with_room = |c: &mut ContextConfig| {
        f32_cache(c);
        c.extra_slots = 4;
    };
    let mut gpu = on(&device, &model, with_room);
    let mut cpu = context(&floats_model, with_room);
    gpu.decode(&Batch::prompt(&text, 0, 0)).unwrap();
    let plain = bits(gpu.logits(0));
    for mask in masks {
        for context in [&mut gpu, &mut cpu] {
            context.remove(0);
            context.decode(&Batch::prompt(&text[..15], 0, 0)).unwrap();
            context.fork(0, 1);
            for (i, &token) in text[15..].iter().enumerate() {
                context.decode(&Batch::prompt(&[token], 15 + i as u32, 1).with_layers(mask.clone())).unwrap();
            }
        }
        let error = relative_error(gpu.logits(0), cpu.logits(0));
        assert!(error < ROUNDING, "{mask}: {error}");
        gpu.decode(&Batch::prompt(&text[15..], 15, 0)).unwrap();
        assert_eq!(bits(gpu.logits(0)), plain, "{mask}");
        gpu.remove(1);
    }
}

/// From the high bits alone: another result, and about the same one.
#[test]
fn coarse_sublayers_read_the_high_planes() {
    let Some(device) = gpu::device("coarse_sublayers_read_the_high_planes") else { return };
    let model = embedded_model();
    let text = tokens(12, 3, model.n_vocab());
    let mut context = on(&device, &model, |_| {});
    let full = floats(&all_logits(&mut context, &text));
    let mask = coarse(16);
    assert!(context.mask_cost(&mask) < 0.7, "{}", context.mask_cost(&mask));
    context.remove(0);
    let batch = with_logits(&text, 0).with_layers(mask.clone());
    context.decode(&batch).unwrap();
    for (i, full) in full.iter().enumerate() {
        let error = relative_error(context.logits(i), full);
        assert!((1e-3..0.5).contains(&error), "row {i}: {error}");
    }
}

#[test]
fn a_shifted_context_goes_on_as_on_the_cpu() {
    let Some(device) = gpu::device("a_shifted_context_goes_on_as_on_the_cpu") else { return };
    let model = embedded_model();
    let text = tokens(40, 5, model.n_vocab());
    let run = |mut context: Context| {
        context.decode(&Batch::prompt(&text[..30], 0, 0)).unwrap();
        // Some cells are shared, and copied.
        context.fork(0, 1);
        context.truncate(1, 20).unwrap();
        context.shift(0, 4, 10).unwrap();
        context.decode(&Batch::prompt(&text[30..], 20, 0)).unwrap();
        let shifted = context.logits(0).to_vec();
        context.decode(&Batch::prompt(&text[20..30], 20, 1)).unwrap();
        [shifted, context.logits(0).to_vec()]
    };
    let want = run(context(&in_floats(&model), f32_cache));
    let got = run(on(&device, &model, f32_cache));
    for (got, want) in got.iter().zip(&want) {
        assert!(relative_error(got, want) < ROUNDING);
    }
}

/// Keys and values of eight bits and fewer are rounded as on the CPU. A number between two steps may go either way, which
/// is rare in a layer by itself; but what comes of it moves more of them in every layer above. Rounding in another way
/// would be as far from the CPU's as that is from none.
#[test]
fn keys_and_values_in_few_bits_are_the_cpus() {
    let Some(device) = gpu::device("keys_and_values_in_few_bits_are_the_cpus") else { return };
    let model = in_floats(&embedded_model());
    let text = tokens(300, 7, model.n_vocab());
    // The last rows of a text that is more than a chunk of attention, and what follows a shift of it.
    let run = |context: &mut Context, mask: &RunLayers| -> Vec<Vec<f32>> {
        context.remove(0);
        context.remove(1);
        let mut batch = Batch::prompt(&text, 0, 0).with_layers(mask.clone());
        batch.rows[290..].iter_mut().for_each(|row| row.logits = true);
        context.decode(&batch).unwrap();
        let mut rows: Vec<_> = (0..10).map(|i| context.logits(i).to_vec()).collect();
        // Some cells are shared, and copied.
        context.fork(0, 1);
        context.truncate(1, 100).unwrap();
        context.shift(0, 4, 40).unwrap();
        context.decode(&Batch::prompt(&text[..3], 260, 0).with_layers(mask.clone())).unwrap();
        rows.push(context.logits(0).to_vec());
        rows
    };
    let distance = |got: &[Vec<f32>], want: &[Vec<f32>]| {
        let squares = got.iter().zip(want).map(|(got, want)| relative_error(got, want).powi(2));
        (squares.sum::<f64>() / got.len() as f64).sqrt()
    };
    let every_second = UnitSet::of(16, |unit| !matches!(unit, Unit::Attn(l) if l % 2 == 1));
    let depths = [1, 3];
    let run_all = |mut context: Context| depths.map(|depth| run(&mut context, &first_layers(depth)));
    let exact = run_all(context(&model, f32_cache));
    for types in [
        (KvType::Q8_0, KvType::Q8_0),
        (KvType::Q8_0, KvType::F32),
        (KvType::F32, KvType::Q8_0),
        (KvType::Q4_0, KvType::Q5_1),
        (KvType::IQ4_NL, KvType::Q4_1),
        (KvType::Q5_0, KvType::BF16),
    ] {
        let stored = |c: &mut ContextConfig| (c.key_type, c.value_type) = types;
        let want = run_all(context(&model, stored));
        for held in [None, Some(every_second.clone())] {
            let got = run_all(on(&device, &model, |c| {
                stored(c);
                c.placement.on_gpu = held.clone();
            }));
            for (i, depth) in depths.into_iter().enumerate() {
                let (error, loss) = (distance(&got[i], &want[i]), distance(&want[i], &exact[i]));
                println!("{depth} layers, {types:?}: {error:.1e} from the CPU's, which lose {loss:.1e}");
                assert!(loss > 1e-5 && error < 0.1 * loss, "{depth} layers, {types:?}: {error}, {loss}");
            }
        }
    }
}

#[test]
fn with_keys_and_values_in_few_bits_a_row_is_the_same_in_any_batch() {
    const TEST: &str = "with_keys_and_values_in_few_bits_a_row_is_the_same_in_any_batch";
    let Some(device) = gpu::device(TEST) else { return };
    let model = embedded_model();
    let text = tokens(300, 8, model.n_vocab());
    for (keys, values, tuning) in [
        (KvType::Q8_0, KvType::Q8_0, None),
        (KvType::F16, KvType::Q8_0, Some(GpuWidths::CARD)),
        (KvType::Q4_0, KvType::Q5_1, None),
        (KvType::IQ4_NL, KvType::Q4_1, Some(GpuWidths::CARD)),
    ] {
        let mut context = on(&device, &model, |c| {
            (c.key_type, c.value_type, c.gpu_widths) = (keys, values, tuning);
        });
        let mut batch = Batch::prompt(&text, 0, 0).with_layers(first_layers(4));
        batch.rows[264..].iter_mut().for_each(|row| row.logits = true);
        context.decode(&batch).unwrap();
        let together: Vec<_> = (0..36).map(|i| bits(context.logits(i))).collect();
        context.truncate(0, 264).unwrap();
        let mut at = 264;
        for size in [1, 2, 3, 4, 5, 6, 7, 8] {
            let batch = with_logits(&text[at..at + size], at as u32).with_layers(first_layers(4));
            context.decode(&batch).unwrap();
            for i in 0..size {
                assert!(bits(context.logits(i)) == together[at - 264 + i], "{keys} {values}: row {}", at + i);
            }
            at += size;
        }
    }
}
