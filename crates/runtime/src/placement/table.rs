//! A placement as a table, with a line for each kind of memory that is used.

use std::fmt;

use super::{HighBits, Place, Placement, PlanesApart, Share, Unit, UnitSize, mib};
use crate::mask::ranges;

/// A memory that holds something.
pub struct Line<'p> {
    pub place: Place,
    name: String,
    /// Where it is one of several GPUs.
    pub share: Option<&'p Share>,
}

impl Placement {
    /// The memories that are used, fastest first. Each of several GPUs has its own line.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let line = |place, name: String, share| Line { place, name, share };
        let mut all: Vec<Line> = match &self.shares[..] {
            [] => vec![line(Place::Vram, "VRAM".into(), None)],
            shares => shares
                .iter()
                .map(|share| line(Place::Vram, format!("VRAM {}", share.number), Some(share)))
                .collect(),
        };
        all.push(line(Place::Ram, "RAM".into(), None));
        all.push(line(Place::File, "file".into(), None));
        let has_low = self.has_planes_apart();
        all.retain(|line| {
            self.parts_at(line.place, line.share).next().is_some() || line.place == Place::Ram && has_low
        });
        all
    }

    pub fn parts_at(&self, place: Place, share: Option<&Share>) -> impl Iterator<Item = &UnitSize> {
        let here = move |part: &UnitSize| share.is_none_or(|share| share.held.holds(part.unit));
        self.parts.iter().filter(move |(part, p)| *p == place && here(part)).map(|(part, _)| part)
    }

    /// Bytes that are used there regardless of the parts.
    pub fn scratch_at(&self, place: Place, share: Option<&Share>) -> u64 {
        match place {
            Place::Vram => share.map_or(self.budgets.scratch, |share| share.scratch),
            Place::Ram | Place::File => 0,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<6} {:>12} {:>12}  what", "place", "weights MiB", "overhead MiB")?;
        for Line { place, name, share } in self.lines() {
            let here = || self.parts_at(place, share);
            let PlanesApart { units: low, high } =
                if place == Place::Ram { self.planes_apart() } else { PlanesApart::none(0) };
            let has_low = low.attn.iter().chain(&low.mlp).any(|&here| here);
            let weights = match place {
                Place::Vram => here().map(|part| part.gpu_bytes).sum(),
                Place::Ram => self.bytes_in_ram(),
                Place::File => here().map(|part| part.bytes).sum(),
            };
            let overhead = here().map(|p| p.overhead).sum::<u64>() + self.scratch_at(place, share);
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
            what.extend(has(Unit::Mtp).then(|| "head for one token more".to_string()));
            let low_of = |layers: &[bool]| (0..layers.len()).filter(|&l| layers[l]).collect::<Vec<_>>();
            let planes = match high {
                HighBits::Most => "low planes",
                HighBits::Two => "all but two bits",
            };
            match [&low.attn, &low.mlp].map(|layers| low_of(layers)) {
                _ if !has_low => {}
                [attn, mlp] if attn == mlp => what.push(format!("{planes} of layers {}", ranges(&attn))),
                [attn, mlp] => {
                    let kinds =
                        [("attention", attn), ("MLP", mlp)].into_iter().filter(|(_, of)| !of.is_empty());
                    what.extend(kinds.map(|(kind, of)| format!("{planes} of {kind} {}", ranges(&of))));
                }
            }
            writeln!(f, "{name:<6} {:>12.1} {:>12.1}  {}", mib(weights), mib(overhead), what.join(", "))?;
        }
        match (&self.shares[..], self.budgets.most_vram()) {
            ([], Some(vram)) => writeln!(f, "VRAM budget {:.1} MiB", mib(vram))?,
            (shares, Some(_)) => {
                let of = |share: &Share| format!("{:.1} MiB of GPU {}", mib(share.vram), share.number);
                writeln!(f, "VRAM budgets {}", shares.iter().map(of).collect::<Vec<_>>().join(", "))?;
            }
            (_, None) => {}
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
