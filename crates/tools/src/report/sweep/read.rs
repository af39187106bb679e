//! Sweeps out of files: the JSON and the CSV that `perplexity` writes, and the masks that a search found.

use std::{collections::HashSet, path::Path};

use serde_json::Value;

use super::run::{Label, Row, Run};
use crate::{Error, Result, provenance::lines_of, quoted::one_line};

/// Masks of one file; no picture has room for more.
const MOST_ROWS: usize = 20_000;
/// What a row has beside numbers.
const LAYERS: &str = "layers";
const PAIR: &str = "pair";

/// A sweep that was written to `path`.
pub fn read(path: &Path, text: &str) -> Result<Run> {
    let stem = path.file_stem().map_or("sweep".into(), |stem| stem.to_string_lossy().into_owned());
    let run = match text.trim_start().starts_with(['{', '[']) {
        true => of_json_text(text, &stem),
        false => of_csv(text, &stem),
    };
    let run = run.and_then(|run| match run.rows.len() {
        0 => Err("has no masks in it".into()),
        1..=MOST_ROWS => Ok(run),
        n => Err(format!("has {n} masks, more than the {MOST_ROWS} that a picture may have")),
    });
    run.map_err(|what| Error::Input(format!("{}: {}", path.display(), one_line(&what, 300))))
}

fn of_json_text(text: &str, name: &str) -> Result<Run, String> {
    let first = text.trim_start().lines().next().unwrap_or_default();
    if first.starts_with("{\"run\":") {
        return Err("a search's journal: give the masks that the search wrote".into());
    }
    let value = serde_json::from_str(text)
        .map_err(|e| format!("neither a sweep's JSON nor its CSV ({e}); `perplexity` writes both"))?;
    of_json(&value, name)
}

impl Run {
    /// As `perplexity` writes it.
    pub fn of_json(value: &Value, name: &str) -> Result<Self> {
        of_json(value, name).map_err(Error::Input)
    }
}

/// What tells the masks of a sweep apart.
pub fn labels(over: &str) -> Vec<&str> {
    if over == PAIR { vec!["attn", "mlp"] } else { vec![over] }
}

fn of_json(value: &Value, name: &str) -> Result<Run, String> {
    let provenance = &value["provenance"];
    let model = provenance["model"]["name"].as_str().map(str::to_owned);
    let about = lines_of(provenance);
    if let Some(masks) = value["masks"].as_array() {
        return of_masks(masks, name, model, about);
    }
    let (Some(over), Some(rows)) = (value["sweep"].as_str(), value["rows"].as_array()) else {
        return Err(
            "neither a sweep nor a search's masks: there is no `sweep` with `rows`, and no `masks`".into()
        );
    };
    let labels = labels(over);
    let mut columns: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    for (key, value) in rows.iter().filter_map(Value::as_object).flatten() {
        let is_number = value.is_number() || value.is_null();
        if is_number && !labels.contains(&key.as_str()) && known.insert(key) {
            columns.push(key.clone());
        }
    }
    let row = |(i, row): (usize, &Value)| {
        let texts: Vec<String> = labels.iter().map(|label| plain(&row[*label])).collect();
        let label =
            label(over, &texts).ok_or_else(|| format!("row {} has no `{}`", i + 1, labels.join("`, `")))?;
        let layers = row[LAYERS].as_str().unwrap_or_default().to_owned();
        let values = columns.iter().map(|column| row[column].as_f64().unwrap_or(f64::NAN)).collect();
        Ok(Row { label, layers, values })
    };
    let rows = rows.iter().enumerate().map(row).collect::<Result<_, String>>()?;
    Ok(Run {
        name: name.into(),
        model,
        over: over.into(),
        rows,
        columns,
        tokens: value["tokens"].as_f64(),
        base_ppl: value["base_ppl"].as_f64(),
        about,
    })
}

/// A family that a search found, with what it knows of each: a sweep over masks.
fn of_masks(
    masks: &[Value],
    name: &str,
    model: Option<String>,
    about: Vec<(String, String)>,
) -> Result<Run, String> {
    let columns = ["agreement", "overlap", "step", "speedup", "measured"];
    let row = |(i, mask): (usize, &Value)| {
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let label = mask["name"].as_str().map_or_else(|| format!("mask {}", i + 1), str::to_owned);
        // The search's cost is the time of a step.
        let values = [
            &mask["agreement"],
            &mask["overlap"],
            &mask["cost"],
            &mask["predicted"]["speedup"],
            &mask["measured"]["speedup"],
        ];
        Row { label: Label::Name(label), layers: String::new(), values: values.map(number).to_vec() }
    };
    let rows: Vec<Row> = masks.iter().enumerate().map(row).collect();
    if !rows.is_empty() && rows.iter().all(|row| row.values.iter().all(|value| value.is_nan())) {
        return Err("masks without numbers: `search` writes them, or a sweep over the masks".into());
    }
    let columns = columns.map(Into::into).to_vec();
    Ok(Run {
        name: name.into(),
        model,
        over: "mask".into(),
        columns,
        rows,
        // All of a search are proved on the same positions.
        tokens: masks.first().and_then(|mask| mask["predicted"]["positions"].as_f64()),
        base_ppl: None,
        about,
    })
}

fn of_csv(text: &str, name: &str) -> Result<Run, String> {
    let mut about = Vec::new();
    for line in text.lines().take_while(|line| line.starts_with('#')) {
        if let Some((key, value)) = line.trim_start_matches(['#', ' ']).split_once(": ") {
            about.push((key.to_owned(), value.to_owned()));
        }
    }
    let mut of_header = |key: &str| {
        let at = about.iter().position(|(known, _)| known == key)?;
        about.remove(at).1.parse::<f64>().ok().filter(|n| n.is_finite())
    };
    let (tokens, base_ppl) = (of_header("tokens"), of_header("base_ppl"));
    of_header("stderr");
    about.retain(|(key, _)| !key.starts_with("column "));
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let head: Vec<String> = match reader.headers() {
        Ok(head) => head.iter().map(str::to_owned).collect(),
        Err(e) => return Err(format!("neither a sweep's CSV nor its JSON ({e}); `perplexity` writes both")),
    };
    let first_number =
        head.iter().position(|name| name == "ppl" || name == "delta_ppl" || name == "agreement");
    let (over, labels) = match (first_number, &head[..]) {
        (Some(1), [over, ..]) => (over.clone(), 1),
        (Some(2), [attn, mlp, ..]) if attn == "attn" && mlp == "mlp" => (PAIR.to_owned(), 2),
        _ => {
            return Err(
                "neither a sweep's CSV nor its JSON: its first line should name the labels and then `ppl`; `perplexity` writes both"
                    .into(),
            );
        }
    };
    let columns: Vec<(usize, &String)> =
        head.iter().enumerate().skip(labels).filter(|(_, name)| *name != LAYERS).collect();
    let layers = head.iter().position(|name| name == LAYERS);
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| e.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        let texts: Vec<String> = record.iter().take(labels).map(str::to_owned).collect();
        let label = label(&over, &texts).ok_or_else(|| format!("line {line}: no label"))?;
        let number = |&(at, name): &(usize, &String)| match record.get(at).unwrap_or_default().trim() {
            "" => Ok(f64::NAN),
            text => text.parse().map_err(|_| format!("line {line}: `{name}` is not a number")),
        };
        let values = columns.iter().map(number).collect::<Result<_, String>>()?;
        let layers = layers.and_then(|at| record.get(at)).unwrap_or_default().to_owned();
        rows.push(Row { label, layers, values });
    }
    let columns = columns.into_iter().map(|(_, name)| name.clone()).collect();
    let model = (about.iter().find(|(key, _)| key == "model"))
        .and_then(|(_, parts)| parts.strip_prefix("name ")?.split_once(", fingerprint "))
        .map(|(model, _)| model.to_owned());
    Ok(Run { name: name.into(), model, over, columns, rows, tokens, base_ppl, about })
}

/// What the texts of a row's labels mean; names of masks may look like numbers.
fn label(over: &str, texts: &[String]) -> Option<Label> {
    match texts {
        [attn, mlp] => Some(Label::Pair(layer(attn)?, layer(mlp)?)),
        [text] if text.is_empty() => None,
        [text] if over != "mask" => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Some(Label::Number(number)),
            _ => Some(Label::Name(text.clone())),
        },
        [text] => Some(Label::Name(text.clone())),
        _ => None,
    }
}

/// No model has more layers than a list of steps may have.
fn layer(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&layer| layer < 4096)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "# version: 1\n# model: name a<b, fingerprint 0, file m.gguf\n# tokens: 64\n# base_ppl: 12.5\n\
        # interrupted: true\n# column ppl: of it\nexit,ppl,delta_ppl,delta_stderr,agreement,layers\n\
        1,20.5,8,0.5,0.25,\"attn skips 1; mlp skips 1\"\n2,13,0.5,,0.75,x\n";

    fn of(name: &str, text: &str) -> Result<Run, String> {
        read(Path::new(name), text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_table_reads_back() {
        let run = of("folder/q8.csv", CSV).unwrap();
        assert_eq!((&run.name[..], run.model.as_deref(), &run.over[..]), ("q8", Some("a<b"), "exit"));
        assert_eq!((run.tokens, run.base_ppl, run.is_interrupted()), (Some(64.0), Some(12.5), true));
        assert_eq!(run.columns, ["ppl", "delta_ppl", "delta_stderr", "agreement"]);
        assert_eq!(
            (&run.rows[0].label, &run.rows[0].layers[..]),
            (&Label::Number(1.0), "attn skips 1; mlp skips 1")
        );
        assert_eq!(run.rows[0].values, [20.5, 8.0, 0.5, 0.25]);
        assert_eq!(run.value(&run.rows[1], "delta_stderr"), None);
        let named = of("m.csv", "mask,ppl\n1,2\n").unwrap();
        assert_eq!(named.rows[0].label, Label::Name("1".into()), "a name that looks like a number");
        assert!(run.property("column ppl").is_none() && run.property("version") == Some("1"));
    }

    #[test]
    fn json_says_the_same() {
        let run = of(
            "a.json",
            r#"{"sweep": "pair", "tokens": 9, "base_ppl": 3.5, "provenance": {"model": {"name": "m"}, "interrupted": false},
               "rows": [{"attn": 1, "mlp": 2, "layers": "l", "ppl": 4.5, "step": null}]}"#,
        )
        .unwrap();
        assert_eq!((run.rows[0].label.clone(), run.model.as_deref()), (Label::Pair(1, 2), Some("m")));
        assert_eq!((run.columns.len(), run.value(&run.rows[0], "ppl")), (2, Some(4.5)));
        let masks =
            r#"{"masks": [{"name": "1", "cost": 0.5, "agreement": 0.9, "predicted": {"speedup": 1.5}}]}"#;
        let run = of("skips.json", masks).unwrap();
        assert_eq!((&run.over[..], &run.rows[0].label), ("mask", &Label::Name("1".into())));
        assert_eq!((run.value(&run.rows[0], "step"), run.value(&run.rows[0], "measured")), (Some(0.5), None));
    }

    #[test]
    fn what_is_no_sweep_is_told_in_a_line() {
        for (text, part) in [
            ("", "first line"),
            ("hello", "first line"),
            ("{", "neither a sweep's JSON"),
            ("{}", "no `sweep`"),
            ("[1]", "no `sweep`"),
            (r#"{"sweep": "exit", "rows": []}"#, "no masks"),
            (r#"{"sweep": "exit", "rows": [{"ppl": 1}]}"#, "row 1 has no `exit`"),
            (r#"{"sweep": "exit", "rows": [7]}"#, "row 1 has no `exit`"),
            (r#"{"sweep": "pair", "rows": [{"attn": 1, "mlp": 99999}]}"#, "row 1 has no `attn`, `mlp`"),
            (r#"{"masks": [{"name": "a"}]}"#, "without numbers"),
            ("{\"run\":{\"model\":\"m\"}}\n{\"costs\":1}\n", "journal"),
            ("exit,ppl\n1,2\n2\n", "line"),
            ("exit,ppl\n1,a\n", "line 2: `ppl` is not a number"),
            ("exit,ppl\n,3\n", "line 2: no label"),
            ("a,b,c,ppl\n1,2,3,4\n", "first line"),
        ] {
            let error = of("x", text).expect_err(text);
            assert!(
                error.starts_with("x: ") && error.contains(part) && error.lines().count() == 1,
                "{text}: {error}"
            );
        }
    }
}
