//! Which rows are attended to together, and which thread does it. No result depends on either.

use std::ops::Range;

use super::{super::team::Member, CHUNK, Span};
use crate::backend::{Seen, View};

/// Pairs of a row and a query head that one item has, at most, if it has several rows.
const ITEM_PAIRS: usize = 256;

/// Rows of one sequence, as a range of the spans, and what they do at once.
#[derive(Clone, Debug)]
struct Block {
    spans: Range<usize>,
    chunk: Option<usize>,
    /// Of all blocks before this one, and with it.
    cost: Range<u64>,
}

/// What attention has to do for every K/V head of a view.
#[derive(Default)]
pub struct Items {
    /// By sequence, then by how much they see.
    spans: Vec<Span>,
    blocks: Vec<Block>,
    n_kv_head: usize,
}

/// Rows of one sequence that attend over one K/V head.
pub struct Item<'a> {
    pub kv_head: usize,
    pub list: usize,
    pub rows: &'a [Span],
    /// Only this chunk of the list, else all that the rows see.
    pub chunk: Option<usize>,
}

impl Items {
    /// Lists rows of a view, numbered in the order given; allocates only if there never were that many. With
    /// `split`, every chunk of a list is an item of its own.
    pub fn fill(
        &mut self,
        view: &View,
        rows: impl Iterator<Item = usize>,
        n_head: usize,
        n_kv_head: usize,
        split: bool,
    ) {
        self.n_kv_head = n_kv_head;
        self.spans.clear();
        let seen = rows.map(|row| view.visible[row]).enumerate();
        self.spans.extend(seen.map(|(row, Seen { list, from, to, own })| Span { list, to, from, row, own }));
        self.spans.sort_unstable();
        self.blocks.clear();
        let group = n_head / n_kv_head;
        let most = (ITEM_PAIRS / group).max(1);
        let mut from = 0;
        for of_list in self.spans.chunk_by(|a, b| a.list == b.list) {
            for rows in of_list.chunks(most) {
                let spans = from..from + rows.len();
                from = spans.end;
                let seen = rows.first().map_or(0, |row| row.from)..rows.last().map_or(0, |row| row.to);
                let chunks = if split { seen.start / CHUNK..seen.end.div_ceil(CHUNK) } else { 0..1 };
                for chunk in chunks {
                    let cells = match split {
                        true => seen.start.max(chunk * CHUNK)..seen.end.min((chunk + 1) * CHUNK),
                        false => seen.clone(),
                    };
                    let before = self.blocks.last().map_or(0, |block| block.cost.end);
                    let cost = before..before + cost(rows, &cells, group);
                    self.blocks.push(Block { spans: spans.clone(), chunk: split.then_some(chunk), cost });
                }
            }
        }
    }

    /// The items of one thread.
    pub fn share(&self, member: &Member) -> impl Iterator<Item = Item<'_>> {
        let part = member.part();
        let bound = |end| self.first_after(end, part.whole);
        self.items(bound(part.from)..bound(part.to))
    }

    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = Item<'_>> {
        self.items(0..self.blocks.len() * self.n_kv_head)
    }

    fn items(&self, items: Range<usize>) -> impl Iterator<Item = Item<'_>> {
        items.map(|item| {
            let Block { spans, chunk, .. } = &self.blocks[item % self.blocks.len()];
            let rows = &self.spans[spans.clone()];
            Item { kv_head: item / self.blocks.len(), list: rows[0].list, rows, chunk: *chunk }
        })
    }

    /// The first item whose middle lies at or beyond `parts` parts of `whole` of the work. Items are ordered by K/V head,
    /// then by block.
    fn first_after(&self, parts: u64, whole: u64) -> usize {
        let Some(last) = self.blocks.last() else { return 0 };
        let total = u128::from(last.cost.end);
        let goal = 2 * total * self.n_kv_head as u128 * u128::from(parts);
        let before = |item: usize| {
            let Block { cost, .. } = &self.blocks[item % self.blocks.len()];
            let twice_middle =
                2 * total * (item / self.blocks.len()) as u128 + u128::from(cost.start + cost.end);
            twice_middle * u128::from(whole) < goal
        };
        let (mut low, mut high) = (0, self.blocks.len() * self.n_kv_head);
        while low < high {
            let middle = (low + high) / 2;
            if before(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// In products of a query and a key; unpacking a cell takes about as long as eight of them.
fn cost(rows: &[Span], cells: &Range<usize>, group: usize) -> u64 {
    let seen = |row: &Span| row.to.min(cells.end).saturating_sub(row.from.max(cells.start));
    let products: usize = rows.iter().map(seen).sum();
    (products * group + 8 * cells.len() + 64) as u64
}
