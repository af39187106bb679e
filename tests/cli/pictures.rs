//! Pictures of sweeps: what is in them, by reading them as XML, and what is refused.

use std::{collections::HashMap, fs, path::Path};

use roxmltree::{Document, Node, ParsingOptions};

use crate::common::program::{Folder, json, run};

const STORY: &str = "Once upon a time there was a little girl named Lily. She liked to play in the park with her dog. \
    One day, Lily saw a big bird in a tall tree. The bird was sad because it could not find its nest. ";

/// What the program wrote to stderr, and that it went well.
fn done(args: &[&str]) -> String {
    let output = run(args);
    output.done();
    output.said()
}

fn parsed(text: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).expect("well formed")
}

fn with_class<'a, 'b>(at: &Node<'a, 'b>, class: &str) -> Vec<Node<'a, 'b>> {
    let has = |node: &Node| node.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class));
    at.descendants().filter(has).collect()
}

fn number(node: &Node, name: &str) -> f64 {
    node.attribute(name).unwrap_or_else(|| panic!("{name}")).parse().unwrap()
}

/// The rows of a CSV without quoted fields, by column.
fn rows(csv: &str) -> Vec<HashMap<&str, &str>> {
    let mut lines = csv.lines().filter(|line| !line.starts_with('#'));
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines.map(|line| head.iter().copied().zip(line.split(',')).collect()).collect()
}

/// The marks of a panel, from left to right, by the panel's number; a panel begins with its title.
fn marks<'a>(svg: &Node<'a, 'a>, panel: usize) -> Vec<Node<'a, 'a>> {
    let titles = with_class(svg, "title");
    let from = titles[panel].range().start;
    let to = titles.get(panel + 1).map_or(usize::MAX, |next| next.range().start);
    with_class(svg, "point").into_iter().filter(|mark| (from..to).contains(&mark.range().start)).collect()
}

fn child<'a>(mark: &Node<'a, 'a>, tag: &str) -> Option<Node<'a, 'a>> {
    mark.children().find(|node| node.has_tag_name(tag))
}

/// Late exits, whose numbers are of one size, so that the axis is even.
fn swept(folder: &Folder) -> [String; 2] {
    let [csv, page] = ["table.csv", "page.html"].map(|name| folder.path(name));
    let text = folder.file("text", STORY.repeat(6));
    let sweep = ["perplexity", "-f", &text, "-c", "64", "--chunks", "3", "--exit", "12,13,14,15"];
    done(&[&sweep[..], &["--csv", &csv, "--report", &page]].concat());
    [csv, page].map(|file| fs::read_to_string(file).unwrap())
}

#[test]
fn marks_and_error_bars_are_the_tables_numbers() {
    let folder = Folder::new();
    let [csv, page] = swept(&folder);
    let (rows, document) = (rows(&csv), parsed(&page));
    let svg = document.descendants().find(|node| node.has_tag_name("svg")).unwrap();
    let number_of = |row: &HashMap<&str, &str>, column| row[column].parse::<f64>().unwrap();
    let difference = marks(&svg, 0);
    assert_eq!((rows.len(), difference.len()), (4, 4));
    // The scale from the first and the last mark; all others and all bars must fit it.
    let height = |mark: &Node| number(&child(mark, "circle").unwrap(), "cy");
    let deltas: Vec<f64> = rows.iter().map(|row| number_of(row, "delta_ppl")).collect();
    let unit = (height(&difference[0]) - height(&difference[3])) / (deltas[3] - deltas[0]);
    assert!(unit > 0.0, "more is higher: {unit}");
    for (mark, row) in difference.iter().zip(&rows) {
        let expected = height(&difference[3]) + unit * (deltas[3] - number_of(row, "delta_ppl"));
        assert!((height(mark) - expected).abs() < 0.02, "{row:?}");
        let bar = child(mark, "line").expect("three chunks have an error");
        let length = number(&bar, "y1") - number(&bar, "y2");
        assert!((length - 2.0 * unit * number_of(row, "delta_stderr")).abs() < 0.04, "{length}: {row:?}");
    }
    // Exits accept as they agree, so there is one mark for both, whose error follows from the positions.
    let tokens: f64 = csv.lines().find_map(|line| line.strip_prefix("# tokens: ")).unwrap().parse().unwrap();
    let shares: Vec<f64> = rows.iter().map(|row| number_of(row, "agreement")).collect();
    let agreement = marks(&svg, 1);
    let unit = (height(&agreement[0]) - height(&agreement[3])) / (shares[3] - shares[0]);
    for (mark, share) in agreement.iter().zip(&shares) {
        let bar = child(mark, "line").unwrap();
        let error = (share * (1.0 - share) / tokens).sqrt();
        let length = number(&bar, "y1") - number(&bar, "y2");
        assert!((length - 2.0 * unit * error).abs() < 0.04, "{length} {share}");
    }
    assert_eq!(marks(&svg, 2).len(), 4, "the speeds");
}

#[test]
fn a_page_has_the_table_its_data_and_where_it_comes_from_and_fetches_nothing() {
    let folder = Folder::new();
    let [csv, page] = swept(&folder);
    let document = parsed(&page);
    let lines = |tag: &str| document.descendants().filter(|node| node.has_tag_name(tag)).collect::<Vec<_>>();
    assert_eq!(lines("tr").len(), 5);
    let [link] = lines("a")[..] else { panic!("one link") };
    assert_eq!(link.attribute("download"), Some("page.csv"));
    let data = link.attribute("href").unwrap().strip_prefix("data:text/csv;charset=utf-8,").unwrap();
    // The same numbers, and the text can be plotted again.
    let data = decoded(data);
    let [here, there] = [&data, &csv].map(|text| rows(text));
    for (here, there) in here.iter().zip(&there) {
        for column in ["exit", "ppl", "delta_ppl", "agreement", "speedup", "tok_s"] {
            assert_eq!(here[column], there[column], "{column}");
        }
    }
    assert_eq!((here.len(), there.len()), (4, 4));
    let (again, svg) = (folder.file("again.csv", data), folder.path("again.svg"));
    done(&["plot", &again, "-o", &svg]);
    assert!(fs::read_to_string(&svg).unwrap().contains("stories13m: exits"));
    let names: Vec<&str> = lines("dt").iter().filter_map(|name| name.text()).collect();
    for name in ["version", "command", "model", "text", "device", "settings", "chunks", "finished"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert!(page.contains("color-scheme:light dark") && page.contains("name=\"viewport\""));
    for part in ["<script", "src=", "url(", "@import", "href=\"http", "<link"] {
        assert!(!page.contains(part), "{part}");
    }
}

fn decoded(percent: &str) -> String {
    let mut parts = percent.split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(part[2..].bytes());
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn pairs_are_drawn_as_maps() {
    let folder = Folder::new();
    let [csv, svg] = ["pairs.csv", "pairs.svg"].map(|name| folder.path(name));
    let text = folder.file("text", STORY.repeat(4));
    let sweep = ["perplexity", "-f", &text, "-c", "64", "--chunks", "2"];
    let lists = ["--skip-attn", "3,12", "--skip-mlp", "5,12,13", "--pairs"];
    let said = done(&[&sweep[..], &lists, &["--csv", &csv, "--report", &svg]].concat());
    assert!(said.contains("6 pairs in 2 chunks: about 10 times the work"), "{said}");
    let table = fs::read_to_string(&csv).unwrap();
    let rows = rows(&table);
    let pairs: Vec<(&str, &str)> = rows.iter().map(|row| (row["attn"], row["mlp"])).collect();
    assert_eq!(pairs, [("3", "5"), ("3", "12"), ("3", "13"), ("12", "5"), ("12", "12"), ("12", "13")]);
    // A pair is what both lists say of one layer each.
    let one = json(&[&sweep[..], &["--skip-attn", "12", "--skip-mlp", "13", "--json"]].concat());
    assert_eq!(one["ppl"].as_f64().unwrap(), rows[5]["ppl"].parse::<f64>().unwrap());
    let picture = fs::read_to_string(&svg).unwrap();
    let document = parsed(&picture);
    let cells = with_class(&document.root(), "heat");
    let maps = with_class(&document.root(), "title").len();
    assert!(maps >= 4 && cells.len() == 6 * maps, "{maps} maps, {} cells", cells.len());
    // More is lighter: by the sum of the colour's parts.
    let light = |cell: &Node| {
        let color = cell.attribute("fill").unwrap();
        [1, 3, 5].iter().map(|&at| u32::from_str_radix(&color[at..at + 2], 16).unwrap()).sum::<u32>()
    };
    let by_size = |a: &usize, b: &usize| {
        let of = |i: usize| rows[i]["delta_ppl"].parse::<f64>().unwrap();
        of(*a).total_cmp(&of(*b))
    };
    let least = (0..6).min_by(by_size).unwrap();
    let most = (0..6).max_by(by_size).unwrap();
    assert!(light(&cells[least]) < light(&cells[most]), "{least} {most}");
}

const HOSTILE: &str = r#"<script>alert("x")</script> & \u0007\u001b'é"#;

#[test]
fn sweeps_are_laid_over_each_other_whatever_they_are_called() {
    let folder = Folder::new();
    let sweep = |model: &str, over: &str, more: &str| {
        let model = format!(
            r#""provenance": {{"model": {{"name": {}}}, "interrupted": true, "chunks": {{"done": 2, "of": 9}}}}"#,
            model
        );
        format!(
            r#"{{"sweep": "{over}", "tokens": 100, {model}, "rows": [
               {{"{over}": 1, "layers": "l", "delta_ppl": 2.0, "delta_stderr": 0.5, "agreement": 0.5, "speedup": null, "cost": 0.25}},
               {{"{over}": 2, "layers": "l", "delta_ppl": null, "delta_stderr": null, "agreement": 0.75, "speedup": null, "cost": 0.5}},
               {{"{over}": 3, "layers": "l", "delta_ppl": 1e999, "agreement": 0.9, "cost": null{more}}}]}}"#
        )
    };
    let hostile = format!("\"{}\"", HOSTILE.replace('"', "\\\""));
    let files = [
        folder.file("a.json", sweep(&hostile, "exit", "")),
        folder.file("b.json", sweep("\"plain\"", "exit", ", \"]]>\": 1")),
        folder.file("c.json", sweep("\"third\"", "exit", "")),
    ];
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    for (x, marks_of_each, out) in [("label", 1 + 3, "label.html"), ("cost", 1 + 2, "cost.svg")] {
        let out = folder.path(out);
        done(&[&["plot"], &files[..], &["-o", &out, "--x", x]].concat());
        let text = fs::read_to_string(&out).unwrap();
        let document = parsed(&text);
        let points = with_class(&document.root(), "point");
        // What is null or beyond all numbers has no mark, and speeds that nobody has no panel.
        assert_eq!(points.len(), 3 * marks_of_each, "{x}");
        let titles = with_class(&document.root(), "title");
        assert!(titles.iter().all(|title| title.text() != Some("Predicted speed")), "{x}");
        assert!(document.descendants().all(|node| !node.has_tag_name("script")), "{x}");
        let names: Vec<String> = with_class(&document.root(), "name")
            .iter()
            .flat_map(|name| {
                name.children()
                    .filter(|part| part.is_text())
                    .filter_map(|part| part.text())
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
        assert!(
            names.iter().any(|name| name.starts_with("<script>")) && names.iter().any(|name| name == "plain"),
            "{names:?}"
        );
        // As many runs as colours.
        for class in ["s0", "s1", "s2"] {
            let dots = points.iter().filter(|point| !with_class(point, class).is_empty()).count();
            assert_eq!(dots, marks_of_each, "{x} {class}");
        }
        if x == "label" {
            assert_eq!(text.matches("was interrupted: 2 of 9 chunks").count(), 3);
        }
    }
}

#[test]
fn one_model_in_several_files_goes_by_their_names() {
    let folder = Folder::new();
    let csv = "exit,ppl,delta_ppl,delta_stderr,agreement\n1,3,2,0.1,0.5\n2,2,1,0.1,0.6\n";
    let csv = format!("# model: name m, fingerprint 0, file f\n{csv}");
    let files = ["q8.csv", "q4.csv"].map(|name| folder.file(name, &csv));
    let out = folder.path("both.svg");
    done(&["plot", &files[0], &files[1], "-o", &out]);
    let text = fs::read_to_string(&out).unwrap();
    for name in ["q8", "q4"] {
        assert!(text.contains(&format!("</title>{name}</text>")), "{name}: {text}");
    }
}

#[test]
fn what_cannot_be_drawn_is_told_in_a_line_and_leaves_nothing() {
    let folder = Folder::new();
    let exits = folder.file("exits.csv", "exit,ppl,delta_ppl\n1,3,2\n");
    let layers = folder.file("layers.csv", "attn,ppl,delta_ppl\n1,3,2\n");
    let bare = folder.file("bare.csv", "exit,ppl\n1,\n");
    let notes = folder.file("notes.txt", "my notes\n");
    let mine = folder.file("mine.html", "mine");
    let (out, pdf) = (folder.path("out.html"), folder.path("out.pdf"));
    let nine: Vec<&str> = [exits.as_str()].repeat(9);
    let cases: [(&[&str], i32, &str); 11] = [
        (&[&exits, &layers, "-o", &out], 1, "a sweep over `attn`"),
        (&[&exits, "-o", &pdf], 2, ".html or .svg"),
        (&[&exits, "-o", &mine], 2, "--force"),
        (&[&exits, "-o", &out, "--x", "cost"], 1, "`cost`"),
        (&[&exits, "-o", &out, "--x", "beauty"], 2, "label, cost, step"),
        (&[&bare, "-o", &out], 1, "no number"),
        (&[&notes, "-o", &out], 1, "notes.txt: "),
        (&["/nowhere/sweep.csv", "-o", &out], 1, "/nowhere/sweep.csv"),
        (&["-o", &out], 2, "<FILE>"),
        (&[&exits, "-o", "/nowhere/out.html"], 1, "/nowhere"),
        (&[&nine[..], &["-o", &out]].concat(), 2, "8 at most"),
    ];
    for (args, code, part) in cases {
        run(&[&["plot"], args].concat()).refused(code, &[part]);
    }
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    assert!(!Path::new(&out).exists() && !Path::new(&pdf).exists());
    // A device is written to, and stays one; unasked nothing is replaced, and asked it is.
    done(&["plot", &exits, "-o", &mine, "--force"]);
    assert!(fs::read_to_string(&mine).unwrap().starts_with("<!DOCTYPE html>"));
    #[cfg(unix)]
    {
        let link = folder.path("null.svg");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        done(&["plot", &exits, "-o", &link]);
        assert!(Path::new(&link).is_symlink() && fs::metadata(&link).unwrap().len() == 0);
    }
}

#[test]
fn a_report_wants_a_sweep_and_a_name_of_its_own() {
    let folder = Folder::new();
    let (text, page) = (folder.file("text", STORY.repeat(4)), folder.path("page.svg"));
    let cases: [(&[&str], &str); 6] = [
        (&["--report", &page], "--report: for several masks"),
        (&["--report", "page.pdf", "--exit", "each"], ".html or .svg"),
        (&["--report", &page, "--csv", &page, "--exit", "each"], "two files"),
        (&["--pairs", "--skip-attn", "each"], "--skip-mlp"),
        (&["--pairs", "--skip-attn", "1", "--skip-mlp", "1", "--coarse", "3"], "--coarse"),
        (&["--force", "--exit", "each"], "--report"),
    ];
    for (args, part) in cases {
        run(&[&["perplexity", "-f", &text, "-c", "64"], args].concat()).refused(2, &[part]);
        assert!(!Path::new(&page).exists(), "{args:?}");
    }
}
