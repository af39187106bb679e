//! The speed that placements are expected to give, and the figures that this is computed from. Only the time of reading weights
//! and multiplying with them is counted, so it is an upper bound on speed; a close one where memory is the limit.

use std::fmt;

use super::{Acceptance, Apart, HeadForecast, HighBits, Place, Placement, UnitSize};
pub use super::{heads::HeadKind, rounds::Prediction};

/// A number, and its origin.
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
    /// By those who made it.
    Published(&'static str),
    Assumed,
}

impl Known {
    pub const fn measured(value: f64) -> Self {
        Known { value, origin: Origin::Measured }
    }

    pub const fn given(value: f64) -> Self {
        Known { value, origin: Origin::Given }
    }

    pub const fn assumed(value: f64) -> Self {
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
            Origin::Published(what) => format!("published for {what}"),
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
    /// The same of drafts that read two bits of all weights.
    pub by_two_bits: Acceptance,
}

impl Default for Basis {
    /// A card of the upper middle on sixteen lanes of PCIe 4, two channels of DDR5 and eight cores, a good SSD. A core makes 0.08e12
    /// multiplications a second with AVX2 and 0.17e12 with AVX-512 (BENCHMARKS.md, prompts of 512 tokens).
    fn default() -> Self {
        Basis {
            vram: Known::assumed(500e9),
            ram: Known::assumed(50e9),
            file: Known::assumed(3e9),
            crossing: Known::assumed(100e-6),
            bus: Known::assumed(12e9),
            gpu_products: Known::assumed(5e12),
            cpu_products: Known::assumed(0.8e12),
            acceptance: Acceptance::new(&[0.75], Origin::Assumed),
            by_two_bits: Acceptance::new(&[0.7], Origin::Assumed),
        }
    }
}

impl Basis {
    /// With measured numbers of a GPU in place of guesses: the bytes that it reads in a second, and the seconds of a round trip,
    /// which is two crossings.
    pub fn with_measured(self, read: f64, round_trip: f64) -> Self {
        let known = |known: Known, value| match known.origin {
            Origin::Assumed => Known::measured(value),
            _ => known,
        };
        let (vram, crossing) = (known(self.vram, read), known(self.crossing, round_trip / 2.0));
        Basis { vram, crossing, ..self }
    }

    /// For drafts that read so many high bits of weights whose low planes are in RAM.
    pub fn of_drafts_by(self, high: HighBits) -> Self {
        match high {
            HighBits::Most => self,
            HighBits::Two => Basis { acceptance: self.by_two_bits, ..self },
        }
    }
}

impl Placement {
    /// The parts that a pass runs, or a draft's.
    pub(super) fn run(&self, drafting: bool) -> impl Iterator<Item = &(UnitSize, Place)> {
        self.parts.iter().filter(move |(part, _)| !drafting || part.drafted)
    }

    /// How often the hidden rows of a pass cross between the processor and a GPU. From one GPU to another they cross twice.
    pub(super) fn crossings(&self, drafting: bool) -> usize {
        let mut devices = Vec::new();
        // Where a pass goes on after the experts of its layer.
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

    /// Whether drafts run any part.
    pub(super) fn drafts(&self) -> bool {
        self.parts.iter().any(|(part, _)| part.drafted)
    }
}

/// Drafts by high planes alone, which may be accepted more or less often than others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApartForecast {
    pub prediction: Prediction,
    pub high: HighBits,
    pub acceptance: Acceptance,
}

/// The forecasts of several ways to run a model, next to each other.
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
    /// With heads that the model may get.
    pub heads: Vec<HeadForecast>,
    crosses: bool,
}

/// A way to run a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    pub name: String,
    pub prediction: Prediction,
}

impl Forecast {
    pub fn new(
        whole_layers: &Placement,
        drafted_first: &Placement,
        apart: Option<&Apart>,
        heads: Vec<HeadForecast>,
        basis: Basis,
    ) -> Self {
        let drafts = |of: &Placement| of.drafts().then(|| of.predict(&basis));
        Forecast {
            basis,
            plain: Prediction::plain(whole_layers.pass_time(&basis, false, 1)),
            drafting: drafts(whole_layers),
            placed: drafts(drafted_first),
            apart: apart.map(|apart| apart.forecast(basis)),
            heads,
            crosses: apart.is_some() || whole_layers.crossings(false) + drafted_first.crossings(false) > 0,
        }
    }

    /// Tokens a second against plain decoding.
    pub fn gain(&self, of: &Prediction) -> f64 {
        of.tokens_per_second() / self.plain.tokens_per_second()
    }

    /// All of them, plain decoding first.
    pub fn ways(&self) -> Vec<Way> {
        let way = |name: String, prediction: Prediction| Way { name, prediction };
        let mut all = vec![way("whole layers, plain".into(), self.plain)];
        all.extend(self.drafting.map(|of| way("whole layers, drafting".into(), of)));
        all.extend(self.placed.map(|of| way("what drafts run goes first".into(), of)));
        let name = |high| match high {
            HighBits::Most => "low planes in RAM",
            HighBits::Two => "all but two bits in RAM",
        };
        all.extend(self.apart.map(|of| way(name(of.high).into(), of.prediction)));
        for head in &self.heads {
            all.push(way(format!("{} alone", head.kind.name()), head.alone));
            all.extend(head.in_steps.map(|of| way(format!("{}, high planes", head.kind.name()), of)));
        }
        all
    }

    /// The fastest, and what its rounds wait for.
    fn fastest(&self) -> String {
        let ways = self.ways();
        let rate = |way: &&Way| way.prediction.tokens_per_second();
        let Way { name, prediction } =
            ways.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))).expect("plain decoding is one");
        let drafting = prediction.drafted as f64 * prediction.draft;
        let all = std::iter::once(("drafts", drafting)).chain(prediction.verification.named());
        // What takes less than a hundredth of the time is not worth mentioning.
        let mut waits: Vec<_> = all.filter(|(_, seconds)| *seconds > 0.01 * prediction.round).collect();
        waits.sort_by(|a, b| b.1.total_cmp(&a.1));
        let waits: Vec<String> =
            waits.into_iter().map(|(what, seconds)| format!("{what} {:.1} ms", 1e3 * seconds)).collect();
        let tokens = match prediction.drafted {
            0 => "a token waits".into(),
            _ => format!("a round gives {:.2} tokens and waits", prediction.tokens),
        };
        format!("the fastest is {name}: {tokens} for {}", waits.join(", "))
    }
}

/// A line for each way to run it, and what the figures rest on.
impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
        for Way { name, prediction: p } in self.ways() {
            let (draft, round) = match p.drafted {
                0 => ("-".into(), "-".into()),
                n => (ms(p.draft), format!("{n} drafted, {}", ms(p.round))),
            };
            let (rate, gain) = (p.tokens_per_second(), self.gain(&p));
            writeln!(f, "{name:<28} {:>12} {draft:>12} {round:>24} {rate:>9.2} {gain:>6.2}", ms(p.token))?;
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
            Some(of) if of.acceptance != acceptance => write!(f, ", by high planes {}", of.acceptance)?,
            _ => {}
        }
        for head in &self.heads {
            write!(f, ", by {} {}", head.kind.name(), head.acceptance)?;
        }
        write!(f, "\n{}", self.fastest())
    }
}

/// The names of the columns of a forecast's lines.
pub const COLUMNS: &str =
    "                                    token   draft step                    round     tok/s   gain\n";

#[cfg(test)]
mod tests {
    use super::{
        super::{Budgets, First, Read, tests},
        *,
    };

    #[test]
    fn drafts_read_the_high_bits_from_memory_and_everything_from_the_file() {
        let part = UnitSize {
            bytes: 1000,
            read: Read { full: 1000, draft: 500 },
            gpu_read: Read { full: 800, draft: 300 },
            drafted: true,
            ..tests::model(1, None)[2]
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
