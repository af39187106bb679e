//! RunLayers: what a mask or a list of steps makes the model do, and layer lists of the command line.

use spec_run::{
    Error, RunLayers,
    mask::{LayerBits, LayerList, Step},
};

const FULL: LayerBits = LayerBits::FULL;

fn full_step(layer: usize) -> Step {
    Step { layer, repetition: 0, attn: true, mlp: true, coarse_attn: false, coarse_mlp: false, experts: None }
}

fn layers(text: &str, n_layer: usize) -> Vec<usize> {
    text.parse::<LayerList>().unwrap().resolve("--skip-attn", n_layer).unwrap()
}

#[test]
fn an_untouched_mask_runs_every_layer_in_order() {
    let all = RunLayers::all(3);
    assert!(all.is_full() && all.is_mask());
    assert_eq!(all.steps().collect::<Vec<_>>(), [full_step(0), full_step(1), full_step(2)]);
    assert_eq!((all.n_layer(), all.max_repetitions(), all.extra_repetitions()), (3, 1, 0));
    assert_eq!(all.to_string(), "all 3 layers");
}

#[test]
fn skipping_one_sublayer_leaves_the_other() {
    let mask = RunLayers::all(3).skip_attn(1).skip_mlp(2);
    let steps: Vec<_> = mask.steps().map(|s| (s.layer, s.attn, s.mlp)).collect();
    assert_eq!(steps, [(0, true, true), (1, false, true), (2, true, false)]);
    assert!(!mask.is_full());
    assert!(!mask.runs_attn(1) && mask.runs_mlp(1) && mask.runs_attn(2) && !mask.runs_mlp(2));
}

#[test]
fn a_layer_skipped_altogether_is_no_step() {
    let mask = RunLayers::all(3).skip_attn(1).skip_mlp(1);
    assert_eq!(mask.steps().map(|s| s.layer).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(mask.n_layer(), 3);
}

#[test]
fn everything_skipped_is_no_steps_and_one_kv() {
    let mask = RunLayers::mask(vec![LayerBits::NONE; 4]);
    assert_eq!(mask.steps().count(), 0);
    assert_eq!((mask.max_repetitions(), mask.extra_repetitions()), (1, 0));
    assert_eq!(mask.to_string(), "attn skips 0-3; mlp skips 0-3");
}

#[test]
fn a_layer_beyond_the_model_runs_nothing() {
    assert!(!RunLayers::all(3).runs_attn(3));
    let steps = RunLayers::from_steps(3, [(2, FULL), (0, FULL)]).unwrap();
    assert!(!steps.runs_mlp(3) && !steps.runs_mlp(1) && steps.runs_mlp(0));
}

#[test]
fn the_same_work_is_equal_however_it_is_written() {
    let mask = RunLayers::all(4).skip_attn(1).skip_mlp(1);
    let steps = RunLayers::from_steps(4, [(0, FULL), (2, FULL), (3, FULL)]).unwrap();
    assert_eq!(mask, steps);
    // A step that runs nothing is no step, even where it makes the list look out of order.
    let padded = [(3, LayerBits::NONE), (0, FULL), (2, FULL), (3, FULL)];
    assert_eq!(RunLayers::from_steps(4, padded).unwrap(), mask);
    // A coarse bit without its run bit says nothing.
    let bits = vec![FULL, LayerBits::COARSE_ATTN | LayerBits::COARSE_MLP, FULL, FULL];
    assert_eq!(RunLayers::mask(bits), mask);
    assert_eq!(RunLayers::from_steps(2, [(0, FULL), (1, FULL)]).unwrap(), RunLayers::all(2));
}

#[test]
fn different_work_is_different() {
    let all = RunLayers::all(4);
    assert_ne!(all, RunLayers::all(5));
    assert_ne!(all, all.clone().skip_mlp(3));
    assert_ne!(all, all.clone().coarse_mlp(3));
    assert_ne!(all, RunLayers::from_steps(4, [(1, FULL), (0, FULL), (2, FULL), (3, FULL)]).unwrap());
}

#[test]
fn a_repeated_layer_has_its_own_kv_each_time() {
    let run = RunLayers::from_steps(4, [0, 1, 2, 1, 2, 1, 3].map(|l| (l, FULL))).unwrap();
    let visits: Vec<_> = run.steps().map(|s| (s.layer, s.repetition)).collect();
    assert_eq!(visits, [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (3, 0)]);
    assert!(!run.is_mask() && !run.is_full());
    assert_eq!((run.max_repetitions(), run.extra_repetitions()), (3, 3));
    assert_eq!([0, 1, 2, 3].map(|l| run.repetitions(l)), [1, 3, 2, 1]);
    assert_eq!(run.to_string(), "steps 0-2,1-2,1,3");
}

#[test]
fn repeating_only_the_mlp_needs_no_kv() {
    let run = RunLayers::from_steps(2, [(0, FULL), (0, LayerBits::MLP), (0, FULL), (1, FULL)]).unwrap();
    let visits: Vec<_> = run.steps().filter(|s| s.attn).map(|s| (s.layer, s.repetition)).collect();
    assert_eq!(visits, [(0, 0), (0, 1), (1, 0)]);
    assert_eq!((run.max_repetitions(), run.extra_repetitions()), (2, 1));
    assert_eq!(run.to_string(), "steps 0,0:mlp,0-1");
}

#[test]
fn reordered_layers_keep_the_first_kv() {
    let run = RunLayers::from_steps(3, [2, 1, 0].map(|l| (l, FULL))).unwrap();
    assert!(run.steps().all(|s| s.repetition == 0));
    assert_eq!((run.max_repetitions(), run.extra_repetitions()), (1, 0));
}

#[test]
fn skipping_in_a_list_of_steps_reaches_every_repetition() {
    let list = RunLayers::from_steps(3, [0, 1, 1, 2].map(|l| (l, FULL))).unwrap();
    let run = list.clone().skip_attn(1);
    assert_eq!(run.extra_repetitions(), 0);
    assert_eq!(run.to_string(), "steps 0,1:mlp,1:mlp,2");
    // With the repeated layer gone altogether, what is left is a plain mask.
    assert_eq!(run.skip_mlp(1), RunLayers::all(3).skip_attn(1).skip_mlp(1));
}

#[test]
fn experts_are_kept_beside_run_and_lost_with_skip() {
    let mask = RunLayers::all(4).experts(1, 2).experts(3, 1).coarse_mlp(1);
    assert!(!mask.is_full() && mask.has_experts() && mask.full_prefix() == 1);
    let experts: Vec<_> = mask.steps().map(|step| step.experts).collect();
    assert_eq!(experts, [None, Some(2), None, Some(1)]);
    assert_eq!(mask.to_string(), "mlp coarse 1; 1 expert in 3; 2 experts in 1");
    assert_eq!(mask.clone().experts(3, 4).steps().last().unwrap().experts, Some(4));
    assert!(!mask.skip_mlp(1).skip_mlp(3).has_experts());
    assert!(RunLayers::all(4).skip_mlp(1).experts(1, 2).runs_mlp(1));
    let steps = [(1, FULL | LayerBits::experts(2)), (0, FULL)];
    assert_eq!(RunLayers::from_steps(2, steps).unwrap().to_string(), "steps 1:attn+mlp/2,0");
    // Experts without an MLP say nothing.
    let attention = LayerBits::ATTN | LayerBits::experts(2);
    assert_eq!(RunLayers::mask(vec![attention]), RunLayers::all(1).skip_mlp(0));
}

#[test]
fn coarse_is_kept_beside_run_and_lost_with_skip() {
    let mask = RunLayers::all(4).coarse_attn(1).coarse_mlp(2);
    assert!(!mask.is_full() && mask.has_coarse() && mask.runs_attn(1));
    let step = mask.steps().nth(1).unwrap();
    assert!(step.attn && step.mlp && step.coarse_attn && !step.coarse_mlp);
    assert_eq!(mask.to_string(), "attn coarse 1; mlp coarse 2");
    let skipped = mask.skip_attn(1).skip_mlp(2);
    assert!(!skipped.has_coarse());
    assert_eq!(skipped, RunLayers::all(4).skip_attn(1).skip_mlp(2));
    // The last word counts.
    assert!(skipped.coarse_attn(1).runs_attn(1));
}

#[test]
fn masks_print_as_ranges() {
    let mut mask = RunLayers::all(12);
    for layer in [3, 5, 6, 7, 8] {
        mask = mask.skip_attn(layer);
    }
    assert_eq!(mask.skip_mlp(2).to_string(), "attn skips 3,5-8; mlp skips 2");
}

#[test]
fn steps_print_what_is_left_of_each_layer() {
    let steps = [(1, LayerBits::ATTN), (0, FULL | LayerBits::COARSE_MLP), (0, FULL)];
    let run = RunLayers::from_steps(2, steps).unwrap();
    assert_eq!(run.to_string(), "steps 1:attn,0:attn+mlp~,0");
}

#[test]
fn a_step_beyond_the_model_names_the_layer_and_the_range() {
    let error = RunLayers::from_steps(16, [(0, FULL), (16, FULL)]).unwrap_err();
    assert!(matches!(error, Error::Mask(_)));
    let text = error.to_string();
    for part in ["step 1", "layer 16 does not exist", "16 layers, 0 to 15"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_layer_list_is_layers_and_inclusive_ranges() {
    assert_eq!(layers("all", 3), [0, 1, 2]);
    assert_eq!(layers("3,5-8", 9), [3, 5, 6, 7, 8]);
    assert_eq!(layers(" 3 ,\t5 - 8 ", 9), [3, 5, 6, 7, 8]);
    assert_eq!(layers("8,3,3,2-4,007", 9), [2, 3, 4, 7, 8]);
    assert_eq!(layers("0-0", 1), [0]);
}

#[test]
fn a_malformed_layer_list_says_what_was_wrong() {
    for text in
        ["", " ", ",", "3,", "-3", "3-", "1-2-3", "1.5", "+3", "0x3", "three", "1 2", "99999999999999999999"]
    {
        let error = text.parse::<LayerList>().unwrap_err();
        assert!(error.contains("as in 3,5-8"), "{text:?}: {error}");
    }
    let error = "8-5".parse::<LayerList>().unwrap_err();
    assert!(error.contains("8-5 ends before it begins"), "{error}");
}

#[test]
fn a_layer_list_beyond_the_model_names_flag_layer_and_range_without_spelling_it_out() {
    for (text, layer) in
        [("16", "16"), ("0-4294967295", "4294967295"), ("0-18446744073709551615", "18446744073709551615")]
    {
        let error = text.parse::<LayerList>().unwrap().resolve("--skip-mlp", 16).unwrap_err();
        assert!(matches!(error, Error::Mask(_)));
        let line = error.to_string();
        let parts = ["--skip-mlp", &format!("layer {layer} does not exist"), "0 to 15"];
        assert!(parts.iter().all(|p| line.contains(p)) && line.lines().count() == 1, "{line}");
    }
    let error = "0".parse::<LayerList>().unwrap().resolve("--skip-mlp", 0).unwrap_err();
    assert!(error.to_string().contains("no layers"), "{error}");
}

#[test]
fn a_list_of_steps_has_an_end() {
    let steps = |n: usize| RunLayers::from_steps(2, (0..n).map(|i| (i % 2, FULL)));
    assert!(steps(4096).is_ok());
    let error = steps(4097).unwrap_err().to_string();
    assert!(error.contains("more than 4096 steps"), "{error}");
    assert!(RunLayers::from_steps(2, std::iter::repeat((0, FULL))).is_err());
}
