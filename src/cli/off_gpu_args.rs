//! Flags that keep parts of a model in main memory, with llama.cpp's names and meaning: --cpu-moe, --n-cpu-moe and -ot.

use std::{collections::BTreeSet, sync::Once};

use clap::Args;
use regex::{Regex, RegexBuilder};

use super::output::detail;
use crate::{
    Error, Model, Result,
    plan::{PlanOp, Unit, UnitSet},
};

/// The only name that has a meaning behind a pattern.
const CPU: &str = "CPU";
/// Bytes that a pattern may take once it is compiled.
const MOST_PATTERN: usize = 1 << 20;

#[derive(Args, Clone, Debug)]
pub struct OffGpuArgs {
    /// -cmoe: keep the experts of all layers in main memory
    #[arg(long)]
    cpu_moe: bool,
    /// -ncmoe: keep the experts of the first N layers in main memory
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    n_cpu_moe: Option<u32>,
    /// -ot: keep in main memory what a regular expression finds by the names of tensors: exps=CPU; several with commas
    /// between them
    #[arg(long, value_name = "REGEX=CPU", value_parser = parse_patterns)]
    override_tensor: Vec<Patterns>,
}

#[derive(Clone, Debug)]
struct Patterns(Vec<Regex>);

fn parse_patterns(text: &str) -> Result<Patterns, String> {
    let one = |part: &str| {
        let Some((pattern, device)) = part.split_once('=') else {
            return Err(format!("`{part}` is no REGEX=CPU"));
        };
        if device != CPU {
            return Err(format!(
                "`{device}`: only {CPU} can be named; what goes to the GPU is said by -ngl and --vram"
            ));
        }
        RegexBuilder::new(pattern).size_limit(MOST_PATTERN).build().map_err(|e| {
            // What is wrong stands in the last of several lines.
            let message = e.to_string();
            let last = message.lines().last().unwrap_or_default();
            format!("`{pattern}`: {}", last.strip_prefix("error: ").unwrap_or(last))
        })
    };
    text.split(',').map(one).collect::<Result<_, _>>().map(Patterns)
}

impl OffGpuArgs {
    /// What is to stay off the GPU, if anything is.
    pub fn resolve(&self, model: &Model) -> Result<Option<UnitSet>> {
        let n_layer = model.n_layer();
        let patterns: Vec<&Regex> = self.override_tensor.iter().flat_map(|patterns| &patterns.0).collect();
        let first = self.n_cpu_moe.map_or(0, |n| n as usize);
        if !self.cpu_moe && first == 0 && patterns.is_empty() {
            return Ok(None);
        }
        let units: Vec<(Unit, Vec<PlanOp>)> = model.plan.units().collect();
        let has_experts = units.iter().any(|(unit, _)| matches!(unit, Unit::Experts(_)));
        let mut notes = Vec::new();
        if !has_experts && (self.cpu_moe || first > 0) {
            notes.push(format!("--cpu-moe and --n-cpu-moe change nothing: {} has no experts", model.name));
        } else if first > n_layer {
            notes.push(format!("--n-cpu-moe {first} is all: the model has {n_layer} layers"));
        }
        let mut off = UnitSet::of(n_layer, |unit| match unit {
            Unit::Experts(layer) => self.cpu_moe || layer < first,
            Unit::Embed | Unit::Attn(_) | Unit::Mlp(_) | Unit::Head | Unit::Mtp => false,
        });
        for pattern in patterns {
            let mut finds_any = false;
            for (unit, ops) in &units {
                if finds(pattern, *unit, ops, model)? {
                    off.insert(*unit);
                    finds_any = true;
                }
            }
            if !finds_any {
                notes
                    .push(format!("-ot {}=CPU changes nothing: no matrix has such a name", pattern.as_str()));
            }
        }
        // Several contexts of a run are opened with the same flags.
        static NOTED: Once = Once::new();
        NOTED.call_once(|| notes.iter().for_each(|note| detail!("{note}")));
        Ok(units.iter().any(|(unit, _)| off.holds(*unit)).then_some(off))
    }
}

/// Whether a pattern finds the matrices of a unit, which go together; vectors go with them.
fn finds(pattern: &Regex, unit: Unit, ops: &[PlanOp], model: &Model) -> Result<bool> {
    let of_op = |op: &PlanOp| {
        let operands = model.plan.operands(op);
        operands.all_matrices().map(|(id, _)| id).chain(operands.table).collect::<Vec<_>>()
    };
    let names: BTreeSet<&str> =
        ops.iter().flat_map(of_op).map(|id| model.weight(id).tensor.name.as_str()).collect();
    let (found, other): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| pattern.is_match(name));
    match (found.first(), other.first()) {
        (Some(found), Some(other)) => Err(Error::Usage(format!(
            "-ot {}=CPU: finds {found} and not {other}, and {unit} goes to one place as a whole: find all of it or nothing",
            pattern.as_str()
        ))),
        (found, _) => Ok(found.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec_run_test_models::fixtures;

    fn args(cpu_moe: bool, n_cpu_moe: Option<u32>, patterns: &str) -> OffGpuArgs {
        let patterns = if patterns.is_empty() { vec![] } else { vec![parse_patterns(patterns).unwrap()] };
        OffGpuArgs { cpu_moe, n_cpu_moe, override_tensor: patterns }
    }

    fn layers(of: &[bool]) -> Vec<usize> {
        (0..of.len()).filter(|&l| of[l]).collect()
    }

    #[test]
    fn patterns_are_checked_in_one_line() {
        assert_eq!(parse_patterns(r"\.ffn_.*_exps\.=CPU,blk\.1\.=CPU").unwrap().0.len(), 2);
        for (bad, words) in [
            ("exps", "`exps` is no REGEX=CPU"),
            ("", "`` is no REGEX=CPU"),
            ("exps=CPU,", "`` is no REGEX=CPU"),
            ("exps=CUDA0", "`CUDA0`: only CPU can be named"),
            ("exps=", "``: only CPU can be named"),
            ("(exps=CPU", "unclosed group"),
            ("a(?!b)=CPU", "look-ahead"),
            ("(a{1000}){1000}=CPU", "size limit"),
        ] {
            let error = parse_patterns(bad).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{bad}: {error}");
        }
    }

    #[test]
    fn units_are_found_whole_or_refused() {
        for model in fixtures() {
            let name = &model.arch;
            let n_layer = model.n_layer();
            let units: Vec<Unit> = model.plan.units().map(|(unit, _)| unit).collect();
            let with_experts: Vec<usize> =
                (0..n_layer).filter(|&l| units.contains(&Unit::Experts(l))).collect();
            let off = |args: OffGpuArgs| args.resolve(&model);
            assert_eq!(off(args(false, None, "")).unwrap(), None, "{name}");
            assert_eq!(off(args(false, Some(0), "")).unwrap(), None, "{name}");
            if with_experts.is_empty() {
                for (all, patterns) in [(true, ""), (false, "exps=CPU")] {
                    assert_eq!(off(args(all, Some(7), patterns)).unwrap(), None, "{name}");
                }
                continue;
            }
            let moe = |held: Option<UnitSet>| {
                let held = held.unwrap();
                let others = units.iter().any(|&u| !matches!(u, Unit::Experts(_)) && held.holds(u));
                assert!(!others, "{name}: {held:?}");
                let experts = layers(&held.experts);
                experts.into_iter().filter(|l| with_experts.contains(l)).collect::<Vec<_>>()
            };
            assert_eq!(moe(off(args(true, None, "")).unwrap()), with_experts, "{name}");
            assert_eq!(moe(off(args(false, Some(u32::MAX), "")).unwrap()), with_experts, "{name}");
            let first: Vec<usize> = with_experts.iter().copied().filter(|&l| l < 2).collect();
            assert_eq!(moe(off(args(false, Some(2), "")).unwrap()), first, "{name}");
            // llama.cpp's own pattern for --cpu-moe, and what people write.
            for pattern in [r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU", "exps=CPU", r"\.ffn_.*_exps\.=CPU"]
            {
                assert_eq!(moe(off(args(false, None, pattern)).unwrap()), with_experts, "{name} {pattern}");
            }
            let last = with_experts[with_experts.len() - 1];
            let layer = off(args(false, None, &format!(r"blk\.{last}\.=CPU"))).unwrap().unwrap();
            let of_layer = [Unit::Attn(last), Unit::Mlp(last), Unit::Experts(last)];
            assert!(units.iter().all(|u| layer.holds(*u) == of_layer.contains(u)), "{name}: {layer:?}");
            let part = off(args(false, None, "ffn_down_exps=CPU")).unwrap_err().to_string();
            assert!(
                part.contains("ffn_down_exps.weight and not") && part.contains("experts "),
                "{name}: {part}"
            );
            assert!(!part.contains('\n'));
            assert_eq!(off(args(false, None, "nothing of the kind=CPU")).unwrap(), None, "{name}");
        }
    }
}
