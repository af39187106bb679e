//! A command line in llama.cpp's words becomes one in ours, before clap reads it: by [`super::llama_flags`], word by
//! word. Flags of one dash and several letters are flags here, never a letter and its value.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use super::llama_flags::{FLAGS, Flag, Here, Takes, own_rows};

/// Flags of `bench` whose value is no list, though it may look like one or like a flag.
const TEXT_FLAGS: &[&str] = &["--vs", "--speeds"];
/// Why a flag of other commands changes nothing.
const ELSEWHERE: &str = "it is for generating text";
/// What a switch may be, besides left out.
const SWITCHES: &[&str] = &["on", "off", "auto", "enabled", "disabled", "true", "false", "1", "0"];

/// A command line for clap.
#[derive(Debug, Default, PartialEq)]
pub struct Line {
    pub words: Vec<OsString>,
    /// Flags that change nothing here, and why.
    pub ignored: Vec<(String, &'static str)>,
}

/// The command that a line is for; `None` generates text.
fn is_llamas(command: Option<&str>) -> bool {
    matches!(command, None | Some("perplexity" | "bench" | "chat" | "serve"))
}

/// What a command has flags for: the words mean what they mean to it.
fn has_its_own(command: Option<&str>) -> bool {
    matches!(command, Some("chat" | "serve"))
}

/// A command's flag of this name, with its dashes.
pub fn arg<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    let letter = name.strip_prefix('-').and_then(|name| name.parse::<char>().ok());
    let long = name.strip_prefix("--");
    command.get_arguments().find(|arg| match letter {
        Some(letter) => arg.get_short() == Some(letter),
        None => {
            let mut names = arg.get_long().into_iter().chain(arg.get_all_aliases().into_iter().flatten());
            names.any(|known| long == Some(known))
        }
    })
}

/// How many words follow a flag that has no `=`.
fn values(arg: &Arg) -> usize {
    let one = usize::from(arg.get_action().takes_values());
    arg.get_num_args().map_or(one, |range| if arg.is_require_equals_set() { 0 } else { range.min_values() })
}

/// `words` are those behind the program's name, and behind `command` where that is one. `program` is what clap reads.
pub fn translate(
    program: &Command,
    command: Option<&str>,
    words: impl IntoIterator<Item = OsString>,
) -> Result<Line, String> {
    let own = command.and_then(|name| program.find_subcommand(name));
    let known = |name: &str| arg(own.unwrap_or(program), name);
    // llama-perplexity takes the sampler's flags too.
    let elsewhere = |name: &str| match command {
        Some("perplexity") if known(name).is_none() => arg(program, name),
        _ => None,
    };
    let has = |name: &str| own.is_some() && known(name).is_some();
    let mut line = Line { words: command.into_iter().map(OsString::from).collect(), ..Line::default() };
    let mut words = words.into_iter().peekable();
    // What asks for a template, for one turn of it, and for many.
    let (mut chat, mut single, mut conversation) = (false, false, false);
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().filter(|text| text.starts_with('-') && text.len() > 1) else {
            line.words.push(word);
            continue;
        };
        if text == "--" {
            line.words.push(word);
            line.words.extend(words.by_ref());
            break;
        }
        let (name, joined) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
            _ => (text, None),
        };
        single |= name == "--chat";
        let Some(flag) = find(command, name, has) else {
            known_or_number(command, text)?;
            let other = elsewhere(name);
            let count = if joined.is_some() { 0 } else { known(name).or(other).map_or(0, values) };
            let behind = words.by_ref().take(count);
            match other {
                Some(_) => {
                    behind.for_each(drop);
                    line.ignored.push((name.into(), ELSEWHERE));
                }
                // As they are: what is behind may look like a flag.
                None => {
                    line.words.push(word);
                    line.words.extend(behind);
                }
            }
            continue;
        };
        let value = match (flag.takes, joined) {
            (_, Some(value)) => Some(value),
            (Takes::Nothing, None) => None,
            (Takes::Switch, None) => {
                words.next_if(|next| next.to_str().is_some_and(|w| SWITCHES.contains(&w)))
            }
            (Takes::Value, None) => words.next(),
        };
        if flag.takes == Takes::Value && value.is_none() {
            return Err(format!("{name}: a value is missing behind it"));
        }
        match flag.here {
            Here::Same(long) if elsewhere(long).is_some() => line.ignored.push((name.into(), ELSEWHERE)),
            Here::Same(long) => push(&mut line.words, flag, long, value),
            Here::Chat("") => single = true,
            Here::Chat(long) => {
                chat = true;
                push(&mut line.words, flag, long, value);
            }
            Here::Own(_) => push(&mut line.words, flag, name, value),
            Here::Command(command) => {
                return Ok(Line { words: command.split(' ').map(Into::into).collect(), ..Line::default() });
            }
            Here::Conversation => conversation = true,
            Here::Accepted(why) => line.ignored.push((name.into(), why)),
            Here::Only(values, why) => {
                let given = value.unwrap_or_default();
                if !values.iter().any(|value| is_same(value, &given)) {
                    return Err(format!("{name} {}: {why}", given.display()));
                }
                line.ignored.push((name.into(), "it is how it is here"));
            }
            Here::Refused(why) => return Err(format!("{name}: {why}")),
        }
    }
    if command.is_none() && conversation && !single {
        line.words.insert(0, "chat".into());
    } else if command.is_none() && (chat || single) && !line.words.iter().any(|word| word == "--chat") {
        line.words.push("--chat".into());
    }
    Ok(line)
}

fn push(words: &mut Vec<OsString>, flag: &Flag, long: &str, value: Option<OsString>) {
    // A switch alone is allowed, so what follows must not be taken for its value.
    if let (Takes::Switch, Some(value)) = (flag.takes, &value) {
        let mut joined = OsString::from(format!("{long}="));
        joined.push(value);
        return words.push(joined);
    }
    words.push(long.into());
    words.extend(value);
}

/// The row for a flag. In commands that llama.cpp does not have, only what cannot be a letter and a value.
fn find(command: Option<&str>, name: &str, has: impl Fn(&str) -> bool) -> Option<&'static Flag> {
    let own = own_rows(command).iter().find(|flag| flag.names.contains(&name));
    let is_own = if has_its_own(command) {
        name.len() == 2 || has(name)
    } else {
        !is_llamas(command) && (name.starts_with("--") || name.len() == 2)
    };
    if own.is_some() || is_own {
        return own;
    }
    FLAGS.iter().find(|flag| flag.names.contains(&name))
}

/// -n5 is a letter and its number; -xyz would be a flag.
fn known_or_number(command: Option<&str>, text: &str) -> Result<(), String> {
    let mut chars = text.chars().skip(1);
    let letters =
        chars.next().is_some_and(char::is_alphabetic) && chars.next().is_some_and(char::is_alphabetic);
    if !letters || !is_llamas(command) {
        return Ok(());
    }
    let name = text.split('=').next().unwrap_or(text);
    let short = own_rows(command)
        .iter()
        .chain(FLAGS)
        .flat_map(|flag| flag.names)
        .filter(|name| !name.starts_with("--"));
    let near =
        short.filter(|known| known.len() > 2 && distance(known, name) == 1).min_by_key(|known| known.len());
    Err(match near {
        Some(near) => format!("unexpected argument '{text}' found; tip: a similar argument exists: '{near}'"),
        None => format!("unexpected argument '{text}' found"),
    })
}

fn is_same(value: &str, given: &OsStr) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    given
        .to_str()
        .is_some_and(|given| given == value || number(value).is_some_and(|n| number(given) == Some(n)))
}

/// Letters to change, add or leave out.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let least = (corner + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], least);
        }
    }
    row[b.len()]
}

/// Numbers as llama-bench reads them: 1,2,4 and ranges, 1-8, 1-8+2 and 1-8*2.
pub fn numbers(text: &str) -> Result<Vec<usize>, String> {
    const MOST: usize = 1000;
    let wrong = || format!("`{text}` is not a list of numbers, as 1,2,4 or 1-8 or 1-8+2 or 1-8*2");
    let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
    let mut out = Vec::new();
    for part in text.split(',') {
        let Some((first, rest)) = part.split_once('-') else {
            out.push(number(part)?);
            continue;
        };
        let (last, times, step) = match (rest.split_once('+'), rest.split_once('*')) {
            (Some((last, step)), _) => (last, 1, number(step)?),
            (_, Some((last, times))) => (last, number(times)?, 0),
            _ => (rest, 1, 1),
        };
        let (mut n, last) = (number(first)?, number(last)?);
        while n <= last {
            out.push(n);
            let next = n.saturating_mul(times).saturating_add(step);
            if next <= n || out.len() > MOST {
                return Err(wrong());
            }
            n = next;
        }
    }
    Ok(out)
}

/// Flags of which `bench` takes several values, each a configuration to measure.
const LISTS: &[&str] = &[
    "--model",
    "--threads",
    "--batch-size",
    "--ubatch-size",
    "--cache-type-k",
    "--cache-type-v",
    "--n-gpu-layers",
    "--n-cpu-moe",
    "--device",
    "--load-mode",
];

/// One line for each combination of values, the first flag's changing last: all threads of a model, then the next
/// model. `-m` is repeated, other flags have commas too.
pub fn combinations(words: &[OsString]) -> Result<Vec<Vec<OsString>>, String> {
    let mut rest = Vec::new();
    let mut lists: Vec<(&str, Vec<OsString>)> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.to_str().is_some_and(|word| TEXT_FLAGS.contains(&word)) {
            rest.push(word.clone());
            rest.extend(words.next().cloned());
            continue;
        }
        let short = [("-m", "--model"), ("-t", "--threads"), ("-b", "--batch-size")];
        let long =
            short.iter().find(|(short, _)| word == *short).map_or(word.to_str(), |(_, long)| Some(*long));
        let Some(flag) = LISTS.iter().copied().find(|flag| Some(*flag) == long) else {
            rest.push(word.clone());
            continue;
        };
        let Some(value) = words.next() else {
            rest.push(word.clone());
            break;
        };
        let values = match value.to_str() {
            Some(text) if flag != "--model" && text.contains([',', '*', '+']) || is_range(text_of(value)) => {
                let text = text_of(value);
                match numbers(text) {
                    Ok(numbers) => numbers.iter().map(|n| n.to_string().into()).collect(),
                    Err(what) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                        return Err(format!("{flag}: {what}"));
                    }
                    Err(_) => text.split(',').map(Into::into).collect(),
                }
            }
            _ => vec![value.clone()],
        };
        match lists.iter_mut().find(|(known, _)| *known == flag) {
            Some((_, all)) => all.extend(values),
            None => lists.push((flag, values)),
        }
    }
    lists.sort_by_key(|(flag, _)| LISTS.iter().position(|known| known == flag));
    let mut lines = vec![Vec::new()];
    for (flag, values) in lists {
        let with = |line: &Vec<OsString>, value: &OsString| {
            line.iter().cloned().chain([flag.into(), value.clone()]).collect::<Vec<_>>()
        };
        lines = lines.iter().flat_map(|line| values.iter().map(move |value| with(line, value))).collect();
    }
    Ok(lines.into_iter().map(|line| rest.iter().cloned().chain(line).collect()).collect())
}

fn text_of(word: &OsStr) -> &str {
    word.to_str().unwrap_or_default()
}

/// 1-8, but not -1, nor a file's name.
fn is_range(text: &str) -> bool {
    text.contains('-')
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "-+*,".contains(c))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{
        super::{Cli, llama_flags::AS_THEY_ARE},
        *,
    };

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(Into::into).collect()
    }

    fn translated(command: Option<&str>, text: &str) -> Result<Line, String> {
        translate(&Cli::command(), command, words(text))
    }

    fn line(command: Option<&str>, text: &str) -> Result<String, String> {
        let line = translated(command, text)?;
        Ok(line.words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn words_of_llama_cpp_become_ours() {
        for (theirs, ours) in [
            ("-m a.gguf -ngl 99 -c 4096", "--model a.gguf --n-gpu-layers 99 --ctx-size 4096"),
            ("-fa on -n 5", "--predict 5"),
            ("-fa -n 5", "--predict 5"),
            ("--color on -p hi", "--color=on -p hi"),
            ("--color -p hi", "--color -p hi"),
            ("-sys You -p -fa", "--system You -p -fa --chat"),
            ("-st -cnv", "--chat"),
            ("-cnv -m a.gguf -sys You", "chat --model a.gguf --system You"),
            ("--temp=0 --top-k=5", "--temp 0 --top-k 5"),
            ("--mirostat 0 -sm none -np 1.0", "--mirostat 0"),
            ("-n5 -t4 -c-1", "-n5 -t4 -c-1"),
            ("--draft 4", "--draft 4"),
            ("-md a.gguf -ngld 5", "--spec-draft-model a.gguf --spec-draft-ngl 5"),
            ("--list-devices -m x", "devices"),
            ("-- -fa", "-- -fa"),
            ("--ignore-eos -p -fa", "--ignore-eos -p -fa"),
            ("--control-vector-layer-range 1 -2 -fa", "--control-vector-layer-range 1 -2"),
        ] {
            assert_eq!(line(None, theirs).unwrap(), ours, "{theirs}");
        }
        assert_eq!(line(Some("bench"), "-p 1 --list-devices").unwrap(), "devices");
        assert_eq!(
            line(Some("perplexity"), "--ignore-eos --seed 1 --temp 2 -c 64").unwrap(),
            "perplexity --ctx-size 64"
        );
        assert_eq!(
            line(Some("search"), "-ngl 9 -t 4 --draft-max 3").unwrap(),
            "search --n-gpu-layers 9 -t 4 --draft-max 3"
        );
        assert_eq!(line(Some("bench"), "-p 512 -pg 5,6").unwrap(), "bench --n-prompt 512 --n-prompt-gen 5,6");
    }

    #[test]
    fn what_changes_nothing_is_listed() {
        let line = translated(None, "-fa --mlock --prio 2").unwrap();
        let names: Vec<&str> = line.ignored.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["-fa", "--mlock", "--prio"]);
        let line = translated(Some("serve"), "--no-jinja --cache-ram 100 -np 2").unwrap();
        assert_eq!((line.words, line.ignored.len()), (words("serve --parallel 2"), 2));
    }

    /// A server and a conversation are asked for in the same words, but what they have flags for is theirs.
    #[test]
    fn commands_with_flags_of_their_own_know_the_others() {
        for command in ["serve", "chat"] {
            let line = |text| translated(Some(command), text);
            let known = line("--mlock --no-warmup -ngl 9 --temp=0 -n 5").unwrap();
            let ours = format!("{command} --n-gpu-layers 9 --temp=0 -n 5");
            assert_eq!((known.words, known.ignored.len()), (words(&ours), 2));
            for (flag, why) in [("-dr x", "-dr: models come from Hugging Face"), ("-zz", "'-zz' found")] {
                let refused = line(flag).unwrap_err();
                assert!(refused.contains(why), "{command} {flag}: {refused}");
            }
        }
        assert_eq!(line(Some("serve"), "-to 5").unwrap(), "serve --timeout 5");
    }

    #[test]
    fn lists_are_llama_benchs() {
        for (text, list) in [
            ("5", vec![5]),
            ("1,2,4", vec![1, 2, 4]),
            ("1-4", vec![1, 2, 3, 4]),
            ("1-9+4", vec![1, 5, 9]),
            ("1-8*2,3", vec![1, 2, 4, 8, 3]),
        ] {
            assert_eq!(numbers(text).unwrap(), list, "{text}");
        }
        for bad in ["", "x", "1-", "-1", "1-4+0", "1-4*1", "0-4*2", "1,,2", "0-99999999"] {
            assert!(numbers(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_combination_is_a_line() {
        let lines =
            combinations(&words("--n-gen 1 --threads 1,2 --model a-1.gguf --model b.gguf -q")).unwrap();
        let text: Vec<String> = lines
            .iter()
            .map(|line| line.iter().map(|w| w.to_str().unwrap()).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            text,
            [
                "--n-gen 1 -q --model a-1.gguf --threads 1",
                "--n-gen 1 -q --model a-1.gguf --threads 2",
                "--n-gen 1 -q --model b.gguf --threads 1",
                "--n-gen 1 -q --model b.gguf --threads 2",
            ]
        );
        assert_eq!(combinations(&words("--cache-type-k f16,q8_0")).unwrap().len(), 2);
        assert_eq!(combinations(&words("--n-gpu-layers -1")).unwrap().len(), 1);
        assert!(combinations(&words("--threads 1-4+0")).is_err());
    }

    #[test]
    fn what_is_as_it_is_in_llama_cpp_is_known() {
        let mut program = Cli::command();
        program.build();
        let perplexity = program.find_subcommand("perplexity").unwrap();
        for name in AS_THEY_ARE {
            assert!(arg(&program, name).or(arg(perplexity, name)).is_some(), "{name}");
        }
    }

    #[test]
    fn names_are_unique() {
        let names: Vec<&&str> = FLAGS.iter().flat_map(|flag| flag.names).chain(AS_THEY_ARE).collect();
        let unique: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len());
    }
}
