//! One file, into `PLACE.incomplete` until it is whole and right; a later run goes on where this one stopped.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use ring::digest;

use super::{
    Progress,
    cache::create,
    http::{Client, Contact, Failure, Start, persist},
    listing::Hash,
};
use crate::{Error, Result, files::with_suffix};

const BLOCK: usize = 256 << 10;

/// What is to be fetched. Without a hash the server's ETag says whether a part is of the same file.
pub struct Wanted<'a> {
    /// For messages.
    pub name: &'a str,
    pub address: &'a str,
    pub size: Option<u64>,
    pub hash: Option<Hash>,
    /// Where the file goes.
    pub target: &'a Path,
    /// Where it lies instead, once it was moved.
    pub moved: Option<&'a Path>,
    pub lock: &'a Path,
}

/// Whether there is a file of that size.
pub fn is_whole(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == size)
}

/// Fetches the file to its target, unless it is there or was moved. Gives the lock: as long as it is open, nobody else touches the
/// file; the system closes it if we die.
pub fn fetch(client: &Client, wanted: &Wanted, progress: &dyn Progress) -> Result<File, Failure> {
    for path in [wanted.target, wanted.lock] {
        create(path.parent().unwrap_or(path))?;
    }
    let lock = lock(wanted, progress)?;
    let was_moved = wanted.moved.zip(wanted.size).is_some_and(|(path, size)| is_whole(path, size));
    if wanted.target.exists() || was_moved {
        return Ok(lock);
    }
    let mut part = Part::open(wanted, progress)?;
    let resumed = part.length > 0;
    let first = part.fill(client);
    let right = first.and_then(|linked| part.is_right(linked.as_deref()))?;
    if !right && resumed {
        // The old part was of something else, or damaged by a crash.
        part.empty()?;
        let linked = part.fill(client)?;
        part.is_right(linked.as_deref())?.then_some(()).ok_or_else(|| part.wrong())?;
    } else if !right {
        return Err(part.wrong().into());
    }
    if wanted.hash.is_none() {
        part.begins_as_a_model()?;
    }
    part.finish()?;
    Ok(lock)
}

fn lock(wanted: &Wanted, progress: &dyn Progress) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(wanted.lock);
    let file = file.map_err(|e| Error::io(wanted.lock, e))?;
    let mut warned = false;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                if !warned {
                    progress.warn(&format!("{}: another process is downloading it; waiting", wanted.name));
                    warned = true;
                }
                thread::sleep(Duration::from_millis(100));
            }
            // Some file systems have no locks: then two downloads are each other's trouble, and the hash sees it.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

fn hex(digest: &digest::Digest) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&digest::digest(&digest::SHA256, bytes))
}

/// The file as far as it is there.
struct Part<'a> {
    wanted: &'a Wanted<'a>,
    progress: &'a dyn Progress,
    path: PathBuf,
    etag: PathBuf,
    file: File,
    length: u64,
    /// Whether the watcher knows.
    begun: bool,
}

impl<'a> Part<'a> {
    fn open(wanted: &'a Wanted, progress: &'a dyn Progress) -> Result<Self> {
        let path = with_suffix(wanted.target, ".incomplete");
        let file = OpenOptions::new().create(true).append(true).read(true).open(&path);
        let mut file = file.map_err(|e| Error::io(&path, e))?;
        let length = file.seek(std::io::SeekFrom::End(0)).map_err(|e| Error::io(&path, e))?;
        let etag = with_suffix(&path, ".etag");
        let mut part = Part { wanted, progress, path, etag, file, length, begun: false };
        if wanted.size.is_some_and(|size| length > size) || wanted.hash.is_none() && !part.etag.exists() {
            part.empty()?;
        }
        Ok(part)
    }

    fn empty(&mut self) -> Result<()> {
        self.file.set_len(0).map_err(|e| Error::io(&self.path, e))?;
        let _ = fs::remove_file(&self.etag);
        self.length = 0;
        Ok(())
    }

    /// Fetches what is missing; the hash that the hub named on the way, if it did.
    fn fill(&mut self, client: &Client) -> Result<Option<String>, Failure> {
        let filled = persist(Contact::Later, || {
            let before = self.length;
            self.attempt(client).map_err(|failure| (failure, self.length > before))
        });
        self.progress.ends();
        filled.map_err(|failure| match failure {
            Failure::Unreachable(_) | Failure::Broken(_) | Failure::Busy(..) if self.length > 0 => {
                let kept = self.kept();
                Failure::Final(Error::Hub(format!("{}; {kept}", failure.into_error(self.wanted.name))))
            }
            other => other,
        })
    }

    fn kept(&self) -> String {
        let of = self.wanted.size.map_or(String::new(), |size| format!(" of {size}"));
        format!("{}{of} bytes are kept, and the same command goes on from there", self.length)
    }

    fn attempt(&mut self, client: &Client) -> Result<Option<String>, Failure> {
        let wanted = self.wanted;
        if wanted.size == Some(self.length) {
            return Ok(None);
        }
        let etag = fs::read_to_string(&self.etag).ok();
        let answer = client.get(wanted.address, Start { byte: self.length, etag: etag.as_deref() })?;
        let range = answer.header("content-range").and_then(|range| range.trim().strip_prefix("bytes "));
        let goes_on = range.is_some_and(|range| range.starts_with(&format!("{}-", self.length)));
        match answer.status().as_u16() {
            206 if goes_on => {}
            200 => self.empty()?,
            _ => {
                self.empty()?;
                return Err(Failure::Broken(
                    "the server would not go on from where the download stopped".into(),
                ));
            }
        }
        let coming = answer.header("content-length").and_then(|text| text.trim().parse::<u64>().ok());
        let total = coming.map(|coming| self.length.saturating_add(coming));
        if let (Some(size), Some(total)) = (wanted.size, total)
            && size != total
        {
            let what = format!("{}: the server offers {total} bytes of {size}", wanted.name);
            return Err(Error::Hub(what).into());
        }
        if wanted.hash.is_none()
            && let Some(etag) = answer.header("etag").filter(|etag| !etag.starts_with("W/"))
        {
            fs::write(&self.etag, etag).map_err(|e| Error::io(&self.etag, e))?;
        }
        if self.begun {
            self.progress.has(self.length);
        } else {
            self.progress.begins(wanted.name, self.length, wanted.size.or(total));
            self.begun = true;
        }
        let sha256 = answer.sha256.clone();
        self.append(answer.response.into_body().into_reader(), wanted.size.or(total))?;
        Ok(sha256)
    }

    fn append(&mut self, mut body: impl Read, total: Option<u64>) -> Result<(), Failure> {
        let mut block = vec![0; BLOCK];
        loop {
            let n = match body.read(&mut block) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) => return Err(Failure::Broken(crate::quoted::squeezed(&e.to_string()))),
            };
            if total.is_some_and(|total| self.length + n as u64 > total) {
                self.empty()?;
                let name = self.wanted.name;
                return Err(Error::Hub(format!("{name}: the server sends more than it said")).into());
            }
            if let Err(e) = self.file.write_all(&block[..n]) {
                self.length = self.file.metadata().map_or(self.length, |part| part.len());
                let kept = self.kept();
                return Err(Error::Hub(format!("{}: {e}; {kept}", self.path.display())).into());
            }
            self.length += n as u64;
            self.progress.has(self.length);
        }
        match total {
            Some(total) if self.length < total => {
                Err(Failure::Broken("the connection was closed early".into()))
            }
            _ => Ok(()),
        }
    }

    /// Reads it again from the disk, so that what was there before is checked too.
    fn is_right(&self, linked: Option<&str>) -> Result<bool, Failure> {
        let hash = &self.wanted.hash;
        let (algorithm, want) = match (hash, linked) {
            (Some(Hash::Sha256(sha)), _) => (&digest::SHA256, sha.as_str()),
            (Some(Hash::Git(sha)), _) => (&digest::SHA1_FOR_LEGACY_USE_ONLY, sha.as_str()),
            (None, Some(sha)) => (&digest::SHA256, sha),
            (None, None) => return Ok(true),
        };
        let mut context = digest::Context::new(algorithm);
        if let Some(Hash::Git(_)) = hash {
            context.update(format!("blob {}\0", self.length).as_bytes());
        }
        let mut file = File::open(&self.path).map_err(|e| Error::io(&self.path, e))?;
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block).map_err(|e| Error::io(&self.path, e))? {
                0 => break,
                n => context.update(&block[..n]),
            }
        }
        Ok(hex(&context.finish()) == want)
    }

    /// An address may lead to a page that says something else.
    fn begins_as_a_model(&self) -> Result<()> {
        let mut magic = [0; 4];
        let read = File::open(&self.path).and_then(|mut file| file.read_exact(&mut magic));
        if read.is_ok() && magic == *b"GGUF" {
            return Ok(());
        }
        self.delete();
        Err(Error::Hub(format!(
            "{}: what came is not a GGUF file; see where the address leads",
            self.wanted.address
        )))
    }

    fn delete(&self) {
        let _ = fs::remove_file(&self.etag);
        let _ = fs::remove_file(&self.path);
    }

    fn wrong(&self) -> Error {
        self.delete();
        Error::Hub(format!(
            "{}: what came does not have the hash that the hub names; it was deleted, so try again",
            self.wanted.name
        ))
    }

    fn finish(&self) -> Result<()> {
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, self.wanted.target))
            .map_err(|e| Error::io(&self.path, e))?;
        let _ = fs::remove_file(&self.etag);
        Ok(())
    }
}
