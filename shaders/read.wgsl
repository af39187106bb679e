// All words of a buffer, read once: how fast the memory is. Their sum is stored, so that no compiler leaves the reads out.

struct Params {
    // Words of 16 bytes, a multiple of four for each thread.
    quads: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> words: array<vec4<u32>>; // [quads]
@group(0) @binding(2) var<storage, read_write> sums: array<vec4<u32>>; // [workgroups, 64]

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let me = 64u * group.x + thread;
    let all = 64u * groups.x;
    var sum = vec4<u32>(0u);
    // Four reads on the way at a time; neighbours read what lies side by side.
    for (var at = me; at < p.quads; at += 4u * all) {
        sum ^= words[at] ^ words[at + all] ^ words[at + 2u * all] ^ words[at + 3u * all];
    }
    sums[me] = sum;
}
