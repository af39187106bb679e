// What the attention kernels share. A row sees a list of cells, in chunks of 256 in order; a chunk's scores, their
// maximum, the sum of their exponentials and the weighted values are a result by themselves, and the results of
// chunks are joined in order. That fixes the bits, whoever makes the chunks.

override THREADS: u32 = 8u;

const CHUNK = 256u;

struct Params {
    heads: u32,
    // Query heads that share a head of keys and values.
    group: u32,
    head_dim: u32,
    // Numbers in a head of `q`.
    head_stride: u32,
    cells: u32,
    key_words: u32,
    value_words: u32,
    scale: f32,
    // Scores stay below this; 0 for none.
    cap: f32,
    // Whether each head has a score that takes a share of the weights and gives nothing.
    has_sinks: u32,
    // Numbers in a row of the result.
    out_stride: u32,
    // In `rows`: which view the slot has; where the views' spans begin; the capacity of a view in rows.
    view_at: u32,
    spans_at: u32,
    view_rows: u32,
    // The capacity of the partial results in chunks.
    most_chunks: u32,
    // The first of the rows that are made here.
    first_row: u32,
    // 0, which no compiler knows.
    zero: u32,
}

// The list of cells of a row: where it begins and how long it is.
struct Span { first: u32, len: u32 }

// What a head's weighted values are multiplied with, and then divided by.
struct Whole { keep: f32, sum: f32 }

fn whole(top: f32, sum: f32, head: u32) -> Whole {
    if p.has_sinks == 0u {
        return Whole(1.0, sum);
    }
    let larger = max(top, sinks[head]);
    let keep = exp(top - larger);
    return Whole(keep, fma(sum, keep, exp(sinks[head] - larger)));
}

// A head's number. The product is rounded before the division: otherwise a compiler may divide one of the factors first,
// in one kernel and not in another.
fn head_number(x: f32, all: Whole) -> f32 {
    return bitcast<f32>(bitcast<u32>(x * all.keep) ^ p.zero) / all.sum;
}
