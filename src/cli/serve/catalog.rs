//! Which models a server may load: those of a folder, of the cache of downloads, and of a preset file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{
    host::{Names, Ready},
    preset::{self, Pairs, Presets, Section},
    words,
};
use crate::{
    Error, Result,
    cli::{
        common::{MOST_TEXT, read_text},
        output::note,
        serve_args,
    },
    server::{Listed, Planned},
};

/// Keys that say of a section which file it is.
const MODEL_SOURCES: &[&str] = &["model", "hf-repo", "model-url"];
/// Keys that are no flags of a model.
const OF_LIST: &[&str] = &["alias", "tags", "load-on-startup", "dedup-cache-models"];
/// Of files with these words the models are parts, and cannot be loaded alone.
const PARTS: &[&str] = &["mtp-", "dspark-", "dflash-"];

/// Where models are looked for.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pub folder: Option<PathBuf>,
    pub presets: Option<PathBuf>,
}

/// A model that was found.
struct Found {
    source: &'static str,
    pairs: Pairs,
}

impl Catalog {
    /// All models that there are now.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let mut found: BTreeMap<String, Found> = cached();
        if let Some(folder) = &self.folder {
            for (name, path) in in_folder(folder)? {
                let pairs = vec![("model".into(), path.display().to_string())];
                found.insert(name, Found { source: "models_dir", pairs });
            }
        }
        let presets = match &self.presets {
            None => Presets::default(),
            Some(path) => preset::parse(&path.display().to_string(), &read_text(path, MOST_TEXT)?)?,
        };
        for Section { name, pairs } in presets.models {
            let known = found.entry(name).or_insert(Found { source: "preset", pairs: Vec::new() });
            known.pairs.extend(pairs);
        }
        let hidden = hidden(&found, &presets.of_all);
        let of = |(name, found): (String, Found)| {
            let is_hidden = hidden.contains(&name);
            listed(name, found, &presets.of_all, is_hidden)
        };
        let listed = found.into_iter().map(of).collect::<Result<Vec<_>>>()?;
        check_names(&listed)?;
        Ok(listed)
    }
}

/// Nothing stands for two models.
fn check_names(listed: &[Listed]) -> Result<()> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for model in listed {
        for name in std::iter::once(&model.id).chain(&model.aliases) {
            match owners.insert(name, &model.id) {
                Some(other) if other != model.id => {
                    return Err(Error::Input(format!(
                        "{name:?} is a name of the models {other:?} and {:?}; give one of them another alias",
                        model.id
                    )));
                }
                _ => (),
            }
        }
    }
    Ok(())
}

fn listed(id: String, found: Found, of_all: &Pairs, hidden: bool) -> Result<Listed> {
    let Found { source, pairs } = found;
    if MODEL_SOURCES.iter().all(|source| preset::value(&pairs, source).is_none()) {
        return Err(Error::Input(format!(
            "the preset [{id}] is of no model that there is; give it one with `model = FILE` or `hf-repo = USER/NAME`"
        )));
    }
    let own = [preset::words(of_all, OF_LIST), preset::words(&pairs, OF_LIST)].concat();
    let in_preset = |error: Error| match error {
        Error::Usage(what) => Error::Usage(format!("model {id:?}: {what}")),
        other => other,
    };
    serve_args(&own).and_then(|args| args.check()).map_err(in_preset)?;
    let list = |name: &str| preset::value(&pairs, name).map(words).unwrap_or_default();
    let (aliases, tags) = (list("alias"), list("tags"));
    let says =
        |name: &str| preset::value(&pairs, name).or(preset::value(of_all, name)).is_some_and(preset::is_true);
    let at_start = says("load-on-startup");
    let names = std::iter::once(&id).chain(&aliases).cloned().collect::<Vec<_>>();
    let args = ["spec-run", "serve"].map(str::to_owned).into_iter().chain(own.iter().cloned()).collect();
    let open = {
        let (names, tags) = (names, tags.clone());
        Box::new(move || plan(&own, &names, &tags))
    };
    let preset = preset::text(&Section { name: id.clone(), pairs });
    Ok(Listed { id, aliases, tags, source, preset, args, at_start, hidden, open })
}

/// Opens the file of a model and counts its memory.
fn plan(own: &[String], names: &[String], tags: &[String]) -> Result<Planned> {
    let ready = Ready::new(serve_args(own)?)?;
    let bytes = ready.bytes()?;
    let names = Names { names: names.to_vec(), tags: tags.to_vec() };
    let load = move || {
        let id = names.names.first().cloned().unwrap_or_default();
        let (served, described) = ready.serve(names)?;
        note!("{id}: {described}");
        Ok(served)
    };
    Ok(Planned { bytes, load: Box::new(load) })
}

/// Models of a folder: its files, and its folders with files of one model each.
fn in_folder(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut models = Vec::new();
    for entry in entries(folder)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() {
            // One that cannot be read has none.
            let files = entries(&entry).unwrap_or_default();
            models.extend(model_of(&files).map(|path| (name, path)));
        } else if is_model(&entry) {
            models.push((name.strip_suffix(".gguf").unwrap_or(&name).to_owned(), entry));
        }
    }
    Ok(models)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut entries = read().map_err(|e| Error::io(folder.display().to_string(), e))?;
    entries.sort();
    Ok(entries)
}

fn is_model(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".gguf") && !name.contains("mmproj") && !PARTS.iter().any(|part| name.starts_with(part))
}

/// The model among a folder's files: the first of several parts, or the last one.
fn model_of(files: &[PathBuf]) -> Option<PathBuf> {
    let is_first = |path: &&PathBuf| path.to_string_lossy().contains("-00001-of-");
    let models = || files.iter().filter(|path| is_model(path));
    models().find(is_first).or_else(|| models().next_back()).cloned()
}

#[cfg(feature = "download")]
fn cached() -> BTreeMap<String, Found> {
    use crate::hub;
    // Without a cache there is nothing in it.
    let names = hub::Settings::from_env().map(|settings| hub::cached(&settings)).unwrap_or_default();
    let found = |name: String| {
        let pairs = vec![("hf-repo".into(), name.clone()), ("offline".into(), "true".into())];
        (name, Found { source: "cache", pairs })
    };
    names.into_iter().map(found).collect()
}

#[cfg(not(feature = "download"))]
fn cached() -> BTreeMap<String, Found> {
    BTreeMap::new()
}

/// Models of the cache that presets stand for and say so.
#[cfg(feature = "download")]
fn hidden(found: &BTreeMap<String, Found>, of_all: &Pairs) -> Vec<String> {
    use crate::hub;
    let Ok(settings) = hub::Settings::from_env() else { return Vec::new() };
    let files = |name: &str| hub::repository_files(name, &settings);
    let says = |pairs: &Pairs| {
        let wish = preset::value(pairs, "dedup-cache-models");
        wish.or(preset::value(of_all, "dedup-cache-models")).is_some_and(preset::is_true)
    };
    let presets = found.values().filter(|model| model.source == "preset" && says(&model.pairs));
    let repos = presets.flat_map(|model| {
        ["hf-repo", "spec-draft-hf"].into_iter().filter_map(|key| preset::value(&model.pairs, key))
    });
    let stood_for: Vec<_> = repos.map(files).collect();
    let is_there = |name: &String| stood_for.contains(&files(name));
    let cached = found.iter().filter(|(_, model)| model.source == "cache").map(|(name, _)| name);
    cached.filter(|name| is_there(name)).cloned().collect()
}

#[cfg(not(feature = "download"))]
fn hidden(_: &BTreeMap<String, Found>, _: &Pairs) -> Vec<String> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_files_and_folders_of_models() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for sub in ["big", "vision", "empty"] {
            fs::create_dir(at(sub)).unwrap();
        }
        for file in [
            "b.gguf",
            "mmproj-b.gguf",
            "mtp-b.gguf",
            "notes.txt",
            "big/x-00002-of-00002.gguf",
            "big/x-00001-of-00002.gguf",
            "vision/v.gguf",
            "vision/mmproj-v.gguf",
        ] {
            fs::write(at(file), "").unwrap();
        }
        let expected = [("b", "b.gguf"), ("big", "big/x-00001-of-00002.gguf"), ("vision", "vision/v.gguf")];
        let expected: Vec<_> = expected.iter().map(|(name, path)| ((*name).to_owned(), at(path))).collect();
        assert_eq!(in_folder(folder.path()).unwrap(), expected);
        assert!(in_folder(&at("none")).unwrap_err().to_string().contains("none"));
    }
}
