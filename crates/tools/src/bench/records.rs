//! llama-bench's output: a record for each test, in its columns, as a table, CSV, JSON, JSON lines or SQL.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{report::markdown, throughput::Test};
use crate::provenance::Provenance;

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Markdown,
    Csv,
    Json,
    JsonLines,
    Sql,
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "md" => Format::Markdown,
            "csv" => Format::Csv,
            "json" => Format::Json,
            "jsonl" => Format::JsonLines,
            "sql" => Format::Sql,
            _ => return Err("md, csv, json, jsonl or sql".into()),
        })
    }
}

/// A model with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub device: String,
    /// CPU, or GPU where any of the model is there.
    pub backend: &'static str,
    pub file: String,
    pub model: String,
    pub bytes: u64,
    pub parameters: u64,
    pub n_batch: usize,
    pub n_ubatch: usize,
    pub threads: usize,
    pub type_k: String,
    pub type_v: String,
    /// As asked for with -ngl; -1 where nothing was.
    pub gpu_layers: i64,
    pub provenance: Provenance,
}

/// One test of one setup.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub setup: Setup,
    pub test: Test,
    /// Of each repetition.
    pub seconds: Vec<f64>,
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

/// Of a sample; 0 where there is only one.
fn deviation(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    if samples.len() < 2 { 0.0 } else { (squares / (samples.len() - 1) as f64).sqrt() }
}

impl Record {
    /// Tokens a second, by repetition.
    fn rates(&self) -> Vec<f64> {
        let tokens = (self.test.prompt + self.test.generated) as f64;
        self.seconds.iter().map(|s| tokens / s).collect()
    }

    fn nanoseconds(&self) -> Vec<f64> {
        self.seconds.iter().map(|s| (s * 1e9).round()).collect()
    }

    /// llama-bench's columns, as far as they mean something here.
    fn columns(&self) -> Map<String, Value> {
        let Setup { device, backend, file, model, bytes, parameters, n_batch, n_ubatch, threads, .. } =
            &self.setup;
        let (rates, times) = (self.rates(), self.nanoseconds());
        let columns = json!({
            "build_commit": concat!("spec-run ", env!("CARGO_PKG_VERSION")),
            "cpu_info": device,
            "backends": backend,
            "model_filename": file,
            "model_type": model,
            "model_size": bytes,
            "model_n_params": parameters,
            "n_batch": n_batch,
            "n_ubatch": n_ubatch,
            "n_threads": threads,
            "type_k": self.setup.type_k,
            "type_v": self.setup.type_v,
            "n_gpu_layers": self.setup.gpu_layers,
            "n_prompt": self.test.prompt,
            "n_gen": self.test.generated,
            "n_depth": self.test.depth,
            "avg_ns": mean(&times).round() as u64,
            "stddev_ns": deviation(&times).round() as u64,
            "avg_ts": mean(&rates),
            "stddev_ts": deviation(&rates),
        });
        match columns {
            Value::Object(columns) => columns,
            _ => unreachable!("an object"),
        }
    }

    fn json(&self) -> Value {
        let mut columns = self.columns();
        let whole: Vec<u64> = self.nanoseconds().iter().map(|&ns| ns as u64).collect();
        columns.insert("samples_ns".into(), json!(whole));
        columns.insert("samples_ts".into(), json!(self.rates()));
        columns.insert("provenance".into(), self.setup.provenance.to_json());
        columns.into()
    }
}

/// All records in one text.
pub fn write(records: &[Record], format: Format) -> String {
    match format {
        Format::Markdown => table(records),
        Format::Csv => csv(records),
        Format::Json => {
            let list: Vec<String> = records.iter().map(|record| format!("  {}", record.json())).collect();
            format!("[\n{}\n]\n", list.join(",\n"))
        }
        Format::JsonLines => records.iter().map(|record| format!("{}\n", record.json())).collect(),
        Format::Sql => sql(records),
    }
}

/// A number as it is, a text by `quote`.
fn plain(value: &Value, quote: impl Fn(&str) -> String) -> String {
    value.as_str().map_or_else(|| value.to_string(), quote)
}

fn csv(records: &[Record]) -> String {
    let mut out = String::new();
    for (i, record) in records.iter().enumerate() {
        let columns = record.columns();
        if i == 0 {
            out += &(columns.keys().cloned().collect::<Vec<_>>().join(",") + "\n");
        }
        let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let values: Vec<String> = columns.values().map(|value| plain(value, quote)).collect();
        out += &(values.join(",") + "\n");
    }
    out
}

fn sql(records: &[Record]) -> String {
    let mut out = String::new();
    for (i, record) in records.iter().enumerate() {
        let columns = record.columns();
        if i == 0 {
            let kind = |value: &Value| match value {
                Value::String(_) => "TEXT",
                Value::Number(n) if n.is_f64() => "REAL",
                _ => "INTEGER",
            };
            let fields: Vec<String> =
                columns.iter().map(|(name, value)| format!("  {name} {}", kind(value))).collect();
            let _ = writeln!(out, "CREATE TABLE IF NOT EXISTS llama_bench (\n{}\n);\n", fields.join(",\n"));
        }
        let names: Vec<&str> = columns.keys().map(String::as_str).collect();
        let quote = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let values: Vec<String> = columns.values().map(|value| plain(value, quote)).collect();
        let _ =
            writeln!(out, "INSERT INTO llama_bench ({}) VALUES ({});", names.join(", "), values.join(", "));
    }
    out
}

/// What differs between setups has a column of its own.
fn table(records: &[Record]) -> String {
    type Column = (&'static str, fn(&Record) -> String);
    const ALWAYS: [Column; 5] = [
        ("model", |r| r.setup.model.clone()),
        ("size", |r| format!("{:.2} MiB", r.setup.bytes as f64 / f64::from(1 << 20))),
        ("params", |r| format!("{:.2} M", r.setup.parameters as f64 / 1e6)),
        ("backend", |r| r.setup.backend.into()),
        ("threads", |r| r.setup.threads.to_string()),
    ];
    const IF_DIFFERENT: [Column; 6] = [
        ("file", |r| r.setup.file.clone()),
        ("n_batch", |r| r.setup.n_batch.to_string()),
        ("n_ubatch", |r| r.setup.n_ubatch.to_string()),
        ("type_k", |r| r.setup.type_k.clone()),
        ("type_v", |r| r.setup.type_v.clone()),
        ("ngl", |r| r.setup.gpu_layers.to_string()),
    ];
    const FIGURES: [Column; 2] = [
        ("test", |r| r.test.to_string()),
        ("t/s", |r| {
            let rates = r.rates();
            format!("{:.2} ± {:.2}", mean(&rates), deviation(&rates))
        }),
    ];
    let differs = |(_, of): &&Column| records.iter().any(|record| of(record) != of(&records[0]));
    let columns: Vec<&Column> =
        ALWAYS.iter().chain(IF_DIFFERENT.iter().filter(differs)).chain(&FIGURES).collect();
    let head: Vec<String> = columns.iter().map(|(name, _)| name.to_string()).collect();
    let rows = records.iter().map(|record| columns.iter().map(|(_, of)| of(record)).collect());
    markdown(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let setup = Setup {
            device: "a 'cpu'".into(),
            backend: "CPU",
            file: "m.gguf".into(),
            model: "m \"x\"".into(),
            bytes: 1 << 20,
            parameters: 2_000_000,
            n_batch: 512,
            n_ubatch: 512,
            threads: 2,
            type_k: "f16".into(),
            type_v: "f16".into(),
            gpu_layers: -1,
            provenance: Provenance::example(),
        };
        let test = Test { prompt: 10, generated: 0, depth: 0 };
        let first = Record { setup: setup.clone(), test, seconds: vec![1.0, 2.0] };
        let test = Test { prompt: 0, generated: 4, depth: 8 };
        vec![first, Record { setup: Setup { type_k: "q8_0".into(), ..setup }, test, seconds: vec![0.5] }]
    }

    #[test]
    fn figures_are_means_and_deviations_of_rates() {
        let lines = write(&records(), Format::JsonLines);
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // 10 and 5 tokens a second: 7.5, and half of 5 times the root of 2.
        assert_eq!(lines[0]["avg_ts"].as_f64(), Some(7.5));
        assert!((lines[0]["stddev_ts"].as_f64().unwrap() - 3.535_533_905_932_737_8).abs() < 1e-12);
        assert_eq!(lines[0]["avg_ns"], 1_500_000_000);
        assert_eq!((lines[1]["avg_ts"].as_f64(), lines[1]["stddev_ts"].as_f64()), (Some(8.0), Some(0.0)));
        let whole: Value = serde_json::from_str(&write(&records(), Format::Json)).unwrap();
        assert_eq!(whole[1], lines[1]);
        assert_eq!(lines[0]["provenance"], Provenance::example().to_json());
    }

    #[test]
    fn texts_are_quoted() {
        let csv = write(&records(), Format::Csv);
        assert_eq!(csv.lines().count(), 3);
        assert!(!csv.contains("provenance"), "llama-bench's columns only: {csv}");
        assert!(csv.contains(r#""m ""x""""#), "{csv}");
        let sql = write(&records(), Format::Sql);
        assert!(
            sql.contains("'a ''cpu'''") && sql.contains("avg_ts REAL") && sql.contains("n_gen INTEGER"),
            "{sql}"
        );
        assert_eq!(sql.matches("INSERT INTO").count(), 2);
    }

    #[test]
    fn the_table_shows_what_differs() {
        let table = write(&records(), Format::Markdown);
        assert!(table.contains("type_k") && !table.contains("type_v"), "{table}");
        assert!(
            table.contains("pp10") && table.contains("tg4 @ d8") && table.contains("7.50 ± 3.54"),
            "{table}"
        );
    }
}
