//! Attention in a pass: keys and values go into the cache, and heads attend to them.

use std::ops::Range;

use super::{
    attention::{Attend, Join, Parts, To, deal::Item},
    ops::{Rotate, StoreRow},
    pass::Pass,
    schedule::Phase,
    team::Member,
};
use crate::{
    backend::Seen,
    plan::{AttnSpec, Norm},
};

// The SAFETY comments rest on the two rules of `schedule`, as those of `pass` do.
impl Pass<'_> {
    /// Norms and turns one row's key of a head and the queries that go with it, and puts key and value into the
    /// cache, unless another layer's are read.
    pub fn store(&self, spec: &AttnSpec, row: usize, kv_head: usize, phase: &Phase, member: &Member) {
        let head_dim = spec.head_dim;
        let in_pass = self.row_in_pass(row, phase);
        let turn = spec.rope.map(|rope| &self.turns[rope.0 as usize][in_pass]);
        // SAFETY: this K/V head of the row, and the queries that go with it, are this thread's share. The columns taken
        // below are of different buffers.
        let heads = |buf, columns| unsafe { self.buffers.f32s(buf).row_mut(row, columns) };
        let change = |heads: &mut [f32], norm: Option<Norm>| {
            for head in heads.chunks_exact_mut(head_dim) {
                let normalise = |head: &mut [f32]| {
                    let Some(norm) = norm else { return };
                    // SAFETY: the only reference to what this thread has for itself, until the next head.
                    let normed = &mut unsafe { self.buffers.own(member) }.normed[..head_dim];
                    self.norm_to(&norm, 0, head, normed);
                    head.copy_from_slice(normed);
                };
                if !spec.norm_after_rope {
                    normalise(head);
                }
                if let Some(by) = turn {
                    Rotate { by, head: &mut *head }.on(self.isa);
                }
                if spec.norm_after_rope {
                    normalise(head);
                }
            }
        };
        let q = heads(spec.q, query_columns(spec, kv_head));
        change(&mut *q, spec.q_norm);
        if let Some(temperature) = spec.temperature {
            let factor = temperature.at(self.rows.positions[in_pass]);
            q.iter_mut().for_each(|q| *q *= factor);
        }
        if spec.keys_of.is_some() {
            return;
        }
        let columns = kv_head * head_dim..(kv_head + 1) * head_dim;
        let k = heads(spec.k, columns.clone());
        change(&mut *k, spec.k_norm);
        let cell = self.rows.cells[self.keys.slots()[phase.slot].class][row];
        let v = (!spec.values_are_keys).then(|| (self.values, &*heads(spec.v, columns)));
        for (store, x) in [Some((self.keys, &*k)), v].into_iter().flatten() {
            // SAFETY: every row of a pass has a cell of its own, and this thread has its K/V head.
            let row = unsafe { store.head(phase.slot, kv_head, head_dim).row_mut(cell) };
            StoreRow { ty: store.ty, x, row }.on(self.isa);
        }
    }

    pub fn attend(&self, spec: &AttnSpec, phase: &Phase, member: &Member) {
        let view = self.rows.view_of_slot(phase.slot, spec.window);
        for item in self.lists.of(view, spec, phase.narrow).share(member) {
            self.attend_item(&item, view, spec, phase.slot, member);
            if phase.quantize {
                let columns = query_columns(spec, item.kv_head);
                let int8s = self.buffers.int8s(spec.out, phase.narrow);
                for row in item.rows {
                    // SAFETY: this thread has attended with these heads of the row, and with whole K/V heads to each
                    // thread nobody else touches them, as f32 or as int8.
                    unsafe {
                        let x = self.buffers.f32s(spec.out).columns(row.row, columns.clone());
                        int8s.quantize(self.isa, row.row, columns.start, x);
                    }
                }
            }
        }
    }

    fn attend_item(&self, item: &Item, view: usize, spec: &AttnSpec, slot: usize, member: &Member) {
        let group = spec.group();
        let first_head = item.kv_head * group;
        let values = if spec.values_are_keys { self.keys } else { self.values };
        let to = match item.chunk {
            None => To::Out(self.buffers.f32s(spec.out)),
            Some(chunk) => To::Parts { parts: self.parts(spec), chunk, first_head },
        };
        Attend {
            head_dim: spec.head_dim,
            group,
            scale: spec.scale,
            cap: spec.cap,
            sinks: spec.sinks.map(|sinks| &self.vector(sinks)[first_head..first_head + group]),
            slopes: spec
                .slopes
                .map(|id| &self.model.plan.slopes[id.0 as usize][first_head..first_head + group]),
            keys: self.keys.head(slot, item.kv_head, spec.head_dim),
            key_type: self.keys.ty,
            values: values.head(slot, item.kv_head, spec.head_dim),
            value_type: values.ty,
            list: &self.rows.views[view].lists[item.list],
            rows: item.rows,
            q: self.buffers.f32s(spec.q),
            column: query_columns(spec, item.kv_head).start,
            to,
            // SAFETY: the only reference to what this thread has for itself, until the item is done.
            scratch: &mut unsafe { self.buffers.own(member) }.attention,
        }
        .on(self.isa);
    }

    fn parts(&self, spec: &AttnSpec) -> Parts<'_> {
        Parts { rows: self.buffers.parts, n_head: spec.n_head }
    }

    pub fn join(&self, spec: &AttnSpec, phase: &Phase, member: &Member) {
        let view = &self.rows.views[self.rows.view_of_slot(phase.slot, spec.window)];
        for item in member.share(self.n_rows(phase) * spec.n_head, 1) {
            let (row, head) = (item / spec.n_head, item % spec.n_head);
            let Seen { from, to, .. } = view.visible[self.row_in_pass(row, phase)];
            let columns = head * spec.head_dim..(head + 1) * spec.head_dim;
            Join {
                parts: self.parts(spec),
                row,
                head,
                seen: from..to,
                sink: spec.sinks.map(|sinks| self.vector(sinks)[head]),
                // SAFETY: this head of the row is this thread's share.
                out: unsafe { self.buffers.f32s(spec.out).row_mut(row, columns) },
                // SAFETY: the only reference to what this thread has for itself, until the head is joined.
                scratch: &mut unsafe { self.buffers.own(member) }.attention,
            }
            .on(self.isa);
        }
    }
}

/// The query heads of a K/V head.
fn query_columns(spec: &AttnSpec, kv_head: usize) -> Range<usize> {
    let width = spec.group() * spec.head_dim;
    kv_head * width..(kv_head + 1) * width
}
