//! How long the tokens of a prompt are expected to take, all at once: the CPU multiplies with matrices in RAM, or they are
//! sent to the GPU. Only products with matrices are counted, so it is a lower bound.

use std::fmt;

use super::{
    Basis, Placement, Unit,
    pass::{PassShape, part_time},
};

/// Seconds for so many tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromptForecast {
    pub tokens: usize,
    /// If the CPU multiplies with matrices in RAM, and if they are sent to the GPU.
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
                .filter(|(part, _)| !matches!(part.unit, Unit::Embed | Unit::Head | Unit::Mtp));
            let pass = PassShape { rows: tokens, drafting: false, streams };
            inner.map(|(part, place)| part_time(part, *place, &basis, pass).total()).sum()
        });
        PromptForecast { tokens, by_cpu, streamed, basis }
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
            Budgets, Place, PlacementRequest, RowWork, UnitSize,
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
            let forecast = placed.prompt(basis, 50);
            (forecast.by_cpu, forecast.streamed)
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
        let seconds = |streams| {
            let pass = PassShape { rows: 3, drafting: false, streams };
            part_time(&part, Place::Ram, &basis, pass).total()
        };
        assert_eq!(seconds(false), 3.0 * 1000.0 / 10.0);
        assert_eq!(seconds(true), (350.0 + 3.0 * 10.0) / 2.0 + 3.0 * 1000.0 / 1000.0);
    }
}
