use super::{html, svg, text};
use crate::{
    provenance::Provenance,
    search::{
        Member, SearchOutcome,
        candidate::{Candidate, State},
        costs::PassCosts,
        family::Proof,
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
    Member { name: name.into(), candidate, proof, measured: None }
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
        ablations: Vec::new(),
        cloud: vec![(0.5, 0.5)],
        family: vec![member("best", best), member("bold <1>", exit.clone())],
        baselines: vec![member("exit 2", exit), member("every second layer", Candidate::every_second(3, 0))],
        evaluated: 3,
    }
}

#[test]
fn a_mask_of_two_names_is_shown_once_under_both() {
    let page = html("m", &outcome(), &Provenance::example());
    assert_eq!(page.matches("<tr><td>").count(), 3, "{page}");
    assert!(page.contains("<tr><td>bold &lt;1&gt; = exit 2<td>") && !page.contains("<td>exit 2<"), "{page}");
    let table = text(&outcome());
    assert_eq!(table.lines().filter(|line| line.contains("exit 2")).count(), 1, "{table}");
    assert!(table.contains("\nbold <1> = exit 2 "), "{table}");
}

#[test]
fn the_map_has_a_cell_for_each_sublayer_of_each_mask() {
    let picture = svg("m", &outcome(), &Provenance::example());
    let count = |class: &str| picture.matches(&format!("<rect class=\"cell {class}\"")).count();
    // By hand: the best leaves out one attention, the exit a layer, every second layer the middle one.
    assert_eq!(["attn", "mlp", "roughly", "kept"].map(count), [3, 2, 1, 12]);
    assert!(picture.contains("<title>best: attention of layer 1 left out</title>"), "{picture}");
    assert!(picture.contains("<title>best: mlp of layer 2 coarse</title>"), "{picture}");
}

#[test]
fn a_picture_alone_says_where_it_comes_from() {
    let mut provenance = Provenance::example().command(["x", "a<b"].map(Into::into));
    provenance.device = Some("CPU".into());
    let picture = svg("m", &outcome(), &provenance);
    let metadata = picture.split_once("<metadata>").unwrap().1.split_once("</metadata>").unwrap().0;
    for line in ["command: spec-run 'a&lt;b'", "device: CPU", "model: name m, fingerprint 0, file m.gguf"] {
        assert!(metadata.lines().any(|found| found == line), "{line} in {metadata}");
    }
    // On a page a list has it already.
    assert!(!html("m", &outcome(), &provenance).contains("<metadata>"));
}
