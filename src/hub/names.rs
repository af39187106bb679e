//! Names that come from outside, checked before a path or an address is made of them.

use std::fmt;

use crate::{Error, Result};

/// `USER/NAME` of a repository on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoId(String);

impl RepoId {
    /// Letters, digits and `_`, with single `-` and `.` between them, and one `/`.
    pub fn parse(text: &str) -> Result<Self> {
        let part = |part: &str| {
            part.split(['-', '.'])
                .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        };
        match text.split_once('/') {
            Some((user, name)) if text.len() <= 256 && part(user) && part(name) => Ok(RepoId(text.into())),
            _ => Err(Error::Hub(format!(
                "{text:?}: a repository is named USER/NAME, as in ggml-org/models-GGUF"
            ))),
        }
    }

    /// The folder that stands for it in the cache.
    pub fn folder(&self) -> String {
        format!("models--{}", self.0.replace('/', "--"))
    }

    /// The repository of a folder in the cache.
    pub fn of_folder(folder: &str) -> Option<Self> {
        RepoId::parse(&folder.strip_prefix("models--")?.replace("--", "/")).ok()
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `USER/NAME[:QUANTIZATION]`
pub fn repo_and_quantization(text: &str) -> Result<(RepoId, Option<&str>)> {
    let (repo, quantization) = match text.split_once(':') {
        Some((repo, quantization)) => (repo, Some(quantization)),
        None => (text, None),
    };
    let sound =
        |q: &str| !q.is_empty() && q.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if !quantization.is_none_or(sound) {
        return Err(Error::Hub(format!("{text:?}: after the colon stands a quantization, as in :Q4_K_M")));
    }
    Ok((RepoId::parse(repo)?, quantization))
}

/// A path that stays below the folder it is put into, on every system.
pub fn is_sound_path(path: &str) -> bool {
    let sound = |part: &str| !matches!(part, "" | "." | "..") && !part.ends_with([' ', '.']);
    path.len() <= 1024
        && path.split('/').all(sound)
        && !path.contains(|c: char| c.is_control() || "\\:*?\"<>|".contains(c))
}

pub fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A path as part of an address: what is not plain is written as %XX.
pub fn in_address(path: &str) -> String {
    path.bytes().fold(String::new(), |address, b| match b {
        b'/' | b'-' | b'.' | b'_' | b'~' => address + char::from(b).encode_utf8(&mut [0; 4]),
        b if b.is_ascii_alphanumeric() => address + char::from(b).encode_utf8(&mut [0; 4]),
        b => address + &format!("%{b:02X}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_a_user_and_a_name() {
        for good in ["ggml-org/models", "a/b", "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "u_1/_x"] {
            assert_eq!(RepoId::parse(good).unwrap().to_string(), good);
        }
        let long = format!("a/{}", "b".repeat(300));
        for bad in [
            "",
            "a",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "../..",
            "a/..",
            "./b",
            "a/b.",
            "a//b",
            "a b/c",
            "a/b\n",
            "a/b\0",
            "/etc/passwd",
            "C:\\a",
            "a\\b/c",
            "a/b--c",
            "é/a",
            &long,
        ] {
            assert!(RepoId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn folders_are_those_of_the_hub() {
        let repo = RepoId::parse("ggml-org/tiny.model").unwrap();
        assert_eq!(repo.folder(), "models--ggml-org--tiny.model");
        assert_eq!(RepoId::of_folder("models--ggml-org--tiny.model"), Some(repo));
        assert_eq!(RepoId::of_folder("datasets--a--b"), None);
    }

    #[test]
    fn a_quantization_follows_a_colon() {
        let parse = |text| repo_and_quantization(text).map(|(repo, q)| (repo.to_string(), q));
        assert_eq!(parse("a/b").unwrap(), ("a/b".into(), None));
        assert_eq!(parse("a/b:q4_K_m").unwrap(), ("a/b".into(), Some("q4_K_m")));
        for bad in ["a/b:", "a/b:Q4 0", "a/b:../x", "a/b:x:y", "a/b:\n"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_stay_below_their_folder() {
        for good in ["model.gguf", "Q4_K_M/a-00001-of-00002.gguf", "..a/b..c", "a b.gguf"] {
            assert!(is_sound_path(good), "{good:?}");
        }
        for bad in [
            "",
            "/a",
            "a/",
            "../a",
            "a/../../b",
            "a/./b",
            "a//b",
            "a\\b",
            "C:a",
            "a\nb",
            "a\0",
            "a\u{85}b",
            "a ",
            "a/b.",
        ] {
            assert!(!is_sound_path(bad), "{bad:?}");
        }
    }

    #[test]
    fn addresses_escape_what_is_not_plain() {
        assert_eq!(in_address("a b/c-d_e~f.gguf"), "a%20b/c-d_e~f.gguf");
        assert_eq!(in_address("é#?%"), "%C3%A9%23%3F%25");
    }
}
