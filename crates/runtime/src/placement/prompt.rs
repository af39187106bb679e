//! What a placement is expected to take for the tokens of a prompt, evaluated at once: the CPU multiplies with what lies in
//! RAM, or that is sent to the GPU for it. Of matrices alone, so a bound.

use std::fmt;

use super::{Basis, Place, Placement, Unit, UnitSize};

/// What a token takes of a part, beside reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowWork {
    /// Multiplications.
    pub products: u64,
    /// Bytes that cross for it where the part's weights are sent to the GPU: rounded rows there, products back.
    pub crossing: u64,
}

impl RowWork {
    /// Of a matrix of so many rows and columns, taken so many times.
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

/// Seconds for so many tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromptForecast {
    pub tokens: usize,
    /// Where the CPU multiplies with what lies in RAM, and where that is sent to the GPU.
    pub by_cpu: f64,
    pub streamed: f64,
    pub basis: Basis,
}

impl Placement {
    pub fn prompt(&self, basis: Basis, tokens: usize) -> PromptForecast {
        let [by_cpu, streamed] = [false, true].map(|streams| {
            let inner = self
                .parts
                .iter()
                .filter(|(part, _)| !matches!(part.unit, Unit::Embed | Unit::Head | Unit::Ahead));
            inner.map(|(part, place)| seconds(part, *place, &basis, tokens, streams)).sum()
        });
        PromptForecast { tokens, by_cpu, streamed, basis }
    }
}

fn seconds(part: &UnitSize, place: Place, basis: &Basis, tokens: usize, streams: bool) -> f64 {
    let over_one = part.choice.map_or(1.0, |choice| choice.over_one(tokens));
    let products = part.work.products as f64 * tokens as f64;
    let on_gpu = products / basis.gpu_products.value;
    let on_cpu = |read: f64| (over_one * part.read.of(false) / read).max(products / basis.cpu_products.value);
    // Of experts those cross that some token chose.
    let crossing_share = part.choice.map_or(1.0, |choice| choice.distinct(tokens) / choice.of as f64);
    let from_ram = |bytes: u64, by_cpu: f64| {
        let crossing = bytes as f64 * crossing_share + part.work.crossing as f64 * tokens as f64;
        let streamed = crossing / basis.bus.value + on_gpu;
        if streams { streamed.min(by_cpu) } else { by_cpu }
    };
    match place {
        Place::Vram => {
            let low = match part.low_bytes() {
                0 => 0.0,
                bytes => {
                    from_ram(bytes, (bytes as f64 / basis.ram.value).max(products / basis.cpu_products.value))
                }
            };
            low + on_gpu.max(over_one * part.gpu_read.of(false) / basis.vram.value)
        }
        Place::Ram => from_ram(part.bytes, on_cpu(basis.ram.value)),
        Place::File => on_cpu(basis.file.value),
    }
}

/// A line.
impl fmt::Display for PromptForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PromptForecast { tokens, by_cpu, streamed, basis } = self;
        let of = |known: super::forecast::Known, unit: f64| {
            format!("{:.2} ({})", known.value / unit, known.origin.name())
        };
        write!(
            f,
            "a prompt of {tokens} tokens {by_cpu:.2} s, with what lies in RAM sent to the GPU {streamed:.2} s: by {} GB/s of the bus, {} and {} T multiplications/s of GPU and CPU",
            of(basis.bus, 1e9),
            of(basis.gpu_products, 1e12),
            of(basis.cpu_products, 1e12)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Budgets, PlacementRequest,
            forecast::Known,
            place,
            tests::{basis, model},
        },
        *,
    };
    use crate::plan::Choice;

    /// By hand: two layers in RAM and two in the GPU's memory, of 300 bytes and 3000 multiplications each.
    #[test]
    fn a_prompt_is_sent_where_the_bus_is_faster_than_the_cpu() {
        let parts: Vec<UnitSize> = model(4, None)
            .into_iter()
            .map(|part| UnitSize {
                work: RowWork { products: 10 * part.bytes, crossing: part.bytes / 100 },
                ..part
            })
            .collect();
        let budgets = Budgets { vram: Some(20 + 55 + 620), scratch: 20, ram: None };
        let placed = place(parts, &PlacementRequest::default(), budgets).unwrap();
        let given = |bus, gpu, cpu| Basis {
            bus: Known::given(bus),
            gpu_products: Known::given(gpu),
            cpu_products: Known::given(cpu),
            ..basis([1e9, 1e9, 1.0], 0.0)
        };
        let of = |basis| {
            let said = placed.prompt(basis, 50);
            (said.by_cpu, said.streamed)
        };
        let (gpu, cpu) = (2.0 * 50.0 * 3000.0 / 1000.0, 2.0 * 50.0 * 3000.0 / 10.0);
        // 600 bytes, and 3 for each of 50 tokens and layer.
        let crossing = (600.0 + 2.0 * 50.0 * 3.0) / 3.0;
        let close = |got: (f64, f64), want: (f64, f64)| {
            assert!((got.0 - want.0).abs() + (got.1 - want.1).abs() < 1e-6, "{got:?}, not {want:?}");
        };
        close(of(given(3.0, 1000.0, 10.0)), (gpu + cpu, gpu + gpu + crossing));
        // Over a bus that is slower than the CPU nothing is sent.
        close(of(given(0.001, 1000.0, 10.0)), (gpu + cpu, gpu + cpu));
    }

    /// By hand: of four experts, of which a token takes two, three tokens take 3.5; of 400 bytes 350 cross.
    #[test]
    fn of_experts_those_are_sent_that_tokens_chose() {
        let part = UnitSize {
            bytes: 400,
            work: RowWork { products: 1000, crossing: 10 },
            choice: Some(Choice { of: 4, used: 2 }),
            ..model(1, None)[1]
        };
        let [bus, gpu_products, cpu_products] = [2.0, 1000.0, 10.0].map(Known::given);
        let basis = Basis { bus, gpu_products, cpu_products, ..basis([1e9, 1e9, 1.0], 0.0) };
        let seconds = |streams| seconds(&part, Place::Ram, &basis, 3, streams);
        assert_eq!(seconds(false), 3.0 * 1000.0 / 10.0);
        assert_eq!(seconds(true), (350.0 + 3.0 * 10.0) / 2.0 + 3.0 * 1000.0 / 1000.0);
    }
}
