//! Schedules against a checker that knows nothing of bits: it goes through the phases as `pass.rs` does, notes what each
//! touches, and looks at every pair of phases without a barrier between them.

use std::collections::HashMap;

use super::*;
use crate::{
    plan::{MixerSpec, Plan, ScanKind},
    quant::GgmlType,
};
use spec_run_gguf::{embedded, rng::Rng};
use spec_run_model::{RunLayers, mask::LayerBits};
use spec_run_synth::{Arch, Mix, Recipe, Shape, Skippable};
use spec_run_test_models::fixtures;

/// What threads share, and what each has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    F32(Buf),
    /// Of all rows, or of the wanted ones.
    Int8(Buf, bool),
    /// Each thread's own rows of `H`.
    OwnH,
    /// The second factor of what a gate writes.
    Up(Buf),
    Cache,
    Parts,
    Logits,
    /// What adapters' first matrices made.
    Thin(usize),
}

#[derive(Default)]
struct Touched {
    reads: Vec<Place>,
    writes: Vec<Place>,
}

/// What a phase touches, from reading `pass.rs` and `experts.rs`.
fn touched(model: &Model, shape: &PassShape, phase: &Phase) -> Touched {
    use Place::{Cache, F32, Int8, Logits, OwnH, Parts, Thin, Up};
    let plan = &model.plan;
    let int8 = |buf| Int8(buf, phase.narrow);
    let input = |weight: WeightId, src| match model.weight(weight).ty() {
        _ if src == Buf::H && shape.own_norms => OwnH,
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => F32(src),
        _ => int8(src),
    };
    let floats = |src| if src == Buf::H && shape.own_norms { OwnH } else { F32(src) };
    // With adapters experts are multiplied with rows of floats besides.
    let gathered = |src| shape.asked.adapted.then(|| floats(src));
    let kept = |add: bool, dst| add.then_some(F32(dst));
    let (mut reads, mut writes) = match phase.work {
        Work::Op(Op::Embed { dst, add, .. }) => (kept(add, dst).into_iter().collect(), vec![F32(dst)]),
        Work::Op(Op::Norm { dst: Buf::H, .. }) if shape.own_norms => {
            return Touched { reads: vec![F32(Buf::X)], writes: vec![OwnH] };
        }
        Work::Op(Op::Norm { src, dst, add, .. }) => {
            ([F32(src)].into_iter().chain(kept(add, dst)).collect(), vec![F32(dst)])
        }
        Work::Op(Op::MatMul { weight, src, dst, add, .. }) => {
            ([input(weight, src)].into_iter().chain(kept(add, dst)).collect(), vec![F32(dst)])
        }
        Work::Op(Op::Gate { gate, up, src, dst, .. }) => {
            let weights = [Some(gate), up].into_iter().flatten();
            let writes = [Some(F32(dst)), up.map(|_| Up(dst))];
            (weights.map(|w| input(w.weight, src)).collect(), writes.into_iter().flatten().collect())
        }
        Work::Op(Op::Multiply { dst, by, .. }) => (vec![F32(dst), F32(by)], vec![F32(dst)]),
        Work::Op(Op::Add { src, dst, gate, .. }) => {
            ([F32(src), F32(dst)].into_iter().chain(gate.map(F32)).collect(), vec![F32(dst)])
        }
        Work::Op(Op::Take { src, dst, to, .. } | Op::PerHead { src, dst, to, .. }) => {
            ([F32(src)].into_iter().chain((to.from > 0).then_some(F32(dst))).collect(), vec![F32(dst)])
        }
        Work::Op(Op::Scale { buf, .. } | Op::Weigh { buf, .. }) => (vec![F32(buf)], vec![F32(buf)]),
        Work::Op(Op::Store(id)) => store(plan.attention(id)),
        Work::Op(Op::Attend(id)) => {
            let spec = plan.attention(id);
            let out = if shape.split_lists(spec) { Parts } else { F32(spec.out) };
            (vec![F32(spec.q), Cache], vec![out])
        }
        Work::StoreAttend(id) => {
            let spec = plan.attention(id);
            let (mut reads, mut writes) = store(spec);
            // Its own keys are this phase's; another layer's were there before.
            reads.extend(spec.keys_of.map(|_| Cache));
            writes.push(F32(spec.out));
            (reads, writes)
        }
        Work::Op(Op::Convolve(id)) => {
            let conv = plan.mixer(id).conv;
            (vec![F32(conv.src)], vec![F32(conv.dst)])
        }
        Work::Op(Op::Scan(id)) => {
            let MixerSpec { conv, scan } = plan.mixer(id);
            let scan = scan.unwrap();
            let beta = match scan.kind {
                ScanKind::GatedDelta { beta, .. } => Some(F32(beta)),
                ScanKind::Mamba2 { .. } => None,
            };
            ([F32(conv.dst), F32(scan.step)].into_iter().chain(beta).collect(), vec![F32(scan.out)])
        }
        Work::Op(Op::Choose(id)) => {
            let moe = plan.moe(id);
            (vec![F32(moe.scores)], vec![F32(moe.chosen)])
        }
        Work::Op(Op::ExpertsGate(id)) => {
            let moe = plan.moe(id);
            let weights = moe.gate.into_iter().chain([moe.up]);
            let inputs = weights.map(|w| input(w.weight, moe.src));
            (inputs.chain([F32(moe.chosen)]).chain(gathered(moe.src)).collect(), vec![F32(moe.hidden)])
        }
        Work::Op(Op::ExpertsDown(id)) => {
            let moe = plan.moe(id);
            let reads = [F32(moe.chosen), input(moe.down.weight, moe.hidden)].into_iter();
            (reads.chain(gathered(moe.hidden)).collect(), vec![F32(moe.results)])
        }
        Work::Op(Op::ExpertsSum(id)) => {
            let moe = plan.moe(id);
            let reads = [F32(moe.chosen), F32(moe.results)].into_iter().chain(kept(moe.add, moe.dst));
            (reads.collect(), vec![F32(moe.dst)])
        }
        Work::Op(Op::Head { .. }) => panic!("a head is two phases"),
        Work::Join(id) => (vec![Parts], vec![F32(plan.attention(id).out)]),
        Work::Quantize(buf) => (vec![F32(buf)], vec![int8(buf)]),
        Work::Narrow(bufs) => (vec![], bufs.iter().map(F32).collect()),
        Work::Logits { weight, .. } => (vec![input(weight, Buf::H)], vec![Logits]),
        Work::Thin(of, src) => (vec![floats(src)], vec![Thin(of.place)]),
    };
    reads.extend(phase.thin.map(|of| Thin(of.place)));
    if phase.quantize {
        let made = writes.iter().find_map(|place| match (phase.work, place) {
            (Work::StoreAttend(id), F32(buf)) => (*buf == plan.attention(id).out).then_some(*buf),
            (_, F32(buf)) => Some(*buf),
            _ => None,
        });
        writes.push(int8(made.expect("a phase quantizes what it makes")));
    }
    Touched { reads, writes }
}

fn store(spec: &AttnSpec) -> (Vec<Place>, Vec<Place>) {
    let [q, k, v] = [spec.q, spec.k, spec.v].map(Place::F32);
    match spec.keys_of {
        None => (vec![q, k, v], vec![q, k, Place::Cache]),
        Some(_) => (vec![q], vec![q]),
    }
}

/// The first thing that is wrong with a schedule.
fn wrong(
    model: &Model,
    shape: &PassShape,
    leaves: BufSet,
    steps: &[Step],
    phases: &[Phase],
) -> Option<String> {
    hazard(model, shape, phases)
        .or_else(|| stale(model, shape, leaves, steps, phases))
        .or_else(|| other_work(&model.plan, shape, steps, phases))
        .or_else(|| unadapted(shape, phases))
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

/// A phase that reads what is not there yet, or a copy of what has changed since; or rows that leave and are not there.
fn stale(
    model: &Model,
    shape: &PassShape,
    leaves: BufSet,
    steps: &[Step],
    phases: &[Phase],
) -> Option<String> {
    // How often each buffer has changed, and how often it had when a copy was made.
    let mut now: HashMap<Buf, usize> = model.plan.bufs().map(|buf| (buf, 1)).collect();
    let mut made: HashMap<Place, usize> = HashMap::new();
    // By place, for which matrices it was made, and of which rows.
    let mut thin = HashMap::new();
    // A later part of a pass may be given the rows of any buffer; of none in other forms.
    if steps.first().is_some_and(|step| step.unit != Unit::Embed) {
        made.extend(model.plan.bufs().map(|buf| (Place::F32(buf), 1)));
    }
    // What earlier parts of the pass have stored, for layers that read it.
    let shared = steps
        .iter()
        .filter(|step| matches!(step.op, Op::Attend(id) if model.plan.attention(*id).keys_of.is_some()));
    let mut stored: Vec<usize> = shared.map(|step| step.slot).collect();
    let mut narrow = false;
    for (i, phase) in phases.iter().enumerate() {
        if let Work::Narrow(bufs) = phase.work {
            // The other buffers have rows that are not wanted, in other places.
            let fresh = |buf: &Buf| made.get(&Place::F32(*buf)) == Some(&now[buf]);
            let kept: Vec<Buf> = bufs.iter().filter(fresh).collect();
            now.values_mut().for_each(|changes| *changes += 1);
            made.extend(kept.into_iter().map(|buf| (Place::F32(buf), now[&buf])));
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
                Place::Up(_) | Place::Parts | Place::Logits => made.contains_key(&place),
                Place::Thin(at) => thin.get(&at).is_some_and(|(weights, src, version)| {
                    Some(*weights) == phase.thin.map(|of| of.weights) && now[src] == *version
                }),
            };
            if !fresh {
                return Some(format!("phase {i} reads {place:?} too late or too early: {phase:?}"));
            }
        }
        // A phase that quantizes another's rows does not change them.
        let changes =
            |buf: Buf| writes.contains(&Place::F32(buf)) || (buf == Buf::H && writes.contains(&Place::OwnH));
        for buf in model.plan.bufs().filter(|&buf| changes(buf)) {
            *now.get_mut(&buf).unwrap() += 1;
        }
        if let Work::Thin(of, src) = phase.work {
            thin.insert(of.place, (of.weights, src, now[&src]));
        }
        for place in writes {
            let version = match place {
                Place::F32(buf) | Place::Int8(buf, _) => now[&buf],
                Place::OwnH => now[&Buf::H],
                Place::Cache | Place::Up(_) | Place::Parts | Place::Logits | Place::Thin(_) => 0,
            };
            made.insert(place, version);
            if place == Place::Cache {
                stored.push(phase.slot);
            }
        }
    }
    let lost = leaves.iter().find(|buf| made.get(&Place::F32(*buf)) != Some(&now[buf]));
    lost.map(|buf| format!("{buf:?} leaves and is not there"))
}

/// Whether other operations are done than the steps', or in another order.
fn other_work(plan: &Plan, shape: &PassShape, steps: &[Step], phases: &[Phase]) -> Option<String> {
    let mut done: Vec<(Op, usize, bool)> = Vec::new();
    for Phase { work, slot, coarse, .. } in phases {
        match *work {
            Work::Op(op) => done.push((op, *slot, *coarse)),
            Work::StoreAttend(id) => {
                done.push((Op::Store(id), *slot, *coarse));
                done.push((Op::Attend(id), *slot, *coarse));
            }
            Work::Logits { weight, bias, scale, cap } => match done.pop() {
                Some((Op::Norm { norm, .. }, ..)) => {
                    done.push((Op::Head { norm, weight, bias, scale, cap }, *slot, *coarse));
                }
                other => return Some(format!("logits after {other:?}")),
            },
            Work::Join(_) | Work::Quantize(_) | Work::Narrow(_) | Work::Thin(..) => {}
        }
    }
    let mut asked: Vec<_> = steps.iter().map(|step| (*step.op, step.slot, step.coarse)).collect();
    if shape.asked.outputs == 0 {
        // Only keys, values and states are of use to anybody.
        let stores = |(op, ..): &(Op, usize, bool)| {
            plan.store_of(op).is_some() || matches!(op, Op::Convolve(_) | Op::Scan(_))
        };
        let first_step = usize::from(steps.first().is_some_and(|step| step.unit == Unit::Embed));
        asked.truncate(asked.iter().rposition(stores).map_or(first_step, |last| last + 1));
    }
    (done != asked).then(|| format!("{done:?} is done, {asked:?} is asked for"))
}

/// Adapters for all matrices, where some row of a pass has any.
fn all_adapted(model: &Model) -> Vec<bool> {
    vec![true; model.weights.len()]
}

/// A product without what adapters have for it.
fn unadapted(shape: &PassShape, phases: &[Phase]) -> Option<String> {
    let is_product = |phase: &Phase| {
        matches!(phase.work, Work::Op(Op::MatMul { .. } | Op::Gate { .. }) | Work::Logits { .. })
    };
    let wrong =
        phases.iter().find(|phase| phase.thin.is_some() != (shape.asked.adapted && is_product(phase)));
    wrong.map(|phase| format!("with adapters or without: {phase:?}"))
}

/// Every way in which a pass of these steps may be gone through, where `leaves` is needed behind them.
fn shapes(model: &Model, steps: &[Step], leaves: BufSet) -> Vec<PassShape> {
    let ends = steps.last().is_some_and(|step| step.unit == Unit::Head);
    let mut out = Vec::new();
    for rows in [1, 2, 3, 40] {
        // Without the head either nobody wants anything, or somebody else takes all rows from here.
        let outputs: &[usize] = match () {
            () if ends => &[1, rows],
            () if leaves.is_empty() => &[0, rows],
            () => &[rows],
        };
        for &outputs in outputs {
            // Whole heads to each thread or not; lists that are split or not.
            for threads in [1, 2, 3] {
                for (long, adapted) in [(false, false), (true, false), (false, true)] {
                    let asked = Asked { rows, outputs, threads, long, leaves, adapted };
                    out.push(PassShape::new(model, steps, asked));
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
        window: 0,
        experts: None,
        recurrent: None,
        latent: None,
        further: 0,
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
    // Those with experts or windows are among the fixtures.
    for arch in [Arch::Llama, Arch::Qwen2, Arch::Qwen3] {
        out.push(model(arch, || false));
        out.push(model(arch, || true));
        out.extend((0..2).map(|_| model(arch, || rng.next_f64() < 0.5)));
    }
    out
}

/// Everything, masks with skipped and coarse sublayers, and layers that are repeated.
fn masks(n: usize) -> Vec<Option<RunLayers>> {
    let mut rng = Rng::new(11);
    let mut bits = move || match (rng.next_f64() * 6.0) as usize {
        0 => LayerBits::NONE,
        1 => LayerBits::ATTN,
        2 => LayerBits::MLP,
        3 => LayerBits::ATTN | LayerBits::MLP | LayerBits::COARSE_MLP,
        _ => LayerBits::FULL,
    };
    let mut out = vec![None, Some(RunLayers::exit(n, 2)), Some(RunLayers::mask(vec![LayerBits::NONE; n]))];
    out.extend((0..6).map(|_| Some(RunLayers::mask((0..n).map(|_| bits()).collect()))));
    let repeated = [0, 1, 1, 3, 2, 1].map(|layer| (layer, LayerBits::FULL));
    out.push(Some(RunLayers::from_steps(n, repeated).unwrap()));
    out
}

/// The pass as a whole, and parts of it that begin and end at a border of units: all, or (`few`) single units and what
/// comes before and behind each border. With each what is needed behind it, or nothing where all that comes behind is
/// left out.
fn parts<'a, 'b>(plan: &Plan, steps: &'a [Step<'b>], few: bool) -> Vec<(&'a [Step<'b>], BufSet)> {
    let inner = 1..steps.len();
    let is_border = |&i: &usize| steps[i].unit != steps[i - 1].unit || steps[i].visit != steps[i - 1].visit;
    let borders: Vec<usize> = [0].into_iter().chain(inner.filter(is_border)).chain([steps.len()]).collect();
    let last = borders.len() - 1;
    let pairs = (0..last).flat_map(|from| (from + 1..=last).map(move |to| (from, to)));
    let wanted = pairs.filter(|&(from, to)| !few || from == 0 || to == last || to == from + 1);
    let mut out = Vec::new();
    for (from, to) in wanted {
        let part = &steps[borders[from]..borders[to]];
        out.push((part, BufSet::NONE));
        let behind = read_first(plan, &steps[borders[to]..]);
        if !behind.is_empty() {
            out.push((part, behind));
        }
    }
    out
}

/// The buffers that steps read before they write them, found by going through them once for each.
fn read_first(plan: &Plan, steps: &[Step]) -> BufSet {
    let is_read_first = |buf: &Buf| {
        let first = steps
            .iter()
            .map(|step| plan.operands(step.op))
            .find(|operands| operands.reads.contains(*buf) || operands.writes.contains(*buf));
        first.is_some_and(|operands| operands.reads.contains(*buf))
    };
    plan.bufs().filter(is_read_first).fold(BufSet::NONE, |set, buf| set.with(Some(buf)))
}

fn written(model: &Model, steps: &[Step]) -> BufSet {
    steps.iter().fold(BufSet::NONE, |set, step| set.union(model.plan.operands(step.op).writes))
}

#[test]
fn no_schedule_lets_threads_meet_nor_reads_what_is_stale() {
    let mut seen = 0;
    let mut phases = Vec::new();
    for (model, all_parts) in
        models().into_iter().map(|m| (m, true)).chain(fixtures().into_iter().map(|m| (m, false)))
    {
        for mask in masks(model.plan.layers.len()) {
            let all = model.plan.steps(mask.as_ref());
            for (steps, leaves) in parts(&model.plan, &all, !all_parts) {
                let finds = model.plan.live(steps.iter().map(|step| step.op), leaves);
                assert_eq!(
                    finds,
                    read_first(&model.plan, steps).union(leaves.without(written(&model, steps)))
                );
                for shape in shapes(&model, steps, leaves) {
                    schedule(&model, &all_adapted(&model), steps, &shape, &mut phases);
                    let wrong = wrong(&model, &shape, leaves, steps, &phases);
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
        for shape in shapes(&model, &steps, BufSet::NONE) {
            schedule(&model, &all_adapted(&model), &steps, &shape, &mut phases);
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
    for shape in shapes(&model, &steps, BufSet::NONE).into_iter().filter(|shape| shape.asked.outputs > 0) {
        schedule(&model, &all_adapted(&model), &steps, &shape, &mut phases);
        for i in 0..phases.len() {
            let mut fewer = phases.clone();
            if matches!(fewer[i].work, Work::Quantize(_)) {
                fewer.remove(i);
            } else if fewer[i].quantize {
                fewer[i].quantize = false;
            } else {
                continue;
            }
            assert!(
                stale(&model, &shape, BufSet::NONE, &steps, &fewer).is_some(),
                "phase {i}, {shape:?}: {phases:?}"
            );
        }
    }
}
