// Sorts pairs of a row and a place in its choice by expert, and cuts each expert's into tiles of up to 32. The order
// within an expert is any: no result depends on it.

struct Params {
    experts: u32,
    used: u32,
    chosen_stride: u32,
    // Where the number of rows is in `rows`.
    count_at: u32,
    // Where pairs begin in `sorted`.
    pairs_at: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> chosen: array<f32>; // [rows, chosen_stride]: numbers of experts, weights
@group(0) @binding(3) var<storage, read_write> sorted: array<u32>; // count of tiles; of each expert, first pair, pairs; pairs

var<workgroup> counts: array<atomic<u32>, 1024>;
var<workgroup> begins: array<u32, 1024>;

fn expert_of(pair: u32) -> u32 {
    return u32(chosen[pair / p.used * p.chosen_stride + pair % p.used]);
}

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) thread: u32) {
    let pairs = rows[p.count_at] * p.used;
    for (var expert = thread; expert < p.experts; expert += 64u) {
        atomicStore(&counts[expert], 0u);
    }
    workgroupBarrier();
    for (var pair = thread; pair < pairs; pair += 64u) {
        atomicAdd(&counts[expert_of(pair)], 1u);
    }
    workgroupBarrier();
    if thread == 0u {
        var begin = 0u;
        var tiles = 0u;
        for (var expert = 0u; expert < p.experts; expert++) {
            let count = atomicLoad(&counts[expert]);
            begins[expert] = begin;
            for (var first = 0u; first < count; first += 32u) {
                sorted[1u + 3u * tiles] = expert;
                sorted[2u + 3u * tiles] = begin + first;
                sorted[3u + 3u * tiles] = min(count - first, 32u);
                tiles++;
            }
            begin += count;
        }
        sorted[0] = tiles;
    }
    workgroupBarrier();
    for (var expert = thread; expert < p.experts; expert += 64u) {
        atomicStore(&counts[expert], 0u);
    }
    workgroupBarrier();
    for (var pair = thread; pair < pairs; pair += 64u) {
        let expert = expert_of(pair);
        sorted[p.pairs_at + begins[expert] + atomicAdd(&counts[expert], 1u)] = pair;
    }
}
