// x[row] = table[what the row picks] · scale, or added. Needs the text of a format (load, numbers, offset) and of its
// scales.

struct Params {
    // Which rows lie in this part of the table.
    first: u32,
    count: u32,
    blocks: u32,
    // Quads in a row of x.
    x_stride: u32,
    // Where the picks begin in `rows`.
    picks_at: u32,
    scale: f32,
    adds: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read> rows: array<u32>;
@group(0) @binding(5) var<storage, read_write> x: array<vec4<f32>>; // [rows, x_stride]

// w = factor·(number - offset) + summand, for four.
fn quad(r: Raw, q: u32) -> vec4<f32> {
    let half = q >> 2u;
    let whole = numbers(r, q) - offset();
    if LIFTS {
        return fma(vec4<f32>(factor(r, half)), whole, vec4<f32>(summand(r, half)));
    }
    return factor(r, half) * whole;
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let at = 32u * group.x + thread;
    let pick = rows[p.picks_at + group.y] - p.first;
    if at < 8u * p.blocks && pick < p.count {
        let to = group.y * p.x_stride + at;
        var four = quad(load(pick * p.blocks + at / 8u), at % 8u) * p.scale;
        if p.adds != 0u {
            four += x[to];
        }
        x[to] = four;
    }
}
