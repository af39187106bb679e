//! Attention over contexts of all lengths, in every form.

use super::{
    super::{pipelines::Pipelines, proof::attention::Case, stored::Stored, tuning::Tuning},
    bits, chosen_in_turn, gpu,
};
use crate::kv_type::KvType::{self, BF16, F16, F32, IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

/// Heads, heads of keys and values, numbers in each, and what keys and values are stored as.
type Shape = (usize, usize, usize, (KvType, KvType));

#[test]
fn attention_is_right_to_rounding_split_and_whole() {
    let shapes = [
        (6, 2, 64, (F16, F16)),
        (10, 2, 24, (F16, F16)),
        (4, 4, 20, (F32, F32)),
        (8, 1, 32, (F16, F32)),
        (4, 2, 128, (F32, F16)),
        (6, 2, 64, (Q8_0, Q8_0)),
        (8, 1, 96, (F16, Q8_0)),
        (2, 1, 288, (Q8_0, F32)),
        (6, 2, 64, (Q4_0, Q4_0)),
        (8, 1, 96, (Q4_1, Q5_1)),
        (4, 2, 128, (Q5_0, Q4_1)),
        (2, 1, 288, (Q5_1, IQ4_NL)),
        (4, 1, 64, (IQ4_NL, Q5_0)),
        (4, 4, 20, (BF16, BF16)),
    ];
    is_right_split_and_whole("attention_is_right_to_rounding_split_and_whole", Tuning::SOFTWARE, &shapes);
}

/// What threads share does not hang on what is stored, so that not all of it is read here.
#[test]
fn attention_of_a_card_is_right_to_rounding_split_and_whole() {
    let shapes = [
        (6, 2, 64, (F16, F16)),
        (10, 2, 24, (F16, F32)),
        (4, 4, 20, (BF16, BF16)),
        (4, 2, 128, (Q8_0, F16)),
        (8, 1, 96, (F32, Q8_0)),
        (2, 1, 288, (Q5_1, IQ4_NL)),
    ];
    is_right_split_and_whole(
        "attention_of_a_card_is_right_to_rounding_split_and_whole",
        Tuning::HARDWARE,
        &shapes,
    );
}

fn is_right_split_and_whole(test: &str, tuning: Tuning, shapes: &[Shape]) {
    let Some(mut gpu) = gpu(test) else { return };
    gpu.tuning = tuning.within(&gpu.limits);
    let mut pipelines = Pipelines::new(&gpu);
    // How heads are split and what threads share does not hang on what is stored, so each shape has one or two of the three other ways.
    let all: [&[(bool, bool)]; 2] = [&[(true, false), (true, true)], &[(false, true)]];
    for (i, &(heads, kv_heads, dim, types)) in shapes.iter().enumerate() {
        let case = Case::new(heads, kv_heads, dim, Stored { keys: types.0, values: types.1 }, 12);
        let what = format!("{heads}/{kv_heads} heads of {dim}, {types:?}");
        for len in [1, 2, 255, 256, 257, 530] {
            let whole = case.run(&gpu, &mut pipelines, &[len], (false, false)).unwrap();
            assert_eq!(case.fault(&whole, &[len]), None, "{what}");
            for (split, shared) in chosen_in_turn(i, &all) {
                let other = case.run(&gpu, &mut pipelines, &[len], (split, shared)).unwrap();
                assert!(bits(&other) == bits(&whole), "{what}: {len} cells, split {split}, shared {shared}");
            }
        }
        // A scale times a whole number of eight bits is exact, and a minimum is added with one rounding, so all that
        // counts is which numbers were stored.
        let stored = case.run(&gpu, &mut pipelines, &[300], (false, true)).unwrap();
        let as_they_are = case.in_f32().run(&gpu, &mut pipelines, &[300], (false, true)).unwrap();
        assert!(bits(&stored) == bits(&as_they_are), "{what}: as numbers");
        // A few rows of different lengths, split; more of them whole; each as if it were alone.
        let few = [257, 1, 530];
        let split = case.run(&gpu, &mut pipelines, &few, (true, false)).unwrap();
        assert_eq!(case.fault(&split, &few), None, "{what}");
        let many: Vec<usize> = (0..12).map(|i| if i < 3 { few[i] } else { 250 + i }).collect();
        let whole = case.run(&gpu, &mut pipelines, &many, (false, true)).unwrap();
        assert_eq!(case.fault(&whole, &many), None, "{what}");
        assert!(bits(&whole[..split.len()]) == bits(&split), "{what}: a row among others");
        for how in [(true, false), (false, true)] {
            let pieces = case.run_in_pieces(&gpu, &mut pipelines, &many, how, 5).unwrap();
            assert!(bits(&pieces) == bits(&whole), "{what}: five rows at a time, {how:?}");
        }
    }
}

/// A sink takes its share once, however a context is cut; and a cap is one for all heads of a workgroup.
#[test]
fn sinks_and_caps_are_right_to_rounding_split_and_whole() {
    let test = "sinks_and_caps_are_right_to_rounding_split_and_whole";
    let Some(gpu) = gpu(test) else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let stored = Stored { keys: F32, values: F16 };
    for (heads, kv_heads, dim, cap) in [(6, 2, 64, 0.0), (8, 1, 32, 2.0), (2, 1, 512, 1.0), (8, 1, 576, 1.0)]
    {
        let case = Case::new(heads, kv_heads, dim, stored, 3).with_sinks(cap);
        for len in [1, 257, 700] {
            let whole = case.run(&gpu, &mut pipelines, &[len], (false, false)).unwrap();
            assert_eq!(case.fault(&whole, &[len]), None, "{heads} heads of {dim}, below {cap}");
            for (split, shared) in [(true, false), (true, true), (false, true)] {
                let other = case.run(&gpu, &mut pipelines, &[len], (split, shared)).unwrap();
                assert!(bits(&other) == bits(&whole), "{len} cells, split {split}, shared {shared}");
            }
        }
    }
}
