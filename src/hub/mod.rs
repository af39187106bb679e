//! Models from the Hugging Face hub and by URL.
//!
//! [`repository`] fetches what is missing of a model into the cache that Python's `huggingface_hub` and llama.cpp
//! share, and says where its first file lies; [`url`] does it for any address. Parts of a file are kept and gone on
//! with, hashes are checked, and the token is sent to the hub alone.

mod cache;
mod choice;
mod fetch;
mod http;
mod listing;
mod names;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub use self::names::RepoId;
use self::{
    cache::Cached,
    choice::Pick,
    fetch::{Wanted, fetch, is_whole},
    http::{Client, Failure},
    listing::Listed,
};
use crate::{Error, Result};

const ENDPOINT: &str = "https://huggingface.co";
/// Of silence.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Who is told of a download.
pub trait Progress {
    /// A file of `total` bytes, of which `have` are there.
    fn begins(&self, name: &str, have: u64, total: Option<u64>);
    /// That many bytes are there now.
    fn has(&self, bytes: u64);
    /// The file is whole, or it failed.
    fn ends(&self);
    /// Something worth a line.
    fn warn(&self, message: &str);
}

/// Where models come from and go to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The hub's address, without a slash at its end.
    pub endpoint: String,
    /// Goes to `endpoint` and to no other host.
    pub token: Option<String>,
    /// Nothing is asked of the network.
    pub offline: bool,
    /// The hub's cache.
    pub cache: PathBuf,
    /// Where files lie that were fetched by URL.
    pub downloads: PathBuf,
    /// How long a server may be silent.
    pub timeout: Duration,
    /// A PEM file of the authorities to trust, instead of the usual ones.
    pub certificates: Option<PathBuf>,
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn folder(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

impl Settings {
    /// From the environment, as huggingface_hub and llama.cpp read it.
    pub fn from_env() -> Result<Self> {
        let own_cache = || folder("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")));
        let hf_home = || folder("HF_HOME").or_else(|| Some(own_cache()?.join("huggingface")));
        let none = || Error::Hub("there is no home directory to keep models in: set HF_HUB_CACHE".into());
        let cache = folder("LLAMA_CACHE")
            .or_else(|| folder("HF_HUB_CACHE"))
            .or_else(|| folder("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| Some(hf_home()?.join("hub")));
        let kept = || {
            let path = folder("HF_TOKEN_PATH").or_else(|| Some(hf_home()?.join("token")))?;
            fs::read_to_string(path).ok()
        };
        let token = variable("HF_TOKEN").or_else(kept).map(|token| token.trim().to_string());
        let truth =
            |value: String| matches!(value.to_ascii_lowercase().as_str(), "1" | "on" | "yes" | "true");
        let endpoint = variable("MODEL_ENDPOINT").or_else(|| variable("HF_ENDPOINT"));
        let seconds =
            variable("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|text| text.parse().ok()).filter(|&s| s > 0);
        Ok(Settings {
            endpoint: endpoint.unwrap_or_else(|| ENDPOINT.into()).trim().trim_end_matches('/').into(),
            token: token.filter(|token| !token.is_empty()),
            offline: variable("HF_HUB_OFFLINE").is_some_and(truth),
            cache: cache.ok_or_else(none)?,
            downloads: own_cache().ok_or_else(none)?.join("spec-run").join("models"),
            timeout: seconds.map_or(TIMEOUT, Duration::from_secs),
            certificates: folder("SSL_CERT_FILE"),
        })
    }
}

/// The first file of a model of `USER/NAME[:QUANTIZATION]`, or the file named; fetched if it is not there.
pub fn repository(
    name: &str,
    file: Option<&str>,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    fetched(name, Pick::Model, file, settings, progress)
}

/// The same of what drafts: a head of the repository or, where that need not be one, its model.
pub fn draft(name: &str, only_head: bool, settings: &Settings, progress: &dyn Progress) -> Result<PathBuf> {
    let pick = if only_head { Pick::Head } else { Pick::HeadOrModel };
    fetched(name, pick, None, settings, progress)
}

fn fetched(
    name: &str,
    pick: Pick,
    file: Option<&str>,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let (repo, quantization) = names::repo_and_quantization(name)?;
    if let Some(file) = file.filter(|file| !names::is_sound_path(file)) {
        return Err(Error::Hub(format!("{file:?}: a file of a repository is named as in Q4_K_M/model.gguf")));
    }
    let cached = Cached::of(&settings.cache, &repo);
    if settings.offline {
        return from_cache(&cached, &repo, pick, file, quantization)?.ok_or_else(|| {
            let cache = settings.cache.display();
            Error::Hub(format!("{repo}: not in the cache ({cache}), and nothing may be fetched offline"))
        });
    }
    let client = Client::new(settings)?;
    let endpoint = &settings.endpoint;
    let (commit, listed) = match listing::list(&client, endpoint, &repo) {
        Ok(listed) => listed,
        Err(failure @ (Failure::Unreachable(_) | Failure::Broken(_) | Failure::Busy(..))) => {
            let error = failure.into_error(&repo.to_string());
            let Ok(Some(path)) = from_cache(&cached, &repo, pick, file, quantization) else {
                return Err(error);
            };
            progress.warn(&format!("{error}; taking what is in the cache"));
            return Ok(path);
        }
        Err(failure) => return Err(failure.into_error(&repo.to_string())),
    };
    let paths: Vec<_> = listed.iter().map(|listed| listed.path.as_str()).collect();
    let first = choice::choose(&repo, &paths, pick, file, quantization)?;
    for path in choice::shards(&repo, &paths, first)? {
        let Some(listed) = listed.iter().find(|listed| listed.path == path) else { continue };
        file_of(&client, endpoint, &repo, &cached, &commit, listed, progress)?;
    }
    // Last, so that the reference never leads to half a model.
    cached.set_main(&commit)?;
    Ok(cached.file(&commit, first))
}

/// The first file in the cache, if all of its model is there; `None` if nothing of the repository is.
fn from_cache(
    cached: &Cached,
    repo: &RepoId,
    pick: Pick,
    file: Option<&str>,
    quantization: Option<&str>,
) -> Result<Option<PathBuf>> {
    let Some(commit) = cached.commit() else { return Ok(None) };
    let paths = cached.paths(&commit);
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let chosen = choice::choose(repo, &paths, pick, file, quantization)
        .and_then(|first| choice::shards(repo, &paths, first).map(|_| cached.file(&commit, first)));
    chosen.map(Some).map_err(|e| Error::Hub(format!("{e} (in the cache; offline)")))
}

fn file_of(
    client: &Client,
    endpoint: &str,
    repo: &RepoId,
    cached: &Cached,
    commit: &str,
    listed: &Listed,
    progress: &dyn Progress,
) -> Result<()> {
    let path = cached.file(commit, &listed.path);
    if is_whole(&path, listed.size) {
        return Ok(());
    }
    let hash = listed.hash.hex();
    let wanted = Wanted {
        name: listed.path.rsplit('/').next().unwrap_or(&listed.path),
        address: &format!("{endpoint}/{repo}/resolve/{commit}/{}", names::in_address(&listed.path)),
        size: Some(listed.size),
        hash: Some(listed.hash.clone()),
        target: &cached.blob(hash),
        moved: Some(&path),
        lock: &cached.lock(hash),
    };
    let fetched = fetch(client, &wanted, progress).map_err(|f| listing::refused(client, endpoint, repo, f));
    // Until the link is made: another process would find the file under neither name.
    let _lock = fetched.map_err(|failure| failure.into_error(&format!("{repo}: {}", wanted.name)))?;
    cached.link(hash, commit, &listed.path).map(drop)
}

/// `USER/NAME` and the file of an address on the hub's main branch.
fn on_hub<'a>(address: &'a str, endpoint: &str) -> Option<(&'a str, &'a str)> {
    let path = address.strip_prefix(endpoint)?.strip_prefix('/')?.split(['?', '#']).next()?;
    let (repo, file) = path.split_once("/resolve/main/").or_else(|| path.split_once("/blob/main/"))?;
    let plain = RepoId::parse(repo).is_ok() && names::is_sound_path(file) && !file.contains('%');
    plain.then_some((repo, file))
}

/// The model at an address, fetched if it is not there: to `target` if one is given, else into the user's cache.
/// Of a sharded model, the address of the first file stands for all.
pub fn url(
    address: &str,
    target: Option<&Path>,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    if let (None, Some((repo, file))) = (target, on_hub(address, &settings.endpoint)) {
        return repository(repo, Some(file), settings, progress);
    }
    let parsed = Address::parse(address)?;
    let Address { folder, query, .. } = parsed;
    let files = parsed.files(target, settings);
    let mut client = None;
    for (part, file) in &files {
        if file.exists() {
            continue;
        }
        if settings.offline {
            return Err(Error::Hub(format!(
                "{address:?}: not in the cache ({}), and nothing may be fetched offline",
                file.display()
            )));
        }
        let client = match &mut client {
            Some(client) => client,
            none => none.insert(Client::new(settings)?),
        };
        let wanted = Wanted {
            name: part,
            address: &format!("{folder}/{part}{query}"),
            size: None,
            hash: None,
            target: file,
            moved: None,
            lock: &file.with_file_name(format!("{part}.lock")),
        };
        fetch(client, &wanted, progress).map_err(|failure| failure.into_error(wanted.address))?;
    }
    Ok(files.into_iter().next().expect("a model has a file").1)
}

/// The address of a model's first file.
struct Address<'a> {
    folder: &'a str,
    name: &'a str,
    /// From the question mark on.
    query: &'a str,
}

impl<'a> Address<'a> {
    fn parse(address: &'a str) -> Result<Self> {
        let path = address.split(['?', '#']).next().unwrap_or(address);
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        if !folder.contains("://") || !names::is_sound_path(name) {
            let what = "not the address of a file, as https://HOST/PATH/model.gguf is";
            return Err(Error::Hub(format!("{address:?}: {what}")));
        }
        Ok(Address { folder, name, query: &address[path.len()..] })
    }

    /// The names of all files of the model, and where they lie; the first is `target` if one is given, and the others are
    /// beside it.
    fn files(&self, target: Option<&Path>, settings: &Settings) -> Vec<(String, PathBuf)> {
        let home = match target {
            Some(target) => target.parent().unwrap_or(Path::new("")).into(),
            None => settings.downloads.join(&fetch::sha256(self.folder.as_bytes())[..16]),
        };
        let file = |part: String| {
            let file =
                target.filter(|_| part == self.name).map_or_else(|| home.join(&part), Path::to_path_buf);
            (part, file)
        };
        choice::numbered(self.name).into_iter().map(file).collect()
    }
}

/// The files in the cache of `USER/NAME[:QUANTIZATION]`: those of all its models.
pub fn repository_files(name: &str, settings: &Settings) -> Vec<PathBuf> {
    let Ok((repo, _)) = names::repo_and_quantization(name) else { return Vec::new() };
    let cached = Cached::of(&settings.cache, &repo);
    let files = |commit: String| -> Vec<PathBuf> {
        cached.paths(&commit).iter().map(|path| cached.file(&commit, path)).collect()
    };
    cached.commit().map_or_else(Vec::new, files)
}

/// Where [`url`] puts the files of the model at an address, or has put them.
pub fn url_files(address: &str, target: Option<&Path>, settings: &Settings) -> Vec<PathBuf> {
    if let (None, Some((repo, _))) = (target, on_hub(address, &settings.endpoint)) {
        return repository_files(repo, settings);
    }
    let Ok(address) = Address::parse(address) else { return Vec::new() };
    address.files(target, settings).into_iter().map(|(_, file)| file).collect()
}

/// `USER/NAME:QUANTIZATION` of every model in the cache.
pub fn cached(settings: &Settings) -> Vec<String> {
    let models = |repo: RepoId| {
        let cached = Cached::of(&settings.cache, &repo);
        let paths = cached.commit().map_or(Vec::new(), |commit| cached.paths(&commit));
        let mut found: Vec<_> = paths.iter().filter_map(|path| choice::quantization(path)).collect();
        found.sort();
        found.dedup();
        found.into_iter().map(move |quantization| format!("{repo}:{quantization}"))
    };
    cache::repos(&settings.cache).into_iter().flat_map(models).collect()
}
