//! Layers with high planes on the GPU and low planes in RAM: their sizes, and how many layers to divide so.

use super::{
    Acceptance, Basis, Budgets, First, HighBits, Place, Placement, PlacementRequest, PlanesApart, Read,
    UnitSize, forecast::ApartForecast, n_layer, place_first,
};

/// The sizes of a part with its low planes in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByPlanes {
    /// Bytes that it takes on the GPU, and that a pass reads there.
    pub gpu_bytes: u64,
    pub gpu_read: u64,
    /// Bytes of the low planes, all of which a full pass reads.
    pub low_bytes: u64,
    /// Products for which rows leave the GPU and come back as sums.
    pub products: usize,
    /// A draft runs it by the high planes alone.
    pub coarse: bool,
}

impl UnitSize {
    /// With its low planes in RAM, where it has some.
    pub fn apart(self, high: HighBits) -> Self {
        let Some(ByPlanes { gpu_bytes, gpu_read, .. }) = self.by_planes.map(|of| of.of(high)) else {
            return self;
        };
        let gpu_read = Read { full: gpu_read, draft: gpu_read };
        UnitSize { gpu_bytes, gpu_read, planes_apart: Some(high), ..self }
    }

    /// Bytes of RAM that it takes where it lies on the GPU.
    pub fn low_bytes(&self) -> u64 {
        self.low_planes(false).map_or(0, |of| of.low_bytes)
    }

    /// The low planes that a pass reads where it lies on the GPU.
    pub(super) fn low_planes(&self, drafting: bool) -> Option<ByPlanes> {
        Some(self.by_planes?.of(self.planes_apart?)).filter(|of| !(drafting && of.coarse))
    }
}

/// The best placement with low planes in RAM, and how often drafts by the high planes are accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Apart {
    pub placement: Placement,
    pub high: HighBits,
    pub acceptance: Acceptance,
}

impl Apart {
    /// The fastest such placement. `None` where drafts do not read high planes alone, no part has planes, or the user places
    /// parts by hand.
    pub fn of(
        parts: &[UnitSize],
        request: &PlacementRequest,
        budgets: Budgets,
        basis: &Basis,
    ) -> Option<Self> {
        // Parts that the user places are not divided.
        let by_hand = request.gpu_layers.is_some() || request.on_gpu.is_some();
        let may = |part: &UnitSize| part.drafted && part.by_planes.is_some_and(|of| of.most.coarse);
        if by_hand || !parts.iter().any(may) {
            return None;
        }
        // Of four bits, two are the most.
        let has_more = parts.iter().filter_map(|part| part.by_planes).any(|of| of.most != of.two);
        let highs = HighBits::ALL.into_iter().filter(|&high| high == HighBits::Most || has_more);
        let all = highs.filter_map(|high| {
            let basis = basis.of_drafts_by(high);
            let placement = best(parts, high, request, budgets, &basis)?;
            Some((placement.rate(&basis), Apart { placement, high, acceptance: basis.acceptance }))
        });
        // Of two that are as fast the first, with more bits.
        all.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, apart)| apart)
    }

    /// On the same basis as others but for that.
    pub(super) fn forecast(&self, basis: Basis) -> ApartForecast {
        let Apart { ref placement, high, acceptance } = *self;
        ApartForecast { prediction: placement.predict(&Basis { acceptance, ..basis }), high, acceptance }
    }
}

/// With the low planes of these in RAM.
pub(super) fn given(parts: Vec<UnitSize>, apart: &PlanesApart) -> Vec<UnitSize> {
    let with = |part: UnitSize| if apart.units.holds(part.unit) { part.apart(apart.high) } else { part };
    parts.into_iter().map(with).collect()
}

/// The best with the low planes of some layers in RAM, from the first on: as many as the forecast says.
fn best(
    parts: &[UnitSize],
    high: HighBits,
    request: &PlacementRequest,
    budgets: Budgets,
    basis: &Basis,
) -> Option<Placement> {
    let of_layers = |layers: usize| {
        let apart = |part: &UnitSize| part.unit.layer().is_some_and(|layer| layer < layers);
        let parts = parts.iter().map(|part| if apart(part) { part.apart(high) } else { *part }).collect();
        let placed = place_first(First::Drafted, parts, request, budgets).ok()?;
        // There it is of use only where it is on the GPU.
        placed.uses(Place::Vram).then_some(Placement { first: First::Planes, ..placed })
    };
    let all = (1..=n_layer(parts.iter())).filter_map(of_layers).filter(Placement::has_planes_apart);
    all.map(|placed| (placed.rate(basis), placed))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, best)| best)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            choose,
            tests::{basis, budgets, model},
        },
        *,
    };
    use crate::{
        RunLayers,
        placement::{PerHighBits, forecast::Origin},
    };

    /// Eight layers of 300 bytes, of which 160 are high planes, and so many fifteenths where these have two bits.
    fn parts_with(draft: &RunLayers, least: u64) -> Vec<UnitSize> {
        let coarse = draft.has_coarse();
        let sized = model(8, Some(draft)).into_iter().map(|part| {
            let by_planes = part.unit.layer().map(|_| {
                let of = |high: u64| ByPlanes {
                    gpu_bytes: part.gpu_bytes * high / 15,
                    gpu_read: part.gpu_bytes * high / 15,
                    low_bytes: part.gpu_bytes * (17 - high) / 15,
                    products: 2,
                    coarse,
                };
                PerHighBits { most: of(8), two: of(least) }
            });
            let draft =
                if coarse && by_planes.is_some() { part.gpu_bytes * 8 / 15 } else { part.gpu_read.draft };
            UnitSize {
                by_planes,
                read: Read { draft, ..part.read },
                gpu_read: Read { draft, ..part.gpu_read },
                ..part
            }
        });
        sized.collect()
    }

    fn parts(draft: &RunLayers) -> Vec<UnitSize> {
        parts_with(draft, 8)
    }

    fn coarse() -> RunLayers {
        (0..8).fold(RunLayers::all(8), |mask, layer| mask.coarse_attn(layer).coarse_mlp(layer))
    }

    fn chosen(draft: RunLayers, vram: u64, crossing: f64) -> Placement {
        let request = PlacementRequest { draft: Some(draft.clone()), ..PlacementRequest::default() };
        choose(parts(&draft), &request, budgets(vram), || basis([1000.0, 10.0, 1.0], crossing)).unwrap()
    }

    /// Room for the head and all high planes, or for less than half of the layers.
    const ROOM: u64 = 20 + 55 + 8 * 170;

    #[test]
    fn high_planes_alone_are_taken_where_drafts_read_them_alone() {
        let apart = chosen(coarse(), ROOM, 0.001);
        assert_eq!(apart.first, First::Planes);
        assert_eq!((apart.planes_apart().units.attn, apart.on_gpu().mlp), (vec![true; 8], vec![true; 8]));
        assert_eq!(apart.bytes_in_ram(), 8 * 180 + 50);
        assert!(apart.is_divided());
        // By hand: all high planes and the head from the GPU, the embedding's row from RAM, whose rows cross; then the low
        // planes from RAM, and four products of a layer.
        let predicted = apart.predict(&basis([1000.0, 10.0, 1.0], 0.001));
        let high = (8.0 * 159.0 + 50.0) / 1000.0 + 0.1 + 0.001;
        assert!((predicted.draft - high).abs() < 0.01, "{predicted:?}");
        let token = high + 8.0 * 180.0 / 10.0 + 8.0 * 2.0 * 4.0 * 0.001;
        assert!((predicted.token - token).abs() < 0.01, "{predicted:?}, not {token}");
        assert!(apart.choice.unwrap().to_string().starts_with("high planes go to the GPU"));
    }

    #[test]
    fn whole_layers_are_taken_where_they_are_the_better() {
        // Drafts that read all bits, crossings that cost more than all, and room for everything.
        let halves =
            (0..4).fold(RunLayers::all(8), |mask, layer| mask.skip_attn(2 * layer).skip_mlp(2 * layer));
        for (draft, vram, crossing) in
            [(halves, ROOM, 0.001), (coarse(), ROOM, 100.0), (coarse(), 10_000, 0.001)]
        {
            let whole = chosen(draft, vram, crossing);
            assert!(whole.first != First::Planes && !whole.has_planes_apart());
        }
    }

    /// With more room some layers are whole.
    #[test]
    fn no_more_layers_are_taken_apart_than_need_be() {
        let some = chosen(coarse(), ROOM + 4 * 141, 0.001);
        let apart = some.planes_apart().units.mlp;
        assert!(some.on_gpu().mlp.iter().all(|&here| here));
        assert_eq!(apart, [true, true, true, true, false, false, false, false]);
    }

    /// Where all high planes have no room, and two bits of them do: a draft that never leaves the GPU, though it is right less
    /// often.
    #[test]
    fn two_bits_are_taken_where_more_have_no_room() {
        let draft = coarse();
        let request = PlacementRequest { draft: Some(draft.clone()), ..PlacementRequest::default() };
        let chosen = |least: u64, by_two_bits: f64| {
            let by = |chance| Acceptance::new(&[chance], Origin::Given);
            let basis = Basis {
                acceptance: by(0.9),
                by_two_bits: by(by_two_bits),
                ..basis([1000.0, 10.0, 1.0], 0.001)
            };
            choose(parts_with(&draft, least), &request, budgets(20 + 55 + 8 * 90), || basis).unwrap()
        };
        let of_two = chosen(4, 0.8).planes_apart();
        assert_eq!((of_two.high, of_two.units.mlp), (HighBits::Two, vec![true; 8]));
        // By what stands of such drafts, and by what the plane takes.
        assert_eq!(chosen(4, 0.1).planes_apart().high, HighBits::Most);
        assert_eq!(chosen(8, 0.95).planes_apart().high, HighBits::Most);
    }

    #[test]
    fn ram_is_counted_for_low_planes_first() {
        let draft = coarse();
        let request = PlacementRequest { draft: Some(draft.clone()), ..PlacementRequest::default() };
        // The embedding has no room beside them.
        let budgets = Budgets { ram: Some(8 * 180 + 49), ..budgets(ROOM) };
        let placed = choose(parts(&draft), &request, budgets, || basis([1000.0, 10.0, 1.0], 0.001)).unwrap();
        assert_eq!(placed.first, First::Planes);
        assert_eq!(placed.place_of(crate::plan::Unit::Embed), Place::File);
    }
}
