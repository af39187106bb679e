//! What a placement is expected to give: the time of a token, of a draft step and of a round of speculation. Of the time
//! spent on reading weights alone, so a bound; where memory binds, a close one.

use std::fmt;

use super::{Acceptance, Apart, Place, Placement, UnitSize};

/// A number, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    pub value: f64,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Measured,
    /// By the user.
    Given,
    /// By the mask's file.
    Promised,
    /// On a model that people trained.
    MeasuredOn(&'static str),
    Assumed,
}

impl Known {
    pub const fn measured(value: f64) -> Self {
        Known { value, origin: Origin::Measured }
    }

    pub const fn given(value: f64) -> Self {
        Known { value, origin: Origin::Given }
    }

    const fn assumed(value: f64) -> Self {
        Known { value, origin: Origin::Assumed }
    }
}

impl Origin {
    pub fn name(self) -> String {
        match self {
            Origin::Measured => "measured".into(),
            Origin::Given => "given".into(),
            Origin::Promised => "promised by the mask".into(),
            Origin::MeasuredOn(model) => format!("measured on {model}"),
            Origin::Assumed => "assumed".into(),
        }
    }
}

/// What a forecast rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Basis {
    /// Bytes a second.
    pub vram: Known,
    pub ram: Known,
    pub file: Known,
    /// Seconds for the hidden rows to cross between the processor and a GPU once.
    pub crossing: Known,
    /// Bytes a second from RAM to the GPU.
    pub bus: Known,
    /// Multiplications a second of many rows with a matrix.
    pub gpu_products: Known,
    pub cpu_products: Known,
    pub acceptance: Acceptance,
}

impl Default for Basis {
    /// A card of the upper middle on sixteen lanes of PCIe 4, two channels of DDR5 and eight cores, a good SSD.
    fn default() -> Self {
        Basis {
            vram: Known::assumed(500e9),
            ram: Known::assumed(50e9),
            file: Known::assumed(3e9),
            crossing: Known::assumed(100e-6),
            bus: Known::assumed(12e9),
            gpu_products: Known::assumed(5e12),
            cpu_products: Known::assumed(0.25e12),
            acceptance: Acceptance::new(&[0.75], Origin::Assumed),
        }
    }
}

impl Basis {
    /// With what was measured of a GPU where nothing better than a guess is known: the bytes that it reads in a second,
    /// and the seconds of a way to it and back, which is two crossings.
    pub fn with_measured(self, read: f64, round_trip: f64) -> Self {
        let known = |known: Known, value| match known.origin {
            Origin::Assumed => Known::measured(value),
            _ => known,
        };
        let (vram, crossing) = (known(self.vram, read), known(self.crossing, round_trip / 2.0));
        Basis { vram, crossing, ..self }
    }
}

const MOST_DRAFTED: i32 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds for a token, for a draft step, and for a round of `drafted` draft steps and a verification.
    pub token: f64,
    pub draft: f64,
    pub round: f64,
    pub drafted: i32,
    /// Tokens that a round gives.
    pub tokens: f64,
}

impl Prediction {
    fn plain(token: f64) -> Self {
        Prediction { token, draft: 0.0, round: token, drafted: 0, tokens: 1.0 }
    }

    pub fn tokens_per_second(&self) -> f64 {
        self.tokens / self.round
    }

    /// Against plain decoding with the same places.
    pub fn speedup(&self) -> f64 {
        self.tokens_per_second() * self.token
    }
}

impl Placement {
    /// Seconds for so many rows through all parts, or through those that drafts run.
    fn seconds(&self, basis: &Basis, drafting: bool, rows: usize) -> f64 {
        let reading = self.run(drafting).map(|(part, place)| {
            let of_one = match place {
                Place::Vram => {
                    part.gpu_read.of(drafting) / basis.vram.value + part.low_seconds(basis, drafting)
                }
                Place::Ram => part.read.of(drafting) / basis.ram.value,
                // As it lies there, whole.
                Place::File => part.read.of(false) / basis.file.value,
            };
            of_one * part.choice.map_or(1.0, |choice| choice.over_one(rows))
        });
        reading.sum::<f64>() + self.crossings(drafting) as f64 * basis.crossing.value
    }

    /// The parts that a pass runs, or a draft's.
    fn run(&self, drafting: bool) -> impl Iterator<Item = &(UnitSize, Place)> {
        self.parts.iter().filter(move |(part, _)| !drafting || part.drafted)
    }

    /// How often the hidden rows of a pass cross between the processor and a GPU. From one GPU to another they cross twice.
    pub(super) fn crossings(&self, drafting: bool) -> usize {
        let mut devices = Vec::new();
        // Where a pass goes on behind the experts of its layer.
        let mut goes_on = None;
        for (part, place) in self.run(drafting) {
            let here = (*place == Place::Vram).then(|| self.gpu_of(part.unit));
            devices.push(here);
            if part.goes_on {
                goes_on = Some(here);
            } else {
                devices.extend(goes_on.take());
            }
        }
        let ways = |pair: &[Option<usize>]| match pair[0] == pair[1] {
            true => 0,
            false => pair.iter().flatten().count(),
        };
        devices.windows(2).map(ways).sum()
    }

    /// Bytes that a draft step reads elsewhere than in the GPU's memory.
    pub(super) fn drafted_off_gpu(&self) -> u64 {
        let elsewhere = self.run(true).filter(|(_, place)| *place != Place::Vram);
        elsewhere
            .map(|(part, place)| if *place == Place::File { part.read.full } else { part.read.draft })
            .sum()
    }

    /// Tokens a second, with speculation where it pays.
    pub fn rate(&self, basis: &Basis) -> f64 {
        let prediction = self.predict(basis);
        prediction.tokens_per_second().max(1.0 / prediction.token)
    }

    /// Verifying reads weights once, whatever the number of rows; of experts those that some row chose.
    #[doc(hidden)]
    pub fn predict(&self, basis: &Basis) -> Prediction {
        let token = self.seconds(basis, false, 1);
        if !self.parts.iter().any(|(part, _)| part.drafted) {
            return Prediction::plain(token);
        }
        let draft = self.seconds(basis, true, 1);
        let of = |drafted: i32| {
            let tokens = basis.acceptance.tokens(drafted as usize);
            let verification = self.seconds(basis, false, drafted as usize + 1);
            Prediction { token, draft, round: f64::from(drafted) * draft + verification, drafted, tokens }
        };
        let best = |a: &Prediction, b: &Prediction| a.speedup().total_cmp(&b.speedup());
        (1..=MOST_DRAFTED).map(of).max_by(best).expect("some lengths")
    }
}

/// Drafts by high planes alone, which may stand more or less often than others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApartForecast {
    pub prediction: Prediction,
    pub acceptance: Acceptance,
}

/// A placement beside that of whole layers, which knows of no draft.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    pub basis: Basis,
    /// Plain decoding.
    pub plain: Prediction,
    /// With the same places, where anything drafts.
    pub drafting: Option<Prediction>,
    /// With the parts that drafts run in fast memory first.
    pub placed: Option<Prediction>,
    /// With high planes alone on the GPU, where that can be.
    pub apart: Option<ApartForecast>,
    crosses: bool,
}

impl Forecast {
    pub fn new(
        whole_layers: &Placement,
        drafted_first: &Placement,
        apart: Option<&Apart>,
        basis: Basis,
    ) -> Self {
        let drafting = whole_layers.predict(&basis);
        let placed = drafted_first.predict(&basis);
        Forecast {
            basis,
            plain: Prediction::plain(drafting.token),
            drafting: (drafting.drafted > 0).then_some(drafting),
            placed: (placed.drafted > 0).then_some(placed),
            apart: apart.map(|apart| apart.forecast(basis)),
            crosses: apart.is_some() || whole_layers.crossings(false) + drafted_first.crossings(false) > 0,
        }
    }

    /// Tokens a second against plain decoding.
    pub fn gain(&self, of: &Prediction) -> f64 {
        of.tokens_per_second() / self.plain.tokens_per_second()
    }
}

/// A line for each way to run it, and what the figures rest on.
impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
        let mut row = |name: &str, p: &Prediction| {
            let (draft, round) = match p.drafted {
                0 => ("-".into(), "-".into()),
                n => (ms(p.draft), format!("{n} drafted, {}", ms(p.round))),
            };
            let (rate, gain) = (p.tokens_per_second(), self.gain(p));
            writeln!(f, "{name:<28} {:>12} {draft:>12} {round:>24} {rate:>9.2} {gain:>6.2}", ms(p.token))
        };
        row("whole layers, plain", &self.plain)?;
        if let Some(p) = &self.drafting {
            row("whole layers, drafting", p)?;
        }
        if let Some(p) = &self.placed {
            row("what drafts run goes first", p)?;
        }
        if let Some(of) = &self.apart {
            row("low planes in RAM", &of.prediction)?;
        }
        let Basis { vram, ram, file, crossing, acceptance, .. } = self.basis;
        let speed = |k: Known| {
            format!("{:.*} ({})", if k.value < 10e9 { 2 } else { 0 }, k.value / 1e9, k.origin.name())
        };
        write!(f, "by {}, {} and {} GB/s from VRAM, RAM and file", speed(vram), speed(ram), speed(file))?;
        if self.crosses {
            write!(f, ", {} for rows to cross ({})", ms(crossing.value), crossing.origin.name())?;
        }
        if self.placed.is_some() {
            write!(f, ", {acceptance}")?;
        }
        match &self.apart {
            Some(of) if of.acceptance != acceptance => write!(f, ", by high planes {}", of.acceptance),
            _ => Ok(()),
        }
    }
}

/// The names of the columns of a forecast's lines.
pub const COLUMNS: &str =
    "                                    token   draft step                    round     tok/s   gain\n";

#[cfg(test)]
mod tests {
    use super::{
        super::{Budgets, First, Read},
        *,
    };
    use crate::plan::Unit;

    #[test]
    fn drafts_read_the_high_bits_from_memory_and_everything_from_the_file() {
        let part = UnitSize {
            unit: Unit::Mlp(0),
            bytes: 1000,
            gpu_bytes: 1000,
            read: Read { full: 1000, draft: 500 },
            gpu_read: Read { full: 800, draft: 300 },
            work: super::super::RowWork::default(),
            overhead: 0,
            drafted: true,
            choice: None,
            goes_on: false,
            by_planes: None,
            planes_apart: false,
            keys_of: None,
        };
        let [vram, ram, file] = [100.0, 10.0, 1.0].map(Known::given);
        let basis = Basis { vram, ram, file, ..Basis::default() };
        let times = |place| {
            let budgets = Budgets { vram: None, scratch: 0, ram: None };
            let parts = vec![(part, place)];
            let (shares, converted) = (Vec::new(), Vec::new());
            let placement =
                Placement { parts, budgets, shares, converted, first: First::Drafted, choice: None };
            let predicted = placement.predict(&basis);
            (predicted.token, predicted.draft)
        };
        assert_eq!(times(Place::Vram), (8.0, 3.0));
        assert_eq!(times(Place::Ram), (100.0, 50.0));
        assert_eq!(times(Place::File), (1000.0, 1000.0));
    }

    #[test]
    fn what_is_measured_takes_the_place_of_guesses_alone() {
        let guessed = Basis::default().with_measured(7e9, 60e-6);
        assert_eq!((guessed.vram, guessed.crossing), (Known::measured(7e9), Known::measured(30e-6)));
        assert_eq!(guessed.ram, Basis::default().ram);
        let told = Basis { vram: Known::given(1e12), ..Basis::default() }.with_measured(7e9, 60e-6);
        assert_eq!((told.vram, told.crossing), (Known::given(1e12), Known::measured(30e-6)));
    }
}
