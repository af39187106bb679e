//! A sweep as its picture has it, whichever file it comes from.

/// Which mask a row is of.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// A layer, or how many of something.
    Number(f64),
    /// The layer whose attention is left out, and the one whose MLP is.
    Pair(usize, usize),
    Name(String),
}

impl Label {
    pub fn text(&self) -> String {
        match self {
            Label::Number(n) => n.to_string(),
            Label::Pair(attn, mlp) => format!("attention {attn}, MLP {mlp}"),
            Label::Name(name) => name.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    pub label: Label,
    /// In words.
    pub layers: String,
    /// As the columns; NaN is what nobody knows.
    pub values: Vec<f64>,
}

/// One sweep.
#[derive(Clone, Debug)]
pub struct Run {
    /// Of a model or a file: what tells it from others in a picture.
    pub name: String,
    pub model: Option<String>,
    /// What its labels are.
    pub over: String,
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
    /// Positions that each share is of, if that is known.
    pub tokens: Option<f64>,
    pub base_ppl: Option<f64>,
    /// Where it comes from.
    pub about: Vec<(String, String)>,
}

/// A number and the error bar around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    pub value: f64,
    /// One standard error, if there is one.
    pub error: Option<f64>,
}

impl Run {
    pub fn value(&self, row: &Row, column: &str) -> Option<f64> {
        let at = self.columns.iter().position(|name| name == column)?;
        row.values.get(at).copied().filter(|value| value.is_finite())
    }

    /// A number with what is known of its error.
    pub fn known(&self, row: &Row, column: &str) -> Option<Known> {
        let value = self.value(row, column)?;
        let error = match column {
            "delta_ppl" => self.value(row, "delta_stderr"),
            // Of that many positions, were each by itself; neighbours are alike, so it is the least that it may be.
            "agreement" | "acceptance" if (0.0..=1.0).contains(&value) => {
                self.tokens.filter(|&n| n > 0.0).map(|n| (value * (1.0 - value) / n).sqrt())
            }
            _ => None,
        };
        Some(Known { value, error })
    }

    /// Whether any row has the number.
    pub fn has(&self, column: &str) -> bool {
        self.rows.iter().any(|row| self.value(row, column).is_some())
    }

    /// Whether there is anything to draw.
    pub fn has_marks(&self) -> bool {
        ["delta_ppl", "agreement", "acceptance", "speedup", "measured"].iter().any(|column| self.has(column))
    }

    /// What is known of it under this name.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.about.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn is_interrupted(&self) -> bool {
        self.property("interrupted") == Some("true")
    }
}

impl Known {
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.error.map(|error| (self.value - error, self.value + error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_what_was_measured_or_follow_from_how_many_positions_there_were() {
        let row =
            Row { label: Label::Number(1.0), layers: String::new(), values: vec![2.0, 0.5, 0.2, f64::NAN] };
        let run = Run {
            name: "a".into(),
            model: None,
            over: "exit".into(),
            columns: ["delta_ppl", "delta_stderr", "agreement", "speedup"].map(Into::into).into(),
            rows: vec![row.clone()],
            tokens: Some(400.0),
            base_ppl: None,
            about: Vec::new(),
        };
        assert_eq!(run.known(&row, "delta_ppl").unwrap().ends(), Some((1.5, 2.5)));
        // By hand: 0.2 · 0.8 / 400 is 0.0004, and its root 0.02.
        let share = run.known(&row, "agreement").unwrap();
        assert!((share.error.unwrap() - 0.02).abs() < 1e-12);
        assert_eq!((run.known(&row, "speedup"), run.known(&row, "nothing")), (None, None));
        assert!(run.has("agreement") && !run.has("speedup"));
    }
}
