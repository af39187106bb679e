//! Grammars and JSON schemas from the command line.

use crate::common::program::{Folder, run, stdout};
use serde_json::Value;

const SCHEMA: &str = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "old": {"type":
    "boolean"}}, "required": ["name", "old"], "additionalProperties": false}"#;

fn text(args: &[&str]) -> String {
    stdout(&[&["-q", "--no-learn", "--no-display-prompt", "-n", "120", "-s", "5"], args].concat())
}

#[test]
fn a_schema_holds_with_drafts_and_without_from_a_file_too() {
    let drafted = text(&["-j", SCHEMA, "--draft-exit", "8", "--draft-max", "4"]);
    let value: Value = serde_json::from_str(&drafted).unwrap_or_else(|e| panic!("{e}: {drafted}"));
    assert!(value["name"].is_string() && value["old"].is_boolean(), "{drafted}");
    let folder = Folder::new();
    let file = folder.file("schema.json", SCHEMA);
    assert_eq!(text(&["-jf", &file, "--draft", "none"]), drafted);
}

#[test]
fn a_grammar_holds_in_either_notation() {
    let found = text(&["--grammar", "root ::= \"one\" | \"two\""]);
    assert!(["one\n", "two\n"].contains(&&*found), "{found}");
    let found = text(&["--grammar", "%llguidance {}\nstart: \"one\" | \"two\"\n"]);
    assert!(["one\n", "two\n"].contains(&&*found), "{found}");
}

/// What is there of a text whose grammar has too many readings is no whole text.
#[test]
fn a_text_that_cannot_go_on_is_an_error_in_a_line_of_its_own() {
    let ambiguous = "root ::= s\ns ::= s s | s s s | [a-z ]+";
    for more in [&["--draft", "none"][..], &[]] {
        let grammar =
            ["--no-display-prompt", "--temp", "0", "-n", "400", "-q", "--no-learn", "--grammar", ambiguous];
        let output = run(&[&grammar, more].concat());
        let (text, said) = (output.printed(), output.said());
        output.broke_off(1, &["grammar: it cannot be followed beyond "]);
        assert!(text.len() > 20 && text.ends_with('\n'), "{more:?}: {text}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn what_cannot_be_kept_is_refused_in_a_line() {
    for (args, code, words) in [
        (&["--grammar", "root ::= [a-"][..], 1, "grammar: line 1: the end comes"),
        (&["--grammar-file", "no/such/file"], 1, "no/such/file: "),
        (&["-j", "{\"type\": \"hiccup\"}"], 1, "JSON schema: Invalid type: hiccup"),
        (&["-j", "{"], 1, "JSON schema: this is not JSON"),
        (&["-j", "{}", "--grammar", "root ::= \"a\""], 2, "cannot be used with"),
        (&["-j", "{}", "--ignore-eos"], 2, "--ignore-eos: "),
    ] {
        run(&[&["-n", "4"], args].concat()).refused(code, &[words]);
    }
}
