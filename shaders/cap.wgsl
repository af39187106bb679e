// Logits scaled, and capped where there is a cap. Needs capped.wgsl.

struct Params {
    // Logits in a row.
    count: u32,
    scale: f32,
    cap: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = 64u * group.x + thread;
    if i < p.count {
        let at = group.y * p.count + i;
        var x = logits[at] * p.scale;
        if p.cap > 0.0 {
            x = capped(x, p.cap);
        }
        logits[at] = x;
    }
}
