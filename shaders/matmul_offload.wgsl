// y[c, r] = Σ_k w[r, k] · x[c, k] for matrices as they lie packed in RAM, by the contract of the CPU's products: the sum
// of 32 products of whole numbers is exact, and one f32 takes these sums in the order of k. So a row has the CPU's bits.
// Tiles of 64 rows and 32 columns; each of 128 threads makes four by four. Needs packed.wgsl and what it needs.

// Whether the device's fma rounds once; if not it is made of operations that do.
override FUSED: bool = true;

@group(0) @binding(2) var<storage, read> x: array<u32>; // [columns, blocks of 32, 12]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [columns, rows]

// Of a column: the scale, the scaled sum, and sums of halves.
struct Column { scale: f32, sum: f32, first: i32, second: i32 }

// The halves of 32 k one after the other.
var<workgroup> w_tile: array<vec4<u32>, 128>; // [2, 64]
var<workgroup> w_about: array<About, 64>;
var<workgroup> x_tile: array<vec4<u32>, 64>; // [2, 32]
var<workgroup> x_about: array<Column, 32>;

// The same number, hidden from compilers: they would simplify the sums below as if nothing were rounded.
fn kept(a: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(a) ^ p.zero);
}

// A sum and what rounding took of it.
fn two_sum(a: f32, b: f32) -> vec2<f32> {
    let sum = kept(a + b);
    let of_b = kept(sum - a);
    let of_a = kept(sum - of_b);
    return vec2<f32>(sum, kept(a - of_a) + kept(b - of_b));
}

// The 12 upper bits of a number, and the rest.
fn parts_of(a: f32) -> vec2<f32> {
    let upper = kept(bitcast<f32>(bitcast<u32>(a) & 0xfffff000u));
    return vec2<f32>(upper, kept(a - upper));
}

fn two_product(a: f32, b: f32) -> vec2<f32> {
    let product = kept(a * b);
    let x = parts_of(a);
    let y = parts_of(b);
    var rest = kept(product - kept(x.x * y.x));
    rest = kept(rest - kept(x.y * y.x));
    rest = kept(rest - kept(x.x * y.y));
    return vec2<f32>(product, kept(x.y * y.y) - rest);
}

// a · b + c, rounded once: Boldo's and Melquiond's way, by a sum that is rounded to odd.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    if FUSED {
        return fma(a, b, c);
    }
    let product = two_product(kept(a), kept(b));
    let small = two_sum(c, product.y);
    let large = two_sum(product.x, small.x);
    let rest = two_sum(small.y, large.y);
    var odd = rest.x;
    let bits = bitcast<u32>(rest.x);
    if rest.y != 0.0 && (bits & 1u) == 0u {
        odd = bitcast<f32>(select(bits - 1u, bits + 1u, (rest.y > 0.0) == (rest.x > 0.0)));
    }
    return large.x + odd;
}

fn dot_four(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

fn one(row: u32, column: u32, sum: f32) -> f32 {
    let a = w_about[row];
    let c = x_about[column];
    let first = dot_four(w_tile[row], x_tile[column]) - OFFSET * c.first;
    let second = dot_four(w_tile[64u + row], x_tile[32u + column]) - OFFSET * c.second;
    if SCALES == SCALES_OF_HALVES {
        let of_first = fused(a.scales.x * c.scale, f32(first), sum);
        return fused(a.scales.y * c.scale, f32(second), of_first);
    }
    let products = fused(a.scales.x * c.scale, f32(a.subs.x * first + a.subs.y * second), sum);
    if !ALONE && (SCALES == SCALE_AND_MINIMUM || SCALES == SIX_BITS_AND_MINIMUM) {
        return fused(a.minimums.x, c.sum, products);
    }
    if SCALES == FOUR_BITS_OF_HALVES {
        let of_first = fused(a.minimums.x, c.scale * f32(c.first), products);
        return fused(a.minimums.y, c.scale * f32(c.second), of_first);
    }
    return products;
}

fn four(row: u32, column: u32, sums: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(
        one(row, column, sums.x),
        one(row + 16u, column, sums.y),
        one(row + 32u, column, sums.z),
        one(row + 48u, column, sums.w));
}

fn put(row: u32, column: u32, sum: f32) {
    if row < p.rows && column < p.columns {
        y[p.y_at + column * p.rows + row] = sum;
    }
}

fn put_four(row: u32, column: u32, sums: vec4<f32>) {
    put(row, column, sums.x);
    put(row + 16u, column, sums.y);
    put(row + 32u, column, sums.z);
    put(row + 48u, column, sums.w);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let top = 64u * group.x;
    let left = 32u * group.y;
    let blocks = p.blocks * SUBS;
    // What this thread brings: a row, or a column, or nothing.
    let row = min(top + thread, p.rows - 1u);
    let column = thread % 32u;
    let column_at = p.x_at + 12u * blocks * min(left + column, p.columns - 1u);
    // What it makes.
    let mine_w = thread % 16u;
    let mine_x = 4u * (thread / 16u);
    var sums0 = vec4<f32>(0.0);
    var sums1 = vec4<f32>(0.0);
    var sums2 = vec4<f32>(0.0);
    var sums3 = vec4<f32>(0.0);
    prepare(thread);
    workgroupBarrier();
    for (var block = 0u; block < blocks; block++) {
        if thread < 64u {
            let a = at_of(row, block);
            let numbers = whole_numbers(a);
            w_tile[thread] = numbers.first;
            w_tile[64u + thread] = numbers.second;
            w_about[thread] = about(a, block % SUBS);
        } else if thread < 96u {
            let at = column_at + 12u * block;
            x_tile[column] = vec4<u32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
            x_tile[32u + column] = vec4<u32>(x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u]);
            let halves = bitcast<i32>(x[at + 11u]);
            x_about[column] =
                Column(bitcast<f32>(x[at + 8u]), bitcast<f32>(x[at + 9u]), (halves << 16u) >> 16u, halves >> 16u);
        }
        workgroupBarrier();
        sums0 = four(mine_w, mine_x, sums0);
        sums1 = four(mine_w, mine_x + 1u, sums1);
        sums2 = four(mine_w, mine_x + 2u, sums2);
        sums3 = four(mine_w, mine_x + 3u, sums3);
        workgroupBarrier();
    }
    put_four(top + mine_w, left + mine_x, sums0);
    put_four(top + mine_w, left + mine_x + 1u, sums1);
    put_four(top + mine_w, left + mine_x + 2u, sums2);
    put_four(top + mine_w, left + mine_x + 3u, sums3);
}
