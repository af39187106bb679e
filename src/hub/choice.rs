//! Which file of a repository is meant, and which belong to it.

use super::RepoId;
use crate::{Error, Result};

/// Taken in this order where none is asked for; without either, the first model in the list.
const PREFERRED: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// Parts of names of what is a GGUF and no model: projectors of images, importance matrices, draft heads.
const NOT_MODELS: [&str; 6] = ["mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"];

/// `PREFIX-00002-of-00003.gguf`, or `PREFIX.gguf`, which is the only one of one.
struct Shard<'a> {
    prefix: &'a str,
    number: u32,
    count: u32,
}

impl<'a> Shard<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let stem = path.strip_suffix(".gguf")?;
        let numbered = || {
            let (rest, count) = five_digits(stem)?;
            let (prefix, number) = five_digits(rest.strip_suffix("-of")?)?;
            Some(Shard { prefix, number, count })
        };
        Some(numbered().unwrap_or(Shard { prefix: stem, number: 1, count: 1 }))
    }
}

/// Takes `-12345` off the end.
fn five_digits(text: &str) -> Option<(&str, u32)> {
    let (rest, digits) = text.rsplit_once('-')?;
    let all = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
    if all { Some((rest, digits.parse().ok()?)) } else { None }
}

/// A model that can be opened: not a later shard of one.
fn is_model(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    Shard::of(path).is_some_and(|shard| shard.number == 1)
        && !NOT_MODELS.iter().any(|part| name.contains(part))
}

/// Whether the quantization stands in the path, followed by `-` or `.`, in letters of any case.
fn has_quantization(path: &str, quantization: &str) -> bool {
    let (path, wanted) = (path.to_ascii_lowercase(), quantization.to_ascii_lowercase());
    path.match_indices(&wanted).any(|(at, _)| path[at + wanted.len()..].starts_with(['-', '.']))
}

/// What stands for the quantization in a model's name: `Q4_K_M` of `tiny-Q4_K_M-00001-of-00002.gguf`.
pub fn quantization(path: &str) -> Option<String> {
    let prefix = Shard::of(path).filter(|_| is_model(path))?.prefix;
    let tag = prefix.rsplit(['-', '.', '/']).next()?;
    (tag.len() < prefix.len()).then(|| tag.to_ascii_uppercase())
}

/// All of a repository's models, for a message.
fn models_of(paths: &[&str]) -> String {
    let models: Vec<_> = paths.iter().copied().filter(|path| is_model(path)).collect();
    match models.len() {
        0 => "it has no GGUF model".into(),
        n if n > 20 => format!("it has {}, ... ({n} models)", models[..20].join(", ")),
        _ => format!("it has {}", models.join(", ")),
    }
}

/// A head that drafts for a model.
fn is_head(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".gguf") && ["dflash-", "dspark-", "eagle3-"].iter().any(|kind| name.contains(kind))
}

/// What of a repository is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    Model,
    /// A head that drafts for its model.
    Head,
    /// The same if there is one, or else the model.
    HeadOrModel,
}

/// The first file of what is meant: the file named, or one of the quantization, or as llama.cpp chooses.
pub fn choose<'a>(
    repo: &RepoId,
    paths: &[&'a str],
    pick: Pick,
    file: Option<&str>,
    wanted: Option<&str>,
) -> Result<&'a str> {
    let heads = || paths.iter().copied().filter(|path| is_head(path));
    if pick != Pick::Model && file.is_none() {
        let of = wanted.and_then(|wanted| heads().find(|path| has_quantization(path, wanted)));
        match (of.or_else(|| heads().next()), pick) {
            (Some(head), _) => return Ok(head),
            (None, Pick::Head) => {
                return Err(Error::Hub(format!(
                    "{repo}: it has no head to draft with (eagle3-*.gguf, dflash-*.gguf or dspark-*.gguf)"
                )));
            }
            (None, _) => {}
        }
    }
    let of = |q: &str| paths.iter().copied().find(|path| is_model(path) && has_quantization(path, q));
    let (found, what) = match (file, wanted) {
        (Some(file), _) => (paths.iter().copied().find(|path| *path == file), format!("no file {file}")),
        (None, Some(q)) => (of(q), format!("no GGUF model of {q}")),
        (None, None) => {
            let first = || paths.iter().copied().find(|path| is_model(path));
            (PREFERRED.iter().find_map(|q| of(q)).or_else(first), "no GGUF model".into())
        }
    };
    found.ok_or_else(|| match models_of(paths) {
        list if what == "no GGUF model" => {
            Error::Hub(format!("{repo}: {list}; name a repository that has one"))
        }
        list => Error::Hub(format!("{repo}: there is {what}; {list}")),
    })
}

/// `first` and the other shards of it, in order.
pub fn shards<'a>(repo: &RepoId, paths: &[&'a str], first: &'a str) -> Result<Vec<&'a str>> {
    let Some(Shard { prefix, count, .. }) = Shard::of(first).filter(|shard| shard.count > 1) else {
        return Ok(vec![first]);
    };
    let of = |number: u32| {
        let wanted = format!("{prefix}-{number:05}-of-{count:05}.gguf");
        let missing =
            || Error::Hub(format!("{repo}: {wanted} is missing, one of the {count} shards of the model"));
        paths.iter().copied().find(|path| *path == wanted).ok_or_else(missing)
    };
    (1..=count).map(of).collect()
}

/// The names of all shards of a model whose first one is called `name`.
pub fn numbered(name: &str) -> Vec<String> {
    match Shard::of(name) {
        Some(Shard { prefix, number: 1, count }) if count > 1 => {
            (1..=count).map(|number| format!("{prefix}-{number:05}-of-{count:05}.gguf")).collect()
        }
        _ => vec![name.into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo() -> RepoId {
        RepoId::parse("a/b").unwrap()
    }

    fn chosen<'a>(paths: &[&'a str], quantization: Option<&str>) -> Option<&'a str> {
        choose(&repo(), paths, Pick::Model, None, quantization).ok()
    }

    #[test]
    fn q4_k_m_before_q8_0_before_the_first() {
        let all = ["README.md", "m-Q2_K.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf"];
        assert_eq!(chosen(&all, None), Some("m-Q4_K_M.gguf"));
        assert_eq!(chosen(&all[..3], None), Some("m-Q8_0.gguf"));
        assert_eq!(chosen(&all[..2], None), Some("m-Q2_K.gguf"));
        assert_eq!(chosen(&all[..1], None), None);
    }

    #[test]
    fn heads_stand_beside_models() {
        let all = ["m-Q4_K_M.gguf", "eagle3-m-F16.gguf", "eagle3-m-Q8_0.gguf", "m-Q8_0.gguf"];
        let pick = |paths: &[&'static str], pick, wanted| choose(&repo(), paths, pick, None, wanted).ok();
        assert_eq!(pick(&all, Pick::Model, None), Some("m-Q4_K_M.gguf"));
        assert_eq!(pick(&all, Pick::Head, None), Some("eagle3-m-F16.gguf"));
        assert_eq!(pick(&all, Pick::Head, Some("q8_0")), Some("eagle3-m-Q8_0.gguf"));
        assert_eq!(pick(&all, Pick::Head, Some("Q4_K_M")), Some("eagle3-m-F16.gguf"));
        assert_eq!(pick(&all, Pick::HeadOrModel, Some("Q8_0")), Some("eagle3-m-Q8_0.gguf"));
        assert_eq!(pick(&all[..1], Pick::HeadOrModel, None), Some("m-Q4_K_M.gguf"));
        assert_eq!(pick(&all[..1], Pick::Head, None), None);
    }

    #[test]
    fn letters_of_any_case_and_whole_names() {
        let all = ["m-q4_k_m.gguf", "m.Q4_K.gguf", "m-UD-Q4_K_XL.gguf", "F16/m-F16-00001-of-00002.gguf"];
        assert_eq!(chosen(&all, Some("Q4_K_M")), Some("m-q4_k_m.gguf"));
        assert_eq!(chosen(&all, Some("q4_k")), Some("m.Q4_K.gguf"));
        assert_eq!(chosen(&all, Some("UD-Q4_K_XL")), Some("m-UD-Q4_K_XL.gguf"));
        assert_eq!(chosen(&all, Some("f16")), Some("F16/m-F16-00001-of-00002.gguf"));
        assert_eq!(chosen(&all, Some("Q4")), None);
        // Asked for, another is not taken instead.
        assert_eq!(chosen(&all, Some("Q8_0")), None);
    }

    #[test]
    fn what_is_no_model_is_passed_over() {
        let all = [
            "mmproj-Q4_K_M.gguf",
            "imatrix-Q4_K_M.gguf",
            "mtp-m-Q4_K_M.gguf",
            "m-Q4_K_M-00002-of-00002.gguf",
        ];
        assert_eq!(chosen(&all, None), None);
        let file = choose(&repo(), &all, Pick::Model, Some("mmproj-Q4_K_M.gguf"), None);
        assert_eq!(file.unwrap(), "mmproj-Q4_K_M.gguf");
    }

    #[test]
    fn messages_list_what_there_is() {
        let all = ["m-Q8_0.gguf", "x/m-F16-00001-of-00002.gguf", "x/m-F16-00002-of-00002.gguf"];
        let message = |file, q| choose(&repo(), &all, Pick::Model, file, q).unwrap_err().to_string();
        let list = "it has m-Q8_0.gguf, x/m-F16-00001-of-00002.gguf";
        assert_eq!(message(None, Some("Q4_0")), format!("a/b: there is no GGUF model of Q4_0; {list}"));
        assert_eq!(message(Some("n.gguf"), None), format!("a/b: there is no file n.gguf; {list}"));
        let none = choose(&repo(), &["config.json"], Pick::Model, None, None).unwrap_err().to_string();
        assert_eq!(none, "a/b: it has no GGUF model; name a repository that has one");
    }

    #[test]
    fn shards_come_in_order() {
        let all = ["m-00002-of-00002.gguf", "m-00001-of-00002.gguf", "n-00001-of-00002.gguf", "o.gguf"];
        let of = |first| shards(&repo(), &all, first);
        assert_eq!(of(all[1]).unwrap(), [all[1], all[0]]);
        assert_eq!(of(all[3]).unwrap(), [all[3]]);
        assert!(of(all[2]).unwrap_err().to_string().contains("n-00002-of-00002.gguf is missing"));
    }

    #[test]
    fn quantizations_of_names() {
        assert_eq!(quantization("x/tiny-q4_k_m-00001-of-00002.gguf").as_deref(), Some("Q4_K_M"));
        assert_eq!(quantization("tiny.Q8_0.gguf").as_deref(), Some("Q8_0"));
        assert_eq!(quantization("tiny.gguf"), None);
        assert_eq!(quantization("tiny-Q8_0-00002-of-00002.gguf"), None);
        assert_eq!(quantization("README.md"), None);
    }
}
