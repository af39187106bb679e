// dst[c] = activation(Σ_j taps[j, c] · input[n + j - (kernel - 1), c] + bias[c]) for the rows n of each sequence; before the
// first row stand the inputs that the state has, or zeros. Then the last inputs are left in the state. Needs states.wgsl.

// Threads of a workgroup that share the rows of a channel.
override ROW_LANES: u32 = 1u;

struct Params {
    layer: u32,
    channels: u32,
    kernel: u32,
    has_silu: u32,
    // Numbers from row to row, and where the channels begin in a row.
    src_stride: u32,
    src_first: u32,
    dst_stride: u32,
    dst_first: u32,
    // Numbers of a slab, where its rows begin in it, and how long one of these is.
    slab: u32,
    rows_at: u32,
    row_len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read> src: array<f32>;
@group(0) @binding(3) var<storage, read> taps: array<f32>; // [kernel, channels], and the bias
@group(0) @binding(4) var<storage, read_write> states: array<f32>;
@group(0) @binding(5) var<storage, read_write> dst: array<f32>;

fn input(run: Run, n: u32, channel: u32) -> f32 {
    if AGAIN {
        return states[run.rows_slab * p.slab + p.rows_at + n * p.row_len + channel];
    }
    return src[row_of(run, n) * p.src_stride + p.src_first + channel];
}

// The i-th of the state's inputs and the run's rows, one after the other.
fn seen(run: Run, i: u32, channel: u32) -> f32 {
    if i + 1u >= p.kernel {
        return input(run, i + 1u - p.kernel, channel);
    }
    if run.from_slab == NONE {
        return 0.0;
    }
    return states[run.from_slab * p.slab + i * p.channels + channel];
}

@compute @workgroup_size(32, ROW_LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) id: vec3<u32>) {
    let run = run_of(group.y, p.layer);
    let channel = 32u * group.x + id.x;
    if channel < p.channels {
        for (var n = id.y; n < run.count; n += ROW_LANES) {
            var sum = 0.0;
            for (var j = 0u; j < p.kernel; j++) {
                sum = fma(taps[j * p.channels + channel], seen(run, n + j, channel), sum);
            }
            sum += taps[p.kernel * p.channels + channel];
            if p.has_silu != 0u {
                sum = sum / (1.0 + exp(-sum));
            }
            dst[row_of(run, n) * p.dst_stride + p.dst_first + channel] = sum;
            if keeps_rows(run) {
                let kept = p.rows_at + kept_row(run, n) * p.row_len + channel;
                states[run.to_slab * p.slab + kept] = input(run, n, channel);
            }
        }
    }
    // All have read the state's inputs before others take their place.
    storageBarrier();
    if channel < p.channels && id.y == 0u {
        for (var i = 0u; i + 1u < p.kernel; i++) {
            // In one slab an input moves to the place of one that is not needed any more.
            states[run.to_slab * p.slab + i * p.channels + channel] = seen(run, run.count + i, channel);
        }
    }
}
