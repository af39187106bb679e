//! Every stage of the sampler against distributions worked out by hand, and the order of the stages.

use proptest::prelude::*;
use spec_run::{
    sampler::{
        Breakers, Chain, Distribution, Dry, Mirostat, SamplerConfig, Stage, distribution, top_logprobs,
    },
    scores::{Scores, Top, Want, greedy, log_sum_exp},
};

/// Five tokens; by rank: 1 (.4), 4 (.25), 3 (.2), 0 (.1), 2 (.05).
const P: [f32; 5] = [0.1, 0.4, 0.05, 0.2, 0.25];
const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn logits() -> Vec<f32> {
    P.iter().map(|p| p.ln()).collect()
}

/// Every stage off.
fn off() -> SamplerConfig {
    SamplerConfig { temp: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerConfig::default() }
}

fn by_id(of: &Distribution) -> Vec<(u32, f64)> {
    let mut entries: Vec<_> = of.iter().collect();
    entries.sort_by_key(|e| e.0);
    entries
}

fn ids(of: &Distribution) -> Vec<u32> {
    by_id(of).iter().map(|e| e.0).collect()
}

#[track_caller]
fn assert_is(found: &Distribution, expected: &[(u32, f64)]) {
    let ids = |entries: &[(u32, f64)]| entries.iter().map(|e| e.0).collect::<Vec<_>>();
    let by_id = by_id(found);
    assert_eq!(ids(&by_id), ids(expected), "{found:?}");
    for (f, e) in by_id.iter().zip(expected) {
        // The logits are rounded to f32: 2^-24 of at most 3, and the hand-computed digits end at 1e-6.
        assert!((f.1 - e.1).abs() < 2e-6, "{found:?} instead of {expected:?}");
    }
}

#[track_caller]
fn check(config: SamplerConfig, expected: &[(u32, f64)]) {
    config.validate().unwrap();
    assert_is(&distribution(&config, &logits(), &[]), expected);
}

#[test]
fn with_everything_off_it_is_the_softmax() {
    check(off(), &[(0, 0.1), (1, 0.4), (2, 0.05), (3, 0.2), (4, 0.25)]);
}

#[test]
fn temperature_sharpens_below_one_and_flattens_above() {
    // p^2 = .01 .16 .0025 .04 .0625, sum .275.
    let squared = [(0, 0.036364), (1, 0.581818), (2, 0.009091), (3, 0.145455), (4, 0.227273)];
    check(SamplerConfig { temp: 0.5, ..off() }, &squared);
    // √p = .316228 .632456 .223607 .447214 .5, sum 2.119504.
    let roots = [(0, 0.149199), (1, 0.298398), (2, 0.105500), (3, 0.210999), (4, 0.235904)];
    check(SamplerConfig { temp: 2.0, ..off() }, &roots);
}

#[test]
fn temperature_limits_are_one_hot_and_uniform() {
    check(SamplerConfig { temp: f32::MIN_POSITIVE, ..off() }, &[(1, 1.0)]);
    check(SamplerConfig { temp: f32::MAX, ..off() }, &[0, 1, 2, 3, 4].map(|id| (id, 0.2)));
    for temp in [0.0, -0.0, -1.0] {
        check(SamplerConfig { temp, ..off() }, &[(1, 1.0)]);
    }
}

#[test]
fn top_k_keeps_the_k_best() {
    // .4 and .25 of .65.
    check(SamplerConfig { top_k: 2, ..off() }, &[(1, 0.615385), (4, 0.384615)]);
    check(SamplerConfig { top_k: 1, ..off() }, &[(1, 1.0)]);
    for top_k in [5, 6, usize::MAX] {
        check(SamplerConfig { top_k, ..off() }, &[(0, 0.1), (1, 0.4), (2, 0.05), (3, 0.2), (4, 0.25)]);
    }
}

#[test]
fn top_k_prefers_the_lower_id_among_equals() {
    let config = SamplerConfig { top_k: 2, ..off() };
    assert_is(&distribution(&config, &[0.0; 500], &[]), &[(0, 0.5), (1, 0.5)]);
    let mut logits = vec![0.0; 500];
    logits[499] = 1e-3;
    assert_eq!(ids(&distribution(&config, &logits, &[])), [0, 499]);
}

#[test]
fn top_k_finds_the_best_wherever_they_lie() {
    // 577 generates a permutation of the 1009 ranks.
    let rank = |id: u32| id * 577 % 1009;
    let logits: Vec<f32> = (0..1009).map(|id| -(rank(id) as f32)).collect();
    for k in [1, 2, 31, 32, 33, 40, 500, 1008, 1009] {
        let found = distribution(&SamplerConfig { top_k: k as usize, temp: 1e3, ..off() }, &logits, &[]);
        let expected: Vec<_> = (0..1009).filter(|&id| rank(id) < k).collect();
        assert_eq!(ids(&found), expected, "k = {k}");
    }
}

#[test]
fn top_p_keeps_the_fewest_that_hold_p() {
    // .4 < .6 <= .65.
    check(SamplerConfig { top_p: 0.6, ..off() }, &[(1, 0.615385), (4, 0.384615)]);
    // .65 < .7 <= .85: .4 .25 .2 of .85.
    check(SamplerConfig { top_p: 0.7, ..off() }, &[(1, 0.470588), (3, 0.235294), (4, 0.294118)]);
    check(SamplerConfig { top_p: 0.0, ..off() }, &[(1, 1.0)]);
}

#[test]
fn top_p_ranks_far_into_a_large_vocabulary() {
    // p of rank r is proportional to .999^r, r < 5003: the first n hold (1 - .999^n) / (1 - .999^5003), which
    // reaches .95 at n = ln(1 - .95 (1 - .999^5003)) / ln .999 = 2874.45, so 2875 are needed.
    let rank = |id: u64| id * 577 % 5003;
    let logits: Vec<f32> = (0..5003).map(|id| (rank(id) as f64 * 0.999f64.ln()) as f32).collect();
    let found = distribution(&SamplerConfig { top_p: 0.95, ..off() }, &logits, &[]);
    let ids: Vec<_> = ids(&found).into_iter().map(u64::from).collect();
    assert_eq!(ids, (0..5003).filter(|&id| rank(id) < 2875).collect::<Vec<_>>());
}

#[test]
fn min_p_keeps_a_share_of_the_best() {
    // At least .45 × .4 = .18.
    check(SamplerConfig { min_p: 0.45, ..off() }, &[(1, 0.470588), (3, 0.235294), (4, 0.294118)]);
    check(SamplerConfig { min_p: 0.55, ..off() }, &[(1, 0.615385), (4, 0.384615)]);
    check(SamplerConfig { min_p: 1.0, ..off() }, &[(1, 1.0)]);
    let tied = distribution(&SamplerConfig { min_p: 1.0, ..off() }, &[1.0, 3.0, 3.0], &[]);
    assert_is(&tied, &[(1, 0.5), (2, 0.5)]);
}

// -ln p = 2.302585 .916291 2.995732 1.609438 1.386294, entropy 1.415023; distances to it .887563 .498732
// 1.580710 .194415 .028728: the typical order is 4 (.25), 3 (.45 in all), 1 (.85), 0 (.95), 2.
#[test]
fn typical_keeps_what_is_nearest_to_the_entropy() {
    check(SamplerConfig { typical_p: 0.4, ..off() }, &[(3, 0.444444), (4, 0.555556)]);
    check(SamplerConfig { typical_p: 0.5, ..off() }, &[(1, 0.470588), (3, 0.235294), (4, 0.294118)]);
    check(SamplerConfig { typical_p: 0.0, ..off() }, &[(4, 1.0)]);
}

#[test]
fn typical_may_remove_the_best_also_when_greedy() {
    check(SamplerConfig { typical_p: 0.4, temp: 0.0, ..off() }, &[(4, 1.0)]);
}

#[test]
fn top_k_comes_before_typical() {
    // {.4, .25} / .65: information .485508 .955511, entropy .666278: 1 is nearer and holds .615 > .5.
    // The other way round, typical would leave 1, 3, 4 and top-k 1 and 4.
    check(SamplerConfig { top_k: 2, typical_p: 0.5, ..off() }, &[(1, 1.0)]);
}

#[test]
fn typical_comes_before_top_p() {
    // Typical leaves 4 and 3 with .5556 and .4444. The other way round, top-p would leave 1 and 4, typical 1.
    check(SamplerConfig { typical_p: 0.4, top_p: 0.5, ..off() }, &[(4, 1.0)]);
}

#[test]
fn top_p_counts_shares_of_what_top_k_left() {
    // {.4, .25, .2} / .85 = .4706 .2941 .2353: two hold .7647. Of the whole they would hold .65, and three be kept.
    check(SamplerConfig { top_k: 3, top_p: 0.75, ..off() }, &[(1, 0.615385), (4, 0.384615)]);
}

#[test]
fn top_p_comes_before_min_p() {
    // Top-p leaves three, min-p the same three; after min-p, two of three would hold .7647.
    let three = [(1, 0.470588), (3, 0.235294), (4, 0.294118)];
    check(SamplerConfig { top_p: 0.75, min_p: 0.45, ..off() }, &three);
}

#[test]
fn temperature_comes_last() {
    // Min-p leaves .4 .25 .2, roots .632456 .5 .447214. Of roots it would leave token 0 too: .5 >= .45.
    let three = [(1, 0.400372), (3, 0.283106), (4, 0.316522)];
    check(SamplerConfig { min_p: 0.45, temp: 2.0, ..off() }, &three);
    // Top-p leaves .4 and .25. Of the flattened shares .2984, .2359, .2110 it would need three.
    check(SamplerConfig { top_p: 0.6, temp: 2.0, ..off() }, &[(1, 0.558482), (4, 0.441518)]);
}

/// Asserts that with `history` the logits [2, -1, 0, 1] act as `adjusted` does without penalties.
#[track_caller]
fn check_penalties(config: SamplerConfig, history: &[u32], adjusted: [f32; 4]) {
    config.validate().unwrap();
    let found = distribution(&config, &[2.0, -1.0, 0.0, 1.0], history);
    assert_is(&found, &by_id(&distribution(&off(), &adjusted, &[])));
}

#[test]
fn repeat_penalty_moves_both_signs_down() {
    let config = SamplerConfig { repeat_penalty: 2.0, ..off() };
    check_penalties(config.clone(), &[0, 1, 2], [1.0, -2.0, 0.0, 1.0]);
    check_penalties(config, &[1, 0, 1, 1], [1.0, -2.0, 0.0, 1.0]);
}

#[test]
fn frequency_counts_and_presence_does_not() {
    let history = [3, 3, 0];
    check_penalties(SamplerConfig { frequency_penalty: 0.5, ..off() }, &history, [1.5, -1.0, 0.0, 0.0]);
    check_penalties(SamplerConfig { presence_penalty: 0.25, ..off() }, &history, [1.75, -1.0, 0.0, 0.75]);
    // All three: divided by 2 first, then less .5 for each occurrence and .25 once.
    let all = SamplerConfig { repeat_penalty: 2.0, frequency_penalty: 0.5, presence_penalty: 0.25, ..off() };
    check_penalties(all, &history, [0.25, -1.0, 0.0, -0.75]);
    let reward = SamplerConfig { presence_penalty: -1.0, ..off() };
    check_penalties(reward, &history, [3.0, -1.0, 0.0, 2.0]);
}

#[test]
fn penalties_see_the_last_n_tokens_only() {
    let config = |n| SamplerConfig { frequency_penalty: 1.0, repeat_last_n: n, ..off() };
    let history = [0, 3, 3];
    check_penalties(config(2), &history, [2.0, -1.0, 0.0, -1.0]);
    check_penalties(config(1), &history, [2.0, -1.0, 0.0, 0.0]);
    check_penalties(config(0), &history, [2.0, -1.0, 0.0, 1.0]);
    for n in [3, 4, usize::MAX] {
        check_penalties(config(n), &history, [1.0, -1.0, 0.0, -1.0]);
    }
    check_penalties(config(64), &[], [2.0, -1.0, 0.0, 1.0]);
}

#[test]
fn ids_that_the_vocabulary_lacks_are_passed_over() {
    let config =
        SamplerConfig { presence_penalty: 1.0, logit_bias: vec![(4, 9.0), (u32::MAX, 9.0)], ..off() };
    check_penalties(config.clone(), &[4, u32::MAX, 0], [1.0, -1.0, 0.0, 1.0]);
    let refused = config.check_vocabulary(4).unwrap_err().to_string();
    assert!(refused.starts_with("`logit_bias` 4") && refused.contains("0 to 3"), "{refused}");
}

#[test]
fn bias_adds_up_and_comes_before_the_penalties() {
    let config = SamplerConfig { logit_bias: vec![(1, 1.5), (1, 0.5)], repeat_penalty: 2.0, ..off() };
    // -1 + 2 = 1, halved. Penalized first it would be -2 + 2 = 0.
    check_penalties(config, &[1], [2.0, 0.5, 0.0, 1.0]);
}

#[test]
fn bias_forbids_and_forces() {
    let biased = |id, bias| SamplerConfig { logit_bias: vec![(id, bias)], ..off() };
    check(biased(1, -INF), &[(0, 0.166667), (2, 0.083333), (3, 0.333333), (4, 0.416667)]);
    check(biased(2, INF), &[(2, 1.0)]);
    check(SamplerConfig { temp: 0.0, ..biased(1, -INF) }, &[(4, 1.0)]);
}

#[test]
fn penalties_come_before_the_cuts_and_before_greedy() {
    // Token 0 falls from 2 to .5, so token 3 is the best.
    let penalty = SamplerConfig { presence_penalty: 1.5, ..off() };
    for config in [
        SamplerConfig { top_k: 1, ..penalty.clone() },
        SamplerConfig { top_p: 0.0, ..penalty.clone() },
        SamplerConfig { min_p: 1.0, ..penalty.clone() },
        SamplerConfig { temp: 0.0, ..penalty },
    ] {
        assert_is(&distribution(&config, &[2.0, -1.0, 0.0, 1.0], &[0]), &[(3, 1.0)]);
    }
}

#[test]
fn greedy_takes_the_lowest_id_among_equals_and_never_nan() {
    assert_eq!(greedy(&[1.0, 3.0, 3.0, 2.0]), 1);
    assert_eq!(greedy(&[0.0, -0.0]), 0);
    assert_eq!(greedy(&[-0.0, 0.0]), 0);
    assert_eq!(greedy(&[NAN, -5.0, NAN, -4.0]), 3);
    assert_eq!(greedy(&[1.0, INF, NAN, INF]), 1);
    assert_eq!(greedy(&[NAN, -INF, -INF]), 1);
    assert_eq!(greedy(&[NAN, NAN]), 0);
    assert_eq!(greedy(&[-INF]), 0);
}

#[test]
fn greedy_finds_the_best_wherever_it_lies() {
    for best in 0..700 {
        let mut logits = vec![-1.0f32; 700];
        logits[best] = 1.0;
        logits[(best + 300).min(699)] = 1.0;
        logits[best / 2] = logits[best / 2].max(0.5);
        assert_eq!(greedy(&logits), best as u32);
    }
}

#[test]
fn a_single_token_is_certain() {
    for logit in [0.0, 1e30, -1e30, INF, -INF, NAN] {
        let default = distribution(&SamplerConfig::default(), &[logit], &[0, 0]);
        assert_is(&default, &[(0, 1.0)]);
    }
}

#[test]
fn nan_never_gets_a_share() {
    let found = distribution(&off(), &[NAN, 0.0, NAN, 0.0], &[]);
    assert_is(&found, &[(1, 0.5), (3, 0.5)]);
    assert_is(
        &distribution(&SamplerConfig { top_k: 3, ..off() }, &[NAN, 1.0, NAN, 1.0], &[]),
        &by_id(&found),
    );
}

#[test]
fn infinite_logits_share_everything() {
    let mut logits = logits();
    (logits[0], logits[3]) = (INF, INF);
    let typical = SamplerConfig { typical_p: 0.9, ..SamplerConfig::default() };
    for config in [off(), SamplerConfig::default(), typical] {
        assert_is(&distribution(&config, &logits, &[]), &[(0, 0.5), (3, 0.5)]);
    }
}

#[test]
fn where_nothing_is_possible_greedys_choice_is_certain() {
    for config in [off(), SamplerConfig::default(), SamplerConfig { typical_p: 0.5, ..off() }] {
        assert_is(&distribution(&config, &[-INF; 4], &[]), &[(0, 1.0)]);
        assert_is(&distribution(&config, &[NAN, -INF, NAN], &[]), &[(1, 1.0)]);
        assert_is(&distribution(&config, &[NAN; 3], &[]), &[(0, 1.0)]);
    }
}

#[test]
fn the_whole_range_of_f32_stays_finite() {
    let extremes = [f32::MIN, f32::MAX, 0.0, f32::MAX];
    assert_is(&distribution(&off(), &extremes, &[]), &[(1, 0.5), (3, 0.5)]);
    // Penalties may overflow to infinity; that is one more infinite logit.
    let overflow = SamplerConfig { frequency_penalty: f32::MAX, ..off() };
    assert_is(&distribution(&overflow, &[0.0, f32::MIN], &[1]), &[(0, 1.0)]);
}

#[test]
fn log_probabilities_come_best_first() {
    let found = top_logprobs(&logits(), 3);
    // ln of .4, .25, .2.
    let expected = [(1, -0.916291), (4, -1.386294), (3, -1.609438)];
    assert_eq!(found.len(), 3);
    for (f, e) in found.iter().zip(expected) {
        assert!(f.0 == e.0 && (f.1 - e.1).abs() < 1e-6, "{found:?}");
    }
    assert!(top_logprobs(&logits(), 0).is_empty());
    assert_eq!(top_logprobs(&logits(), 99).len(), 5);
    assert_eq!(top_logprobs(&[0.0; 4], 2).iter().map(|e| e.0).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn log_probabilities_do_not_depend_on_an_offset() {
    // -ln(1 + e^-1) = -.313262.
    let found = top_logprobs(&[10000.0, 10001.0, NAN, -INF], 4);
    assert!(found.len() == 2 && found[0].0 == 1 && found[1].0 == 0, "{found:?}");
    assert!((found[0].1 + 0.313262).abs() < 1e-6 && (found[1].1 + 1.313262).abs() < 1e-6, "{found:?}");
}

#[test]
fn log_probabilities_count_a_long_tail_of_small_ones() {
    // 131072 tokens of 1e-9 beside one of 1: -ln(1 + .000131072) = -.00013106. Summed in f32 they vanish.
    let mut logits = vec![1e-9f32.ln(); 131_073];
    logits[0] = 0.0;
    assert!((log_sum_exp(&logits) - 1.3106341e-4).abs() < 1e-9);
    assert!((top_logprobs(&logits, 1)[0].1 + 1.3106341e-4).abs() < 1e-9);
}

#[test]
fn log_probabilities_of_the_impossible_and_the_certain() {
    assert!(top_logprobs(&[-INF, NAN], 2).is_empty());
    // Two share: ln 1/2.
    let found = top_logprobs(&[INF, 3.0, INF], 3);
    assert!(
        found.len() == 2 && found.iter().all(|e| (e.1 + std::f32::consts::LN_2).abs() < 1e-6),
        "{found:?}"
    );
    assert_eq!(log_sum_exp(&[-INF]), f64::NEG_INFINITY);
}

fn any_logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -20.0f32..20.0,
        1 => prop::sample::select(vec![0.0, -0.0, 1.0, INF, -INF, NAN, f32::MAX, f32::MIN]),
    ]
}

prop_compose! {
    fn any_config()(
        temp in 0.0f32..3.0, top_k in 0usize..300, top_p in 0.0f32..=1.0, min_p in 0.0f32..=1.0,
        typical_p in prop_oneof![Just(1.0f32), 0.0f32..1.0], repeat_penalty in 0.5f32..2.0,
        frequency_penalty in -1.0f32..1.0, presence_penalty in -1.0f32..1.0, repeat_last_n in 0usize..40,
        logit_bias in prop::collection::vec((0u32..200, any_logit().prop_filter("", |b| !b.is_nan())), 0..4),
        (top_n_sigma, dynatemp_range, dynatemp_exponent) in (-1.0f32..3.0, -1.0f32..1.0, 0.0f32..3.0),
        (xtc_probability, xtc_threshold) in (0.0f32..=1.0, 0.0f32..=1.0),
        (multiplier, base, allowed_length, last_n) in (-1.0f32..2.0, 1.0f32..3.0, 0usize..5, 0usize..50),
        mirostat in prop::sample::select(vec![None, None, None, Some(Mirostat::One), Some(Mirostat::Two)]),
        samplers in prop_oneof![
            Just(Stage::ALL.to_vec()),
            prop::collection::vec(prop::sample::select(Stage::ALL.to_vec()), 0..10),
        ],
    ) -> SamplerConfig {
        SamplerConfig {
            temp, top_k, top_p, min_p, typical_p, repeat_penalty, frequency_penalty, presence_penalty,
            repeat_last_n, logit_bias, seed: None, top_n_sigma, dynatemp_range, dynatemp_exponent,
            xtc_probability, xtc_threshold, mirostat, samplers, mirostat_tau: 3.0, mirostat_eta: 0.1,
            dry: Dry { multiplier, base, allowed_length, last_n, breakers: Breakers::default() },
        }
    }
}

proptest! {
    #[test]
    fn whatever_comes_in_a_sound_distribution_comes_out(
        config in any_config(),
        logits in prop::collection::vec(any_logit(), 1..300),
        other in prop::collection::vec(any_logit(), 1..300),
        history in prop::collection::vec(0u32..300, 0..60),
    ) {
        let found = distribution(&config, &logits, &history);
        let entries = by_id(&found);
        prop_assert!(!entries.is_empty());
        prop_assert!(entries.iter().all(|&(id, p)| (id as usize) < logits.len() && p > 0.0));
        prop_assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        prop_assert!((entries.iter().map(|e| e.1).sum::<f64>() - 1.0).abs() < 1e-12);
        if config.is_greedy() {
            let best = Chain::default().greedy(&config, Scores::All(&logits), &history);
            prop_assert!(found.p(best) > 0.0, "greedy's choice {best} is not in {found:?}");
        }
        // Used buffers change nothing.
        let mut chain = Chain::default();
        let mut again = Distribution::default();
        chain.distribution(&config, Scores::All(&other), &history, &mut again);
        chain.distribution(&config, Scores::All(&logits), &history, &mut again);
        prop_assert_eq!(&found, &again);
        // Where the best tokens suffice, the same bits come from them alone, and from more of them.
        if let Want::Top(k) = config.want() {
            for k in [k, k + 7] {
                chain.distribution(&config, Scores::Top(&Top::of(&logits, k)), &history, &mut again);
                prop_assert_eq!(&found, &again);
            }
        }
    }
}
