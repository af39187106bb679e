//! Which of several GPUs holds which part.

use super::{Budgets, Place, Placement, UnitSize, mib, n_layer, order::cost};
use crate::{
    Error, Result,
    plan::{Unit, UnitSet},
};

/// The room on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// In the list of devices.
    pub number: usize,
    /// Bytes of its memory that may be used.
    pub vram: u64,
    /// Of these, what it needs whatever runs on it.
    pub scratch: u64,
}

/// The parts of one GPU of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// In the list of devices.
    pub number: usize,
    /// The parts in its memory.
    pub held: UnitSet,
    /// The most bytes of its memory that may be used.
    pub vram: u64,
    pub scratch: u64,
}

impl Share {
    /// As [`Budgets::most_vram`].
    pub fn most_vram(&self) -> Option<u64> {
        Some(self.vram).filter(|&bytes| bytes < super::UNTOLD)
    }

    pub fn is_empty(&self) -> bool {
        self.held == UnitSet::none(self.held.attn.len())
    }
}

impl Room {
    /// Bytes for parts.
    fn left(&self) -> u64 {
        self.vram.saturating_sub(self.scratch)
    }
}

impl Budgets {
    /// Of all GPUs together.
    pub fn of_rooms(rooms: &[Room], ram: Option<u64>) -> Self {
        let taken = |room: &Room| room.vram.max(room.scratch);
        Budgets {
            vram: rooms.iter().map(taken).reduce(u64::saturating_add),
            scratch: rooms.iter().map(|room| room.scratch).sum(),
            ram,
        }
    }
}

/// The part that this one is placed with. Attention is placed with the layer whose keys it reads, and what shares the head's
/// matrix with the head.
fn owner(part: &UnitSize) -> Unit {
    match (part.unit, part.keys_of) {
        (_, Some(layer)) => Unit::Attn(layer),
        (Unit::Mtp, _) => Unit::Head,
        // A table that is the head's matrix.
        (Unit::Embed, _) if part.gpu_bytes == 0 => Unit::Head,
        (unit, None) => unit,
    }
}

/// The position of a part in a pass.
fn step(unit: Unit) -> usize {
    match unit {
        Unit::Embed => 0,
        Unit::Attn(layer) | Unit::Mlp(layer) | Unit::Experts(layer) => layer,
        Unit::Head | Unit::Mtp => usize::MAX,
    }
}

/// Groups of parts that are placed together, with their bytes on a GPU, in the order of their owners.
fn groups<'a>(parts: impl Iterator<Item = &'a UnitSize>) -> Vec<(Vec<Unit>, u64)> {
    let parts: Vec<&UnitSize> = parts.collect();
    let of = |unit: Unit| parts.iter().filter(move |part| owner(part) == unit);
    let owners = parts.iter().filter(|part| owner(part) == part.unit);
    owners
        .map(|part| (of(part.unit).map(|part| part.unit).collect(), of(part.unit).map(|p| cost(p)).sum()))
        .collect()
}

/// Shares of the layers, as running sums: for each GPU the share of it and of those before it.
struct Split(Vec<f64>);

impl Split {
    /// For so many GPUs, in the given proportion. GPUs that are not in it get nothing.
    fn of(proportion: &[f32], gpus: usize) -> Option<Self> {
        let all = (0..gpus).map(|i| f64::from(proportion.get(i).copied().unwrap_or(0.0).max(0.0)));
        let sum: f64 = all.clone().sum();
        let mut before = 0.0;
        let upto = all.map(|share| {
            before += share / sum;
            before
        });
        (sum > 0.0 && sum.is_finite()).then(|| Split(upto.collect()))
    }

    /// What a GPU gets of all.
    fn share(&self, gpu: usize) -> f64 {
        self.0[gpu] - gpu.checked_sub(1).map_or(0.0, |before| self.0[before])
    }

    /// The GPU that gets the layer at index `at` of so many.
    fn gpu(&self, at: usize, of: usize) -> usize {
        let place = at as f64 / of.max(1) as f64;
        self.0.iter().position(|&upto| upto > place).unwrap_or(self.0.len() - 1)
    }

    /// Bytes that all GPUs can have together if each gets its share.
    fn room(&self, rooms: &[Room]) -> u64 {
        let most = |(i, room): (usize, &Room)| {
            let share = self.share(i);
            (share > 0.0).then(|| room.left() as f64 / share)
        };
        rooms.iter().enumerate().filter_map(most).fold(f64::INFINITY, f64::min) as u64
    }
}

/// Places parts by `place`, which gets the room that is left, and distributes them over the GPUs. Where the end of a GPU's
/// memory stays free because the next part is too large for it, less goes to the GPUs: at most the size of the largest part
/// for each GPU but the last.
pub fn place_on(
    parts: &[UnitSize],
    rooms: &[Room],
    place: impl Fn(Budgets) -> Result<Placement>,
    ram: Option<u64>,
    split: Option<&[f32]>,
) -> Result<Placement> {
    let split = split.and_then(|proportion| Split::of(proportion, rooms.len()));
    let all = Budgets::of_rooms(rooms, ram);
    let budgets = match &split {
        Some(split) if rooms.len() > 1 => {
            Budgets { vram: Some(split.room(rooms).saturating_add(all.scratch)), ..all }
        }
        _ => all,
    };
    let largest = groups(parts.iter()).into_iter().map(|(_, bytes)| bytes).max().unwrap_or(0);
    const STEPS: u64 = 4;
    for step in 0..=STEPS * rooms.len().saturating_sub(1) as u64 {
        let vram = budgets.vram.map(|vram| vram.saturating_sub((step * largest).div_ceil(STEPS)));
        let placement = place(Budgets { vram, ..budgets })?;
        if rooms.len() < 2 || !placement.uses(Place::Vram) {
            return Ok(placement);
        }
        if let Some(shares) = placement.dealt(rooms, split.as_ref()) {
            return Ok(Placement {
                budgets: Budgets { ram: placement.budgets.ram, ..all },
                shares,
                ..placement
            });
        }
    }
    Err(Error::Memory(format!(
        "the parts that are to lie on the GPUs do not fit them one after the other, {} MiB: fewer `gpu_layers`, or a larger `vram`",
        rooms.iter().map(|room| format!("{:.1}", mib(room.vram))).collect::<Vec<_>>().join(" and ")
    )))
}

impl Placement {
    /// The parts of each GPU. The GPUs are filled one after the other in the model's order, so that rows rarely cross between them.
    /// `None` where a part does not fit.
    fn dealt(&self, rooms: &[Room], split: Option<&Split>) -> Option<Vec<Share>> {
        let mut left: Vec<u64> = rooms.iter().map(Room::left).collect();
        let mut units = vec![Vec::new(); rooms.len()];
        let on_gpu = self.parts.iter().filter(|(_, place)| *place == Place::Vram).map(|(part, _)| part);
        let steps = self.steps_on_gpu();
        let mut at = 0;
        for (group, bytes) in groups(on_gpu) {
            match split {
                Some(split) => {
                    let step = group.first().map(|&unit| step(unit));
                    let place = steps.iter().position(|&known| Some(known) == step).unwrap_or(0);
                    at = split.gpu(place, steps.len());
                }
                None => at += left[at..].iter().position(|&left| left >= bytes)?,
            }
            left[at] = left[at].checked_sub(bytes)?;
            units[at].extend(group);
        }
        let share = |(room, units): (&Room, Vec<Unit>)| Share {
            number: room.number,
            held: self.set_of(&units),
            vram: room.vram,
            scratch: room.scratch,
        };
        Some(std::iter::zip(rooms, units).map(share).collect())
    }

    /// The layers with a part on the GPUs. The head counts as a last layer, and the embedding belongs to the first.
    fn steps_on_gpu(&self) -> Vec<usize> {
        let on_gpu =
            self.parts.iter().filter(|(part, place)| *place == Place::Vram && part.unit != Unit::Embed);
        let mut steps: Vec<usize> = on_gpu.map(|(part, _)| step(part.unit)).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// These units as a set. Units that are counted with another part go with it.
    fn set_of(&self, units: &[Unit]) -> UnitSet {
        let here = |unit| units.contains(&unit);
        UnitSet::of(n_layer(self.parts.iter().map(|(part, _)| part)), |unit| match unit {
            Unit::Experts(l) if self.find(unit).is_none() => here(Unit::Mlp(l)),
            Unit::Mtp if self.find(unit).is_none() => here(Unit::Head),
            Unit::Embed | Unit::Attn(_) | Unit::Mlp(_) | Unit::Experts(_) | Unit::Head | Unit::Mtp => {
                here(unit)
            }
        })
    }

    /// The number of the GPU, among several, that has a part; the first where there is one.
    pub(super) fn gpu_of(&self, unit: Unit) -> usize {
        self.shares.iter().position(|share| share.held.holds(unit)).unwrap_or(0)
    }

    /// Bytes of each GPU that are taken, buffers and all; `None` where it has nothing.
    pub fn bytes_on_each_gpu(&self) -> Vec<Option<u64>> {
        if self.shares.is_empty() {
            return vec![self.uses(Place::Vram).then(|| self.bytes_on_gpu())];
        }
        let of = |share: &Share| {
            let here = self
                .parts
                .iter()
                .filter(|(part, place)| *place == Place::Vram && share.held.holds(part.unit));
            here.map(|(part, _)| cost(part)).sum::<u64>() + share.scratch
        };
        self.shares.iter().map(|share| (!share.is_empty()).then(|| of(share))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{PlacementRequest, place, tests::model},
        *,
    };

    /// Four layers of 110 and 200 bytes behind an embedding of 50, before a head of 55; each GPU needs 20 for itself.
    fn placed_by(vram: &[u64], split: Option<&[f32]>, edit: impl FnOnce(&mut Vec<UnitSize>)) -> Placement {
        let mut parts = model(4, None);
        edit(&mut parts);
        let rooms: Vec<Room> =
            vram.iter().enumerate().map(|(number, &vram)| Room { number, vram, scratch: 20 }).collect();
        let place = |budgets| place(parts.clone(), &PlacementRequest::default(), budgets);
        place_on(&parts, &rooms, place, None, split).unwrap()
    }

    fn placed(vram: &[u64], edit: impl FnOnce(&mut Vec<UnitSize>)) -> Placement {
        placed_by(vram, None, edit)
    }

    fn held(placement: &Placement) -> [UnitSet; 2] {
        placement.shares.iter().map(|share| share.held.clone()).collect::<Vec<_>>().try_into().unwrap()
    }

    #[test]
    fn gpus_are_filled_in_the_models_order() {
        let both = placed(&[720, 720], |_| ());
        let [first, second] = held(&both);
        assert_eq!(
            (&first.attn[..], &first.mlp[..]),
            (&[true, true, false, false][..], &[true, true, false, false][..])
        );
        assert!(first.embed && !first.head && !second.embed && second.head);
        assert!((0..4).all(|l| first.attn[l] != second.attn[l] && first.mlp[l] != second.mlp[l]));
        assert_eq!(both.bytes_on_each_gpu(), [Some(690), Some(695)]);
        assert!(both.is_divided() && !both.uses(Place::Ram));
        // The second is left once, which is a way to the processor and one from it.
        assert_eq!(both.crossings(false), 2);
    }

    /// The last has room for 675 and not for less; then the first layer stays in RAM, and the embedding.
    #[test]
    fn what_stays_free_at_the_end_of_a_gpu_is_not_counted_on() {
        assert!(!placed(&[720, 695], |_| ()).uses(Place::Ram));
        let less = placed(&[720, 694], |_| ());
        assert_eq!(less.in_ram().mlp, [true, false, false, false]);
        assert!(less.in_ram().embed);
        let [first, second] = held(&less);
        assert_eq!(
            (first.mlp, second.mlp),
            (vec![false, true, true, false], vec![false, false, false, true])
        );
        assert_eq!(less.budgets.vram, Some(1414));
    }

    /// Of four layers and the head, as llama.cpp deals them: a GPU has those whose place in the row is below its share.
    #[test]
    fn layers_are_dealt_in_the_proportion_that_is_asked_for() {
        let dealt = |split: &[f32]| {
            let [first, second] = held(&placed_by(&[2000, 2000], Some(split), |_| ()));
            assert!((0..4).all(|l| first.attn[l] == first.mlp[l] && first.attn[l] != second.attn[l]));
            assert!(first.head != second.head && first.embed != second.embed);
            (first.attn.iter().filter(|&&has| has).count(), first.head, first.embed)
        };
        assert_eq!(dealt(&[1.0, 1.0]), (3, false, true));
        assert_eq!(dealt(&[3.0, 1.0]), (4, false, true));
        assert_eq!(dealt(&[1.0, 3.0]), (2, false, true));
        assert_eq!(dealt(&[1.0]), (4, true, true));
        assert_eq!(dealt(&[0.0, 7.0]), (0, false, false));
        // Nothing is asked for: the first has room for all.
        assert_eq!(dealt(&[0.0, 0.0]), (4, true, true));
    }

    /// The second GPU has room for 310 and is to have half: then no more than that goes to the first.
    #[test]
    fn a_share_that_is_too_large_for_its_gpu_makes_all_shares_smaller() {
        let both = placed_by(&[2000, 330 + 55], Some(&[1.0, 1.0]), |_| ());
        let on_each = both.bytes_on_each_gpu();
        assert!(
            both.uses(Place::Ram) && on_each[0].unwrap() <= 2000 && on_each[1].unwrap() <= 385,
            "{on_each:?}"
        );
        let layers = |set: &UnitSet| set.mlp.iter().filter(|&&has| has).count();
        let [first, second] = held(&both);
        assert!(
            layers(&first).abs_diff(layers(&second) + usize::from(second.head)) <= 1,
            "{first:?} {second:?}"
        );
    }

    #[test]
    fn what_the_first_gpu_has_room_for_leaves_the_second_empty() {
        let both = placed(&[2000, 2000], |_| ());
        assert_eq!(held(&both), [UnitSet::all(4), UnitSet::none(4)]);
        assert_eq!(both.bytes_on_each_gpu(), [Some(1365), None]);
        assert!(!both.is_divided());
    }

    #[test]
    fn a_gpu_that_is_too_small_for_anything_has_nothing() {
        let both = placed(&[10, 2000], |_| ());
        assert_eq!(held(&both), [UnitSet::none(4), UnitSet::all(4)]);
    }

    #[test]
    fn attention_goes_where_its_keys_are_and_a_table_with_the_head() {
        let shared = |parts: &mut Vec<UnitSize>| {
            parts[7].keys_of = Some(0);
            parts[0].gpu_bytes = 0;
        };
        let [first, second] = held(&placed(&[860, 860], shared));
        // Behind the third attention there is room for 110 more, not for an MLP.
        assert_eq!((first.attn, first.mlp), (vec![true; 4], vec![true, true, false, false]));
        assert!(second.head && second.embed && !first.embed && !first.head);
    }

    /// Keys that all layers read: their attention is on one GPU, as large as that is.
    #[test]
    fn keys_of_all_layers_need_a_gpu_that_has_room_for_all_who_read_them() {
        let shared =
            |parts: &mut Vec<UnitSize>| [3, 5, 7].into_iter().for_each(|i| parts[i].keys_of = Some(0));
        let [first, second] = held(&placed(&[459, 1320], shared));
        assert_eq!((first.attn, second.attn), (vec![false; 4], vec![true; 4]));
        assert!(first.embed);
    }
}
