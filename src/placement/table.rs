//! A placement as a table: a line for each place that is used.

use std::fmt;

use super::{Place, Placement, Unit, UnitSet, mib};
use crate::mask::ranges;

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<6} {:>12} {:>12}  what", "place", "weights MiB", "overhead MiB")?;
        for (place, name) in [(Place::Vram, "VRAM"), (Place::Ram, "RAM"), (Place::File, "file")] {
            let here = || self.parts.iter().filter(move |(_, p)| *p == place).map(|(part, _)| part);
            let low = if place == Place::Ram { self.planes_apart() } else { UnitSet::none(0) };
            let has_low = low.attn.iter().chain(&low.mlp).any(|&here| here);
            if here().next().is_none() && !has_low {
                continue;
            }
            let on_gpu = place == Place::Vram;
            let weights = if place == Place::Ram {
                self.bytes_in_ram()
            } else {
                here().map(|p| if on_gpu { p.gpu_bytes } else { p.bytes }).sum()
            };
            let overhead =
                here().map(|p| p.overhead).sum::<u64>() + if on_gpu { self.budgets.scratch } else { 0 };
            let has = |unit| here().any(|p| p.unit == unit);
            let of_kind = |kind: fn(usize) -> Unit| -> Vec<usize> {
                here().filter_map(|p| p.unit.layer().filter(|&l| p.unit == kind(l))).collect()
            };
            let [attn, mlp, experts] = [Unit::Attn, Unit::Mlp, Unit::Experts].map(of_kind);
            // Of the layers whose MLP is here, those that have experts at all.
            let theirs = mlp.iter().copied().filter(|&l| self.find(Unit::Experts(l)).is_some());
            let mut what = Vec::new();
            what.extend(has(Unit::Embed).then(|| "embedding".to_string()));
            if attn == mlp && theirs.eq(experts.iter().copied()) && !attn.is_empty() {
                what.push(format!("layers {}", ranges(&attn)));
            } else {
                let kinds = [("attention", attn), ("MLP", mlp), ("experts", experts)];
                let named = kinds.into_iter().filter(|(_, layers)| !layers.is_empty());
                what.extend(named.map(|(kind, layers)| format!("{kind} {}", ranges(&layers))));
            }
            what.extend(has(Unit::Head).then(|| "head".to_string()));
            what.extend(has(Unit::Ahead).then(|| "head for one token more".to_string()));
            let low_of = |layers: &[bool]| (0..layers.len()).filter(|&l| layers[l]).collect::<Vec<_>>();
            match [&low.attn, &low.mlp].map(|layers| low_of(layers)) {
                _ if !has_low => {}
                [attn, mlp] if attn == mlp => what.push(format!("low planes of layers {}", ranges(&attn))),
                [attn, mlp] => {
                    let kinds =
                        [("attention", attn), ("MLP", mlp)].into_iter().filter(|(_, of)| !of.is_empty());
                    what.extend(kinds.map(|(kind, of)| format!("low planes of {kind} {}", ranges(&of))));
                }
            }
            writeln!(f, "{name:<6} {:>12.1} {:>12.1}  {}", mib(weights), mib(overhead), what.join(", "))?;
        }
        if let Some(vram) = self.budgets.most_vram() {
            writeln!(f, "VRAM budget {:.1} MiB", mib(vram))?;
        }
        if !self.converted.is_empty() {
            writeln!(f, "{}", self.conversion_note())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn neighbours_are_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[3]), "3");
    }
}
