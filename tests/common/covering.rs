//! The fewest families that have, together, everything that any family asks of a device.

use std::collections::BTreeSet;

use regex::Regex;
use spec_run::Model;
use spec_run_model::plan::Op;

use super::families::{Family, families};

/// What a model asks of a device: each kind of operation with each of its settings, and which operation follows which.
/// Numbers count as none, one or several; which buffer or matrix it is does not count.
pub fn demands(model: &Model) -> BTreeSet<String> {
    let field = Regex::new(r"(\w+): (?:Some\()?(\w+(?:\.\d+)?)").unwrap();
    let operations = operations(model);
    let mut all = BTreeSet::new();
    for (name, settings) in &operations {
        for of in field.captures_iter(settings) {
            let value = match of[2].parse::<f64>() {
                _ if of[2].ends_with("Id") || &of[2] == "Buf" => "given",
                Ok(0.0) => "none",
                Ok(1.0) => "one",
                Ok(_) => "several",
                Err(_) => &of[2],
            };
            all.insert(format!("{name}: {} {value}", &of[1]));
        }
    }
    all.extend(operations.windows(2).map(|pair| format!("{} before {}", pair[0].0, pair[1].0)));
    let ropes = model.plan.ropes.iter();
    all.extend(
        ropes.map(|rope| format!("rotations of {:?}, others beyond: {}", rope.pairs, rope.beyond.is_some())),
    );
    all
}

/// Greedily: always the family with the most that is not there yet.
pub fn covering() -> Vec<&'static Family> {
    let mut left: Vec<_> = families().iter().map(|family| (family, demands(&family.model))).collect();
    let everything: BTreeSet<String> = left.iter().flat_map(|(_, demands)| demands.clone()).collect();
    let (mut chosen, mut there) = (Vec::new(), BTreeSet::new());
    while there != everything {
        let new = |demands: &BTreeSet<String>| demands.difference(&there).count();
        let best = (0..left.len()).max_by_key(|&i| new(&left[i].1)).unwrap();
        let (family, demands) = left.swap_remove(best);
        there.extend(demands);
        chosen.push(family);
    }
    chosen
}

/// The operations of a pass, in their order: the name of each, and all its settings as text.
fn operations(model: &Model) -> Vec<(String, String)> {
    let plan = &model.plan;
    let layers = plan.layers.iter().flat_map(|layer| [&layer.shared, &layer.attn, &layer.mlp]).flatten();
    let all = plan.embed.iter().chain(layers).chain(&plan.head);
    all.map(|op| {
        let whole = format!("{op:?}");
        let name = whole.split(['(', ' ']).next().unwrap_or_default().to_owned();
        let settings = match op {
            Op::Store(id) | Op::Attend(id) => format!("{:?}", plan.attention(*id)),
            Op::Convolve(id) | Op::Scan(id) => format!("{:?}", plan.mixer(*id)),
            Op::Choose(id) | Op::ExpertsGate(id) | Op::ExpertsDown(id) | Op::ExpertsSum(id) => {
                format!("{:?}", plan.moe(*id))
            }
            _ => whole,
        };
        (name, settings)
    })
    .collect()
}
