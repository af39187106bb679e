//! Schedules against a checker that knows nothing of bits: it goes through the phases as `pass.rs` does, notes what each
//! touches, and looks at every pair of phases without a barrier between them.

use std::collections::HashMap;

use super::*;
use crate::{
    RunLayers, embedded,
    mask::LayerBits,
    quant::GgmlType,
    sampler::rng::Rng,
    synth::{Arch, Mix, Recipe, Shape, Skippable},
};

/// What threads share, and what each has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    F32(Buf),
    /// Of all rows, or of the wanted ones.
    Int8(Buf, bool),
    /// Each thread's own int8 rows of `H`.
    OwnH,
    Up,
    Cache,
    Parts,
    Logits,
}

#[derive(Default)]
struct Touched {
    reads: Vec<Place>,
    writes: Vec<Place>,
}

/// What a phase touches, from reading `pass.rs`.
fn touched(model: &Model, shape: &PassShape, phase: &Phase) -> Touched {
    use Place::{Cache, F32, Int8, Logits, OwnH, Parts, Up};
    let int8 = |buf| Int8(buf, phase.narrow);
    let input = |weight: WeightId, src| match model.weight(weight).ty() {
        GgmlType::F32 => F32(src),
        _ if src == Buf::H && shape.own_norms => OwnH,
        _ => int8(src),
    };
    let (q, k, v) = (F32(Buf::Q), F32(Buf::K), F32(Buf::V));
    let (reads, mut writes) = match phase.work {
        Work::Op(Op::Embed { .. }) => (vec![], vec![F32(Buf::X)]),
        Work::Op(Op::Norm { .. }) if phase.quantize && shape.own_norms => {
            return Touched { reads: vec![F32(Buf::X)], writes: vec![OwnH] };
        }
        Work::Op(Op::Norm { .. }) => (vec![F32(Buf::X)], vec![F32(Buf::H)]),
        Work::Op(Op::MatMul { weight, src, dst, add, .. }) => {
            let before = add.then_some(F32(dst));
            ([input(weight, src)].into_iter().chain(before).collect(), vec![F32(dst)])
        }
        Work::Op(Op::GateUp { gate, up }) => {
            (vec![input(gate, Buf::H), input(up, Buf::H)], vec![F32(Buf::G), Up])
        }
        Work::Op(Op::RopeStore { .. }) => (vec![q, k, v], vec![q, k, Cache]),
        Work::Op(Op::Attend { .. }) if shape.split_lists => (vec![q, Cache], vec![Parts]),
        Work::Op(Op::Attend { .. }) => (vec![q, Cache], vec![F32(Buf::A)]),
        Work::Op(Op::Head { .. }) => panic!("a head is two phases"),
        Work::RopeAttend { .. } => (vec![q, k, v], vec![q, k, Cache, F32(Buf::A)]),
        Work::Join => (vec![Parts], vec![F32(Buf::A)]),
        Work::Quantize(buf) => (vec![F32(buf)], vec![int8(buf)]),
        Work::Narrow => (vec![], vec![F32(Buf::X), q]),
        Work::Logits { weight } => (vec![input(weight, Buf::H)], vec![Logits]),
    };
    if phase.quantize {
        let made = writes.iter().find_map(|place| match place {
            F32(buf @ (Buf::H | Buf::A | Buf::G)) => Some(*buf),
            _ => None,
        });
        writes.push(int8(made.expect("a phase quantizes what it makes")));
    }
    Touched { reads, writes }
}

/// The first thing that is wrong with a schedule.
fn wrong(model: &Model, shape: &PassShape, steps: &[Step], phases: &[Phase]) -> Option<String> {
    hazard(model, shape, phases)
        .or_else(|| stale(model, shape, steps, phases))
        .or_else(|| other_work(shape, steps, phases))
}

/// Two phases that touch the same without a barrier between them, one of them writing.
fn hazard(model: &Model, shape: &PassShape, phases: &[Phase]) -> Option<String> {
    let all: Vec<Touched> = phases.iter().map(|phase| touched(model, shape, phase)).collect();
    let meets =
        |a: &[Place], b: &[Place]| a.iter().copied().find(|place| *place != Place::OwnH && b.contains(place));
    for (i, later) in all.iter().enumerate() {
        // Back to the last barrier.
        for j in (0..i).rev().take_while(|j| !phases[j + 1].sync) {
            let earlier = &all[j];
            let met = meets(&earlier.writes, &later.reads)
                .or_else(|| meets(&earlier.reads, &later.writes))
                .or_else(|| meets(&earlier.writes, &later.writes));
            if let Some(place) = met {
                return Some(format!("{place:?} by phases {j} and {i}: {:?}, {:?}", phases[j], phases[i]));
            }
        }
    }
    None
}

/// A phase that reads what is not there yet, or a copy of what has changed since.
fn stale(model: &Model, shape: &PassShape, steps: &[Step], phases: &[Phase]) -> Option<String> {
    // How often each buffer has changed, and how often it had when a copy was made.
    let mut now: HashMap<Buf, usize> = Buf::ALL.into_iter().map(|buf| (buf, 1)).collect();
    let mut made: HashMap<Place, usize> = HashMap::new();
    if steps.first().is_some_and(|step| step.unit != Unit::Embed) {
        made.insert(Place::F32(Buf::X), 1);
    }
    let mut stored = Vec::new();
    let mut narrow = false;
    for (i, phase) in phases.iter().enumerate() {
        if phase.work == Work::Narrow {
            // The other buffers have rows that are not wanted, in other places.
            let moved = [Buf::X, Buf::Q].map(Place::F32);
            let kept = [Buf::X, Buf::Q].map(|buf| made.get(&Place::F32(buf)) == Some(&now[&buf]));
            now.values_mut().for_each(|changes| *changes += 1);
            for (place, buf) in std::iter::zip(moved, [Buf::X, Buf::Q]) {
                if kept[usize::from(buf == Buf::Q)] {
                    made.insert(place, now[&buf]);
                }
            }
            narrow = true;
            continue;
        }
        if phase.narrow != narrow {
            return Some(format!("phase {i} is for other rows: {phase:?}"));
        }
        let Touched { reads, writes } = touched(model, shape, phase);
        for place in reads {
            let fresh = match place {
                Place::F32(buf) | Place::Int8(buf, _) => made.get(&place) == Some(&now[&buf]),
                Place::OwnH => made.get(&place) == Some(&now[&Buf::H]),
                Place::Cache => stored.contains(&phase.slot),
                Place::Up | Place::Parts | Place::Logits => made.contains_key(&place),
            };
            if !fresh {
                return Some(format!("phase {i} reads {place:?} too late or too early: {phase:?}"));
            }
        }
        // A phase that quantizes another's rows does not change them.
        let changes =
            |buf: Buf| writes.contains(&Place::F32(buf)) || (buf == Buf::H && writes.contains(&Place::OwnH));
        for buf in Buf::ALL.into_iter().filter(|&buf| changes(buf)) {
            *now.get_mut(&buf).unwrap() += 1;
        }
        for place in writes {
            let version = match place {
                Place::F32(buf) | Place::Int8(buf, _) => now[&buf],
                Place::OwnH => now[&Buf::H],
                Place::Cache | Place::Up | Place::Parts | Place::Logits => 0,
            };
            made.insert(place, version);
            if place == Place::Cache {
                stored.push(phase.slot);
            }
        }
    }
    None
}

/// Whether other operations are done than the steps', or in another order.
fn other_work(shape: &PassShape, steps: &[Step], phases: &[Phase]) -> Option<String> {
    let mut done: Vec<(Op, usize, bool)> = Vec::new();
    for Phase { work, slot, coarse, .. } in phases {
        match *work {
            Work::Op(op) => done.push((op, *slot, *coarse)),
            Work::RopeAttend { q_norm, k_norm, eps, scale } => {
                done.push((Op::RopeStore { q_norm, k_norm, eps }, *slot, *coarse));
                done.push((Op::Attend { scale }, *slot, *coarse));
            }
            Work::Logits { weight } => match done.pop() {
                Some((Op::Norm { weight: norm, eps }, ..)) => {
                    done.push((Op::Head { norm, eps, weight }, *slot, *coarse));
                }
                other => return Some(format!("logits after {other:?}")),
            },
            Work::Join | Work::Quantize(_) | Work::Narrow => {}
        }
    }
    let mut asked: Vec<_> = steps.iter().map(|step| (*step.op, step.slot, step.coarse)).collect();
    if shape.outputs == 0 {
        // Only the keys and values are of use to anybody.
        let stores = |(op, ..): &(Op, usize, bool)| matches!(op, Op::RopeStore { .. });
        let first_step = usize::from(steps.first().is_some_and(|step| step.unit == Unit::Embed));
        asked.truncate(asked.iter().rposition(stores).map_or(first_step, |last| last + 1));
    }
    (done != asked).then(|| format!("{done:?} is done, {asked:?} is asked for"))
}

/// Every way in which a pass of these steps may be gone through.
fn shapes(model: &Model, steps: &[Step]) -> Vec<PassShape> {
    // What a team of some size does with heads: own heads, split lists, int8 of heads.
    const HEADS: [[bool; 3]; 4] =
        [[true, false, false], [true, false, true], [false, false, false], [false, true, false]];
    let ends = steps.last().is_some_and(|step| step.unit == Unit::Head);
    let mut out = Vec::new();
    for rows in [1, 2, 3, 40] {
        // Without the head either nobody wants anything, or somebody else takes all rows from here.
        for outputs in if ends { [1, rows] } else { [0, rows] } {
            for [own_heads, split, quantize_heads] in HEADS {
                for quantize_gates in [false, true] {
                    out.push(PassShape {
                        rows,
                        outputs,
                        own_norms: rows <= 2 && all_quantized(model, steps),
                        own_heads,
                        split_lists: split && rows <= 8,
                        quantize_heads,
                        quantize_gates,
                    });
                }
            }
        }
    }
    out
}

/// A model of four layers without weights; each matrix quantized or in floats as `is_float` has it.
fn model(arch: Arch, mut is_float: impl FnMut() -> bool) -> Model {
    let shape = Shape {
        arch,
        layers: 4,
        dim: 64,
        ffn: 96,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        vocab: 600,
        ctx: 128,
        tied: false,
        rope_base: 1e4,
        norm_eps: 1e-5,
    };
    let mix: Mix = "q8_0".parse().unwrap();
    let recipe = Recipe { name: "schedules".into(), shape, mix, seed: 1, skippable: Skippable::default() };
    let mut model = recipe.plan(&embedded::open().unwrap()).unwrap().outline().unwrap();
    for weight in model.weights.iter_mut().filter(|weight| weight.rows > 1) {
        weight.tensor.ty = if is_float() { GgmlType::F32 } else { GgmlType::Q8_0 };
    }
    model
}

fn models() -> Vec<Model> {
    let mut rng = Rng::new(7);
    let mut out = Vec::new();
    for arch in Arch::ALL {
        out.push(model(arch, || false));
        out.push(model(arch, || true));
        out.extend((0..2).map(|_| model(arch, || rng.next_f64() < 0.5)));
    }
    out
}

/// Everything, masks with skipped and coarse sublayers, and layers that are repeated.
fn masks() -> Vec<Option<RunLayers>> {
    let mut rng = Rng::new(11);
    let mut bits = move || match (rng.next_f64() * 6.0) as usize {
        0 => LayerBits::NONE,
        1 => LayerBits::ATTN,
        2 => LayerBits::MLP,
        3 => LayerBits::ATTN | LayerBits::MLP | LayerBits::COARSE_MLP,
        _ => LayerBits::FULL,
    };
    let mut out = vec![None, Some(RunLayers::exit(4, 2)), Some(RunLayers::mask(vec![LayerBits::NONE; 4]))];
    out.extend((0..6).map(|_| Some(RunLayers::mask((0..4).map(|_| bits()).collect()))));
    let repeated = [0, 1, 1, 3, 2, 1].map(|layer| (layer, LayerBits::FULL));
    out.push(Some(RunLayers::from_steps(4, repeated).unwrap()));
    out
}

/// The pass as a whole, and each part of it that begins and ends at a border of units.
fn parts<'a, 'b>(steps: &'a [Step<'b>]) -> Vec<&'a [Step<'b>]> {
    let inner = 1..steps.len();
    let is_border = |&i: &usize| steps[i].unit != steps[i - 1].unit || steps[i].visit != steps[i - 1].visit;
    let borders: Vec<usize> = [0].into_iter().chain(inner.filter(is_border)).chain([steps.len()]).collect();
    let pairs = borders.iter().flat_map(|&from| borders.iter().map(move |&to| (from, to)));
    pairs.filter(|(from, to)| from < to).map(|(from, to)| &steps[from..to]).collect()
}

#[test]
fn no_schedule_lets_threads_meet_nor_reads_what_is_stale() {
    let mut seen = 0;
    let mut phases = Vec::new();
    for model in models() {
        for mask in masks() {
            let all = model.plan.steps(mask.as_ref());
            for steps in parts(&all) {
                for shape in shapes(&model, steps) {
                    schedule(&model, steps, &shape, &mut phases);
                    let wrong = wrong(&model, &shape, steps, &phases);
                    assert_eq!(wrong, None, "{}, {mask:?}, {shape:?}: {phases:?}", model.arch);
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 10_000, "{seen}");
}

/// The checker sees what it is for, and no barrier is there in vain.
#[test]
fn without_any_one_of_its_barriers_a_schedule_is_wrong() {
    let mut phases = Vec::new();
    let mut left_out = 0;
    for model in models() {
        let steps = model.plan.steps(None);
        for shape in shapes(&model, &steps) {
            schedule(&model, &steps, &shape, &mut phases);
            for i in (0..phases.len()).filter(|&i| phases[i].sync) {
                let mut fewer = phases.clone();
                fewer[i].sync = false;
                assert!(hazard(&model, &shape, &fewer).is_some(), "phase {i}, {shape:?}: {phases:?}");
                left_out += 1;
            }
        }
    }
    assert!(left_out > 1000, "{left_out}");
}

#[test]
fn without_any_one_of_its_quantizations_a_schedule_is_wrong() {
    let model = model(Arch::Llama, || false);
    let steps = model.plan.steps(None);
    let mut phases = Vec::new();
    for shape in shapes(&model, &steps).into_iter().filter(|shape| shape.outputs > 0) {
        schedule(&model, &steps, &shape, &mut phases);
        for i in 0..phases.len() {
            let mut fewer = phases.clone();
            if matches!(fewer[i].work, Work::Quantize(_)) {
                fewer.remove(i);
            } else if fewer[i].quantize {
                fewer[i].quantize = false;
            } else {
                continue;
            }
            assert!(stale(&model, &shape, &steps, &fewer).is_some(), "phase {i}, {shape:?}: {phases:?}");
        }
    }
}
