//! What is sent to the device at once: pieces of matrices, as many as its buffers hold.

use std::ops::Range;

use super::{Sizes, TILE};
use crate::backend::cpu::matmul::{ActGroup, GROUP};

/// Multiplications in a submission: see `MOST_WORK` of `record`.
const MOST_WORK: usize = 100_000_000_000;

/// Pieces in a load.
pub const MOST_PIECES: usize = 64;

/// Rows of so many numbers, and the matrices that they are multiplied with.
pub struct Task {
    pub columns: usize,
    pub width: usize,
    pub matrices: Vec<Groups>,
}

/// A matrix' groups of rows.
#[derive(Clone, Copy)]
pub struct Groups {
    pub count: usize,
    /// Of one, in both planes.
    pub bytes: usize,
    /// Rows of one.
    pub lanes: usize,
}

/// Groups of rows of a matrix of a task.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub task: usize,
    pub matrix: usize,
    pub groups: Range<usize>,
    /// Where in the buffers its weights begin, and its products.
    pub weights_at: usize,
    pub products_at: usize,
}

#[derive(Debug, Default)]
pub struct Load {
    /// Tasks whose rows are sent with it, one behind the other.
    pub tasks: Range<usize>,
    pub pieces: Vec<Piece>,
    /// Bytes.
    pub weights: usize,
    pub products: usize,
    work: usize,
}

/// Loads that together are all of some tasks, and where each task's rows begin among those that are there.
pub fn loads(tasks: &[Task], sizes: Sizes) -> (Vec<usize>, Vec<Load>) {
    let (mut begins, mut done, mut load) = (Vec::new(), Vec::new(), Load::default());
    let mut rows_end = 0;
    for (task, Task { columns, width, matrices }) in tasks.iter().enumerate() {
        let rows_bytes = columns * width / GROUP * size_of::<ActGroup>();
        if rows_end + rows_bytes > sizes.acts as usize {
            // What lies there is overwritten, once all that needs it is on its way.
            load.close(&mut done);
            rows_end = 0;
        }
        begins.push(rows_end);
        rows_end += rows_bytes;
        load.tasks.end = task + 1;
        for (matrix, groups) in matrices.iter().enumerate() {
            let product_bytes = 4 * columns * groups.lanes;
            let work = columns * width * groups.lanes;
            let mut first = 0;
            while first < groups.count {
                let left = groups.count - first;
                let fitting = [
                    (sizes.weights as usize - load.weights) / groups.bytes,
                    (sizes.products as usize - load.products) / product_bytes,
                    MOST_WORK.saturating_sub(load.work) / work,
                    left,
                ];
                let n = fitting.into_iter().min().expect("some");
                let too_few = n < left.min(TILE[0] as usize / groups.lanes);
                if !load.pieces.is_empty() && (too_few || load.pieces.len() == MOST_PIECES) {
                    load.close(&mut done);
                    continue;
                }
                let n = n.max(1);
                load.pieces.push(Piece {
                    task,
                    matrix,
                    groups: first..first + n,
                    weights_at: load.weights,
                    products_at: load.products,
                });
                load.weights += n * groups.bytes;
                load.products += n * product_bytes;
                load.work += n * work;
                first += n;
            }
        }
    }
    load.close(&mut done);
    (begins, done)
}

impl Load {
    /// Puts it to those that are done; the next one begins behind it.
    fn close(&mut self, done: &mut Vec<Load>) {
        if !self.pieces.is_empty() {
            let next = Load { tasks: self.tasks.end..self.tasks.end, ..Load::default() };
            done.push(std::mem::replace(self, next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { acts: 20 * 48, weights: 1000, products: 4000 };

    fn task(columns: usize, groups: &[(usize, usize)]) -> Task {
        let groups = groups.iter().map(|&(count, bytes)| Groups { count, bytes, lanes: 16 });
        Task { columns, width: 32, matrices: groups.collect() }
    }

    /// Every group once and in order, no load larger than its buffers, and the rows of a piece are there when it comes.
    #[test]
    fn loads_are_all_there_is_and_fit() {
        let cases = [
            vec![task(3, &[(1, 10)])],
            vec![task(1, &[(500, 999), (7, 1000)]), task(20, &[(100, 1)])],
            vec![task(20, &[(9, 100), (9, 100)]), task(1, &[(1, 1)]), task(20, &[(3, 300)])],
            (1..200).map(|n| task(1 + n % 20, &[(n % 13 + 1, 1 + n % 300)])).collect(),
            (0..100).map(|_| task(1, &[(1, 1)])).collect(),
        ];
        for tasks in cases {
            let (begins, loads) = loads(&tasks, SIZES);
            // By task: whether its rows lie there, as far as loads have come.
            let mut there: Vec<Range<usize>> = Vec::new();
            let mut next = (0, 0, 0);
            let mut sent = 0;
            for load in &loads {
                assert_eq!(load.tasks.start, sent);
                sent = load.tasks.end;
                let rows = load.tasks.clone().map(|i| begins[i]..begins[i] + tasks[i].columns * 48);
                for rows in rows {
                    assert!(rows.end <= SIZES.acts as usize);
                    there.push(rows);
                }
                assert!(load.pieces.len() <= MOST_PIECES && !load.pieces.is_empty());
                let (mut weights, mut products) = (0, 0);
                for piece in &load.pieces {
                    let groups = tasks[piece.task].matrices[piece.matrix];
                    assert_eq!((piece.task, piece.matrix, piece.groups.start), next);
                    next.2 = piece.groups.end;
                    if next.2 == groups.count {
                        next = (next.0, next.1 + 1, 0);
                    }
                    if next.1 == tasks[piece.task].matrices.len() {
                        next = (next.0 + 1, 0, 0);
                    }
                    assert_eq!((piece.weights_at, piece.products_at), (weights, products));
                    weights += piece.groups.len() * groups.bytes;
                    products += piece.groups.len() * 4 * tasks[piece.task].columns * 16;
                    // Nothing that came later lies where its rows do.
                    let mine = &there[piece.task];
                    let later = &there[piece.task + 1..];
                    assert!(later.iter().all(|other| other.start >= mine.end || other.end <= mine.start));
                }
                assert!(weights <= 1000 && products <= 4000, "{load:?}");
                assert_eq!((weights, products), (load.weights, load.products));
            }
            assert_eq!(next, (tasks.len(), 0, 0));
        }
    }

    /// Matrices that are small go together, and none is cut into slivers to fill a load.
    #[test]
    fn small_matrices_share_a_load() {
        let tasks: Vec<Task> = (0..10).map(|_| task(1, &[(6, 50)])).collect();
        let (_, loads) = loads(&tasks, SIZES);
        assert_eq!(loads.iter().map(|load| load.pieces.len()).collect::<Vec<_>>(), [3, 3, 3, 1]);
    }

    /// So many fit a uniform buffer, and so much work a driver lets pass in one submission.
    #[test]
    fn a_load_has_neither_too_many_pieces_nor_too_much_work() {
        const ROOM: Sizes = Sizes { acts: 1 << 40, weights: 1 << 40, products: 1 << 40 };
        let pieces = |tasks: &[Task]| -> Vec<usize> {
            loads(tasks, ROOM).1.iter().map(|load| load.pieces.len()).collect()
        };
        assert_eq!(pieces(&[task(1, &[(1, 1); 130])]), [64, 64, 2]);
        // 3.2 billion products a group of 16 rows, so 31 groups in a load.
        let matrices = vec![Groups { count: 70, bytes: 1, lanes: 16 }];
        let task = Task { columns: 1000, width: 200_000, matrices };
        let loads = loads(&[task], ROOM).1;
        let groups_of = |load: &Load| load.pieces.iter().map(|piece| piece.groups.len()).collect::<Vec<_>>();
        assert_eq!(loads.iter().map(groups_of).collect::<Vec<_>>(), [[31], [31], [8]]);
    }
}
