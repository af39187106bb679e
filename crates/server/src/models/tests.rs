//! The shelf, with names for models and numbers for requests.

use std::{sync::Arc, time::Duration};

use super::{
    Limits, Listed,
    shelf::{Key, Refusal, Shelf, Step},
};

type Names = Shelf<&'static str, u32>;

fn listed(id: &str, args: &str) -> Arc<Listed> {
    Arc::new(Listed {
        id: id.into(),
        aliases: vec![format!("{id}-alias")],
        tags: Vec::new(),
        source: "models_dir",
        preset: String::new(),
        args: vec![args.into()],
        at_start: false,
        hidden: false,
        open: Box::new(|| Err(crate::Error::Input("not here".into()))),
    })
}

fn shelf(most: Option<usize>, bytes: Option<u64>) -> Names {
    let mut shelf = Shelf::new(Limits { most, bytes });
    shelf.list(["a", "b", "c"].map(|id| listed(id, "")).into());
    shelf
}

/// Does what the shelf says until it rests; each model needs 100 bytes. Says what was done.
fn run(shelf: &mut Names, now: u64) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        match shelf.next(Duration::from_secs(now), || Some(1000)) {
            Step::Plan(key, _) => {
                if let Some(Refusal { waiters, why }) = shelf.planned(key, 100, Some(1000)) {
                    done.push(format!("refuse {waiters:?}: {why}"));
                }
            }
            Step::Load(key) => {
                let waiters = shelf.loaded(key, "model");
                done.push(format!("load {} for {waiters:?}", id(shelf, key)));
            }
            Step::Unload(key, _) => {
                done.push(format!("unload {}", id(shelf, key)));
                shelf.unloaded(key);
            }
            Step::Refuse(_, Refusal { waiters, why }) => done.push(format!("refuse {waiters:?}: {why}")),
            Step::Rest { .. } => return done,
        }
    }
}

fn id(shelf: &Names, key: Key) -> String {
    shelf.listed(key).unwrap().id.clone()
}

fn key(shelf: &Names, name: &str) -> Key {
    shelf.find(name).unwrap()
}

fn statuses(shelf: &Names) -> Vec<String> {
    shelf.views().iter().map(|view| format!("{} {}", view.listed.id, view.status)).collect()
}

#[test]
fn what_is_asked_for_is_loaded_once_for_all_who_wait() {
    let mut shelf = shelf(Some(2), None);
    let a = key(&shelf, "a-alias");
    assert!(shelf.take(a, true).is_none());
    shelf.wait(a, 1);
    shelf.wait(a, 2);
    assert_eq!(run(&mut shelf, 0), ["load a for [1, 2]"]);
    assert_eq!(statuses(&shelf), ["a loaded", "b unloaded", "c unloaded"]);
    assert_eq!(shelf.take(a, true), Some("model"));
}

#[test]
fn the_longest_unused_goes() {
    let mut shelf = shelf(Some(2), None);
    let [a, b, c] = ["a", "b", "c"].map(|id| key(&shelf, id));
    for one in [a, b] {
        shelf.order(one);
    }
    assert_eq!(run(&mut shelf, 0), ["load a for []", "load b for []"]);
    shelf.take(a, true);
    shelf.give_back(a);
    // Only looked at.
    shelf.take(b, false);
    shelf.give_back(b);
    shelf.order(c);
    assert_eq!(run(&mut shelf, 0), ["unload b", "load c for []"]);
}

#[test]
fn a_model_in_use_stays_and_others_wait_in_their_order() {
    let mut shelf = shelf(Some(1), None);
    let [a, b, c] = ["a", "b", "c"].map(|id| key(&shelf, id));
    shelf.wait(a, 1);
    run(&mut shelf, 0);
    shelf.wait(b, 2);
    shelf.wait(c, 3);
    assert!(run(&mut shelf, 0).is_empty());
    shelf.give_back(a);
    assert_eq!(run(&mut shelf, 0), ["unload a", "load b for [2]"]);
    shelf.give_back(b);
    assert_eq!(run(&mut shelf, 0), ["unload b", "load c for [3]"]);
}

/// Others' requests for a model that is always in use would keep it there for ever.
#[test]
fn who_has_waited_long_is_let_in_before_new_requests() {
    let mut shelf = shelf(Some(1), None);
    let [a, b] = ["a", "b"].map(|id| key(&shelf, id));
    shelf.wait(a, 1);
    run(&mut shelf, 0);
    shelf.wait(b, 2);
    assert!(run(&mut shelf, 0).is_empty() && run(&mut shelf, 9).is_empty());
    assert!(shelf.take(a, true).is_some());
    assert!(run(&mut shelf, 10).is_empty());
    assert!(shelf.take(a, true).is_none());
    shelf.wait(a, 3);
    // Two use it: both are answered to their end.
    shelf.give_back(a);
    assert!(run(&mut shelf, 11).is_empty());
    shelf.give_back(a);
    assert_eq!(run(&mut shelf, 11), ["unload a", "load b for [2]"]);
    shelf.give_back(b);
    assert_eq!(run(&mut shelf, 11), ["unload b", "load a for [3]"]);
}

#[test]
fn who_has_left_costs_nobody_a_model() {
    let mut shelf = shelf(Some(1), None);
    let [a, b] = ["a", "b"].map(|id| key(&shelf, id));
    shelf.wait(a, 1);
    run(&mut shelf, 0);
    shelf.wait(b, 2);
    run(&mut shelf, 0);
    shelf.leave(b, |waiter| *waiter == 2);
    shelf.give_back(a);
    assert!(run(&mut shelf, 0).is_empty());
    assert_eq!(statuses(&shelf)[0], "a loaded");
}

#[test]
fn memory_is_a_limit_too() {
    let mut shelf = shelf(None, Some(250));
    let [a, b, c] = ["a", "b", "c"].map(|id| key(&shelf, id));
    for one in [a, b, c] {
        shelf.order(one);
    }
    assert_eq!(run(&mut shelf, 0), ["load a for []", "load b for []", "unload a", "load c for []"]);
}

#[test]
fn what_can_never_fit_is_refused_and_costs_nobody_a_model() {
    let mut shelf = shelf(None, Some(99));
    let [a, b] = ["a", "b"].map(|id| key(&shelf, id));
    shelf.wait(a, 7);
    shelf.wait(b, 8);
    let actions = run(&mut shelf, 0);
    assert!(
        actions[0].starts_with("refuse [7]: model \"a\" needs 0 MiB of memory and 0 MiB models may have"),
        "{actions:?}"
    );
    assert!(actions[1].starts_with("refuse [8]") && actions.len() == 2);
    assert!(shelf.views()[0].failed.is_some());
}

/// Without a limit it is what is free, and what is held by models that can go.
#[test]
fn free_memory_is_the_limit_where_nobody_gives_one() {
    let mut shelf = shelf(None, None);
    let [a, b] = ["a", "b"].map(|id| key(&shelf, id));
    shelf.order(a);
    run(&mut shelf, 0);
    shelf.wait(b, 1);
    let Step::Plan(_, _) = shelf.next(Duration::ZERO, || Some(50)) else { panic!() };
    assert!(shelf.planned(b, 150, Some(50)).is_none());
    let Step::Unload(key, _) = shelf.next(Duration::ZERO, || Some(50)) else { panic!() };
    assert_eq!(key, a);
    shelf.unloaded(a);
    // What was let go is not free after all.
    let Step::Refuse(_, Refusal { waiters, why }) = shelf.next(Duration::ZERO, || Some(50)) else { panic!() };
    assert!(waiters == [1] && why.contains("are free"), "{why}");
    shelf.wait(b, 2);
    let Step::Plan(_, _) = shelf.next(Duration::ZERO, || Some(50)) else { panic!() };
    assert_eq!(shelf.planned(b, 51, Some(50)).unwrap().waiters, [2]);
}

#[test]
fn what_is_let_go_while_it_loads_answers_who_waited_first() {
    let mut shelf = shelf(Some(1), None);
    let a = key(&shelf, "a");
    shelf.wait(a, 1);
    let Step::Plan(..) = shelf.next(Duration::ZERO, || None) else { panic!() };
    shelf.planned(a, 1, None);
    let Step::Load(_) = shelf.next(Duration::ZERO, || None) else { panic!() };
    assert_eq!(statuses(&shelf)[0], "a loading");
    assert!(shelf.unload(a));
    assert_eq!(shelf.loaded(a, "model"), [1]);
    assert!(run(&mut shelf, 0).is_empty());
    shelf.give_back(a);
    assert_eq!(run(&mut shelf, 0), ["unload a"]);
    assert!(!shelf.unload(a));
}

#[test]
fn a_model_that_failed_is_tried_again() {
    let mut shelf = shelf(Some(1), None);
    let a = key(&shelf, "a");
    shelf.wait(a, 1);
    let Step::Plan(..) = shelf.next(Duration::ZERO, || None) else { panic!() };
    assert_eq!(shelf.failed(a, "no such file".into()), [1]);
    assert_eq!(shelf.views()[0].failed.as_deref(), Some("no such file"));
    shelf.wait(a, 2);
    assert_eq!(run(&mut shelf, 0), ["load a for [2]"]);
    assert_eq!(shelf.views()[0].failed, None);
}

#[test]
fn a_new_list_keeps_what_is_the_same() {
    let mut shelf = shelf(None, None);
    let [a, b, c] = ["a", "b", "c"].map(|id| key(&shelf, id));
    for one in [a, b] {
        shelf.order(one);
    }
    run(&mut shelf, 0);
    shelf.wait(c, 1);
    shelf.take(b, true);
    // `a` stays, `b` has other settings, `c` is gone, `d` is new.
    let (left, changed) = shelf.list(vec![listed("a", ""), listed("b", "-c 5"), listed("d", "")]);
    assert!(left == [1] && changed);
    assert_eq!(statuses(&shelf), ["a loaded", "b unloaded", "d unloaded"]);
    assert_eq!(shelf.find("c"), None);
    assert_eq!(shelf.find("a"), Some(a));
    // The old `b` goes when it is no longer used.
    assert!(run(&mut shelf, 0).is_empty());
    shelf.give_back(b);
    assert_eq!(run(&mut shelf, 0), ["unload b"]);
    assert!(!shelf.list(vec![listed("a", ""), listed("b", "-c 5"), listed("d", "")]).1);
}
