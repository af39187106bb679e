//! The table of a sweep: for people, as CSV and as JSON.

use serde_json::{Value, json};

use crate::{
    eval::sweep::Sweep, provenance::Provenance, quoted::one_line, report::sweep::labels, words::count,
};

/// A line: the label and layers of a mask, and a number for each of [`COLUMNS`]. NaN is what nobody knows.
pub struct Line {
    /// As many as there are columns of labels.
    pub label: Vec<Value>,
    pub layers: String,
    pub values: [f64; COLUMNS.len()],
}

pub struct Table<'a> {
    /// What is swept.
    pub over: &'a str,
    pub sweep: &'a Sweep,
    pub lines: Vec<Line>,
    pub provenance: Provenance,
}

pub struct Column {
    name: &'static str,
    digits: usize,
    meaning: &'static str,
}

const fn column(name: &'static str, digits: usize, meaning: &'static str) -> Column {
    Column { name, digits, meaning }
}

pub const COLUMNS: [Column; 11] = [
    column("ppl", 4, "perplexity under the mask"),
    column("delta_ppl", 4, "that minus the full model's"),
    column(
        "delta_stderr",
        4,
        "standard error of this difference, from chunk to chunk; none of a single chunk",
    ),
    column("agreement", 4, "share of positions where the first choice is the full model's"),
    column("overlap", 4, "chance that sampling accepts a token drawn under the mask"),
    column("kl", 4, "KL divergence from the full model, in nats"),
    column(
        "acceptance",
        4,
        "share of positions where a draft's first token would be accepted; it sees the full model's KV cache",
    ),
    column("cost", 4, "bytes of weights that a pass reads, of the full model's"),
    column("step", 4, "time of a draft step, of a plain decode step's"),
    column(
        "speedup",
        3,
        "predicted for drafts of the best length, by acceptance, step and the time of verification",
    ),
    column("tok_s", 1, "tokens per second that this speedup would give"),
];

/// Each column's name with what it is.
pub fn meanings() -> Vec<(&'static str, &'static str)> {
    COLUMNS.iter().map(|column| (column.name, column.meaning)).collect()
}

impl Table<'_> {
    /// With a line for what each column is.
    pub fn text(&self) -> String {
        let Sweep { full, tokens, chunks, .. } = self.sweep;
        let label = |line: &Line| line.label.iter().map(plain).collect::<Vec<_>>().join("+");
        let width =
            self.lines.iter().map(|l| label(l).chars().count()).max().unwrap_or(0).max(self.over.len() + 1);
        let mut out = format!(
            "full model: perplexity {:.4} +/- {:.5} ({}, {tokens} tokens)\n{:>width$}",
            full.perplexity(*tokens),
            full.standard_error(*tokens),
            count(*chunks, "chunk"),
            self.over,
        );
        let title = |name: &str| match name {
            "delta_stderr" => "+/-".into(),
            name => name.replace("delta_", "Δ "),
        };
        for column in &COLUMNS {
            out += &format!(" {:>10}", title(column.name));
        }
        out += "\n";
        for line in &self.lines {
            out += &format!("{:>width$}", label(line));
            for (value, Column { digits, .. }) in line.values.iter().zip(&COLUMNS) {
                match value.is_finite() {
                    true => out += &format!(" {value:10.digits$}"),
                    false => out += &format!(" {:>10}", "-"),
                }
            }
            out += "\n";
        }
        out += "\n";
        for column in &COLUMNS {
            out += &format!("{}: {}\n", title(column.name), column.meaning);
        }
        out
    }

    /// Comments begin with #, as pandas and gnuplot skip them.
    pub fn csv(&self) -> String {
        let Sweep { full, tokens, .. } = self.sweep;
        let mut out = self.provenance.comments();
        out += &format!(
            "# base_ppl: {}\n# stderr: {}\n",
            full.perplexity(*tokens),
            full.standard_error(*tokens)
        );
        out += &format!("# tokens: {tokens}\n");
        for column in &COLUMNS {
            out += &format!("# column {}: {}\n", column.name, column.meaning);
        }
        let names = COLUMNS.iter().map(|column| column.name);
        let names: Vec<&str> = labels(self.over).into_iter().chain(names).chain(["layers"]).collect();
        out += &(names.join(",") + "\n");
        for line in &self.lines {
            let number = |value: &f64| if value.is_finite() { value.to_string() } else { String::new() };
            let labels = line.label.iter().map(|label| field(&plain(label)));
            let fields: Vec<String> =
                labels.chain(line.values.iter().map(number)).chain([field(&line.layers)]).collect();
            out += &(fields.join(",") + "\n");
        }
        out
    }

    pub fn json(&self) -> Value {
        let Sweep { full, tokens, chunks, .. } = self.sweep;
        let rows = self.lines.iter().map(|line| {
            let labels = labels(self.over).into_iter().zip(&line.label);
            let mut row: Value = labels.map(|(name, label)| (name.to_string(), label.clone())).collect();
            row["layers"] = json!(line.layers);
            for (column, value) in COLUMNS.iter().zip(&line.values) {
                row[column.name] = json!(value);
            }
            row
        });
        json!({
            "base_ppl": full.perplexity(*tokens),
            "stderr": full.standard_error(*tokens),
            "chunks": chunks,
            "tokens": tokens,
            "sweep": self.over,
            "rows": rows.collect::<Vec<_>>(),
            "provenance": self.provenance.to_json(),
        })
    }
}

fn plain(label: &Value) -> String {
    match label {
        Value::String(name) => one_line(name, 60),
        other => other.to_string(),
    }
}

fn field(text: &str) -> String {
    match text.contains([',', '"', '#', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(field("bold 2"), "bold 2");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("a#b"), "\"a#b\"");
    }
}
