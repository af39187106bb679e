//! How long a pass of some rows takes. Each part takes as long as reading its weights or computing with them, whichever is
//! longer. The CPU multiplies with matrices that are in RAM, or they are sent to the GPU where that is faster.

use super::{Basis, Place, Placement, Unit, UnitSize};

/// From so many rows on weights in RAM may be sent to the GPU.
pub use crate::backend::cpu::LEAST_OFFLOADED;

/// The work of one row in a part, in addition to reading the part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowWork {
    /// Multiplications.
    pub products: u64,
    /// Bytes that are transferred for the row where the weights are sent to the GPU: rounded rows to it, products back.
    pub crossing: u64,
}

impl RowWork {
    /// With a matrix of so many rows and columns, used so many times.
    pub fn of(rows: usize, cols: usize, times: usize) -> Self {
        RowWork {
            products: (rows * cols * times) as u64,
            crossing: ((4 * rows + cols * 3 / 2) * times) as u64,
        }
    }

    pub fn and(self, other: RowWork) -> Self {
        RowWork { products: self.products + other.products, crossing: self.crossing + other.crossing }
    }
}

/// The properties of a pass that its time depends on.
#[derive(Clone, Copy, Debug)]
pub struct PassShape {
    pub rows: usize,
    /// It runs only what drafts run.
    pub drafting: bool,
    /// Weights in RAM may be sent to the GPU.
    pub streams: bool,
}

/// Seconds, by what is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassTime {
    /// Its memory or its arithmetic.
    pub gpu: f64,
    /// Reading it.
    pub ram: f64,
    pub file: f64,
    /// The processor's arithmetic.
    pub cpu: f64,
    /// Weights on their way from RAM to the GPU.
    pub bus: f64,
    /// Rows that cross between processor and GPU.
    pub crossing: f64,
}

impl PassTime {
    pub fn total(&self) -> f64 {
        self.named().iter().map(|(_, seconds)| seconds).sum()
    }

    /// With words for what is waited for.
    pub fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("the GPU", self.gpu),
            ("RAM", self.ram),
            ("the file", self.file),
            ("the CPU's arithmetic", self.cpu),
            ("the bus", self.bus),
            ("rows to cross", self.crossing),
        ]
    }

    fn and(self, other: PassTime) -> Self {
        PassTime {
            gpu: self.gpu + other.gpu,
            ram: self.ram + other.ram,
            file: self.file + other.file,
            cpu: self.cpu + other.cpu,
            bus: self.bus + other.bus,
            crossing: self.crossing + other.crossing,
        }
    }
}

impl Placement {
    /// The time of all parts, or of those that drafts run.
    pub(super) fn pass_time(&self, basis: &Basis, drafting: bool, rows: usize) -> PassTime {
        let streams = rows >= LEAST_OFFLOADED && self.uses(Place::Vram);
        let pass = PassShape { rows, drafting, streams };
        let parts = self.run(drafting).map(|(part, place)| part_time(part, *place, basis, pass));
        let crossing = self.crossings(drafting) as f64 * basis.crossing.value;
        parts.fold(PassTime { crossing, ..PassTime::default() }, PassTime::and)
    }
}

/// The time of a part that is in this place.
pub fn part_time(part: &UnitSize, place: Place, basis: &Basis, pass: PassShape) -> PassTime {
    let PassShape { rows, drafting, .. } = pass;
    let over_one = part.choice.map_or(1.0, |choice| choice.over_one(rows));
    let products = match part.unit {
        // The embedding reads a row of a table; the head that predicts one token more is not part of a pass.
        Unit::Embed | Unit::Mtp => 0.0,
        _ => part.work.products as f64 * rows as f64,
    };
    let on_cpu = Product { products, basis, pass };
    match place {
        Place::Vram => {
            let reading = over_one * part.gpu_read.of(drafting) / basis.vram.value;
            let gpu = reading.max(products / basis.gpu_products.value);
            let low = part.low_planes(drafting).map_or(PassTime::default(), |low| {
                let crossing = 2.0 * low.products as f64 * basis.crossing.value;
                let sums = on_cpu.with(part, low.low_bytes as f64 / basis.ram.value, low.low_bytes);
                PassTime { crossing: sums.crossing + crossing, ..sums }
            });
            PassTime { gpu, ..PassTime::default() }.and(low)
        }
        Place::Ram => on_cpu.with(part, over_one * part.read.of(drafting) / basis.ram.value, part.bytes),
        // The file has low and high planes together.
        Place::File => {
            let reading = over_one * part.read.of(false) / basis.file.value;
            on_cpu.here(PassTime { file: reading, ..PassTime::default() })
        }
    }
}

/// Multiplications with weights in RAM or in the file.
struct Product<'a> {
    products: f64,
    basis: &'a Basis,
    pass: PassShape,
}

impl Product<'_> {
    /// By the CPU, which takes so long to read.
    fn here(&self, reading: PassTime) -> PassTime {
        let arithmetic = self.products / self.basis.cpu_products.value;
        match arithmetic > reading.total() {
            true => PassTime { cpu: arithmetic, ..PassTime::default() },
            false => reading,
        }
    }

    /// By the CPU, which takes `reading` seconds to read, or by the GPU, to which so many bytes are sent.
    fn with(&self, part: &UnitSize, reading: f64, bytes: u64) -> PassTime {
        let PassShape { rows, drafting, streams } = self.pass;
        let here = self.here(PassTime { ram: reading, ..PassTime::default() });
        // Of experts those are sent that some row chose. Passes that read the high bits alone never send weights.
        let share = part.choice.map_or(1.0, |choice| choice.distinct(rows) / choice.of as f64);
        let crossing = bytes as f64 * share + part.work.crossing as f64 * rows as f64;
        let there = PassTime {
            bus: crossing / self.basis.bus.value,
            gpu: self.products / self.basis.gpu_products.value,
            ..PassTime::default()
        };
        if streams && !drafting && there.total() < here.total() { there } else { here }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            ByPlanes, HighBits, PerHighBits, Read,
            forecast::Known,
            tests::{basis, model},
        },
        *,
    };

    /// 200 bytes and 4000 multiplications a row.
    fn part() -> UnitSize {
        UnitSize { work: RowWork { products: 4000, crossing: 2 }, ..model(1, None)[2] }
    }

    fn slow_cpu() -> Basis {
        let [bus, gpu_products, cpu_products] = [5.0, 1000.0, 200.0].map(Known::given);
        Basis { bus, gpu_products, cpu_products, ..basis([100.0, 10.0, 1.0], 0.5) }
    }

    fn pass(rows: usize) -> PassShape {
        PassShape { rows, drafting: false, streams: true }
    }

    /// By hand: 20 seconds to read from RAM, and 20 of arithmetic a row; over the bus 40, 0.4 and 4 a row.
    #[test]
    fn a_row_more_is_free_only_as_long_as_memory_is_what_it_waits_for() {
        let time = |rows| part_time(&part(), Place::Ram, &slow_cpu(), pass(rows));
        assert_eq!(time(1), PassTime { ram: 20.0, ..PassTime::default() });
        assert_eq!(time(2), PassTime { cpu: 40.0, ..PassTime::default() });
        let sent = time(4);
        assert_eq!((sent.cpu, sent.gpu), (0.0, 16.0));
        assert!((sent.bus - 41.6).abs() < 1e-9, "{sent:?}");
        let here = part_time(&part(), Place::Ram, &slow_cpu(), PassShape { streams: false, ..pass(4) });
        assert_eq!(here.total(), 80.0);
        // 2 seconds to read from the GPU's memory, 4 of its arithmetic a row; 200 from the file.
        assert_eq!(part_time(&part(), Place::Vram, &slow_cpu(), pass(3)).total(), 12.0);
        assert_eq!(part_time(&part(), Place::File, &slow_cpu(), pass(3)).file, 200.0);
    }

    /// By hand: a row of a draft reads 60 bytes on the GPU; in full 60 there and 100 of RAM, and two products cross.
    #[test]
    fn low_planes_are_read_by_passes_in_full() {
        let part = UnitSize {
            by_planes: Some(PerHighBits::same(ByPlanes {
                gpu_bytes: 60,
                gpu_read: 60,
                low_bytes: 100,
                products: 2,
                coarse: true,
            })),
            gpu_read: Read { full: 60, draft: 60 },
            work: RowWork::default(),
            planes_apart: Some(HighBits::Most),
            ..part()
        };
        let time = |drafting| part_time(&part, Place::Vram, &slow_cpu(), PassShape { drafting, ..pass(1) });
        assert_eq!(time(true), PassTime { gpu: 0.6, ..PassTime::default() });
        assert_eq!(time(false), PassTime { gpu: 0.6, ram: 10.0, crossing: 2.0, ..PassTime::default() });
    }
}
