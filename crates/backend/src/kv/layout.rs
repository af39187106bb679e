//! How much of the cache each slot keeps: all cells of the context, or those that a window can reach.

use super::states::MOST_REPLAYED;
use crate::{
    kv_type::KvType,
    plan::{MixerSpec, Op, Plan, UnitSet},
};

/// A sequence can always be cut to what lies up to so many positions before the farthest that it has come to, whatever
/// windows there are.
pub const TAKEN_BACK: usize = 192;

/// Where there are windows, no draft is longer: room is left for who looks back from where it began.
pub const MOST_DRAFTED: usize = 128;

/// Cells besides those that windows keep and those that one pass writes.
const FOR_DRAFTS: usize = 64;

/// Slabs that a text takes while it is drafted: what it and its draft are, and were before their last batch.
const STATES_OF_TEXT: usize = 4;

/// Slabs for what texts may go on from later.
const STATES_KEPT: usize = 4;

/// Cells that memory is taken for at once: classes with windows have whole blocks.
pub use spec_run_kernels::head_rows::BLOCK;

/// What a context asks for.
#[derive(Clone, Copy, Debug)]
pub struct KvRoom {
    /// Cells of the context.
    pub n_cells: usize,
    /// All slots: a layer's own, and those of repetitions.
    pub n_slots: usize,
    /// Rows that are evaluated at once.
    pub max_rows: usize,
    /// Texts that grow side by side.
    pub sequences: usize,
    /// States of recurrent layers besides those of these texts.
    pub extra_states: usize,
    /// Windows keep all cells too.
    pub all_cells: bool,
}

/// Slots that keep the same cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellClass {
    /// How far back their layers see; `None`: to the beginning.
    pub window: Option<u32>,
    /// How many cells they have.
    pub n_cells: usize,
}

/// A slot that nobody writes has no heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotShape {
    /// Heads of keys and of values.
    pub n_kv_head: usize,
    /// Numbers of a head.
    pub head_dim: usize,
    /// Which of the classes it is in.
    pub class: usize,
    /// Its values are its keys.
    pub keys_only: bool,
}

/// Which slots there are, and what they keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// The first one keeps all cells of the context.
    pub classes: Vec<CellClass>,
    /// A layer's own slots first.
    pub slots: Vec<SlotShape>,
    /// The slot of what predicts one token more, which a pass of the model does not write.
    pub mtp: Option<usize>,
    /// Whether a stored key is another position's, turned: a norm behind the rotation has factors that do not turn with it.
    pub keys_turn: bool,
    /// Recurrent layers.
    pub recurrent: usize,
    /// Slabs that each of them has.
    pub states: usize,
}

impl KvLayout {
    /// Of the slots of a plan's layers, and of some more that any layer may use.
    pub fn new(plan: &Plan, room: &KvRoom) -> Self {
        let n_cells = room.n_cells;
        let mut layout = KvLayout {
            classes: vec![CellClass { window: None, n_cells }],
            slots: Vec::new(),
            mtp: plan.mtp_slot(),
            keys_turn: plan.attentions.iter().all(|spec| !spec.norm_after_rope || spec.k_norm.is_none()),
            recurrent: plan.mixers.len(),
            states: 0,
        };
        if !plan.mixers.is_empty() {
            layout.states = STATES_OF_TEXT * room.sequences.max(1) + STATES_KEPT + room.extra_states;
        }
        for layer in 0..plan.own_slots() {
            let ops = plan.layer_of_slot(layer).map_or(&[][..], |layer| &layer.attn);
            let stored = ops.iter().find_map(|op| plan.store_of(op));
            let Some(spec) = stored else {
                layout.slots.push(SlotShape::default());
                continue;
            };
            // A text that is seen both ways is evaluated whole.
            let window = widest_window(plan, layer).filter(|_| !plan.bidirectional);
            let class = layout.class_for(window, room);
            layout.slots.push(SlotShape {
                n_kv_head: spec.n_kv_head,
                head_dim: spec.head_dim,
                class,
                keys_only: spec.values_are_keys,
            });
        }
        let width = |slot: &SlotShape| slot.n_kv_head * slot.head_dim;
        let widest = layout.slots.iter().copied().max_by_key(width).unwrap_or_default();
        layout.slots.resize(room.n_slots.max(layout.slots.len()), SlotShape { class: 0, ..widest });
        layout
    }

    /// The same for a backend that has these units: keys and values of the other layers lie elsewhere.
    pub fn of_units(mut self, plan: &Plan, held: &UnitSet) -> KvLayout {
        let has_attention = held.attn.contains(&true);
        for (slot, shape) in self.slots.iter_mut().enumerate() {
            let is_held = if Some(slot) == self.mtp {
                held.mtp
            } else {
                // Any layer may use what is no layer's own.
                held.attn.get(slot).copied().filter(|_| slot < plan.own_slots()).unwrap_or(has_attention)
            };
            if !is_held {
                *shape = SlotShape::default();
            }
        }
        self
    }

    /// Where the cells of a window are fewer than all, a class of its own.
    fn class_for(&mut self, window: Option<u32>, room: &KvRoom) -> usize {
        let Some(reach) = window.filter(|_| !room.all_cells) else { return 0 };
        let kept = (reach as usize).saturating_add(TAKEN_BACK).saturating_mul(room.sequences.max(1));
        let cells = kept.saturating_add(room.max_rows + FOR_DRAFTS).checked_next_multiple_of(BLOCK);
        let Some(n_cells) = cells.filter(|&cells| cells < room.n_cells) else { return 0 };
        self.classes.iter().position(|class| class.window == window).unwrap_or_else(|| {
            self.classes.push(CellClass { window, n_cells });
            self.classes.len() - 1
        })
    }

    /// The same for values, which some slots do not have.
    pub fn of_values(&self) -> KvLayout {
        let mut layout = self.clone();
        for slot in layout.slots.iter_mut().filter(|slot| slot.keys_only) {
            slot.n_kv_head = 0;
        }
        layout
    }

    /// Cells of all slots.
    pub fn n_cells(&self) -> usize {
        self.classes[0].n_cells
    }

    /// Bytes of one slot's keys, or of its values.
    pub fn slot_bytes(&self, slot: usize, ty: KvType) -> u64 {
        let SlotShape { n_kv_head, head_dim, class, keys_only: _ } = self.slots[slot];
        (n_kv_head * ty.row_bytes(head_dim)) as u64 * self.classes[class].n_cells as u64
    }

    /// Bytes of all keys, or of all values.
    pub fn bytes(&self, ty: KvType) -> u128 {
        (0..self.slots.len()).map(|slot| u128::from(self.slot_bytes(slot, ty))).sum()
    }
}

/// What the states of recurrent layers take at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBytes {
    /// A text's state, in all these layers.
    pub state: u64,
    /// The inputs of a row that it can be taken back by.
    pub row: u64,
    /// States that there is room for, each with [`MOST_REPLAYED`] rows.
    pub count: u64,
}

impl StateBytes {
    /// Of some recurrent layers.
    pub fn new<'a>(mixers: impl Iterator<Item = &'a MixerSpec>, layout: &KvLayout) -> Self {
        let (mut state, mut row) = (0, 0);
        for spec in mixers {
            state += (spec.state_len() * size_of::<f32>()) as u64;
            row += (spec.replay_len() * size_of::<f32>()) as u64;
        }
        StateBytes { state, row, count: layout.states as u64 }
    }

    /// Of the rows that a state can be taken back by.
    pub fn rows(&self) -> u64 {
        self.row * MOST_REPLAYED as u64
    }

    /// Of all that there is room for.
    pub fn all(&self) -> u64 {
        (self.state + self.rows()) * self.count
    }
}

/// How far back anything looks that reads the keys of a layer.
fn widest_window(plan: &Plan, layer: usize) -> Option<u32> {
    if Some(layer) == plan.mtp_slot() {
        return None;
    }
    let readers = (0..plan.layers.len()).filter(|&reader| plan.keys_of(reader) == layer);
    let ops = readers.flat_map(|reader| &plan.layers[reader].attn);
    let windows = ops.filter_map(|op| match *op {
        Op::Attend(id) => Some(plan.attention(id).window),
        _ => None,
    });
    windows.reduce(|a, b| Some(a?.max(b?))).flatten()
}
