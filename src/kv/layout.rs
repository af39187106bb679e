//! How much of the cache each slot keeps: all cells of the context, or those that a window can reach.

use crate::{
    kv_type::KvType,
    plan::{Op, Plan},
};

/// A sequence can always be cut to what lies up to so many positions before the farthest that it has come to, whatever
/// windows there are.
pub const TAKEN_BACK: usize = 192;

/// Where there are windows, no draft is longer: room is left for who looks back from where it began.
pub const MOST_DRAFTED: usize = 128;

/// Cells beside what windows keep and what one pass writes.
const FOR_DRAFTS: usize = 64;

/// Cells that memory is taken for at once: classes with windows have whole blocks.
pub const BLOCK: usize = 256;

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
}

/// Which slots there are, and what they keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// The first one keeps all cells of the context.
    pub classes: Vec<CellClass>,
    /// A layer's own slots first.
    pub slots: Vec<SlotShape>,
}

impl KvLayout {
    /// Of the slots of a plan's layers, and of some more that any layer may use.
    pub fn new(plan: &Plan, room: &KvRoom) -> Self {
        let n_cells = room.n_cells;
        let mut layout = KvLayout { classes: vec![CellClass { window: None, n_cells }], slots: Vec::new() };
        for layer in 0..plan.layers.len() {
            let stored = plan.layers[layer].attn.iter().find_map(|op| plan.store_of(op));
            let Some(spec) = stored else {
                layout.slots.push(SlotShape::default());
                continue;
            };
            let class = layout.class_for(widest_window(plan, layer), room);
            layout.slots.push(SlotShape { n_kv_head: spec.n_kv_head, head_dim: spec.head_dim, class });
        }
        let width = |slot: &SlotShape| slot.n_kv_head * slot.head_dim;
        let widest = layout.slots.iter().copied().max_by_key(width).unwrap_or_default();
        layout.slots.resize(room.n_slots.max(layout.slots.len()), SlotShape { class: 0, ..widest });
        layout
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

    /// Cells of all slots.
    pub fn n_cells(&self) -> usize {
        self.classes[0].n_cells
    }

    /// Bytes of one slot's keys, or of its values.
    pub fn slot_bytes(&self, slot: usize, ty: KvType) -> u64 {
        let SlotShape { n_kv_head, head_dim, class } = self.slots[slot];
        (n_kv_head * ty.row_bytes(head_dim)) as u64 * self.classes[class].n_cells as u64
    }

    /// Bytes of all keys, or of all values.
    pub fn bytes(&self, ty: KvType) -> u128 {
        (0..self.slots.len()).map(|slot| u128::from(self.slot_bytes(slot, ty))).sum()
    }
}

/// How far back anything looks that reads the keys of a layer.
fn widest_window(plan: &Plan, layer: usize) -> Option<u32> {
    let readers = (0..plan.layers.len()).filter(|&reader| plan.keys_of(reader) == layer);
    let ops = readers.flat_map(|reader| &plan.layers[reader].attn);
    let windows = ops.filter_map(|op| match *op {
        Op::Attend(id) => Some(plan.attention(id).window),
        _ => None,
    });
    windows.reduce(|a, b| Some(a?.max(b?))).flatten()
}
