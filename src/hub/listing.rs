//! What the hub says of a repository: its newest commit, and the files of that.

use serde_json::Value;

use super::{
    RepoId,
    http::{Client, Failure},
    names::{is_hex, is_sound_path},
};
use crate::{Error, Result};

const MOST_PAGES: usize = 1000;

/// A file's bytes by their hash: SHA-256 of what is stored as large, git's own of the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha256(String),
    Git(String),
}

impl Hash {
    pub fn hex(&self) -> &str {
        let (Hash::Sha256(hex) | Hash::Git(hex)) = self;
        hex
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Listed {
    pub path: String,
    pub size: u64,
    pub hash: Hash,
}

/// Files that can be fetched safely; those of odd names or hashes are left out.
fn files(page: &Value) -> Option<Vec<Listed>> {
    let hash = |item: &Value| {
        let lfs = item.get("lfs").filter(|lfs| !lfs.is_null());
        let hex = |value: &Value| value.get("oid").and_then(Value::as_str).map(str::to_ascii_lowercase);
        match lfs {
            Some(lfs) => hex(lfs).filter(|hex| is_hex(hex, 64)).map(Hash::Sha256),
            None => hex(item).filter(|hex| is_hex(hex, 40)).map(Hash::Git),
        }
    };
    let file = |item: &Value| {
        let path = item.get("path")?.as_str().filter(|path| is_sound_path(path))?;
        let lfs = item.get("lfs").filter(|lfs| !lfs.is_null()).unwrap_or(item);
        let size = lfs.get("size").or_else(|| item.get("size"))?.as_u64()?;
        (item.get("type")?.as_str()? == "file").then_some(())?;
        Some(Listed { path: path.into(), size, hash: hash(item)? })
    };
    Some(page.as_array()?.iter().filter_map(file).collect())
}

fn main_commit(refs: &Value) -> Option<String> {
    let branches = refs.get("branches")?.as_array()?;
    let commit =
        |branch: &Value| branch.get("targetCommit")?.as_str().filter(|c| is_hex(c, 40)).map(String::from);
    let main = branches.iter().find(|branch| branch.get("name").and_then(Value::as_str) == Some("main"));
    main.and_then(commit).or_else(|| branches.iter().find_map(commit))
}

/// What a refusal means for a repository.
pub fn refused(client: &Client, endpoint: &str, repo: &RepoId, failure: Failure) -> Failure {
    let Failure::Refused(status, why) = &failure else { return failure };
    let gated = why
        .as_deref()
        .is_some_and(|why| why.to_ascii_lowercase().contains("gated") || why.contains("restricted"));
    let what = match (status.as_u16(), client.has_token()) {
        (401 | 403, false) if gated => {
            format!("the repository is gated: accept its terms on {endpoint}/{repo} and set HF_TOKEN")
        }
        (401 | 403, true) if gated => {
            format!(
                "the repository is gated: accept its terms on {endpoint}/{repo} as the user whose token this is"
            )
        }
        (401 | 403, false) => format!(
            "{endpoint} has no such repository, or it is gated or private ({status}): check the name, or set HF_TOKEN"
        ),
        (401 | 403, true) => format!(
            "{endpoint} has no such repository, or not for the owner of this token ({status}): check the name and HF_TOKEN"
        ),
        (404, _) => format!("{endpoint} has no such repository; check the name"),
        _ => return failure,
    };
    Failure::Final(Error::Hub(format!("{repo}: {what}")))
}

/// The newest commit and its files.
pub fn list(client: &Client, endpoint: &str, repo: &RepoId) -> Result<(String, Vec<Listed>), Failure> {
    let get = |address: &str| {
        let (text, next) = client.text(address).map_err(|f| refused(client, endpoint, repo, f))?;
        let json = serde_json::from_str::<Value>(&text).unwrap_or(Value::Null);
        Ok::<_, Failure>((json, next))
    };
    let unreadable =
        || Error::Hub(format!("{repo}: {endpoint} does not answer as a hub does; see HF_ENDPOINT"));
    let (refs, _) = get(&format!("{endpoint}/api/models/{repo}/refs"))?;
    let commit = main_commit(&refs).ok_or_else(unreadable)?;
    let mut all = Vec::new();
    let mut page = Some(format!("{endpoint}/api/models/{repo}/tree/{commit}?recursive=true"));
    for _ in 0..MOST_PAGES {
        let Some(address) = page.filter(|address| client.is_hub(address)) else { break };
        let (json, next) = get(&address)?;
        all.extend(files(&json).ok_or_else(unreadable)?);
        page = next;
    }
    Ok((commit, all))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_with_their_hashes() {
        let (sha, git) = ("AB".repeat(32), "cd".repeat(20));
        let page = json!([
            {"type": "file", "path": "m.gguf", "size": 130, "oid": git, "lfs": {"oid": sha, "size": 9_000_000_000u64}},
            {"type": "file", "path": "small.gguf", "size": 7, "oid": git, "lfs": null},
            {"type": "directory", "path": "x", "size": 0, "oid": git},
            {"type": "file", "path": "../../m.gguf", "size": 7, "oid": git},
            {"type": "file", "path": "bad.gguf", "size": 7, "oid": "../../x"},
        ]);
        let large =
            Listed { path: "m.gguf".into(), size: 9_000_000_000, hash: Hash::Sha256("ab".repeat(32)) };
        let small = Listed { path: "small.gguf".into(), size: 7, hash: Hash::Git(git.clone()) };
        assert_eq!(files(&page), Some(vec![large, small]));
        assert_eq!(files(&json!({"error": "no"})), None);
    }

    #[test]
    fn the_commit_is_mains() {
        let commit = |c: char| c.to_string().repeat(40);
        let branch = |name: &str, commit: String| json!({"name": name, "targetCommit": commit});
        let refs = |branches: Vec<Value>| main_commit(&json!({"branches": branches}));
        assert_eq!(refs(vec![branch("x", commit('a')), branch("main", commit('b'))]), Some(commit('b')));
        assert_eq!(refs(vec![branch("x", commit('a'))]), Some(commit('a')));
        assert_eq!(refs(vec![branch("main", "../..".into())]), None);
        assert_eq!(main_commit(&Value::Null), None);
    }
}
