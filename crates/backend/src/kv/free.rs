//! Cells that nobody holds. Each text gets its cells in runs, because attention reads them one behind the other: texts that
//! grow together would else lie mixed.

/// Cells of a run.
const RUN: usize = u64::BITS as usize;

/// Which cells are free.
#[derive(Debug)]
pub struct FreeCells {
    /// A bit for each cell.
    runs: Vec<u64>,
    cells: usize,
    count: usize,
}

impl FreeCells {
    pub fn all(cells: usize) -> Self {
        let mut free = FreeCells { runs: vec![0; cells.div_ceil(RUN)], cells, count: cells };
        (0..free.runs.len()).for_each(|run| free.runs[run] = free.whole(run));
        free
    }

    /// What the bookkeeping takes for so many cells.
    pub fn bytes_for(cells: usize) -> usize {
        size_of::<u64>() * cells.div_ceil(RUN)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// A run of which nothing is taken; the last may have fewer cells.
    fn whole(&self, run: usize) -> u64 {
        match self.cells - run * RUN {
            RUN.. => u64::MAX,
            rest => (1 << rest) - 1,
        }
    }

    /// A cell for a text whose last one is `last`: from the rest of its run, or else from a run that is wholly free, the next
    /// if it can be, or else the lowest that there is.
    pub fn take(&mut self, last: Option<u32>) -> Option<u32> {
        let behind = last.map(|last| last as usize + 1);
        let (run, from) = behind.and_then(|behind| self.rest_of_run(behind)).or_else(|| {
            let next = behind.map(|behind| behind.div_ceil(RUN)).into_iter();
            let free = |&run: &usize| self.runs.get(run).is_some_and(|&free| free == self.whole(run));
            let whole = next.chain(0..self.runs.len()).find(free);
            let some = || self.runs.iter().position(|&free| free != 0);
            whole.or_else(some).map(|run| (run, self.runs[run]))
        })?;
        let bit = from.trailing_zeros() as usize;
        self.runs[run] &= !(1 << bit);
        self.count -= 1;
        Some((run * RUN + bit) as u32)
    }

    /// The free cells from `cell` on that are in the run of the one before it.
    fn rest_of_run(&self, cell: usize) -> Option<(usize, u64)> {
        let (run, bit) = (cell / RUN, cell % RUN);
        let free = *self.runs.get(run).filter(|_| bit > 0)? & (u64::MAX << bit);
        (free != 0).then_some((run, free))
    }

    pub fn put(&mut self, cell: u32) {
        let (run, bit) = (cell as usize / RUN, cell as usize % RUN);
        debug_assert!(self.runs[run] & (1 << bit) == 0, "cell {cell} is free already");
        self.runs[run] |= 1 << bit;
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of two texts that take turns.
    fn two(free: &mut FreeCells, each: usize) -> [Vec<u32>; 2] {
        let mut texts = [Vec::new(), Vec::new()];
        for _ in 0..each {
            for text in &mut texts {
                text.push(free.take(text.last().copied()).unwrap());
            }
        }
        texts
    }

    fn in_a_row(from: u32, cells: usize) -> Vec<u32> {
        (from..).take(cells).collect()
    }

    #[test]
    fn texts_that_grow_together_lie_apart() {
        let mut free = FreeCells::all(1000);
        let [a, b] = two(&mut free, 100);
        let runs = |first: u32, then: u32| [in_a_row(first, 64), in_a_row(then, 36)].concat();
        assert_eq!((a, b), (runs(0, 128), runs(64, 192)));
        assert_eq!(free.len(), 800);
    }

    #[test]
    fn a_text_alone_lies_in_one_piece_also_after_it_was_cut() {
        let mut free = FreeCells::all(200);
        let mut text: Vec<u32> = Vec::new();
        for round in 0..190 {
            let draft = free.take(text.last().copied()).unwrap();
            free.put(draft);
            text.push(free.take(text.last().copied()).unwrap());
            assert_eq!(text[round], round as u32);
        }
    }

    #[test]
    fn every_cell_is_given_out_once() {
        for cells in [1, 63, 64, 65, 130] {
            let mut free = FreeCells::all(cells);
            let [mut a, b] = two(&mut free, cells / 2);
            a.extend(b);
            a.extend((a.len()..cells).map(|_| free.take(Some(0)).unwrap()));
            assert_eq!((free.len(), free.take(None)), (0, None));
            a.sort_unstable();
            assert_eq!(a, in_a_row(0, cells));
            a.iter().for_each(|&cell| free.put(cell));
            assert_eq!((free.len(), free.take(None)), (cells, Some(0)));
        }
    }
}
