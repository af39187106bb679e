//! Which rows are attended to together, and which thread does it. No result depends on either.

use std::ops::Range;

use super::super::team::Member;
use crate::backend::View;

/// Pairs of a row and a query head that one item has, at most, if it has several rows.
const ITEM_PAIRS: usize = 256;

/// A row of the pass, and how much of its sequence's list it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    list: usize,
    pub visible: usize,
    pub row: usize,
}

/// Rows of one sequence, as a range of the spans.
#[derive(Clone, Debug)]
struct Block {
    spans: Range<usize>,
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
}

impl Items {
    /// Lists rows of a view, numbered in the order given; allocates only if there never were that many.
    pub fn fill(&mut self, view: &View, rows: impl Iterator<Item = usize>, n_head: usize, n_kv_head: usize) {
        self.n_kv_head = n_kv_head;
        self.spans.clear();
        let seen = rows.map(|row| view.visible[row]).enumerate();
        self.spans.extend(seen.map(|(row, (list, visible))| Span { list, visible, row }));
        self.spans.sort_unstable();
        self.blocks.clear();
        let group = n_head / n_kv_head;
        let most = (ITEM_PAIRS / group).max(1);
        let mut cost = 0;
        let mut from = 0;
        for rows in self.spans.chunk_by(|a, b| a.list == b.list) {
            for rows in rows.chunks(most) {
                let before = cost;
                cost += block_cost(rows, group);
                self.blocks.push(Block { spans: from..from + rows.len(), cost: before..cost });
                from += rows.len();
            }
        }
    }

    /// The items of one thread.
    pub fn share(&self, member: &Member) -> impl Iterator<Item = Item<'_>> {
        let bound = |thread| self.first_after(thread, member.threads);
        self.items(bound(member.index)..bound(member.index + 1))
    }

    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = Item<'_>> {
        self.items(0..self.blocks.len() * self.n_kv_head)
    }

    fn items(&self, items: Range<usize>) -> impl Iterator<Item = Item<'_>> {
        items.map(|item| {
            let rows = &self.spans[self.blocks[item % self.blocks.len()].spans.clone()];
            Item { kv_head: item / self.blocks.len(), list: rows[0].list, rows }
        })
    }

    /// The first item whose middle lies at or beyond `thread` parts of `threads` of the work. Items are
    /// ordered by K/V head, then by block.
    fn first_after(&self, thread: usize, threads: usize) -> usize {
        let Some(last) = self.blocks.last() else { return 0 };
        let total = u128::from(last.cost.end);
        let goal = 2 * total * self.n_kv_head as u128 * thread as u128;
        let before = |item: usize| {
            let Block { cost, .. } = &self.blocks[item % self.blocks.len()];
            let twice_middle =
                2 * total * (item / self.blocks.len()) as u128 + u128::from(cost.start + cost.end);
            twice_middle * (threads as u128) < goal
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
fn block_cost(rows: &[Span], group: usize) -> u64 {
    let most = rows.last().map_or(0, |row| row.visible);
    let pairs: usize = rows.iter().map(|row| row.visible).sum();
    (pairs * group + 8 * most + 64) as u64
}
