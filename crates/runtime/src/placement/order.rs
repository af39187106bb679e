//! The order in which parts are placed, where there is not room for all.

use super::{First, PlacementRequest, Unit, UnitSize, mib, n_layer};
use crate::{Error, Result};

/// Which parts go to the GPU.
pub fn into_vram(
    parts: &[UnitSize],
    request: &PlacementRequest,
    first: First,
    room: u64,
) -> Result<Vec<bool>> {
    let mut here = Taking { parts, request, left: room, taken: vec![false; parts.len()] };
    let n_layer = n_layer(parts.iter());
    match (&request.on_gpu, request.gpu_layers) {
        (Some(_), _) => return here.given(room),
        (None, Some(n)) => here.last_layers(n, n_layer, room)?,
        (None, None) => here.what_fits(first, n_layer),
    }
    here.keep_keys_together();
    // The parts that go to the GPU only if all others do.
    let comes_last = |part: &UnitSize| matches!(part.unit, Unit::Embed | Unit::Mtp);
    if std::iter::zip(parts, &here.taken).all(|(part, taken)| *taken || comes_last(part)) {
        here.take(comes_last);
    }
    Ok(here.taken)
}

/// The order in which parts are given RAM: experts behind everything that each token reads, and the embedding last, of
/// which it reads one row.
pub fn into_ram(parts: &[UnitSize], draft_first: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| {
        let part = &parts[i];
        (part.unit == Unit::Embed, part.choice.is_some(), draft_first && !part.drafted)
    });
    order
}

struct Taking<'a> {
    parts: &'a [UnitSize],
    request: &'a PlacementRequest,
    left: u64,
    taken: Vec<bool>,
}

impl Taking<'_> {
    /// Takes all of these that may go to the GPU, or none of them if there is no room for all.
    fn take(&mut self, wanted: impl Fn(&UnitSize) -> bool) -> bool {
        let is_new = |&i: &usize| {
            wanted(&self.parts[i]) && !self.taken[i] && !self.request.keeps_off_gpu(self.parts[i].unit)
        };
        let new: Vec<usize> = (0..self.parts.len()).filter(is_new).collect();
        let cost: u64 = new.iter().map(|&i| cost(&self.parts[i])).sum();
        if cost > self.left {
            return false;
        }
        self.left -= cost;
        new.into_iter().for_each(|i| self.taken[i] = true);
        true
    }

    fn given(mut self, room: u64) -> Result<Vec<bool>> {
        let held = self.request.on_gpu.as_ref().expect("given");
        self.taken = self.parts.iter().map(|part| held.holds(part.unit)).collect();
        let taken = || self.parts.iter().zip(&self.taken).filter(|(_, taken)| **taken).map(|(part, _)| part);
        let cost: u64 = taken().map(cost).sum();
        if cost > room {
            return Err(Error::Memory(format!(
                "the given placement takes {:.1} MiB of GPU memory, {:.1} MiB are there",
                mib(cost),
                mib(room)
            )));
        }
        if let Some(part) = taken().find(|part| self.request.keeps_off_gpu(part.unit)) {
            return Err(Error::Usage(format!(
                "the given placement has {} on the GPU, `off_gpu` keeps it off: leave one of the two out",
                part.unit
            )));
        }
        if let Some((layer, of)) = self.divided_keys() {
            return Err(Error::Usage(format!(
                "the given placement has attention {layer} and attention {of} in two places: one reads the keys and values of the other, so they go together"
            )));
        }
        Ok(self.taken)
    }

    /// As llama.cpp's -ngl.
    fn last_layers(&mut self, n: u32, n_layer: usize, room: u64) -> Result<()> {
        let wanted = (n as usize).min(n_layer);
        for done in 0..wanted {
            if !self.take(|part| part.unit.layer() == Some(n_layer - 1 - done)) {
                return Err(does_not_fit(n, done, room));
            }
        }
        match n as usize > n_layer && !self.take(|part| part.unit == Unit::Head) {
            true => Err(does_not_fit(n, wanted, room)),
            false => Ok(()),
        }
    }

    fn what_fits(&mut self, first: First, n_layer: usize) {
        self.take(|part| part.unit == Unit::Head);
        let mut layers = 0..n_layer;
        for experts in [false, true] {
            let wanted = |part: &UnitSize| part.choice.is_some() == experts && part.unit.layer().is_some();
            if first == First::Drafted {
                for drafted in self.parts.iter().filter(|part| part.drafted && wanted(part)) {
                    self.take(|part| part.unit == drafted.unit);
                }
            }
            for l in layers.clone().rev() {
                let fits = self.take(|part| part.unit.layer() == Some(l) && wanted(part));
                if !fits && first == First::WholeLayers {
                    // After a gap rows would cross between devices twice more. And experts are useful only where their router is.
                    layers.start = l + 1;
                    break;
                }
            }
        }
    }

    /// Attention that reads another layer's keys and values has to be where these are. Where there was no room for all layers that
    /// share keys and values, none of them goes to the GPU.
    fn keep_keys_together(&mut self) {
        while let Some((_, of)) = self.divided_keys() {
            for (part, taken) in self.parts.iter().zip(&mut self.taken) {
                *taken &= keys(part) != Some(of);
            }
        }
    }

    /// Two attentions of which one is on the GPU alone and which share keys; the second has them.
    fn divided_keys(&self) -> Option<(usize, usize)> {
        let is_taken =
            |unit| self.parts.iter().zip(&self.taken).any(|(part, taken)| part.unit == unit && *taken);
        self.parts.iter().zip(&self.taken).find_map(|(part, taken)| {
            let of = part.keys_of.filter(|&of| is_taken(Unit::Attn(of)) != *taken)?;
            Some((part.unit.layer()?, of))
        })
    }
}

/// The layer whose keys and values an attention reads.
fn keys(part: &UnitSize) -> Option<usize> {
    match part.unit {
        Unit::Attn(own) => Some(part.keys_of.unwrap_or(own)),
        Unit::Embed | Unit::Mlp(_) | Unit::Experts(_) | Unit::Head | Unit::Mtp => None,
    }
}

/// Bytes that a part takes of a GPU's memory.
pub(super) fn cost(part: &UnitSize) -> u64 {
    part.gpu_bytes + part.overhead
}

fn does_not_fit(n: u32, done: usize, room: u64) -> Error {
    Error::Memory(format!(
        "`gpu_layers` {n} does not fit: {done} layers do, into {:.0} MiB of GPU memory; leave `gpu_layers` out to have what fits",
        mib(room)
    ))
}
