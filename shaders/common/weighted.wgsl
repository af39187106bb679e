// Values of a chunk's cells, weighted and summed up by pairs of numbers. The cells are dealt to shares, eight at a time,
// whose sums are joined: so more threads can share a chunk, and each has eight loads under way. Needs stored.wgsl,
// reduce_shared.wgsl and a text that says how many heads there are (head_one or head_four).

// One or four.
override SHARES: u32 = 1u;

var<workgroup> weights: array<Reduced, CHUNK>;
// Where the cells' values lie.
var<workgroup> value_places: array<u32, CHUNK>;

// Of a pair of numbers of each head.
struct Pair { x: Reduced, y: Reduced }

fn value_pair(at: u32, pair: u32) -> vec2<f32> {
    if VALUES == IN_F32 {
        return vec2<f32>(bitcast<f32>(values[at + 2u * pair]), bitcast<f32>(values[at + 2u * pair + 1u]));
    }
    if VALUES == IN_F16 || VALUES == IN_BF16 {
        return two_in(VALUES, values[at + pair]);
    }
    let block = pair / 16u;
    let scale = scale_in(VALUES, values[at + scale_place(VALUES, block)], block);
    if VALUES == IN_Q8_0 {
        let four = four_bytes(values[at + pair / 2u]);
        return scale.x * select(four.xy, four.zw, (pair & 1u) != 0u);
    }
    let of_block = pair % 16u;
    var fifth = 0u;
    if has(VALUES, FIFTH) {
        fifth = values[at + fifth_place(block)] >> (2u * of_block);
    }
    // Sixteen bytes have the first eight pairs in their lower nibbles.
    let word = values[at + 4u * block + (of_block % 8u) / 2u];
    let shift = 16u * (of_block & 1u) + select(0u, 4u, of_block >= 8u);
    return four_nibbles(VALUES, word >> shift, fifth, scale).xy;
}

fn add_weighted(sums: Pair, cell: u32, v: vec2<f32>) -> Pair {
    let weight = weights[cell];
    return Pair(fma(weight, Reduced(v.x), sums.x), fma(weight, Reduced(v.y), sums.y));
}

// The sums of a share of the first `len` cells.
fn sums_of_share(share: u32, len: u32, pair: u32) -> Pair {
    var s = Pair();
    for (var i = 8u * share; i < len; i += 8u * SHARES) {
        if i + 8u > len {
            for (var j = i; j < len; j++) {
                s = add_weighted(s, j, value_pair(value_places[j], pair));
            }
            break;
        }
        let a = value_pair(value_places[i], pair);
        let b = value_pair(value_places[i + 1u], pair);
        let c = value_pair(value_places[i + 2u], pair);
        let d = value_pair(value_places[i + 3u], pair);
        let e = value_pair(value_places[i + 4u], pair);
        let f = value_pair(value_places[i + 5u], pair);
        let g = value_pair(value_places[i + 6u], pair);
        let h = value_pair(value_places[i + 7u], pair);
        s = add_weighted(s, i, a);
        s = add_weighted(s, i + 1u, b);
        s = add_weighted(s, i + 2u, c);
        s = add_weighted(s, i + 3u, d);
        s = add_weighted(s, i + 4u, e);
        s = add_weighted(s, i + 5u, f);
        s = add_weighted(s, i + 6u, g);
        s = add_weighted(s, i + 7u, h);
    }
    return s;
}

// What the shares have, joined for the threads of the first one, where the maxima were: those are known by now.
fn over_shares(x: Reduced, thread: u32) -> Reduced {
    shared_maxima[thread] = x;
    workgroupBarrier();
    var sum = x;
    let own = THREADS / SHARES;
    if thread < own {
        sum = (x + shared_maxima[thread + 2u * own])
            + (shared_maxima[thread + own] + shared_maxima[thread + 3u * own]);
    }
    workgroupBarrier();
    return sum;
}
