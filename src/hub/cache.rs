//! The cache that Python's huggingface_hub and llama.cpp share with us:
//!
//! ```text
//! models--USER--NAME/blobs/HASH                  the bytes
//! models--USER--NAME/snapshots/COMMIT/PATH       a link to the bytes
//! models--USER--NAME/refs/main                   the commit that was the newest when we looked
//! .locks/models--USER--NAME/HASH.lock            held by whoever downloads that file
//! ```

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use super::{
    RepoId,
    names::{is_hex, is_sound_path},
};
use crate::{Error, Result, files};

pub fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))
}

/// One repository in the cache.
pub struct Cached {
    folder: PathBuf,
    locks: PathBuf,
}

impl Cached {
    pub fn of(cache: &Path, repo: &RepoId) -> Self {
        Cached { folder: cache.join(repo.folder()), locks: cache.join(".locks").join(repo.folder()) }
    }

    pub fn blob(&self, hash: &str) -> PathBuf {
        self.folder.join("blobs").join(hash)
    }

    pub fn lock(&self, hash: &str) -> PathBuf {
        self.locks.join(format!("{hash}.lock"))
    }

    pub fn file(&self, commit: &str, path: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit).join(path)
    }

    /// Makes the blob the file at `path`: by a link, or where links cannot be made, by moving it there.
    pub fn link(&self, hash: &str, commit: &str, path: &str) -> Result<PathBuf> {
        let file = self.file(commit, path);
        if !self.blob(hash).exists() && file.exists() {
            // It was moved.
            return Ok(file);
        }
        create(file.parent().unwrap_or(&self.folder))?;
        // blobs/ as seen from the folder of the file. By parts, because Windows follows no link with a slash in it.
        let up = (0..2 + path.matches('/').count()).map(|_| "..");
        let blob: PathBuf = up.chain(["blobs", hash]).collect();
        let made = match symlink(&blob, &file) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && file.exists() => Ok(()),
            // A link to a blob that somebody removed.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(&file)
                    .and_then(|()| symlink(&blob, &file))
                    .map_err(|e| Error::io(&file, e))?;
                Ok(())
            }
            made => made,
        };
        // Some systems make a link and do not follow it.
        if made.is_err() || (!file.exists() && self.blob(hash).exists()) {
            let _ = fs::remove_file(&file);
            fs::rename(self.blob(hash), &file).map_err(|e| Error::io(&file, e))?;
        }
        Ok(file)
    }

    pub fn set_main(&self, commit: &str) -> Result<()> {
        let refs = self.folder.join("refs");
        create(&refs)?;
        let main = refs.join("main");
        if fs::read_to_string(&main).is_ok_and(|old| old == commit) {
            Ok(())
        } else {
            files::write_whole(&main, commit)
        }
    }

    /// The commit of `main`, or of another reference if there is no `main`.
    pub fn commit(&self) -> Option<String> {
        let refs = self.folder.join("refs");
        let commit = |path: PathBuf| {
            fs::read_to_string(path).ok().map(|c| c.trim().to_string()).filter(|c| is_hex(c, 40))
        };
        commit(refs.join("main")).or_else(|| {
            let mut others: Vec<_> = fs::read_dir(refs).ok()?.flatten().map(|entry| entry.path()).collect();
            others.sort();
            others.into_iter().find_map(commit)
        })
    }

    /// The paths of the files that are there of a commit, in order.
    pub fn paths(&self, commit: &str) -> Vec<String> {
        let mut paths = Vec::new();
        walk(&self.folder.join("snapshots").join(commit), "", &mut paths);
        paths.sort();
        paths
    }
}

fn walk(folder: &Path, below: &str, paths: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Some(path) = entry.file_name().to_str().map(|name| format!("{below}{name}")) else { continue };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), &format!("{path}/"), paths),
            // Whole files only: a link's blob may be gone.
            Ok(_) if entry.path().is_file() && is_sound_path(&path) => paths.push(path),
            _ => {}
        }
    }
}

/// All repositories in the cache, in order.
pub fn repos(cache: &Path) -> Vec<RepoId> {
    let folders = fs::read_dir(cache).into_iter().flatten().flatten();
    let mut repos: Vec<_> =
        folders.filter_map(|entry| RepoId::of_folder(entry.file_name().to_str()?)).collect();
    repos.sort_by_key(RepoId::to_string);
    repos
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn what_is_linked_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let repo = RepoId::parse("a/b").unwrap();
        let cached = Cached::of(folder.path(), &repo);
        assert_eq!((cached.commit(), cached.paths(COMMIT)), (None, vec![]));
        create(&folder.path().join("models--a--b/blobs")).unwrap();
        for (hash, path) in [("h1", "x.gguf"), ("h2", "deep/er/y.gguf")] {
            fs::write(cached.blob(hash), hash).unwrap();
            let file = cached.link(hash, COMMIT, path).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), hash);
            // Again is the same.
            assert_eq!(cached.link(hash, COMMIT, path).unwrap(), file);
        }
        cached.set_main(COMMIT).unwrap();
        assert_eq!(cached.commit().as_deref(), Some(COMMIT));
        assert_eq!(cached.paths(COMMIT), ["deep/er/y.gguf", "x.gguf"]);
        assert_eq!(repos(folder.path()), [repo]);
        // A file whose bytes are gone is not there, and can be linked again.
        let blob = cached.blob("h1");
        // Where links do not work it was moved.
        fs::remove_file(if blob.exists() { blob } else { cached.file(COMMIT, "x.gguf") }).unwrap();
        assert_eq!(cached.paths(COMMIT), ["deep/er/y.gguf"]);
        fs::write(cached.blob("h3"), "h3").unwrap();
        assert_eq!(fs::read_to_string(cached.link("h3", COMMIT, "x.gguf").unwrap()).unwrap(), "h3");
    }
}
