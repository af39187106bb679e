use super::*;
use crate::speculation::policy::SourceKind;

fn sources() -> [SourceInfo; 1] {
    [SourceInfo::mask("half", 0.5)]
}

/// Rounds of one text, in which drafts are never right; gives how many there were.
fn drafts_in_vain(policy: &mut Controller, rounds: usize) -> usize {
    drafts_of(policy, rounds, false)
}

/// Rounds of one text, in which drafts are always right or never; gives how many there were.
fn drafts_of(policy: &mut Controller, rounds: usize, right: bool) -> usize {
    let drafted = [Drafted { confidence: 0.8 }];
    let mut drafts = 0;
    for _ in 0..rounds {
        let choice = policy.choose(&[Offer { source: 0, most: 1, ready: None, guide: None }]);
        let k = usize::from(choice != RoundChoice::Plain);
        drafts += k;
        policy.record(&Round {
            source: (k > 0).then_some(0),
            drafted: &drafted[..k],
            draft_steps: k,
            accepted: if right { k } else { 0 },
            draft_seconds: 0.005 * k as f64,
            verify_seconds: 0.01,
            ..Round::default()
        });
    }
    drafts
}

#[test]
fn what_one_text_learnt_to_its_cost_another_need_not() {
    let mut engine = Controller::new(Costs::frozen(&sources()), Memory::new());
    engine.start(&sources());
    let mut drafts = Vec::new();
    for _ in 0..20 {
        let mut text = engine.for_text(&sources());
        drafts.push(drafts_in_vain(&mut text, 12));
        engine.learn_of(&text);
    }
    assert!(drafts[0] > 0, "{drafts:?}");
    // Each costs at least its step: half a plain one. 20 texts of 12 tokens have an income as well.
    let may_be_lost = START + INCOME * 240.0;
    assert!(0.5 * drafts.iter().sum::<usize>() as f64 <= may_be_lost, "{drafts:?}");
    assert!(engine.balance() >= 0.0);
}

#[test]
fn what_earlier_runs_have_shown_counts_from_the_first_token() {
    let first_choice = |right| {
        let mut earlier = Controller::new(Costs::frozen(&sources()), Memory::new());
        earlier.start(&sources());
        assert!(drafts_of(&mut earlier, 60, right) > 3);
        let mut policy = Controller::new(Costs::frozen(&sources()), earlier.memory());
        policy.start(&sources());
        policy.choose(&[Offer { source: 0, most: 1, ready: None, guide: None }])
    };
    assert_eq!(first_choice(true), RoundChoice::Draft { source: 0, most: 1 });
    assert_eq!(first_choice(false), RoundChoice::Plain);
}

/// As where the model's low bits are far away and its high bits near: a row costs little, and a draft step too.
#[test]
fn drafts_go_deep_where_steps_and_rows_are_cheap() {
    let rows: Vec<f64> = (0..MOST_ROWS).map(|n| 1.0 + 0.005 * n as f64).collect();
    let sources = [SourceInfo::mask("high bits", 0.02)];
    let mut policy = Controller::new(Costs::recalled(&sources, &rows, &[Some(0.02)]), Memory::new());
    policy.start(&sources);
    let drafted = [Drafted { confidence: 0.99 }; 48];
    let mut deepest = 0;
    for _ in 0..40 {
        let choice = policy.choose(&[Offer { source: 0, most: 64, ready: None, guide: None }]);
        let k = match choice {
            RoundChoice::Draft { most, .. } => {
                (1..most).take_while(|&n| policy.draft_more(0, &drafted[..n], false)).count() + 1
            }
            RoundChoice::Plain => 0,
        };
        deepest = deepest.max(k);
        policy.record(&Round {
            source: (k > 0).then_some(0),
            drafted: &drafted[..k],
            draft_steps: k,
            accepted: k,
            draft_seconds: 0.02 * k as f64,
            verify_seconds: 1.0 + 0.005 * k as f64,
            ..Round::default()
        });
    }
    assert_eq!(deepest, MOST_ROWS - 1);
}

#[test]
fn a_source_that_lost_is_made_ready_again_before_it_is_asked() {
    let mut policy = Controller::new(Costs::frozen(&sources()), Memory::new());
    policy.start(&sources());
    assert!(policy.may_draft(0));
    let (mut idle, mut asked) = (0, 0);
    for _ in 0..200 {
        let ready = policy.may_draft(0);
        let drafts = drafts_in_vain(&mut policy, 1);
        assert!(ready || drafts == 0);
        idle += usize::from(!ready);
        asked += drafts;
    }
    assert!(idle > 100 && asked > 3, "{idle} rounds without, {asked} with drafts");
}

/// A lookup costs nothing, so by costs alone it would always be the best.
#[test]
fn the_reason_for_being_off_names_a_source_that_was_tried() {
    let sources = [SourceInfo::mask("half", 0.5), SourceInfo::lookup()];
    let mut policy = Controller::new(Costs::frozen(&sources), Memory::new());
    policy.start(&sources);
    assert!(drafts_in_vain(&mut policy, 60) > 0);
    let reason = policy.off_reason().expect("it lost");
    assert!(reason.starts_with("`half`, the best source, is slower"), "{reason}");
}

/// As where a text ends with nothing to look up.
#[test]
fn a_source_that_was_right_is_no_reason_for_being_off() {
    let sources = [SourceInfo::mask("half", 0.5), SourceInfo::lookup()];
    let mut policy = Controller::new(Costs::frozen(&sources), Memory::new());
    policy.start(&sources);
    policy.arms[1].trials = 17;
    policy.arms[1].accepted = 13;
    assert!(drafts_in_vain(&mut policy, 60) > 0);
    let reason = policy.off_reason().expect("it lost");
    assert!(reason.starts_with("`half`, the best source, is slower"), "{reason}");
    policy.arms[0].trials = 0;
    assert_eq!(policy.off_reason(), None);
}

#[test]
fn sources_of_which_nothing_was_seen_are_not_remembered() {
    let mut engine = Controller::new(Costs::frozen(&sources()), Memory::new());
    engine.start(&sources());
    assert!(engine.memory().is_empty());
    let mut text = engine.for_text(&sources());
    assert!(text.memory().is_empty());
    drafts_in_vain(&mut text, 12);
    engine.learn_of(&text);
    assert_eq!(engine.memory().len(), 1);
    assert!(!engine.for_text(&sources()).memory().is_empty());
}

/// A mask whose steps cost half of a plain one, and a head that may guess for it.
fn guided() -> (Controller, Offer, Offer) {
    let head =
        SourceInfo { name: "head".into(), kind: SourceKind::Head, cost: 0.03, chance: 0.5, prefix: None };
    let sources = [head, SourceInfo::mask("half", 0.5)];
    let mut policy = Controller::new(Costs::frozen(&sources), Memory::new());
    policy.start(&sources);
    let alone = Offer { source: 1, most: 8, ready: None, guide: None };
    (policy, alone, Offer { guide: Some(Guide { source: 0, ready: None }), ..alone })
}

#[test]
fn guesses_make_drafts_cheaper_and_longer() {
    let (mut policy, alone, guided) = guided();
    assert_eq!((policy.steps(&alone, 5), policy.steps(&guided, 1)), (5.0, 1.0));
    // Every second further token is foretold.
    assert!((policy.steps(&guided, 5) - 3.0).abs() < 0.01, "{}", policy.steps(&guided, 5));
    assert!(policy.plan(&guided, 8, 0.0).rate > 1.04 * policy.plan(&alone, 8, 0.0).rate);
    assert!(policy.plan(&guided, 8, 0.0).tokens > policy.plan(&alone, 8, 0.0).tokens);
    // If the guesses are never right, that is learnt.
    for _ in 0..200 {
        policy.pending = None;
        policy.draft(&guided, 4, &Planned { tokens: 4, rate: 1.0, ..Planned::default() }, false);
        let drafted = [Drafted { confidence: 0.9 }; 4];
        policy.record(&Round {
            source: Some(1),
            drafted: &drafted,
            draft_steps: 4,
            accepted: 4,
            draft_seconds: 0.02,
            verify_seconds: 0.01,
            ..Round::default()
        });
    }
    assert!(policy.steps(&guided, 5) > 4.5, "{}", policy.steps(&guided, 5));
}

#[test]
fn a_guess_is_checked_where_a_row_costs_less_than_it_may_save() {
    let (policy, _, guided) = guided();
    let guide = guided.guide.unwrap();
    let checks = |confidences: &[f32]| {
        let guesses: Vec<_> = confidences.iter().map(|&confidence| Drafted { confidence }).collect();
        policy.checks(1, &guide, &guesses)
    };
    assert!(checks(&[0.9]) && checks(&[0.9, 0.9]));
    assert!(!checks(&[0.02]) && !checks(&[0.3, 0.3, 0.3]));
}

#[test]
fn a_token_that_is_paid_for_is_drafted_sooner() {
    let (mut policy, _, guided) = guided();
    policy.draft(&guided, 8, &Planned { tokens: 8, rate: 1.0, ..Planned::default() }, false);
    let goes_on = |confidence: f32, is_paid: bool| {
        let so_far = [Drafted { confidence }, Drafted { confidence }];
        policy.draft_more(1, &so_far, is_paid)
    };
    let least = |is_paid: bool| (1..100).find(|&percent| goes_on(percent as f32 / 100.0, is_paid));
    assert!(least(true).unwrap() < least(false).unwrap(), "{:?} {:?}", least(true), least(false));
}
