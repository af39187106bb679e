//! How many threads there are and where they run: no text depends on it.

use crate::common::program::{run, stdout};

/// A prompt of more than 32 tokens, so that both kinds of passes come.
const PROMPT: &str = "Once upon a time there was a little dog who lived in a house near the sea with a girl called Lily. \
    Every day they went to the beach together, and the dog liked to run after the birds. One day";

fn told(more: &[&str]) -> String {
    stdout(&[&["-p", PROMPT, "-n", "40", "--temp", "0", "-q", "--no-learn"], more].concat())
}

#[test]
fn a_text_is_the_same_wherever_threads_run() {
    let one = told(&["-t", "1"]);
    assert!(one.len() > PROMPT.len());
    for more in [
        &["-t", "2", "-tb", "1"][..],
        &["-t", "1", "--threads-batch", "2"],
        &["--cpu-strict", "1"],
        &["--numa", "distribute"],
        &["--numa", "isolate"],
    ] {
        assert_eq!(told(more), one, "{more:?}");
    }
}

#[test]
fn cpus_that_cannot_be_are_refused() {
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: cpus_that_cannot_be_are_refused: only Linux binds a program to CPUs");
        return;
    }
    for (args, line) in [
        (["--cpu-range", "3-1"], "CPUs are named by a list, --cpu-range 0-3,8, or by bits, --cpu-mask f0"),
        (["--cpu-mask", "0x0"], "CPUs are named by a list"),
        (["--cpu-mask", "none"], "CPUs are named by a list"),
        (["--cpu-range", "1000"], "--cpu-range 1000: the system has none of these CPUs for this program"),
        (["-tb", "5000"], "-tb 5000: at most 1024 threads"),
    ] {
        run(&[&["-p", "Once", "-n", "1"], &args[..]].concat()).failed(2, &[line]);
    }
}

/// Where the program may use one CPU, it starts one thread.
#[test]
fn a_program_on_one_cpu_has_one_thread() {
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: a_program_on_one_cpu_has_one_thread: only Linux binds a program to CPUs");
        return;
    }
    let allowed = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let first: u32 = list.split([',', '-']).next().unwrap().parse().unwrap();
    let mask = format!("{}{}", 1 << (first % 4), "0".repeat(first as usize / 4));
    for args in [["--cpu-range", &first.to_string()], ["-C", &mask]] {
        let output = run(&[&["-p", "Once", "-n", "1"], &args[..]].concat());
        let said = output.said();
        assert!(output.status.success() && said.contains(", 1 thread;"), "{args:?}: {said}");
    }
}
