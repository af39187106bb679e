//! What attention has to do in a pass: for each view and shape of heads one list, for all rows and for those whose
//! logits are wanted.

use super::{
    attention::deal::Items,
    schedule::{PassShape, Phase, Work},
};
use crate::{
    backend::Rows,
    plan::{AttnSpec, Op, Plan},
};

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    view: usize,
    n_head: usize,
    n_kv_head: usize,
    narrow: bool,
}

/// Kept from pass to pass.
#[derive(Default)]
pub struct Lists {
    keys: Vec<Key>,
    items: Vec<Items>,
}

impl Lists {
    /// Those that the phases need; allocates only if there never were that many.
    pub fn fill(&mut self, plan: &Plan, phases: &[Phase], rows: &Rows, shape: &PassShape) {
        self.keys.clear();
        for phase in phases {
            let (Work::Op(Op::Attend(id)) | Work::StoreAttend(id)) = phase.work else { continue };
            let spec = plan.attention(id);
            let key = key(rows.view_of_slot(phase.slot, spec.window), spec, phase.narrow);
            if self.keys.contains(&key) {
                continue;
            }
            self.keys.push(key);
            if self.items.len() < self.keys.len() {
                self.items.push(Items::default());
            }
            let (view, split) = (&rows.views[key.view], shape.split_lists(spec));
            let items = &mut self.items[self.keys.len() - 1];
            if key.narrow {
                items.fill(view, rows.outputs.iter().copied(), key.n_head, key.n_kv_head, split);
            } else {
                items.fill(view, 0..rows.tokens.len(), key.n_head, key.n_kv_head, split);
            }
        }
    }

    /// # Panics
    /// If no phase that `fill` was given needs it.
    pub fn of(&self, view: usize, spec: &AttnSpec, narrow: bool) -> &Items {
        let key = key(view, spec, narrow);
        let i = self.keys.iter().position(|&known| known == key).expect("filled for this pass");
        &self.items[i]
    }
}

fn key(view: usize, spec: &AttnSpec, narrow: bool) -> Key {
    Key { view, n_head: spec.n_head, n_kv_head: spec.n_kv_head, narrow }
}
