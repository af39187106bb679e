//! Preset files: sections of flags without their dashes, one for each model, as llama-server reads them.

use crate::{
    Error, Result,
    cli::{
        llama_flags::{FLAGS, Flag, SERVE, Takes},
        serve_flag,
    },
};

/// The section whose flags are those of all models.
const ALL: &str = "*";
/// What the server says for all its models; a section that names it changes nothing.
const OF_SERVER: &[&str] = &[
    "host",
    "port",
    "api-key",
    "api-key-file",
    "ssl-key-file",
    "ssl-cert-file",
    "models-dir",
    "models-max",
    "models-preset",
    "models-memory",
    "models-autoload",
    "no-models-autoload",
    "stop-timeout",
    "version",
];

/// Flags with their values, in their order.
pub type Pairs = Vec<(String, String)>;

/// What a file says.
#[derive(Debug, Default, PartialEq)]
pub struct Presets {
    pub of_all: Pairs,
    pub models: Vec<Section>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    pub name: String,
    pub pairs: Pairs,
}

/// Reads a file; `name` is what messages call it.
pub fn parse(name: &str, text: &str) -> Result<Presets> {
    let mut presets = Presets::default();
    let mut current: Option<String> = None;
    for (at, line) in text.lines().enumerate() {
        let wrong = |what: &str| Error::Input(format!("{name}, line {}: {what}", at + 1));
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let section = rest.strip_suffix(']').map(str::trim).filter(|section| !section.is_empty());
            let section = section.ok_or_else(|| wrong("a section is a name in brackets, as [name]"))?;
            if section != ALL && !presets.models.iter().any(|model| model.name == section) {
                presets.models.push(Section { name: section.into(), pairs: Vec::new() });
            }
            current = Some(section.into());
            continue;
        }
        let pair = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let (key, value) = pair
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| wrong("a line is `flag = value`, without dashes before the flag"))?;
        let pairs = match current.as_deref() {
            None if key == "version" => continue,
            None => {
                return Err(wrong("it stands before the first section, as [name], or [*] for all models"));
            }
            Some(ALL) => &mut presets.of_all,
            Some(section) => {
                let found = presets.models.iter_mut().find(|model| model.name == section);
                &mut found.ok_or_else(|| wrong("it stands in no section"))?.pairs
            }
        };
        pairs.retain(|(known, _)| known != key);
        pairs.push((key.into(), value.into()));
    }
    Ok(presets)
}

pub fn is_true(value: &str) -> bool {
    matches!(value, "true" | "1" | "on" | "enabled")
}

/// llama.cpp's row for a key: a flag without dashes, or its variable in the environment.
fn row(key: &str) -> Option<&'static Flag> {
    let is_name = |name: &str| name.trim_start_matches('-') == key;
    let mut rows = SERVE.iter().chain(FLAGS);
    rows.find(|flag| (!flag.env.is_empty() && flag.env == key) || flag.names.iter().any(|name| is_name(name)))
}

/// The usual name of a key, by which keys are compared.
pub fn long(key: &str) -> &str {
    row(key)
        .and_then(|flag| flag.names.iter().find(|name| name.starts_with("--")))
        .map_or(key, |name| &name[2..])
}

/// The value of a key, under any of its names.
pub fn value<'p>(pairs: &'p Pairs, name: &str) -> Option<&'p str> {
    pairs.iter().rev().find(|(key, _)| long(key) == name).map(|(_, value)| value.as_str())
}

/// A command line of these flags.
pub fn words(pairs: &Pairs, leave_out: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    for (key, value) in pairs {
        if [OF_SERVER, leave_out].iter().any(|list| list.contains(&long(key))) {
            continue;
        }
        let row = row(key);
        let dashed = |name: &str| format!("{}{name}", if name.len() == 1 { "-" } else { "--" });
        let by_name =
            row.and_then(|flag| flag.names.iter().find(|name| name.trim_start_matches('-') == *key));
        let flag =
            by_name.or(row.and_then(|flag| flag.names.last())).map_or(dashed(key), |name| (*name).into());
        let takes = match row {
            Some(row) => row.takes != Takes::Nothing,
            // What is not known is refused when the line is read.
            None => serve_flag(key).unwrap_or(true),
        };
        match (takes, is_true(value)) {
            (true, _) => words.extend([flag, value.clone()]),
            (false, true) => words.push(flag),
            (false, false) => words.extend(no(&flag)),
        }
    }
    words
}

/// The flag that says the contrary, where there is one.
fn no(flag: &str) -> Option<String> {
    let name = flag.trim_start_matches('-');
    let contrary = format!("no-{name}");
    let is_known = serve_flag(&contrary).is_some() || row(&contrary).is_some();
    is_known.then(|| format!("--{contrary}"))
}

/// As a file has them.
pub fn text(section: &Section) -> String {
    let lines = section.pairs.iter().map(|(key, value)| format!("{key} = {value}\n"));
    format!("[{}]\n{}", section.name, lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Pairs {
        all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn a_file_has_sections_of_flags() {
        let text = "version = 1\n\n; for all\n[*]\nc = 8192 ; tokens\n[a/b:Q8_0]\njinja = true\nc=4096\nc = 2048\n[ x ]\nmodel = /m.gguf\n";
        let read = parse("f", text).unwrap();
        assert_eq!(read.of_all, pairs(&[("c", "8192")]));
        let names: Vec<_> = read.models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["a/b:Q8_0", "x"]);
        assert_eq!(read.models[0].pairs, pairs(&[("jinja", "true"), ("c", "2048")]));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, at) in
            [("c = 1", "line 1"), ("[*]\nc 1", "line 2"), ("[a\n", "line 1"), ("[a]\n= 3", "line 2")]
        {
            let message = parse("f.ini", text).unwrap_err().to_string();
            assert!(message.starts_with(&format!("f.ini, {at}: ")), "{message}");
        }
    }

    #[test]
    fn keys_become_flags() {
        let of = |all: &[(&str, &str)]| words(&pairs(all), &["alias"]).join(" ");
        assert_eq!(of(&[("c", "8"), ("n-gpu-layers", "3")]), "-c 8 --n-gpu-layers 3");
        assert_eq!(of(&[("ngl", "3"), ("LLAMA_ARG_CTX_SIZE", "9")]), "-ngl 3 --ctx-size 9");
        assert_eq!(of(&[("kv-unified", "true"), ("metrics", "0")]), "--kv-unified");
        assert_eq!(of(&[("mmap", "false"), ("no-mmap", "off")]), "--no-mmap");
        // Of the server, and of who asks.
        assert_eq!(of(&[("port", "1"), ("api-key", "x"), ("alias", "y"), ("a", "z")]), "");
        assert_eq!(value(&pairs(&[("hf", "a/b")]), "hf-repo"), Some("a/b"));
    }
}
