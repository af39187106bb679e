use roxmltree::{Document, Node};

use super::{html, svg, text};
use crate::{
    provenance::Provenance,
    search::{
        Ablation, Member, SearchOutcome,
        candidate::{Candidate, State},
        costs::PassCosts,
        family::Proof,
        measured::Measured,
        score::{Score, Verdict},
    },
};

fn member(name: &str, candidate: Candidate) -> Member {
    let proof = Proof {
        cost: 0.5,
        positions: 64,
        prefix: 0.0,
        agreement: 0.5,
        overlap: 0.5,
        kl: 0.1,
        greedy_tokens: vec![1.5],
        sampled_tokens: vec![1.5],
    };
    let measured = Measured {
        speedup: 1.5,
        quartiles: Some([1.25, 1.75]),
        predicted: 1.375,
        tok_s: 10.0,
        draft_len: 1,
        acceptance: 0.5,
        tokens_per_round: 1.5,
        tokens: 64,
    };
    Member { name: name.into(), candidate, proof, measured: Some(measured) }
}

/// Of a sublayer without which half of 64 first choices change.
fn ablation(sublayer: usize) -> Ablation {
    let mut score = Score::default();
    (0..64).for_each(|i| score.push(&Verdict { agreed: i % 2 == 0, overlap: 0.5, kl: 0.1, nll: 1.0 }));
    let (layer, part) = Candidate::layer_and_half(sublayer);
    Ablation { layer, part, state: State::Skip, saved: 0.15, score }
}

/// Of three layers; the exit is a member of the family too.
fn outcome() -> SearchOutcome {
    let best = Candidate::all(3, State::Run).with(2, State::Skip).with(5, State::Coarse);
    let exit = Candidate::exit(3, 2);
    SearchOutcome {
        costs: PassCosts {
            step_seconds: 1.0,
            rows: vec![1.0, 1.1],
            base: 0.1,
            full: vec![0.15; 6],
            otherwise: vec![(State::Coarse, vec![0.1; 6])],
            resumes: false,
        },
        perplexity: 10.0,
        ablations: (0..6).map(ablation).collect(),
        cloud: vec![(0.5, 0.5)],
        family: vec![member("best", best), member("bold <1>", exit.clone())],
        baselines: vec![member("exit 2", exit), member("every second layer", Candidate::every_second(3, 0))],
        evaluated: 3,
    }
}

/// A page is read as XML but for its first line.
fn parsed(page: &str) -> Document<'_> {
    Document::parse(page.strip_prefix("<!DOCTYPE html>").unwrap_or(page)).expect("a page is well formed")
}

fn of_class<'a>(document: &'a Document, tag: &str, class: &str) -> Vec<Node<'a, 'a>> {
    let has = |node: &Node| node.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class));
    document.descendants().filter(|node| node.has_tag_name(tag) || tag.is_empty()).filter(has).collect()
}

fn number(node: &Node, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

#[test]
fn a_mask_of_two_names_is_shown_once_under_both() {
    let page = html("m", &outcome(), &Provenance::example(), "report");
    let document = parsed(&page);
    let rows: Vec<Vec<String>> = (document.descendants().filter(|node| node.has_tag_name("tr")))
        .map(|row| {
            row.children()
                .filter(Node::is_element)
                .map(|cell| cell.text().unwrap_or_default().to_string())
                .collect()
        })
        .collect();
    let names: Vec<&str> = rows[1..].iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["best", "bold <1> = exit 2", "every second layer"]);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
    let table = text(&outcome());
    assert_eq!(table.lines().filter(|line| line.contains("exit 2")).count(), 1, "{table}");
    assert!(table.contains("\nbold <1> = exit 2 "), "{table}");
}

#[test]
fn every_mask_and_sublayer_has_its_marks() {
    let picture = svg("m", &outcome(), &Provenance::example());
    let document = Document::parse(&picture).unwrap();
    // A bar for each sublayer; each mask once by cost, by length, and twice in the speeds.
    assert_eq!(of_class(&document, "rect", "bar").len(), 6);
    assert_eq!(of_class(&document, "g", "point").len(), 3 * (1 + 1 + 2));
    assert_eq!(of_class(&document, "circle", "cloud").len(), 1);
    // Each line and each dot by its name, whose text is short enough to be whole.
    for name in ["best", "bold <1> = exit 2", "every second layer"] {
        let labels = of_class(&document, "text", "name")
            .into_iter()
            .filter(|label| label.children().any(|part| part.is_text() && part.text() == Some(name)));
        assert_eq!(labels.count(), 2, "{name}");
    }
    // By hand: of 64 positions half is 0.5 ± 0.0625, and the loop's quartiles are 1.25 and 1.75 around 1.5.
    let lengths = |up: bool| {
        let ends = if up { ("y1", "y2") } else { ("x1", "x2") };
        of_class(&document, "line", "error")
            .into_iter()
            .map(move |bar| number(&bar, ends.0) - number(&bar, ends.1))
    };
    let up: Vec<f64> = lengths(true).filter(|length| *length > 0.0).collect();
    assert_eq!(up.len(), 6 + 3);
    let bar = &of_class(&document, "rect", "bar")[0];
    // The bar stands for 50 %, its error for 6.25 % to both sides.
    assert!((up[0] / number(bar, "height") - 0.25).abs() < 2e-3, "{up:?}");
    assert_eq!(lengths(false).filter(|length| *length < 0.0).count(), 3);
}

#[test]
fn a_page_takes_its_numbers_along() {
    let page = html("m", &outcome(), &Provenance::example(), "report");
    let document = parsed(&page);
    let links: Vec<Node> = document.descendants().filter(|node| node.has_tag_name("a")).collect();
    let names: Vec<&str> = links.iter().filter_map(|link| link.attribute("download")).collect();
    assert_eq!(names, ["report-masks.csv", "report-sublayers.csv", "report-judged.csv"]);
    let rows = |i: usize| links[i].attribute("href").unwrap().matches("%0A").count();
    let head = Provenance::example().comments().lines().count() + 1;
    assert_eq!([0, 1, 2].map(rows), [head + 3, head + 6, head + 1]);
}

#[test]
fn the_map_has_a_cell_for_each_sublayer_of_each_mask() {
    let picture = svg("m", &outcome(), &Provenance::example());
    let count = |class: &str| picture.matches(&format!("<rect class=\"cell {class}\"")).count();
    // By hand: the best leaves out one attention, the exit a layer, every second layer the middle one.
    assert_eq!(["skipped s0", "skipped s1", "coarse s7", "kept"].map(count), [3, 2, 1, 12]);
    assert!(picture.contains("<title>best: attention of layer 1 left out</title>"), "{picture}");
    assert!(picture.contains("<title>best: MLP of layer 2 coarse</title>"), "{picture}");
}

#[test]
fn a_picture_alone_says_where_it_comes_from() {
    let mut provenance = Provenance::example().command(["x", "a<b"].map(Into::into));
    provenance.device = Some("CPU".into());
    let picture = svg("m", &outcome(), &provenance);
    let document = Document::parse(&picture).unwrap();
    let metadata = document.descendants().find(|node| node.has_tag_name("metadata")).unwrap().text().unwrap();
    for line in ["command: spec-run 'a<b'", "device: CPU", "model: name m, fingerprint 0, file m.gguf"] {
        assert!(metadata.lines().any(|found| found == line), "{line} in {metadata}");
    }
    // On a page a list has it already.
    let page = html("m", &outcome(), &provenance, "report");
    assert!(!page.contains("<metadata>") && page.contains("<dt>device</dt><dd>CPU</dd>"), "{page}");
}
