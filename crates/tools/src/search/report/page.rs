//! The page of a search: its pictures, a table of the masks, and the numbers to take along.

use super::{
    panels,
    shown::{Shown, shown},
};
use crate::{
    provenance::Provenance,
    report::{
        figure::Figure,
        page::{Data, Head, Page, Table},
    },
    search::SearchOutcome,
};

const NOTE: &str = "Agreement and overlap are from positions that the search did not see; their bars are one standard error, \
    as if each position were by itself, which is the least that it may be. Measured: by the speculative loop itself, the \
    median over texts; its bars hold the middle half of them. Beside it stands what was predicted from passes that were timed \
    in the same minutes. The first mask is the fastest measured, so a little luck is in it.";

/// The pictures alone, with where they come from in their metadata.
pub fn svg(model: &str, outcome: &SearchOutcome, provenance: &Provenance) -> String {
    figure(outcome).svg(&title(model), &provenance.lines())
}

/// The pictures, a table of the family, and where they come from; `file` names what can be taken along.
pub fn html(model: &str, outcome: &SearchOutcome, provenance: &Provenance, file: &str) -> String {
    let page = Page {
        title: title(model),
        intro: format!(
            "{} candidates were judged. A plain step takes {:.3} ms.",
            outcome.evaluated,
            1e3 * outcome.costs.step_seconds
        ),
        figure: figure(outcome).svg(&title(model), &[]),
        notes: vec![NOTE.into()],
        table: table(outcome),
        about: vec![(String::new(), provenance.lines())],
        data: vec![
            Data { file: format!("{file}-masks.csv"), csv: masks_csv(outcome, provenance) },
            Data { file: format!("{file}-sublayers.csv"), csv: sublayers_csv(outcome, provenance) },
            Data { file: format!("{file}-judged.csv"), csv: judged_csv(outcome, provenance) },
        ],
        ..Page::default()
    };
    page.html()
}

fn title(model: &str) -> String {
    format!("What {model} can skip")
}

fn figure(outcome: &SearchOutcome) -> Figure {
    let mut figure = Figure::default();
    let masks = shown(outcome);
    panels::sublayers(&mut figure, outcome);
    panels::costs(&mut figure, outcome, &masks);
    panels::lengths(&mut figure, outcome, &masks);
    panels::speeds(&mut figure, outcome, &masks);
    panels::map(&mut figure, &masks);
    figure
}

const COLUMNS: [(&str, &str); 12] = [
    ("cost", "time of a draft step, of a plain step's"),
    ("agreement", "share of positions where the mask's first choice is the full model's"),
    ("agreement_stderr", "its standard error"),
    ("overlap", "chance that sampling accepts a token drawn under the mask"),
    ("kl", "KL divergence from the full model, in nats"),
    ("speedup", "predicted for greedy text with drafts of the best length"),
    ("draft_len", "that length"),
    ("sampled", "predicted for sampled text"),
    ("measured", "by the speculative loop, the median over texts"),
    ("measured_low", "a quarter of the texts was slower"),
    ("measured_high", "a quarter of the texts was faster"),
    ("predicted_beside", "predicted from passes timed in the same minutes"),
];

/// As [`COLUMNS`]; NaN is what nobody knows.
fn values(shown: &Shown, outcome: &SearchOutcome) -> [f64; COLUMNS.len()] {
    let proof = &shown.member.proof;
    let (greedy, sampled) = (proof.greedy(&outcome.costs), proof.sampled(&outcome.costs));
    let measured = shown.member.measured;
    let of = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let quartiles = measured.and_then(|m| m.quartiles);
    [
        proof.cost,
        proof.agreement,
        of(proof.agreement_error()),
        proof.overlap,
        proof.kl,
        greedy.speedup,
        greedy.draft_len as f64,
        sampled.speedup,
        of(measured.map(|m| m.speedup)),
        of(quartiles.map(|q| q[0])),
        of(quartiles.map(|q| q[1])),
        of(measured.map(|m| m.predicted)),
    ]
}

fn table(outcome: &SearchOutcome) -> Table {
    let heads = COLUMNS.iter().map(|(name, meaning)| Head::number(name, meaning));
    let head = [Head::text("mask")].into_iter().chain(heads).chain([Head::text("skips")]).collect();
    let cell = |(&(name, _), value): (&(&str, &str), f64)| match value {
        value if !value.is_finite() => "–".into(),
        value if name == "draft_len" => value.to_string(),
        value => format!("{value:.3}"),
    };
    let row = |shown: &Shown| {
        let cells = COLUMNS.iter().zip(values(shown, outcome)).map(cell);
        let skips = shown.member.candidate.mask().to_string();
        [shown.name.clone()].into_iter().chain(cells).chain([skips]).collect()
    };
    Table { head, rows: shown(outcome).iter().map(row).collect() }
}

/// A table as a file: where it comes from, the names of its columns, and its rows.
fn csv(provenance: &Provenance, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Into memory, with rows of one length, nothing can fail.
    writer.write_record(head).expect("a row");
    rows.into_iter().for_each(|row| writer.write_record(row).expect("a row"));
    let rows = writer.into_inner().expect("no file behind it");
    provenance.comments() + &String::from_utf8(rows).expect("text")
}

fn number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

fn masks_csv(outcome: &SearchOutcome, provenance: &Provenance) -> String {
    let names = COLUMNS.iter().map(|(name, _)| *name);
    let head: Vec<&str> = ["mask"].into_iter().chain(names).chain(["layers"]).collect();
    let masks = shown(outcome);
    let rows = masks.iter().map(|shown| {
        let numbers = values(shown, outcome).map(number);
        let layers = shown.member.candidate.mask().to_string();
        [shown.name.clone()].into_iter().chain(numbers).chain([layers]).collect()
    });
    csv(provenance, &head, rows)
}

fn sublayers_csv(outcome: &SearchOutcome, provenance: &Provenance) -> String {
    let head = ["layer", "part", "change", "agreement", "positions", "overlap", "kl", "ppl", "saved"];
    let rows = outcome.ablations.iter().map(|a| {
        let score = &a.score;
        let numbers = [
            score.agreement(),
            score.positions() as f64,
            score.overlap(),
            score.kl(),
            score.perplexity(),
            a.saved,
        ];
        let names = [a.layer.to_string(), a.part.name().into(), a.state.done()];
        names.into_iter().chain(numbers.map(number)).collect()
    });
    csv(provenance, &head, rows)
}

fn judged_csv(outcome: &SearchOutcome, provenance: &Provenance) -> String {
    let rows = outcome.cloud.iter().map(|&(cost, agreement)| vec![number(cost), number(agreement)]);
    csv(provenance, &["cost", "agreement"], rows)
}
