//! What stands in a listing of AMD's instructions: its innermost loops, where kernels spend their time.

/// Instructions of a loop, by what they keep busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loop {
    pub all: usize,
    /// Arithmetic on vector registers.
    pub vector: usize,
    /// Ways to the device's memory, there and back.
    pub memory: usize,
    /// Ways to the memory that a workgroup shares.
    pub shared: usize,
    /// Where it stands still until something has arrived.
    pub waits: usize,
}

impl Loop {
    fn of<'a>(instructions: impl Iterator<Item = &'a str>) -> Self {
        let mut all = Loop::default();
        for name in instructions {
            all.all += 1;
            let is_memory =
                ["buffer_", "global_", "flat_", "scratch_"].iter().any(|way| name.starts_with(way));
            match name {
                _ if name.starts_with("s_waitcnt") => all.waits += 1,
                _ if name.starts_with("v_") => all.vector += 1,
                _ if name.starts_with("ds_") => all.shared += 1,
                _ if is_memory => all.memory += 1,
                _ => {}
            }
        }
        all
    }
}

enum Line<'a> {
    Label(&'a str),
    Instruction { name: &'a str, target: Option<&'a str> },
}

fn line(text: &str) -> Option<Line<'_>> {
    // What follows is the instruction in numbers.
    let text = text.split(';').next()?.trim();
    if let Some(label) = text.strip_suffix(':') {
        return Some(Line::Label(label));
    }
    let mut words = text.split_whitespace();
    let name = words.next()?;
    let is_one =
        ["v_", "s_", "ds_", "buffer_", "global_", "flat_", "scratch_"].iter().any(|x| name.starts_with(x));
    let jumps = name == "s_branch" || name.starts_with("s_cbranch");
    is_one.then(|| Line::Instruction { name, target: words.next().filter(|_| jumps) })
}

/// The loops that have no loop in them, the largest first.
pub fn innermost_loops(listing: &str) -> Vec<Loop> {
    let mut names = Vec::new();
    let mut labels = Vec::new();
    let mut jumps = Vec::new();
    for line in listing.lines().filter_map(line) {
        match line {
            Line::Label(label) => labels.push((label, names.len())),
            Line::Instruction { name, target } => {
                jumps.extend(target.map(|target| (names.len(), target)));
                names.push(name);
            }
        }
    }
    // From where a jump back arrives to behind the jump.
    let back = |&(at, target): &(usize, &str)| {
        let first = labels.iter().find(|(label, _)| *label == target)?.1;
        (first <= at).then_some((first, at + 1))
    };
    let mut spans: Vec<(usize, usize)> = jumps.iter().filter_map(back).collect();
    // One loop may be gone through again from several places.
    spans.sort_by_key(|&(first, end)| (first, std::cmp::Reverse(end)));
    spans.dedup_by_key(|span| span.0);
    let has_inner = |&(first, end): &(usize, usize)| spans.iter().any(|&(f, e)| f > first && e <= end);
    let inner = spans.iter().filter(|span| !has_inner(span));
    let mut loops: Vec<Loop> =
        inner.map(|&(first, end)| Loop::of(names[first..end].iter().copied())).collect();
    loops.sort_by_key(|one| std::cmp::Reverse(one.all));
    loops
}

#[test]
fn loops_are_found_in_a_listing() {
    let listing = "
BB0:
	s_mov_b32 s0, 0                    ; be800080
	v_mov_b32_e32 v0, 0                ; 7e000280
BB1:
	s_cmp_lg_u32 s0, 4                 ; bf078400
	s_cbranch_scc0 BB6                 ; bf840010
	ds_load_b32 v1, v0                 ; d8d80000
BB2:
	buffer_load_b128 v[4:7], v2, s[4:7], 0 offen ; e0500000
	s_waitcnt vmcnt(0)                 ; bf8903f7
	v_fma_f32 v3, v4, v5, v3           ; d6130003
	v_dual_fmac_f32 v8, v6, v7 :: v_dual_fmac_f32 v9, v6, v6 ; c8000000
	s_cbranch_vccz BB4                 ; bfa30002
	s_branch BB2                       ; bfa0fff9
BB4:
	s_add_i32 s0, s0, 1                ; 81008100
	s_branch BB1                       ; bfa0fff0
BB6:
	ds_load_b32 v1, v0                 ; d8d80000
	s_waitcnt lgkmcnt(0)               ; bf89fc07
	s_cbranch_scc1 BB6                 ; bfa2fffd
	s_endpgm                           ; bfb00000
";
    let long = Loop { all: 6, vector: 2, memory: 1, shared: 0, waits: 1 };
    let short = Loop { all: 3, vector: 0, memory: 0, shared: 1, waits: 1 };
    assert_eq!(innermost_loops(listing), [long, short]);
    assert_eq!(innermost_loops("BB0:\n\tv_mov_b32_e32 v0, 0\n\ts_endpgm\n"), []);
}
