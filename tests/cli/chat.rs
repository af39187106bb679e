//! `spec-run chat`: turns, what is typed between them, and what of the cache a turn finds again.

use std::{fs, io::Write, process::Stdio};

use serde_json::{Value, json};

use crate::common::{
    child::{Ended, Start},
    program::{Folder, program, run},
};

const TEMPLATE: &str = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

fn chat(args: &[&str], typed: &str) -> Ended {
    chat_with(TEMPLATE, args, typed)
}

fn chat_with(template: &str, args: &[&str], typed: &str) -> Ended {
    let length: &[&str] = if args.contains(&"-n") { &[] } else { &["-n", "12"] };
    let mut child = program()
        .args(["chat", "--temp", "0", "--no-learn", "--chat-template", template])
        .args(length)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    child.output()
}

/// A conversation that was saved.
fn saved(file: &str) -> Vec<Value> {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn roles(saved: &[Value]) -> Vec<&str> {
    saved.iter().map(|message| message["role"].as_str().unwrap()).collect()
}

/// The lines that tell of answers.
fn told(output: &Ended) -> Vec<String> {
    output.said().lines().filter(|line| line.contains(" per second; ")).map(str::to_owned).collect()
}

#[test]
fn a_second_turn_evaluates_only_what_is_new() {
    let output = chat(&[], "Once upon a time\nThen what?\n");
    output.done();
    let told = told(&output);
    assert_eq!(told.len(), 2, "{told:?}");
    // "12 tokens, 99.1 per second; 5 of 80 prompt tokens new"
    let new: Vec<(usize, usize)> = (told.iter())
        .map(|line| {
            let part = line.split("second; ").nth(1).unwrap();
            let numbers: Vec<usize> = part.split(' ').filter_map(|word| word.parse().ok()).collect();
            (numbers[0], numbers[1])
        })
        .collect();
    assert_eq!(new[0].0, new[0].1, "{told:?}");
    assert!(new[1].1 > new[0].1 + 12 && new[1].0 < new[1].1 - new[0].1, "{told:?}");
}

#[test]
fn an_answer_is_what_the_same_conversation_gives_at_once() {
    let folder = Folder::new();
    let file = folder.path("talk.json");
    let first = chat(&["--system", "You tell stories."], &format!("Once\nAnd then?\n/save {file}\n"));
    let saved = saved(&file);
    assert_eq!(roles(&saved), ["system", "user", "assistant", "user", "assistant"]);
    let last = saved[4]["content"].as_str().unwrap();
    assert!(first.printed().ends_with(&format!("{last}\n")), "{}", first.printed());
    // Loaded, and answered again by a process that has nothing in its cache.
    let again = chat(&["--draft", "none"], &format!("/load {file}\n/regen\n"));
    assert_eq!(again.printed().trim(), last.trim());
}

#[test]
fn answers_keep_to_a_grammar_and_end_at_texts() {
    // Each answer begins anew, with drafts and without.
    for more in [&[][..], &["--draft", "none"], &["--color=on"]] {
        let grammar = ["--grammar", "root ::= \"yes, it is\" | \"no, it is not\""];
        let output = chat(&[&grammar, more].concat(), "Is it?\nAnd now?\n");
        let said = output.done().replace("\x1b[34m", "").replace("\x1b[32m", "").replace("\x1b[0m", "");
        assert_eq!(said.lines().count(), 2, "{said}");
        assert!(said.lines().all(|line| ["yes, it is", "no, it is not"].contains(&line)), "{said}");
        let stopped = chat(&[&grammar, &["-r", ", it"], more].concat(), "Is it?\n");
        if !more.contains(&"--color=on") {
            assert!(["yes\n", "no\n"].contains(&&*stopped.printed()), "{}", stopped.printed());
        }
        let told = told(&stopped);
        assert_eq!(told.len(), 1, "{told:?}");
    }
    chat(&["--grammar", "root ::= ["], "Is it?\n").refused(1, &["grammar: line 1: "]);
}

#[test]
fn what_is_typed_wrong_ends_no_conversation() {
    let output =
        chat(&[], "/load nowhere.json\n/fly\n/read\n/system\n/clear\nHi\\\nthere\n/exit\nnever said\n");
    output.done();
    let said = output.said();
    for part in
        ["nowhere.json: ", "/fly is not known; /help", "/read needs a file's name", "no system message"]
    {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    assert_eq!(told(&output).len(), 1, "{said}");
}

#[test]
fn a_message_that_does_not_fit_ends_no_conversation() {
    let folder = Folder::new();
    let file = folder.path("talk.json");
    let long = "and then ".repeat(200);
    let output = chat(&["-c", "128"], &format!("Once\n{long}\n/save {file}\nThe end\n"));
    let said = output.said();
    // A script must see that something went wrong; who types sees it anyway.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("your last message is taken back") && said.contains("-c"), "{said}");
    assert!(said.contains("1 message not answered"), "{said}");
    assert_eq!(told(&output).len(), 2, "{said}");
    assert_eq!(roles(&saved(&file)), ["user", "assistant"]);
}

/// A conversation in a file.
fn talk(folder: &Folder, said: &[&str]) -> String {
    let roles = ["user", "assistant"].iter().cycle();
    let message = |(role, text): (&&str, &&str)| json!({"role": role, "content": text});
    let all: Value = roles.zip(said).map(message).collect();
    folder.file("said.json", all.to_string())
}

/// 35 tokens.
const LONG: &str =
    "one two three four five six seven eight nine ten one two three four five six seven eight nine ten";

#[test]
fn where_the_context_is_full_the_oldest_turns_are_left_out() {
    let folder = Folder::new();
    let whole = folder.path("whole.json");
    let typed = format!("Once\nAnd then?\nWhy?\n{LONG}\n{LONG}\n/save {whole}\n");
    let output = chat(&["-c", "96", "--system", "Tell."], &typed);
    output.done();
    let said = output.said();
    assert_eq!(told(&output).len(), 5, "{said}");
    let left_out: Vec<&str> = said.lines().filter(|line| line.contains("left out")).collect();
    assert!(!left_out.is_empty() && left_out.len() < 5, "{said}");
    for line in &left_out {
        assert!(line.starts_with("the context is full (-c 96): the "), "{line}");
        assert!(line.ends_with(" oldest messages were left out; the system message stays"), "{line}");
    }
    // What is saved is whole, and the last answer is that of the conversation without its oldest messages.
    assert!(said.contains(&format!("{whole}: 11 messages saved")), "{said}");
    let saved = saved(&whole);
    assert_eq!(saved.len(), 11);
    let number = left_out[left_out.len() - 1].split(' ').find_map(|word| word.parse::<usize>().ok()).unwrap();
    let short: Value = saved[..1].iter().chain(&saved[1 + number..]).cloned().collect();
    let file = folder.file("short.json", short.to_string());
    let again = chat(&["--draft", "none"], &format!("/load {file}\n/regen\n"));
    let last = saved[10]["content"].as_str().unwrap();
    assert_eq!(again.printed().trim(), last.trim(), "{said}");
}

#[test]
fn an_answer_goes_on_where_the_context_becomes_full_in_its_middle() {
    let folder = Folder::new();
    let file = talk(&folder, &[LONG, "Yes.", "Go on"]);
    let typed = format!("/load {file}\n/regen\n");
    let tokens = |args: &[&str]| {
        let output = chat(args, &typed);
        (output.done(), output.said())
    };
    let left_out = "(-c 80) in the middle of the answer: the 2 oldest messages were left out";
    // A rule sees all of the answer, also what is part of the prompt by then.
    let words = LONG;
    let grammar = format!("root ::= \"{words}\"");
    for more in [&[][..], &["--draft", "none"]] {
        let (answer, said) = tokens(&[&["-c", "80", "-n", "-1", "--grammar", &grammar], more].concat());
        assert_eq!(answer, format!("{words}\n"), "{said}");
        assert_eq!(said.matches(left_out).count(), 1, "{said}");
        assert!(!said.contains("was cut"), "{said}");
    }
    // The same answer up to where the context is full; its length is counted over all of it.
    let (whole, _) = tokens(&["-n", "30"]);
    let (answer, said) = tokens(&["-c", "80", "-n", "30"]);
    assert!(said.contains(left_out) && said.contains("30 tokens, "), "{said}");
    assert!(said.contains("the answer was cut by -n 30"), "{said}");
    let same = std::iter::zip(whole.bytes(), answer.bytes()).take_while(|(a, b)| a == b).count();
    assert!(same > 10, "{whole}\n{answer}");
}

#[test]
fn an_answer_that_is_cut_says_by_what() {
    let said = |args: &[&str], typed: &str| chat(args, typed).said();
    assert!(said(&[], "Once\n").contains("the answer was cut by -n 12\n"));
    let full = "the answer was cut: the context is full (-c 64)\n";
    // There is nothing to leave out.
    let alone = said(&["-c", "64", "-n", "500"], &format!("{LONG}\n"));
    assert!(alone.contains(full) && !alone.contains("left out"), "{alone}");
    let stopped = said(&["--grammar", "root ::= \"yes, it is\"", "-n", "50"], "Is it?\n");
    assert!(!stopped.contains("was cut"), "{stopped}");
}

#[test]
fn without_a_shift_nothing_is_left_out() {
    let output = chat(&["-c", "64", "-n", "500", "--no-context-shift"], &format!("Once\n{LONG}\n"));
    let said = output.said();
    assert_eq!((output.status.code(), told(&output).len()), (Some(1), 1), "{said}");
    assert!(said.contains("the answer was cut: the context is full (-c 64)"), "{said}");
    assert!(said.contains("your last message is taken back") && !said.contains("left out"), "{said}");
}

#[test]
fn what_drafting_did_and_what_the_model_is_given_is_said_where_asked_for() {
    let typed = format!("{LONG} one two three\n");
    let grammar = ["-n", "40", "--grammar", "root ::= \"one two three four five six seven\""];
    let with = |more: &[&str]| chat(&[&grammar[..], more].concat(), &typed);
    let (plain, told_more) = (with(&[]), with(&["-v"]));
    assert!(!plain.said().contains("draft"), "{}", plain.said());
    assert!(told_more.said().contains("drafting"), "{}", told_more.said());
    assert_eq!(plain.printed(), told_more.printed());
    let shown = with(&["--display-prompt"]).printed();
    assert_eq!(shown, format!("user: {typed}assistant: {}", plain.printed()));
}

#[test]
fn a_template_that_fails_ends_no_conversation() {
    let fails = "{% if messages | length > 1 %}{{ raise_exception('only one message') }}{% endif %}user: {{ messages[0]['content'] }}\nassistant: ";
    let output = chat_with(fails, &[], "Once\nAnd then?\n/clear\nTwice\n");
    let said = output.said();
    assert_eq!((output.status.code(), told(&output).len()), (Some(1), 2), "{said}");
    assert!(said.contains("only one message"), "{said}");
}

#[test]
fn another_file_is_not_saved_over_unasked() {
    let folder = Folder::new();
    let (mine, talk) = (folder.file("mine", "mine"), folder.path("talk.json"));
    let read = |path: &str| fs::read_to_string(path).unwrap();

    let output = chat(&[], &format!("/system A\n/save {mine}\n/save {talk}\n/system B\n/save {talk}\n"));
    let said = output.said();
    assert!(said.contains(&format!("{mine}: exists; /save! ")), "{said}");
    assert_eq!((&*read(&mine), read(&talk).contains("\"B\"")), ("mine", true), "{said}");

    // What was loaded may be written again; after /clear it is another conversation's.
    chat(&[], &format!("/load {talk}\n/system C\n/save {talk}\n/clear\n/system D\n/save {talk}\n"));
    assert!(read(&talk).contains("\"C\""), "{}", read(&talk));
    chat(&[], &format!("/system A\n/save! {mine}\n"));
    assert!(read(&mine).contains("\"A\""), "{}", read(&mine));
}

#[test]
fn a_model_without_a_template_says_what_to_give() {
    run(&["chat"]).failed(1, &["template"]);
}
