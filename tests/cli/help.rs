//! What the program says of itself: help, completions, manual pages.

use crate::common::program::stdout;

#[test]
fn short_help_fits_a_screen_and_has_examples() {
    let help = stdout(&["-h"]);
    assert!(help.lines().count() < 40, "{} lines:\n{help}", help.lines().count());
    assert!(help.contains("Examples:") && help.contains("spec-run bench -m model.gguf"), "{help}");
}

#[test]
fn long_help_is_grouped() {
    let help = stdout(&["--help"]);
    let at =
        |group: &str| help.find(&format!("\n{group}:\n")).unwrap_or_else(|| panic!("no {group}:\n{help}"));
    for group in ["Model", "Text", "Chat", "Sampling", "Drafting", "Devices", "Output"] {
        at(group);
    }
    let seed = help.find("--seed").unwrap();
    assert!(at("Sampling") < seed, "{help}");
    let perplexity = stdout(&["perplexity", "--help"]);
    assert!(perplexity.contains("\nDevices:\n") && perplexity.contains("\nModel:\n"), "{perplexity}");
}

#[test]
fn shells_get_completions() {
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef spec-run"), ("fish", "complete -c spec-run")]
    {
        let script = stdout(&["completions", shell]);
        assert!(script.contains(word) && script.contains("perplexity"), "{shell}");
    }
    assert_eq!(stdout(&["--completion-bash"]), stdout(&["completions", "bash"]));
}

#[test]
fn there_are_manual_pages() {
    let page = stdout(&["man"]);
    assert!(page.contains(".TH spec-run 1") && page.contains("spec\\-type"), "{page}");
    assert!(stdout(&["man", "perplexity"]).contains("chunks"));
}
