//! What the rows of a pass see in each slot of the cache.

use std::borrow::Cow;

use crate::{
    backend::{CHUNK, Seen, SlotView, View},
    batch::{Row, SeqId},
    kv::KvCache,
    plan::{Op, Plan, Step},
};

/// What each row sees in each slot. All slots share one view unless some cell was written under a mask that
/// left a slot out (a cell without a key and a value in a slot is not attended to there), or attention has a window.
pub(super) fn views<'a>(
    kv: &'a KvCache,
    plan: &Plan,
    rows: &[Row],
    cells: &[u32],
    steps: &[Step],
) -> (Vec<View<'a>>, Vec<SlotView>) {
    let mut seqs: Vec<SeqId> = Vec::new();
    let mut whole: Vec<&'a [u32]> = Vec::new();
    let mut visible = Vec::with_capacity(rows.len());
    for (row, cell) in rows.iter().zip(cells) {
        let list = seqs.iter().position(|&s| s == row.seq).unwrap_or_else(|| {
            seqs.push(row.seq);
            whole.push(kv.cells(row.seq));
            seqs.len() - 1
        });
        let own = whole[list].iter().rposition(|c| c == cell).expect("a row's cell is in its sequence");
        let to = if plan.bidirectional { whole[list].len() } else { own + 1 };
        visible.push(Seen { list, from: 0, to, own });
    }
    let plain: Vec<usize> = seqs.iter().map(|&s| kv.plain_prefix(s)).collect();
    let all_plain = std::iter::zip(&plain, &whole).all(|(&plain, list)| plain == list.len());
    let mut views = vec![View { lists: whole.iter().map(|l| Cow::Borrowed(*l)).collect(), visible }];
    // By window and class: what is seen in the slots that hold all cells.
    let mut windowed: Vec<(u32, usize, usize)> = Vec::new();
    let mut view_of_slot: Vec<SlotView> = Vec::with_capacity(kv.n_layer());
    for step in steps {
        let &Op::Attend(id) = step.op else { continue };
        let (slot, visit, window) = (step.slot, step.visit, plan.attention(id).window);
        if view_of_slot.iter().any(|of| of.slot == slot && of.window == window) {
            continue;
        }
        let held = |c: u32| kv.holds(c, slot, visit);
        let complete = (all_plain && slot < kv.n_layer())
            || std::iter::zip(&plain, &whole).all(|(&plain, list)| {
                let from = if slot < kv.n_layer() { plain } else { 0 };
                list[from..].iter().all(|&c| held(c))
            });
        let class = kv.class_of(slot);
        let known = match window {
            None => Some(0),
            Some(window) => {
                windowed.iter().find(|(w, c, _)| (*w, *c) == (window, class)).map(|(.., view)| *view)
            }
        };
        let view = match known.filter(|_| complete) {
            Some(view) => view,
            None => {
                let mut view = if complete {
                    View { lists: views[0].lists.clone(), visible: views[0].visible.clone() }
                } else {
                    only(&views[0], &whole, held)
                };
                if let Some(window) = window {
                    for (seen, row) in view.visible.iter_mut().zip(rows) {
                        let cells = &view.lists[seen.list][..seen.to];
                        let (reach, beyond) = match plan.bidirectional {
                            true => (row.pos.saturating_sub(window / 2), row.pos + window / 2),
                            false => ((row.pos + 1).saturating_sub(window), row.pos),
                        };
                        seen.from = cells.partition_point(|&c| kv.pos(c) < reach).min(seen.to);
                        seen.to = cells.partition_point(|&c| kv.pos(c) <= beyond);
                    }
                }
                views.push(if class == 0 { view } else { in_places(&view, kv, class) });
                if let (Some(window), true) = (window, complete) {
                    windowed.push((window, class, views.len() - 1));
                }
                views.len() - 1
            }
        };
        view_of_slot.push(SlotView { slot, window, view });
    }
    (views, view_of_slot)
}

/// The same view with only the cells that are held.
fn only<'a>(all: &View, whole: &[&'a [u32]], held: impl Fn(u32) -> bool) -> View<'a> {
    let kept = |list: &[u32]| list.iter().copied().filter(|&c| held(c)).collect::<Vec<_>>();
    let held_before = |seen: &Seen, end: usize| whole[seen.list][..end].iter().filter(|&&c| held(c)).count();
    let count =
        |seen: &Seen| Seen { to: held_before(seen, seen.to), own: held_before(seen, seen.own), ..*seen };
    View {
        lists: whole.iter().map(|l| Cow::Owned(kept(l))).collect(),
        visible: all.visible.iter().map(count).collect(),
    }
}

/// The same cells by their places in the slots of a class, without the chunks that no row sees. So layers with a window do not
/// get slower with the length of a text.
fn in_places(view: &View, kv: &KvCache, class: usize) -> View<'static> {
    let mut visible = view.visible.clone();
    let mut lists = Vec::with_capacity(view.lists.len());
    for (list, cells) in view.lists.iter().enumerate() {
        let of_list = || view.visible.iter().filter(|seen| seen.list == list);
        let first = of_list().map(|seen| seen.from).min().unwrap_or(0) / CHUNK * CHUNK;
        let end = of_list().map(|seen| seen.to).max().unwrap_or(first);
        lists.push(cells[first..end].iter().map(|&c| kv.place(class, c)).collect());
        for seen in visible.iter_mut().filter(|seen| seen.list == list) {
            (seen.from, seen.to, seen.own) = (seen.from - first, seen.to - first, seen.own - first);
        }
    }
    View { lists, visible }
}
