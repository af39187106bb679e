// States of recurrent layers: slabs of numbers, each with the last inputs of the convolution, the matrices of the scan, and
// rows from which the steps of the last batch can be taken again. A run is what a pass does to the state of one sequence.

const NONE = 0xffffffffu;

// Make states again from rows that were kept, not from the rows of a pass.
override AGAIN: bool = false;

@group(0) @binding(1) var<storage, read> runs: array<u32>; // count; of each its rows; by layer of each its slabs; numbers of rows

struct Run {
    // Where the numbers of its rows begin in `runs`, how many there are, and as which row the first is kept, if rows are.
    first: u32,
    count: u32,
    kept_from: u32,
    // The slab that it goes on from, if any; the slab that it writes its state to; when states are made again, the slab that
    // has its rows.
    from_slab: u32,
    to_slab: u32,
    rows_slab: u32,
}

fn run_of(number: u32, layer: u32) -> Run {
    let count = runs[0];
    let at = 1u + 3u * number;
    let slabs = 1u + 3u * count + 3u * (layer * count + number);
    return Run(runs[at], runs[at + 1u], runs[at + 2u], runs[slabs], runs[slabs + 1u], runs[slabs + 2u]);
}

fn row_of(run: Run, n: u32) -> u32 {
    if AGAIN {
        return n;
    }
    return runs[run.first + n];
}

// Whether the rows are to be kept in the slab that is written. When states are made again they are not needed if the state
// replaces the one before these rows.
fn keeps_rows(run: Run) -> bool {
    if AGAIN {
        return run.rows_slab != run.to_slab && run.from_slab != run.to_slab;
    }
    return run.kept_from != NONE;
}

fn kept_row(run: Run, n: u32) -> u32 {
    if AGAIN {
        return n;
    }
    return run.kept_from + n;
}
