//! What is placed into a GPU's memory first. The parts that drafts run save the most reading, but they are scattered over the
//! layers, so that rows cross between devices often. In a small model that costs more than it saves. The forecast decides.

use std::fmt;

use super::{Apart, Basis, Budgets, Place, Placement, PlacementRequest, UnitSize, place_first, planes};
use crate::Result;

/// What is placed into the GPU's memory first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The head and whole layers, from the last one.
    WholeLayers,
    /// The parts that a draft runs.
    Drafted,
    /// The parts that a draft runs, with the high planes alone of some layers.
    Planes,
    /// What the user gave, part by part.
    Given,
}

/// The decision between placements that are possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacementChoice {
    pub first: First,
    pub whole_layers: Side,
    pub drafted: Side,
    /// Where a draft reads high planes alone.
    pub planes: Option<Side>,
}

/// By what a placement is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Tokens a second that are expected of it.
    pub rate: f64,
    /// How often the hidden rows of a pass cross between devices.
    pub crossings: usize,
    /// Bytes that a draft step reads elsewhere than on the GPU.
    pub drafted_off_gpu: u64,
}

impl Side {
    pub fn of(placement: &Placement, basis: &Basis) -> Self {
        Side {
            rate: placement.rate(basis),
            crossings: placement.crossings(false),
            drafted_off_gpu: placement.drafted_off_gpu(),
        }
    }
}

/// The placement that is expected to be faster. `basis` is only asked for if there is something to decide: where a draft's mask
/// is given, and neither `gpu_layers` nor an exact request says what goes to the GPU.
pub fn choose(
    parts: Vec<UnitSize>,
    request: &PlacementRequest,
    budgets: Budgets,
    basis: impl FnOnce() -> Basis,
) -> Result<Placement> {
    let parts = match &request.planes_apart {
        Some(apart) => planes::given(parts, apart),
        None => parts,
    };
    let place = |first| place_first(first, parts.clone(), request, budgets);
    if request.draft.is_none() || request.whole_layers {
        return place(First::WholeLayers);
    }
    let drafted = place(First::Drafted)?;
    let whole = place(First::WholeLayers)?;
    // With -ngl and exact requests both are the same. And a GPU with too little memory for a whole layer is still used.
    if whole.parts == drafted.parts || !whole.uses(Place::Vram) {
        return Ok(drafted);
    }
    let basis = basis();
    let sides = [&whole, &drafted].map(|placement| Side::of(placement, &basis));
    let (first, mut best, rate) = match sides[0].rate > sides[1].rate {
        true => (First::WholeLayers, whole, sides[0].rate),
        false => (First::Drafted, drafted, sides[1].rate),
    };
    let apart = Apart::of(&parts, request, budgets, &basis);
    let of_apart =
        |apart: &Apart| Side::of(&apart.placement, &Basis { acceptance: apart.acceptance, ..basis });
    let planes = apart.as_ref().map(of_apart);
    let first = match apart {
        Some(apart) if planes.is_some_and(|side| side.rate > rate) => {
            best = apart.placement;
            First::Planes
        }
        _ => first,
    };
    best.choice = Some(PlacementChoice { first, whole_layers: sides[0], drafted: sides[1], planes });
    Ok(best)
}

/// A line: what was taken, and why.
impl fmt::Display for PlacementChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlacementChoice { first, whole_layers: whole, drafted, planes } = self;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match first {
            First::WholeLayers | First::Given => write!(
                f,
                "whole layers go first: {:.2} tok/s expected; with what drafts run first {:.2} (rows cross {} times a token, not {})",
                whole.rate, drafted.rate, drafted.crossings, whole.crossings
            ),
            First::Planes => write!(
                f,
                "high planes go to the GPU, low planes to RAM: {:.2} tok/s expected; with what drafts run first {:.2}, with whole layers first {:.2}",
                planes.map_or(0.0, |side| side.rate),
                drafted.rate,
                whole.rate
            ),
            First::Drafted => write!(
                f,
                "what drafts run goes first: {:.2} tok/s expected; with whole layers first {:.2} (a draft step reads {:.1} MiB outside the GPU, not {:.1})",
                drafted.rate,
                whole.rate,
                mib(whole.drafted_off_gpu),
                mib(drafted.drafted_off_gpu)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            place,
            tests::{basis, budgets, model},
        },
        *,
    };
    use crate::{
        RunLayers,
        plan::{Unit, UnitSet},
    };

    /// Every other layer.
    fn halves() -> RunLayers {
        RunLayers::all(8)
            .skip_attn(1)
            .skip_mlp(1)
            .skip_attn(3)
            .skip_mlp(3)
            .skip_attn(5)
            .skip_mlp(5)
            .skip_attn(7)
            .skip_mlp(7)
    }

    /// For the head and four of the eight layers.
    const ROOM: u64 = 20 + 55 + 4 * 310;

    fn request() -> PlacementRequest {
        PlacementRequest { draft: Some(halves()), ..PlacementRequest::default() }
    }

    fn chosen(request: &PlacementRequest, crossing: f64) -> Placement {
        let basis = basis([100.0, 10.0, 1.0], crossing);
        choose(model(8, request.draft.as_ref()), request, budgets(ROOM), || basis).unwrap()
    }

    #[test]
    fn the_better_forecast_is_taken() {
        let parts = || model(8, Some(&halves()));
        let drafted = place(parts(), &request(), budgets(ROOM)).unwrap();
        let whole = place(parts(), &PlacementRequest::default(), budgets(ROOM)).unwrap();
        assert_eq!((drafted.crossings(false), whole.crossings(false)), (9, 1));
        // Crossings that cost nothing: a draft that stays on the GPU is the better one.
        let free = chosen(&request(), 0.0);
        assert_eq!(free.parts, drafted.parts);
        let choice = free.choice.unwrap();
        assert!(choice.first == First::Drafted && choice.drafted.rate > choice.whole_layers.rate);
        assert!(choice.to_string().starts_with("what drafts run goes first: "), "{choice}");
        // Crossings that take longer than all reading.
        let dear = chosen(&request(), 1000.0);
        assert_eq!(dear.parts, whole.parts);
        let choice = dear.choice.unwrap();
        assert!(choice.first == First::WholeLayers && choice.drafted.rate < choice.whole_layers.rate);
        assert!(choice.to_string().contains("rows cross 9 times a token, not 1"), "{choice}");
        // By hand: a token reads 1200 + 50 bytes from the GPU, 1200 + 1 from RAM, and crosses once.
        let token = 1250.0 / 100.0 + 1201.0 / 10.0 + 1000.0;
        let basis = basis([100.0, 10.0, 1.0], 1000.0);
        assert!((whole.predict(&basis).token - token).abs() < 1e-9);
        let best = [whole.rate(&basis), drafted.rate(&basis)].into_iter().fold(0.0, f64::max);
        assert_eq!(choice.whole_layers.rate, best);
    }

    /// A draft that is never accepted is not drafted with: then only a token's time counts.
    #[test]
    fn speculation_that_does_not_pay_decides_nothing() {
        let never = Basis {
            acceptance: super::super::Acceptance::new(&[0.0], super::super::forecast::Origin::Given),
            ..basis([100.0, 10.0, 1.0], 0.01)
        };
        let parts = model(8, Some(&halves()));
        let chosen = choose(parts, &request(), budgets(ROOM), || never).unwrap();
        let choice = chosen.choice.unwrap();
        assert_eq!(choice.first, First::WholeLayers);
        assert!((choice.whole_layers.rate * chosen.predict(&never).token - 1.0).abs() < 1e-12, "{choice:?}");
    }

    #[test]
    fn what_was_said_is_no_choice() {
        let all = chosen(&PlacementRequest { gpu_layers: Some(4), ..request() }, 0.0);
        assert_eq!(all.on_gpu().attn, [false, false, false, false, true, true, true, true]);
        let none = chosen(&PlacementRequest { draft: None, ..request() }, 0.0);
        assert_eq!(none.on_gpu().mlp, [false, false, false, false, true, true, true, true]);
        let alike = chosen(&PlacementRequest { whole_layers: true, ..request() }, 0.0);
        assert_eq!(alike.on_gpu(), none.on_gpu());
        assert_eq!(
            (alike.first, all.first, none.first),
            (First::WholeLayers, First::Drafted, First::WholeLayers)
        );
        assert!(all.choice.is_none() && none.choice.is_none() && alike.choice.is_none());
        let given = chosen(&PlacementRequest { on_gpu: Some(alike.on_gpu()), ..request() }, 0.0);
        assert_eq!((given.first, given.on_gpu()), (First::Given, alike.on_gpu()));
        let large = PlacementRequest { on_gpu: Some(UnitSet::all(8)), ..request() };
        let error = choose(model(8, None), &large, budgets(ROOM), || -> Basis { panic!("no choice") });
        assert!(error.unwrap_err().to_string().starts_with("the given placement takes 0.0 MiB"));
        let unasked = || -> Basis { panic!("nothing depends on it") };
        let fits = choose(model(8, Some(&halves())), &request(), budgets(10_000), unasked).unwrap();
        assert!(fits.choice.is_none() && !fits.uses(Place::Ram));
        // Room for an MLP, but not for a layer nor the head: whole layers would leave the GPU empty.
        let budget = Budgets { vram: Some(20 + 201), ..budgets(0) };
        let parts: Vec<_> = model(8, Some(&halves()))
            .into_iter()
            .map(|p| if p.unit == Unit::Head { UnitSize { gpu_bytes: 500, ..p } } else { p })
            .collect();
        let small = choose(parts, &request(), budget, unasked).unwrap();
        assert!(small.uses(Place::Vram) && small.choice.is_none());
    }

    /// Without a crossing there is none to save: what drafts run always comes first into RAM.
    #[test]
    fn ram_is_for_what_drafts_run_whatever_the_gpu_holds() {
        let mask = halves();
        let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
        let budget = Budgets { vram: Some(20 + 55 + 310), scratch: 20, ram: Some(50 + 900) };
        let dear = basis([100.0, 10.0, 1.0], 1000.0);
        let chosen = choose(model(8, Some(&mask)), &request, budget, || dear).unwrap();
        assert_eq!(chosen.choice.unwrap().first, First::WholeLayers);
        let layers = |held: &[bool]| (0..8).filter(|&l| held[l]).collect::<Vec<_>>();
        assert_eq!(layers(&chosen.on_gpu().mlp), [7]);
        assert_eq!(layers(&chosen.in_ram().mlp), [0, 2, 4]);
    }
}
