//! The page of a sweep, or of several: its pictures, its numbers, and where they come from.

use super::{
    draw::{Across, figure, rounded},
    run::{Label, Run},
};
use crate::{
    RunLayers,
    quoted::one_line,
    report::page::{Data, Head, Page, Table},
};

const NOTE: &str = "Error bars are one standard error. That of the perplexity's difference is from how it varies from \
    chunk to chunk. That of a share is as if each position were by itself; neighbours are alike, so it is the least that it \
    may be. Predicted speeds rest on passes that were timed in this run, and have no error of their own.";

/// The picture alone.
pub fn svg(runs: &[Run], across: Across, masks: &[(String, RunLayers)]) -> String {
    let about: Vec<(String, String)> = match runs {
        [run] => run.about.clone(),
        _ => runs
            .iter()
            .flat_map(|run| {
                run.about.iter().map(|(name, value)| (format!("{}: {name}", run.name), value.clone()))
            })
            .collect(),
    };
    figure(runs, across, masks).svg(&title(runs), &about)
}

/// The picture with all that belongs to it. `meanings` says what columns are; `file` names what can be taken along.
pub fn html(
    runs: &[Run],
    across: Across,
    masks: &[(String, RunLayers)],
    meanings: &[(&str, &str)],
    file: &str,
) -> String {
    let title = title(runs);
    let page = Page {
        figure: figure(runs, across, masks).svg(&title, &[]),
        alerts: runs.iter().filter_map(|run| alert(run, runs.len() == 1)).chain(unlike(runs)).collect(),
        intro: intro(runs),
        notes: vec![NOTE.into()],
        data: vec![Data { file: file.into(), csv: csv(runs) }],
        table: table(runs, meanings),
        about: runs
            .iter()
            .map(|run| (if runs.len() == 1 { String::new() } else { run.name.clone() }, about(run)))
            .collect(),
        title,
    };
    page.html()
}

fn title(runs: &[Run]) -> String {
    let what = match &runs[0].over[..] {
        "exit" => "exits",
        "attn" => "attention left out, layer by layer",
        "mlp" => "MLPs left out, layer by layer",
        "layer" => "layers left out, one by one",
        "coarse" => "coarse layers, one by one",
        "experts" => "numbers of experts",
        "pair" => "pairs of an attention and an MLP left out",
        "mask" => "masks",
        other => other,
    };
    match runs {
        [run] => format!("{}: {what}", run.model.as_ref().unwrap_or(&run.name)),
        _ => {
            let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
            format!("{}: {what}", names.join(", "))
        }
    }
}

fn intro(runs: &[Run]) -> String {
    let [run] = runs else { return String::new() };
    let mut text = match run.base_ppl {
        Some(ppl) => format!("The full model has a perplexity of {ppl:.4}"),
        None => return String::new(),
    };
    if let Some(tokens) = run.tokens {
        text += &format!(" over {tokens} positions");
    }
    if let Some((done, of)) = run.property("chunks").and_then(chunks) {
        text += &format!(", in {done} of {of} chunks");
    }
    text + "."
}

/// `done 2, of 66`.
fn chunks(text: &str) -> Option<(usize, usize)> {
    let (done, of) = text.strip_prefix("done ")?.split_once(", of ")?;
    Some((done.parse().ok()?, of.parse().ok()?))
}

fn alert(run: &Run, alone: bool) -> Option<String> {
    let name = if alone { "This sweep".to_string() } else { run.name.clone() };
    let (done, of) = run.property("chunks").and_then(chunks).unwrap_or((0, 0));
    match (run.is_interrupted(), done < of) {
        (_, true) => Some(format!("{name} was interrupted: {done} of {of} chunks are in it.")),
        (true, false) => Some(format!("{name} was interrupted.")),
        (false, false) => None,
    }
}

/// In what the runs differ that should be the same, or else their numbers are of different things.
pub fn unlike(runs: &[Run]) -> Option<String> {
    let mut parts = Vec::new();
    let texts: Vec<&str> = runs.iter().filter_map(|run| run.property("text")).collect();
    let tokens: Vec<f64> = runs.iter().filter_map(|run| run.tokens).collect();
    if texts.iter().any(|text| *text != texts[0]) {
        parts.push("their texts");
    }
    if tokens.iter().any(|n| *n != tokens[0]) {
        parts.push("how many positions were scored");
    }
    (!parts.is_empty()).then(|| {
        let parts = parts.join(" and in ");
        format!("The runs differ in {parts}: hold their perplexities against each other with care.")
    })
}

fn about(run: &Run) -> Vec<(String, String)> {
    let whole = match run.property("interrupted") {
        Some("true") => Some(("finished", "no, it was interrupted")),
        Some("false") => Some(("finished", "yes")),
        _ => None,
    };
    let kept = run.about.iter().filter(|(name, _)| name != "interrupted").cloned();
    kept.chain(whole.map(|(name, value)| (name.into(), value.into()))).collect()
}

/// The numbers with all their digits, behind where they come from.
fn csv(runs: &[Run]) -> String {
    let mut out = String::new();
    for run in runs {
        let of = if runs.len() == 1 { String::new() } else { format!("{}: ", one_line(&run.name, 80)) };
        let known = [("tokens", run.tokens), ("base_ppl", run.base_ppl)];
        let known = known.into_iter().filter_map(|(name, value)| Some((name, value?.to_string())));
        let about = run.about.iter().map(|(name, value)| (name.as_str(), value.clone()));
        about.chain(known).for_each(|(name, value)| out += &format!("# {of}{name}: {value}\n"));
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    let number = |value: f64| value.to_string();
    let table = table_of(runs, &[], "", number);
    // Into memory, with rows of one length, nothing can fail.
    writer.write_record(table.head.iter().map(|head| &head.name)).expect("a row");
    table.rows.iter().for_each(|row| writer.write_record(row).expect("a row"));
    let rows = writer.into_inner().expect("no file behind it");
    out + &String::from_utf8(rows).expect("text")
}

fn table(runs: &[Run], meanings: &[(&str, &str)]) -> Table {
    table_of(runs, meanings, "–", rounded)
}

fn table_of(runs: &[Run], meanings: &[(&str, &str)], missing: &str, number: fn(f64) -> String) -> Table {
    let mut columns: Vec<&String> = Vec::new();
    for column in runs.iter().flat_map(|run| &run.columns) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let meaning =
        |column: &str| meanings.iter().find(|(name, _)| *name == column).map_or("", |(_, meaning)| meaning);
    let mut head = Vec::new();
    head.extend((runs.len() > 1).then(|| Head::text("run")));
    match &runs[0].over[..] {
        "pair" => head.extend([Head::number("attn", ""), Head::number("mlp", "")]),
        "mask" => head.push(Head::text("mask")),
        over => head.push(Head::number(over, "")),
    }
    head.extend(columns.iter().map(|column| Head::number(column, meaning(column))));
    let has_layers = runs.iter().flat_map(|run| &run.rows).any(|row| !row.layers.is_empty());
    head.extend(has_layers.then(|| Head::text("layers")));
    let mut rows = Vec::new();
    for run in runs {
        for row in &run.rows {
            let mut cells = Vec::new();
            cells.extend((runs.len() > 1).then(|| run.name.clone()));
            match &row.label {
                Label::Pair(attn, mlp) => cells.extend([attn.to_string(), mlp.to_string()]),
                other => cells.push(other.text()),
            }
            cells.extend(columns.iter().map(|column| run.value(row, column).map_or(missing.into(), number)));
            cells.extend(has_layers.then(|| row.layers.clone()));
            rows.push(cells);
        }
    }
    Table { head, rows }
}
