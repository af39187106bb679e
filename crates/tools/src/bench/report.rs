//! What was measured, as figures, as a table and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{BenchSettings, Case};
use crate::{RunLayers, measure::stats::Spread, provenance::Provenance};

/// One configuration's samples; times are in seconds, the i-th sample of every case is of the i-th round.
#[derive(Clone, Debug)]
pub struct Report {
    pub model: String,
    pub file: String,
    pub device: String,
    pub threads: usize,
    pub mask: Option<RunLayers>,
    /// The share of a full step's weight bytes that a masked step reads.
    pub mask_bytes: Option<f64>,
    /// Weight bytes that one token's pass reads.
    pub token_bytes: u64,
    /// Bytes of one read of the memory.
    pub memory_bytes: usize,
    /// Bytes that the GPU reads of its memory in a second, where all weights lie there.
    pub gpu_read: Option<f64>,
    pub settings: BenchSettings,
    pub samples: Vec<(Case, Vec<f64>)>,
    pub load: Vec<f64>,
    /// The first token after loading, which brings in what loading left for later.
    pub first_pass: Vec<f64>,
    pub resident: Option<u64>,
    pub provenance: Provenance,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    pub unit: &'static str,
    pub samples: Vec<f64>,
    pub note: String,
}

impl Report {
    pub fn seconds(&self, case: Case) -> Option<&[f64]> {
        self.samples.iter().find(|(c, _)| *c == case).map(|(_, samples)| samples.as_slice())
    }

    fn per_second(&self, case: Case, amount: f64) -> Vec<f64> {
        self.seconds(case).unwrap_or_default().iter().map(|s| amount / s).collect()
    }

    fn milliseconds(&self, case: Case) -> Vec<f64> {
        self.seconds(case).unwrap_or_default().iter().map(|s| s * 1e3).collect()
    }

    /// GB/s of the memory that holds the weights, round by round: the best read of each round. A GPU's was measured once.
    fn memory_rates(&self) -> Vec<f64> {
        let reads = self.per_second(Case::Memory, self.memory_bytes as f64 / 1e9);
        match self.gpu_read {
            Some(read) => vec![read / 1e9; reads.len()],
            None => reads,
        }
    }

    fn weight_rates(&self, depth: usize) -> Vec<f64> {
        self.per_second(Case::Decode { depth }, self.token_bytes as f64 / 1e9)
    }

    /// Of a step under the mask to a full one of the same round, at the same depth.
    pub fn draft_cost(&self) -> Option<Spread> {
        Some(Spread::of_ratios(self.seconds(Case::Draft)?, self.seconds(Case::Rows { n: 1 })?))
    }

    fn row_counts(&self) -> impl Iterator<Item = usize> {
        1..=self.settings.rows
    }

    fn row_ratio(&self, n: usize) -> Spread {
        Spread::of_ratios(&self.milliseconds(Case::Rows { n }), &self.milliseconds(Case::Rows { n: 1 }))
    }

    pub fn figures(&self) -> Vec<Figure> {
        let figure = |name: String, unit, samples, note| Figure { name, unit, samples, note };
        let scaled = |samples: &[f64], by: f64| samples.iter().map(|s| s * by).collect();
        let mut out = Vec::new();
        for &n in &self.settings.prefill {
            out.push(figure(
                format!("prefill {n}"),
                "tok/s",
                self.per_second(Case::Prefill { n }, n as f64),
                String::new(),
            ));
        }
        let memory = self.memory_rates();
        for &depth in &self.settings.depths {
            let weights = self.weight_rates(depth);
            let whose = if self.gpu_read.is_some() { "the GPU's memory" } else { "the memory" };
            let note = format!(
                "{:.1} GB/s of weights, {:.2} of {whose}",
                Spread::of(&weights).median,
                Spread::of_ratios(&weights, &memory).median
            );
            out.push(figure(
                format!("decode at {depth}"),
                "tok/s",
                self.per_second(Case::Decode { depth }, 1.0),
                note,
            ));
        }
        out.push(figure("memory read".into(), "GB/s", memory, String::new()));
        if let (Some(cost), Some(mask)) = (self.draft_cost(), &self.mask) {
            let note = format!(
                "{:.3} of T(1), for {:.3} of the bytes; {mask}",
                cost.median,
                self.mask_bytes.unwrap_or(1.0)
            );
            out.push(figure("draft step".into(), "ms", self.milliseconds(Case::Draft), note));
        }
        for n in self.row_counts() {
            let note = format!("{:.2} of T(1)", self.row_ratio(n).median);
            out.push(figure(format!("T({n})"), "ms", self.milliseconds(Case::Rows { n }), note));
        }
        out.push(figure("load".into(), "ms", scaled(&self.load, 1e3), String::new()));
        out.push(figure("first token".into(), "ms", scaled(&self.first_pass, 1e3), String::new()));
        if let Some(bytes) = self.resident {
            out.push(figure("resident".into(), "MB", vec![bytes as f64 / 1e6], String::new()));
        }
        out
    }

    pub fn headline(&self) -> String {
        format!(
            "{}: {}; {:.1} MB of weights a token; T(n) after {} tokens; {} rounds",
            self.model,
            self.device,
            self.token_bytes as f64 / 1e6,
            self.settings.rows_depth,
            self.rounds()
        )
    }

    /// Complete ones; fewer than asked for if it was interrupted.
    pub fn rounds(&self) -> usize {
        self.samples.first().map_or(0, |(_, samples)| samples.len())
    }

    pub fn table(&self) -> String {
        let mut rows = vec![["test", "median", "min", "max", "unit", ""].map(String::from)];
        for figure in self.figures() {
            let s = Spread::of(&figure.samples);
            let [median, min, max] = [s.median, s.min, s.max].map(three_digits);
            rows.push([figure.name, median, min, max, figure.unit.into(), figure.note]);
        }
        markdown(&rows)
    }

    /// This one beside a second: the quotient of each figure, first over second.
    pub fn table_of_ratios(&self, second: &Report) -> String {
        let head = ["test", "first", "second", "unit", "first / second", "min", "max"];
        let mut rows = vec![head.map(String::from)];
        for (a, b) in pairs(self, second) {
            let ratio = Spread::of_ratios(&a.samples, &b.samples);
            let median = |figure: &Figure| three_digits(Spread::of(&figure.samples).median);
            let [ratio, min, max] = [ratio.median, ratio.min, ratio.max].map(|r| format!("{r:.3}"));
            rows.push([a.name.clone(), median(&a), median(&b), a.unit.into(), ratio, min, max]);
        }
        markdown(&rows)
    }

    pub fn json(&self) -> Value {
        let of = |samples: &[f64], key: &str| {
            let s = Spread::of(samples);
            json!({key: s.median, "min": s.min, "max": s.max})
        };
        let with = |name: &str, value: Value, rest: Value| {
            let mut all = json!({name: value});
            merge(&mut all, rest);
            all
        };
        let memory = self.memory_rates();
        let peak = Spread::of(&memory);
        let decode = |depth: usize| {
            let weights = self.weight_rates(depth);
            let gb_s = Spread::of(&weights).median;
            let share = Spread::of_ratios(&weights, &memory);
            let mut all = of(&self.per_second(Case::Decode { depth }, 1.0), "tok_s");
            merge(
                &mut all,
                json!({
                    "gb_s": gb_s,
                    "peak_gb_s": peak.median, "peak_min": peak.min, "peak_max": peak.max,
                    "share": share.median, "share_min": share.min, "share_max": share.max,
                }),
            );
            all
        };
        let prefill =
            |&n: &usize| with("n", json!(n), of(&self.per_second(Case::Prefill { n }, n as f64), "tok_s"));
        let curve = self.row_counts().map(|n| {
            let mut row = with("n", json!(n), of(&self.milliseconds(Case::Rows { n }), "ms"));
            row["ratio"] = json!(self.row_ratio(n).median);
            row
        });
        let milliseconds = |samples: &[f64]| of(&samples.iter().map(|s| s * 1e3).collect::<Vec<_>>(), "ms");
        let cost = self.draft_cost();
        json!({
            "model": self.model,
            "file": self.file,
            "device": self.device,
            "threads": self.threads,
            "rounds": self.rounds(),
            "token_bytes": self.token_bytes,
            "prefill": self.settings.prefill.iter().map(prefill).collect::<Vec<_>>(),
            "decode": self.settings.depths.first().map(|&depth| decode(depth)),
            "decode_at": self.settings.depths.iter().map(|&d| with("depth", json!(d), decode(d))).collect::<Vec<_>>(),
            "curve": curve.collect::<Vec<_>>(),
            "curve_depth": self.settings.rows_depth,
            "draft_cost": cost.map(|c| c.median),
            "draft": cost.zip(self.mask.as_ref()).map(|(cost, mask)| json!({
                "mask": mask.to_string(),
                "bytes": self.mask_bytes,
                "cost_min": cost.min,
                "cost_max": cost.max,
            })),
            "load_ms": Spread::of(&self.load).median * 1e3,
            "load": milliseconds(&self.load),
            "first_token": milliseconds(&self.first_pass),
            "rss_mb": self.resident.map(|bytes| bytes as f64 / 1e6),
            "provenance": self.provenance.to_json(),
        })
    }

    /// The quotient of each figure, first over second.
    pub fn ratios_json(&self, second: &Report) -> Value {
        let ratio = |(a, b): (Figure, Figure)| {
            let r = Spread::of_ratios(&a.samples, &b.samples);
            json!({"test": a.name, "unit": a.unit, "ratio": r.median, "min": r.min, "max": r.max})
        };
        pairs(self, second).map(ratio).collect()
    }
}

/// The figures that both have.
fn pairs(first: &Report, second: &Report) -> impl Iterator<Item = (Figure, Figure)> {
    let mut others = second.figures();
    first.figures().into_iter().filter_map(move |a| {
        let at = others.iter().position(|b| b.name == a.name)?;
        Some((a, others.remove(at)))
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn three_digits(x: f64) -> String {
    let decimals = match x.abs() {
        x if x >= 1000.0 => 0,
        x if x >= 100.0 => 1,
        x if x >= 10.0 => 2,
        _ => 3,
    };
    format!("{x:.decimals$}")
}

/// A table that reads well as it is and as Markdown; numbers stand to the right.
pub(super) fn markdown<R: AsRef<[String]>>(rows: &[R]) -> String {
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    let rows: Vec<&[String]> = rows.iter().map(AsRef::as_ref).collect();
    let columns = rows.first().map_or(0, |row| row.len());
    let width = |c: usize| rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0).max(2);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let right: Vec<bool> = (0..columns).map(|c| rows.get(1).is_some_and(|row| is_number(&row[c]))).collect();
    let mut out = String::new();
    for (r, row) in rows.iter().enumerate() {
        out.push('|');
        for c in 0..columns {
            let _ = match right[c] {
                true => write!(out, " {:>1$} |", row[c], widths[c]),
                false => write!(out, " {:<1$} |", row[c], widths[c]),
            };
        }
        out.push('\n');
        if r == 0 {
            out.push('|');
            for c in 0..columns {
                let line = "-".repeat(widths[c] + 1);
                out += &if right[c] { format!("{line}:|") } else { format!(":{line}|") };
            }
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut settings = BenchSettings::new(64, vec![32], vec![0], 128);
        settings.rows = 2;
        Report {
            model: "m".into(),
            file: "f".into(),
            device: "d".into(),
            threads: 1,
            mask: Some(RunLayers::all(2).skip_mlp(1)),
            mask_bytes: Some(0.5),
            token_bytes: 2_000_000_000,
            memory_bytes: 1_000_000_000,
            gpu_read: None,
            settings,
            samples: vec![
                (Case::Memory, vec![0.05, 0.04, 0.05]),
                (Case::Decode { depth: 0 }, vec![0.2, 0.1, 0.125]),
                (Case::Draft, vec![0.06, 0.05, 0.12]),
                (Case::Rows { n: 1 }, vec![0.1, 0.1, 0.2]),
                (Case::Rows { n: 2 }, vec![0.15, 0.11, 0.25]),
                (Case::Prefill { n: 32 }, vec![0.5, 1.0, 2.0]),
            ],
            load: vec![0.003, 0.001, 0.002],
            first_pass: vec![0.5],
            resident: Some(7_000_000),
            provenance: Provenance::example(),
        }
    }

    #[test]
    fn the_keys_hold_what_the_samples_say() {
        let close = |value: &Value, expected: f64| {
            let value = value.as_f64().unwrap();
            assert!((value - expected).abs() < 1e-9, "{value} for {expected}");
        };
        let json = report().json();
        close(&json["prefill"][0]["tok_s"], 32.0);
        close(&json["decode"]["tok_s"], 8.0);
        close(&json["decode"]["min"], 5.0);
        close(&json["decode"]["max"], 10.0);
        close(&json["decode"]["gb_s"], 16.0);
        close(&json["decode"]["peak_gb_s"], 20.0);
        // 10/20, 20/25 and 16/20.
        close(&json["decode"]["share"], 0.8);
        close(&json["curve"][1]["ms"], 150.0);
        // 1.5, 1.1 and 1.25.
        close(&json["curve"][1]["ratio"], 1.25);
        close(&json["draft_cost"], 0.6);
        close(&json["load_ms"], 2.0);
        // On a GPU it is that memory's speed which counts: 10, 20 and 16 of 40.
        let on_gpu = Report { gpu_read: Some(40e9), ..report() };
        close(&on_gpu.json()["decode"]["share"], 0.4);
        close(&on_gpu.json()["decode"]["peak_gb_s"], 40.0);
        assert!(on_gpu.table().contains("0.40 of the GPU's memory"), "{}", on_gpu.table());
        close(&json["rss_mb"], 7.0);
    }

    #[test]
    fn ratios_are_first_over_second_in_pairs() {
        let first = report();
        let mut second = report();
        second.samples[1].1 = vec![0.4, 0.2, 0.5];
        let ratios = first.ratios_json(&second);
        let decode = ratios.as_array().unwrap().iter().find(|r| r["test"] == "decode at 0").unwrap();
        assert_eq!((decode["ratio"].as_f64(), decode["max"].as_f64()), (Some(2.0), Some(4.0)));
    }

    #[test]
    fn a_table_is_markdown() {
        let rows = [["a", "n"], ["bcd", "1.5"]].map(|r| r.map(String::from));
        assert_eq!(markdown(&rows), "| a   |   n |\n|:----|----:|\n| bcd | 1.5 |\n");
    }
}
